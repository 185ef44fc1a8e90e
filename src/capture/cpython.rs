//! CPython, seen from outside: the frames of the calling thread, read from the interpreter's own memory.
//!
//! Nothing of Python's is called but two functions that only read a flag and a thread-local, and no GIL is taken. What makes
//! that sound: a thread's frames change only by that thread, which is here now; frames keep their code objects alive, and
//! code objects their names and line tables. What is not known to look as expected is not read (see [`verify`]).

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::hash::{Hash, Quick};
use super::layout::{self, Kind, Layout, OB_TYPE, SHIM_OWNER, TYPE_BASICSIZE, VAR_SIZE};
use super::modules::Scope;
use super::{PYTHON_LIMIT, finish, note};
use crate::steps::loops::Seen;

pub(super) struct Cpython {
    pub layout: Layout,
    is_initialized: unsafe extern "C" fn() -> c_int,
    this_thread: unsafe extern "C" fn() -> *const u8,
    /// Where its symbols are looked up.
    scope: Scope,
    code_type: usize,
    str_type: usize,
    bytes_type: usize,
    pub minor: u32,
    /// The first stack seen was what it must be.
    verified: AtomicBool,
}

/// Null: no Python, or one that is not understood.
static CPYTHON: AtomicPtr<Cpython> = AtomicPtr::new(ptr::null_mut());
static DESCRIPTION: AtomicPtr<String> = AtomicPtr::new(ptr::null_mut());

/// The innermost frame of a thread's stack.
#[derive(Clone, Copy)]
pub(super) struct Top {
    frame: *const u8,
    pub cpython: &'static Cpython,
}

/// One frame: its code object, the offset in it in bytes, and whether it was entered from C.
pub(super) struct Found {
    pub code: *const u8,
    pub offset: u32,
    pub entry: bool,
    pub cpython: &'static Cpython,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walked {
    All,
    /// There were more frames than are looked at.
    Limit,
    Stopped,
}

pub(super) fn description() -> &'static str {
    // SAFETY: null or what `describe` leaked.
    unsafe { DESCRIPTION.load(Ordering::Acquire).as_ref() }.map_or("", String::as_str)
}

fn describe(text: String) {
    DESCRIPTION.store(Box::into_raw(Box::new(text)), Ordering::Release);
}

/// No more Python stacks: the interpreter is about to end.
pub(super) fn switch_off() {
    CPYTHON.store(ptr::null_mut(), Ordering::SeqCst);
}

pub(super) fn code_type() -> usize {
    cpython().map_or(0, |cpython| cpython.code_type)
}

#[inline(always)]
fn cpython() -> Option<&'static Cpython> {
    // SAFETY: null or a leaked box, never freed; Acquire pairs with the Release that published it.
    unsafe { CPYTHON.load(Ordering::Acquire).as_ref() }
}

/// Looks for CPython; true if its stacks can be read. Once found (or found wanting) it stays so.
pub(super) fn arm() -> bool {
    if cpython().is_some() {
        return true;
    }
    if !description().is_empty() {
        return false;
    }
    let Some(scope) = Scope::with(c"Py_GetVersion", "libpython3") else { return false };
    let symbol = |name: &CStr| scope.symbol(name);
    // SAFETY: the documented signatures of these three.
    let functions = unsafe {
        (
            scope.function::<unsafe extern "C" fn() -> *const c_char>(c"Py_GetVersion"),
            scope.function(c"Py_IsInitialized"),
            scope.function(c"PyGILState_GetThisThreadState"),
        )
    };
    let (Some(get_version), Some(is_initialized), Some(this_thread)) = functions else { return false };
    // SAFETY: returns a static string, also before Py_Initialize.
    let text = unsafe { CStr::from_ptr(get_version()) };
    let text = text.to_string_lossy();
    let name = format!("CPython {}", text.split_whitespace().next().unwrap_or("?"));
    let off = |why: &str| {
        describe(format!("{name}: {why}; Python stacks are off"));
        false
    };
    let Some((minor, true)) = layout::version(&text) else { return off("not a known release") };
    let debug = [c"_Py_NegativeRefcount", c"_Py_RefTotal", c"_Py_AddToAllObjects"];
    if debug.into_iter().any(|name| symbol(name).is_some()) {
        return off("a debug build");
    }
    if text.contains("free-threading") {
        return off("a free-threaded build");
    }
    let (Some(code_type), Some(str_type), Some(bytes_type)) =
        (symbol(c"PyCode_Type"), symbol(c"PyUnicode_Type"), symbol(c"PyBytes_Type"))
    else {
        return off("its types are not exported");
    };
    let words = (minor >= 13).then(|| symbol(c"_PyRuntime")).flatten().map(|runtime| {
        // SAFETY: exported data of several kilobytes; from 3.13 on it begins with constant words.
        unsafe { ptr::read(runtime.cast::<[u64; layout::WORDS]>()) }
    });
    let Some(layout) = layout::choose(minor, words.as_ref()) else { return off("unknown frame layout") };
    // SAFETY: a type object, exported data; its size was fixed long before 3.8.
    let size = unsafe { read::<usize>(code_type.cast(), TYPE_BASICSIZE) };
    if size != layout.code_size {
        return off("unknown layout of code objects");
    }
    let found = Cpython {
        layout,
        is_initialized,
        this_thread,
        scope,
        code_type: code_type.addr(),
        str_type: str_type.addr(),
        bytes_type: bytes_type.addr(),
        minor,
        verified: AtomicBool::new(false),
    };
    describe(format!("CPython 3.{minor}"));
    super::interpreters::arm(scope, minor);
    CPYTHON.store(Box::into_raw(Box::new(found)), Ordering::Release);
    if let Some((cpython, thread)) = attached() {
        verify(cpython, thread);
    }
    cpython().is_some()
}

/// # Safety
/// `at` bytes after `base` there is a `T`.
#[inline(always)]
pub(super) unsafe fn read<T: Copy>(base: *const u8, at: usize) -> T {
    // SAFETY: the caller's word; unaligned, because the offset may be anything.
    unsafe { base.add(at).cast::<T>().read_unaligned() }
}

/// CPython and the calling thread's state in it.
#[inline(always)]
fn attached() -> Option<(&'static Cpython, *const u8)> {
    let cpython = cpython()?;
    // SAFETY: both only read; once the runtime is finalising the flag is off, and thread states may be gone from then on.
    let thread = unsafe {
        if (cpython.is_initialized)() == 0 {
            return None;
        }
        (cpython.this_thread)()
    };
    if thread.is_null() {
        return None;
    }
    // SAFETY: a thread state of a version whose layout we know. The comparison rejects one that is not of this thread: the
    // key it is found by may have been given to somebody else.
    (unsafe { read::<u64>(thread, cpython.layout.thread_id) } == unsafe { libc::pthread_self() })
        .then_some((cpython, thread))
}

/// A walk over the calling thread's frames: the innermost, and the sum of all.
#[derive(Clone, Copy)]
pub(super) struct Walk {
    pub top: Top,
    sum: Quick,
}

/// Hashes the calling thread's Python frames, or takes over a walk over them as they are at this moment; `None` if it has none.
#[inline(always)]
pub(super) fn walk_hash(hash: &mut Hash, walk: Option<Walk>) -> Option<Top> {
    let walk = match walk {
        // The interpreter may have ended meanwhile.
        Some(walk) => cpython().map(|_| walk)?,
        None => {
            let top = top()?;
            let mut sum = Quick::START;
            // SAFETY: `top` begins this thread's own chain of frames.
            unsafe {
                match top.cpython.layout.kind {
                    Kind::Object => sum_up::<OBJECT>(top, &mut sum),
                    Kind::Flagged => sum_up::<FLAGGED>(top, &mut sum),
                    Kind::Shimmed => sum_up::<SHIMMED>(top, &mut sum),
                }
            }
            Walk { top, sum }
        }
    };
    hash.add(walk.sum.sum());
    Some(walk.top)
}

/// # Safety
/// As for [`each`].
#[inline(always)]
unsafe fn sum_up<const KIND: u8>(top: Top, sum: &mut Quick) {
    let mut running = *sum;
    // SAFETY: the caller's word.
    unsafe {
        each::<KIND>(&top.cpython.layout, top.frame, |_, code, instr, entry| {
            running.add_frame::<KIND>(code, instr, entry);
            true
        });
    }
    *sum = running;
}

impl Quick {
    #[inline(always)]
    fn add_frame<const KIND: u8>(&mut self, code: *const u8, instr: u64, entry: u64) {
        if KIND == OBJECT {
            self.add(code as u64);
            self.add(instr);
        } else {
            // The address of the instruction says which code it is in.
            self.add(instr | entry);
        }
    }
}

/// Visits the frames of a stack, innermost first, until `visit` says false.
pub(super) fn walk(top: Top, mut visit: impl FnMut(Found) -> bool) -> Walked {
    let cpython = top.cpython;
    walk_frames(top, |_, code, offset, entry, _| visit(Found { code, offset, entry, cpython }))
}

/// Visits frame, code, offset, whether it was entered from C, and what it is known by.
#[inline(always)]
fn walk_frames(top: Top, mut visit: impl FnMut(*const u8, *const u8, u32, bool, u64) -> bool) -> Walked {
    let Top { frame, cpython } = top;
    let layout = &cpython.layout;
    // SAFETY: as in `walk_hash`, which returned `top`: since then this thread has not gone back to Python.
    unsafe {
        match layout.kind {
            Kind::Object => each::<OBJECT>(layout, frame, |frame, code, instr, entry| {
                visit(frame, code, offset_in::<OBJECT>(layout, code, instr), entry != 0, instr | entry)
            }),
            Kind::Flagged => each::<FLAGGED>(layout, frame, |frame, code, instr, entry| {
                visit(frame, code, offset_in::<FLAGGED>(layout, code, instr), entry != 0, instr | entry)
            }),
            Kind::Shimmed => each::<SHIMMED>(layout, frame, |frame, code, instr, entry| {
                visit(frame, code, offset_in::<SHIMMED>(layout, code, instr), entry != 0, instr | entry)
            }),
        }
    }
}

/// The innermost of the calling thread's frames, if it has any that can be read.
#[inline(always)]
pub(super) fn top() -> Option<Top> {
    let (cpython, thread) = attached()?;
    if !cpython.verified.load(Ordering::Relaxed) && !verify(cpython, thread) {
        return None;
    }
    // SAFETY: the state is this thread's, the layout its version's and found right.
    let frame = unsafe { innermost(&cpython.layout, thread) };
    (!frame.is_null()).then_some(Top { frame, cpython })
}

/// How far out the frames of two moments are looked for one that is in both.
const NEAR: usize = 4;

/// Brings `list`, outermost first, up to the frames that there are now, as far as there is room. Returns how many of the
/// outermost are certainly as they were, and the walk, if it is `wanted` and one was enough. Mostly all but the innermost are
/// as they were: then nothing is moved.
#[inline(always)]
pub(super) fn follow(top: Top, list: &mut Vec<Seen>, wanted: bool) -> (usize, Option<Walk>) {
    // SAFETY: as in `walk_hash`: `top` begins this thread's own chain of frames.
    let followed = unsafe {
        match (top.cpython.layout.kind, wanted) {
            (Kind::Object, _) => follow_on::<OBJECT, true>(top, list),
            (Kind::Flagged, false) => follow_on::<FLAGGED, false>(top, list),
            (Kind::Flagged, true) => follow_on::<FLAGGED, true>(top, list),
            (Kind::Shimmed, _) => follow_on::<SHIMMED, true>(top, list),
        }
    };
    match followed {
        Some((same, sum)) => (same, wanted.then_some(Walk { top, sum })),
        None => {
            anew(top, list);
            (0, None)
        }
    }
}

/// `None`: they are more, or less, than was thought.
///
/// # Safety
/// As for [`each`].
#[inline(always)]
unsafe fn follow_on<const KIND: u8, const SUM: bool>(
    top: Top,
    list: &mut Vec<Seen>,
) -> Option<(usize, Quick)> {
    let layout = &top.cpython.layout;
    if list.last().is_none_or(|innermost| innermost.frame != top.frame.addr()) {
        let depth = depth_by(top, list).filter(|&depth| depth <= list.capacity())?;
        list.resize(depth, Seen::default());
    }
    let (mut left, mut sum) = (list.len(), Quick::START);
    let (mut same, mut fits) = (left, true);
    // SAFETY: the caller's word; `at` is less than the length that `left` began with.
    unsafe {
        each::<KIND>(layout, top.frame, |frame, code, instr, entry| {
            let Some(at) = left.checked_sub(1) else {
                fits = false;
                return false;
            };
            left = at;
            if SUM {
                sum.add_frame::<KIND>(code, instr, entry);
            }
            let (seen, key) = (list.get_unchecked_mut(at), instr | entry);
            let is_same = seen.frame == frame.addr()
                && seen.key == key
                && (KIND != OBJECT || seen.code == code.expose_provenance());
            if !is_same {
                *seen = now::<KIND>(layout, frame, code, instr, entry);
                same = at;
            }
            true
        });
    }
    (fits && left == 0).then_some((same, sum))
}

/// A frame as it is told to others.
#[inline(always)]
fn now<const KIND: u8>(layout: &Layout, frame: *const u8, code: *const u8, instr: u64, entry: u64) -> Seen {
    let offset = offset_in::<KIND>(layout, code, instr);
    let key = instr | entry;
    Seen { frame: frame.addr(), code: code.expose_provenance(), offset, entry: entry != 0, key }
}

#[inline(always)]
fn offset_in<const KIND: u8>(layout: &Layout, code: *const u8, instr: u64) -> u32 {
    if KIND == OBJECT {
        return (instr as i32).max(0) as u32 * layout.unit;
    }
    // Before the first instruction the pointer may lie in front of it.
    u32::try_from(instr.wrapping_sub(code as u64 + layout.code_size as u64)).unwrap_or(0)
}

/// How many frames there are, by the first that is known from before.
#[inline(never)]
fn depth_by(top: Top, list: &[Seen]) -> Option<usize> {
    let (mut i, mut depth) = (0, None);
    walk_frames(top, |frame, _, _, _, _| {
        let near = list.iter().rev().take(NEAR).position(|seen| seen.frame == frame.addr());
        depth = near.map(|j| list.len() - j + i);
        i += 1;
        depth.is_none() && i < NEAR
    });
    depth
}

/// Fills the list from the beginning.
#[cold]
#[inline(never)]
fn anew(top: Top, list: &mut Vec<Seen>) {
    list.clear();
    walk_frames(top, |frame, code, offset, entry, key| {
        let room = list.len() < list.capacity();
        if room {
            list.push(Seen { frame: frame.addr(), code: code.expose_provenance(), offset, entry, key });
        }
        room
    });
    list.reverse();
}

/// CPython 3.`minor`, if one was found.
pub(super) fn minor() -> Option<u32> {
    cpython().map(|cpython| cpython.minor)
}

/// # Safety
/// `thread` is the calling thread's state, `layout` its version's.
#[inline(always)]
pub(super) unsafe fn innermost(layout: &Layout, thread: *const u8) -> *const u8 {
    // SAFETY: the caller's word; the C frame lives on the stack of the running evaluation loop.
    unsafe {
        let frame = read::<*const u8>(thread, layout.thread_frame);
        match layout.cframe {
            Some(at) if !frame.is_null() => read(frame, at),
            _ => frame,
        }
    }
}

/// CPython, once a stack was seen to be what its layout says.
pub(super) fn proven() -> Option<&'static Cpython> {
    let (cpython, thread) = attached()?;
    (cpython.verified.load(Ordering::Relaxed) || verify(cpython, thread)).then_some(cpython)
}

/// Visits (frame, code) of every frame that is the program's.
///
/// # Safety
/// `frame` begins a chain of frames that does not change meanwhile, `layout` is its version's.
pub(super) unsafe fn each_frame(
    layout: &Layout,
    mut frame: *const u8,
    mut visit: impl FnMut(*const u8, *const u8),
) {
    for _ in 0..PYTHON_LIMIT {
        if frame.is_null() {
            return;
        }
        // SAFETY: the caller's word: a frame, and `back` is null or another.
        unsafe {
            let shim = layout.kind == Kind::Shimmed && read::<u8>(frame, layout.frame_flag) >= SHIM_OWNER;
            if !shim {
                visit(frame, read::<*const u8>(frame, layout.frame_code).map_addr(|code| code & !7));
            }
            frame = read(frame, layout.frame_back);
        }
    }
}

const OBJECT: u8 = 0;
const FLAGGED: u8 = 1;
const SHIMMED: u8 = 2;

/// Visits (frame, code, instruction, 1 if entered from C) of every frame that is the program's.
///
/// # Safety
/// `frame` begins the calling thread's chain of frames, `layout` is its version's.
#[inline(always)]
unsafe fn each<const KIND: u8>(
    layout: &Layout,
    mut frame: *const u8,
    mut visit: impl FnMut(*const u8, *const u8, u64, u64) -> bool,
) -> Walked {
    let Layout { frame_code, frame_back, frame_instr, frame_flag, .. } = *layout;
    // 3.14 marks references in the low bits.
    // SAFETY: called with live frames of this thread only.
    let code_of = |frame| unsafe { read::<*const u8>(frame, frame_code) }.map_addr(|code| code & !7);
    if KIND != SHIMMED {
        // The inner loop is unrolled: the limit is looked at once in so many frames.
        const TOGETHER: usize = 4;
        for _ in 0..PYTHON_LIMIT / TOGETHER {
            for _ in 0..TOGETHER {
                if frame.is_null() {
                    return Walked::All;
                }
                // SAFETY: a live frame of this thread; every field read is within it, and `back` is null or another such frame.
                // From 3.11 on the flag is a C `bool`: 0 or 1.
                let (back, instr, entry) = unsafe {
                    let (instr, entry) = match KIND {
                        OBJECT => (read::<i32>(frame, frame_instr) as u32 as u64, 1),
                        _ => (read(frame, frame_instr), read::<u8>(frame, frame_flag) as u64),
                    };
                    (read::<*const u8>(frame, frame_back), instr, entry)
                };
                if !visit(frame, code_of(frame), instr, entry) {
                    return Walked::Stopped;
                }
                frame = back;
            }
        }
        return if frame.is_null() { Walked::All } else { Walked::Limit };
    }
    let mut left = PYTHON_LIMIT;
    while !frame.is_null() {
        // SAFETY: as above.
        let (back, shim) =
            unsafe { (read::<*const u8>(frame, frame_back), read::<u8>(frame, frame_flag) >= SHIM_OWNER) };
        if shim {
            frame = back;
            continue;
        }
        let Some(fewer) = left.checked_sub(1) else { return Walked::Limit };
        left = fewer;
        // SAFETY: as above.
        let (instr, from_c) = unsafe {
            (read(frame, frame_instr), back.is_null() || read::<u8>(back, frame_flag) >= SHIM_OWNER)
        };
        if !visit(frame, code_of(frame), instr, from_c as u64) {
            return Walked::Stopped;
        }
        frame = back;
    }
    Walked::All
}

/// Whether the object is a code object. `None` of Python's may stand in a frame's place for it.
///
/// # Safety
/// `object` is null or an object.
pub(super) unsafe fn is_code(cpython: &Cpython, object: *const u8) -> bool {
    // SAFETY: the caller's word.
    !object.is_null() && unsafe { read::<usize>(object, OB_TYPE) } == cpython.code_type
}

/// Looks at the first stack there is through the kernel, where a wrong address is an error and not a crash. A stack that is
/// not what the layout says switches Python stacks off, for good. False while there is nothing to look at, too.
#[cold]
#[inline(never)]
fn verify(cpython: &'static Cpython, thread: *const u8) -> bool {
    match stack_is_plausible(cpython, thread.addr()) {
        Ok(Some(())) => cpython.verified.store(finish::watch(cpython.scope), Ordering::Relaxed),
        Ok(None) => return false,
        Err(()) => {
            CPYTHON.store(ptr::null_mut(), Ordering::Release);
            describe(format!("CPython 3.{}: unexpected frame layout; Python stacks are off", cpython.minor));
            note(description());
            return false;
        }
    }
    true
}

fn stack_is_plausible(cpython: &Cpython, thread: usize) -> Result<Option<()>, ()> {
    let layout = &cpython.layout;
    let mut frame = peek(thread + layout.thread_frame)?;
    if let (Some(at), true) = (layout.cframe, frame != 0) {
        frame = peek(frame + at)?;
    }
    let mut seen = None;
    for _ in 0..64 {
        if frame == 0 {
            break;
        }
        let back = peek(frame + layout.frame_back)?;
        let byte = |at: usize| peek(frame + at).map(|word| word as u8);
        let shim = layout.kind == Kind::Shimmed && byte(layout.frame_flag)? >= SHIM_OWNER;
        if !shim {
            let code = peek(frame + layout.frame_code)? & !7;
            let is = |object: usize, of: usize| Ok(peek(object + OB_TYPE)? == of);
            let begin = code + layout.code_size;
            let instr = peek(frame + layout.frame_instr)?;
            let inside = match layout.kind {
                Kind::Object => (-1..1 << 28).contains(&(instr as i32)),
                // One unit before the first instruction is "not begun".
                _ => {
                    let end = begin + 2 * peek(code + VAR_SIZE)?;
                    (begin - 2..end).contains(&instr)
                }
            };
            let right = inside
                && is(code, cpython.code_type)?
                && is(peek(code + layout.code_file)?, cpython.str_type)?
                && is(peek(code + layout.code_name)?, cpython.str_type)?
                && is(peek(code + layout.code_lines)?, cpython.bytes_type)?;
            if !right {
                return Err(());
            }
            seen = Some(());
        }
        frame = back;
    }
    Ok(seen)
}

/// A word of our own memory, read by the kernel; an error if nothing is mapped there.
fn peek(address: usize) -> Result<usize, ()> {
    let mut word = 0usize;
    let local = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: size_of::<usize>() };
    let remote = libc::iovec { iov_base: ptr::without_provenance_mut(address), iov_len: size_of::<usize>() };
    // SAFETY: writes into `word` only; the remote side is read by the kernel, which checks it.
    let n = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    if n == size_of::<usize>() as isize {
        return Ok(word);
    }
    // SAFETY: plain errno access.
    match unsafe { *libc::__errno_location() } {
        libc::EFAULT => Err(()),
        // The call is forbidden here (a sandbox). The tables and the interpreter's own description have to do.
        // SAFETY: the layout passed every other check.
        _ => Ok(unsafe { read(ptr::with_exposed_provenance(address), 0) }),
    }
}
