//! CPython, seen from outside: found, and where the calling thread's frames begin in the interpreter's own memory.
//!
//! Nothing of Python's is called but two functions that only read a flag and a thread-local, and no GIL is taken. What makes
//! that sound: a thread's frames change only by that thread, which is here now; frames keep their code objects alive, and
//! code objects their names and line tables. What is not known to look as expected is not read (see [`verified`]). How frames
//! are walked is not known here: see [`walk`](crate::python::walk).

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::python::layout;
use crate::python::layout::Layout;
use crate::python::layout::Links;
use crate::python::layout::OB_TYPE;
use crate::python::layout::TYPE_BASICSIZE;
use crate::python::lifetime;
use crate::python::verify;
use crate::python::walk::Top;
use crate::stacks::note;
use crate::stacks::thread_state;
use crate::unwind::modules::Scope;

/// What every walk looks at comes first, on one line of the processor's cache.
#[repr(C, align(64))]
pub(crate) struct Cpython {
    this_thread: unsafe extern "C" fn() -> *const u8,
    is_initialized: unsafe extern "C" fn() -> c_int,
    pub links: Links,
    /// The first stack seen was what it must be.
    verified: AtomicBool,
    /// We are told before the interpreter ends.
    told: AtomicBool,
    /// The main thread's state, where that can never go away nor be another; null otherwise.
    main: AtomicPtr<u8>,
    pub layout: Layout,
    /// Where its symbols are looked up.
    scope: Scope,
    pub code_type: usize,
    pub str_type: usize,
    pub bytes_type: usize,
    pub minor: u32,
}

/// Null: no Python, or one that is not understood.
#[unsafe(link_section = ".data.leaktrace")]
static CPYTHON: AtomicPtr<Cpython> = AtomicPtr::new(ptr::null_mut());
static DESCRIPTION: AtomicPtr<String> = AtomicPtr::new(ptr::null_mut());

pub(crate) fn description() -> &'static str {
    // SAFETY: null or what `describe` leaked.
    unsafe { DESCRIPTION.load(Ordering::Acquire).as_ref() }.map_or("", String::as_str)
}

fn describe(text: String) {
    DESCRIPTION.store(Box::into_raw(Box::new(text)), Ordering::Release);
}

/// From now on [`switch_off`] is called before the interpreter ends: whether it has ended need not be asked. On Python's main
/// thread, outside hooks.
pub(crate) fn end_is_told() {
    if let Some(cpython) = cpython() {
        cpython.told.store(true, Ordering::Release);
        // In 3.11 the main interpreter and its first thread's state lie in a variable of the library's: they can be read as long
        // as there is a process, and whose the state is stands in it. Later a thread has another one in another interpreter.
        let runtime = if cpython.minor == 11 { cpython.scope.variable(c"_PyRuntime") } else { None };
        // SAFETY: as in `attached`.
        let state = unsafe { (cpython.this_thread)() };
        if runtime.is_some_and(|runtime| runtime.contains(&state.addr())) {
            cpython.main.store(state.cast_mut(), Ordering::Release);
        }
    }
}

/// No more Python stacks: the interpreter is about to end.
pub(crate) fn switch_off() {
    CPYTHON.store(ptr::null_mut(), Ordering::SeqCst);
}

pub(crate) fn code_type() -> usize {
    cpython().map_or(0, |cpython| cpython.code_type)
}

#[inline(always)]
pub(crate) fn cpython() -> Option<&'static Cpython> {
    // SAFETY: null or a leaked box, never freed; Acquire pairs with the Release that published it.
    unsafe { CPYTHON.load(Ordering::Acquire).as_ref() }
}

/// Looks for CPython; true if its stacks can be read. Once found (or found wanting) it stays so.
pub(crate) fn arm() -> bool {
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
    let Some(links) = Links::of(&layout) else { return off("unknown frame layout") };
    // SAFETY: asks for the calling thread's id.
    if thread_state::own_id() != unsafe { libc::pthread_self() } {
        return off("unknown thread ids");
    }
    let found = Cpython {
        this_thread,
        is_initialized,
        links,
        verified: AtomicBool::new(false),
        told: AtomicBool::new(false),
        main: AtomicPtr::new(ptr::null_mut()),
        layout,
        scope,
        code_type: code_type.addr(),
        str_type: str_type.addr(),
        bytes_type: bytes_type.addr(),
        minor,
    };
    describe(format!("CPython 3.{minor}"));
    crate::python::interpreters::arm(scope, minor);
    CPYTHON.store(Box::into_raw(Box::new(found)), Ordering::Release);
    if let Some((cpython, thread)) = attached() {
        verified(cpython, thread);
    }
    cpython().is_some()
}

/// # Safety
/// `at` bytes after `base` there is a `T`.
#[inline(always)]
pub(crate) unsafe fn read<T: Copy>(base: *const u8, at: usize) -> T {
    // SAFETY: the caller's word; unaligned, because the offset may be anything.
    unsafe { base.add(at).cast::<T>().read_unaligned() }
}

/// CPython and the calling thread's state in it. The thread said that it reads.
#[inline(always)]
fn attached() -> Option<(&'static Cpython, *const u8)> {
    let cpython = cpython()?;
    // SAFETY: a thread state of a version whose layout we know.
    let is_own =
        |state| unsafe { read::<u64>(state, usize::from(cpython.links.thread_id)) } == thread_state::own_id();
    let main = cpython.main.load(Ordering::Acquire);
    if !main.is_null() && is_own(main) {
        return Some((cpython, main));
    }
    // SAFETY: both only read; once the runtime is finalising the flag is off, and thread states may be gone from then on. Where
    // we are told of that before, `cpython` was there after this thread said that it reads (see `finish`).
    let thread = unsafe {
        if !cpython.told.load(Ordering::Acquire) && (cpython.is_initialized)() == 0 {
            return None;
        }
        (cpython.this_thread)()
    };
    // The comparison rejects a state that is not of this thread: the key it is found by may have been given to somebody else.
    (!thread.is_null() && is_own(thread)).then_some((cpython, thread))
}

/// The innermost of the calling thread's frames, if it has any that can be read.
#[inline(always)]
pub(crate) fn top() -> Option<Top> {
    let (cpython, thread) = attached()?;
    if !cpython.verified.load(Ordering::Relaxed) && !verified(cpython, thread) {
        return None;
    }
    // SAFETY: the state is this thread's, the layout its version's and found right.
    let frame = unsafe { innermost(&cpython.links, thread) };
    (!frame.is_null()).then_some(Top { frame, cpython })
}

/// CPython 3.`minor`, if one was found.
pub(crate) fn minor() -> Option<u32> {
    cpython().map(|cpython| cpython.minor)
}

/// # Safety
/// `thread` is the calling thread's state, `links` its version's.
#[inline(always)]
pub(crate) unsafe fn innermost(links: &Links, thread: *const u8) -> *const u8 {
    // SAFETY: the caller's word; the C frame lives on the stack of the running evaluation loop.
    unsafe {
        let frame = read::<*const u8>(thread, usize::from(links.thread_frame));
        match links.cframe {
            Links::NO_CFRAME => frame,
            _ if frame.is_null() => frame,
            at => read(frame, usize::from(at)),
        }
    }
}

/// CPython, once a stack was seen to be what its layout says.
pub(crate) fn proven() -> Option<&'static Cpython> {
    let (cpython, thread) = attached()?;
    (cpython.verified.load(Ordering::Relaxed) || verified(cpython, thread)).then_some(cpython)
}

/// Whether the object is a code object. `None` of Python's may stand in a frame's place for it.
///
/// # Safety
/// `object` is null or an object.
pub(crate) unsafe fn is_code(cpython: &Cpython, object: *const u8) -> bool {
    // SAFETY: the caller's word.
    !object.is_null() && unsafe { read::<usize>(object, OB_TYPE) } == cpython.code_type
}

/// Looks at the first stack there is through the kernel, where a wrong address is an error and not a crash. A stack that is
/// not what the layout says switches Python stacks off, for good. False while there is nothing to look at, too.
#[cold]
#[inline(never)]
fn verified(cpython: &'static Cpython, thread: *const u8) -> bool {
    match verify::stack_is_plausible(cpython, thread.addr()) {
        Ok(Some(())) => cpython.verified.store(lifetime::watch(cpython.scope), Ordering::Relaxed),
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
