//! The interpreter in this process: whether there is one, whether it is alive, and the layout of its memory
//! if that is known.
//!
//! Whatever reads or calls Python asks here first. [`end`] is called before the interpreter frees anything:
//! from then on there is none, for frames, the collector's flag and the search through objects alike.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use crate::loader::dlsym::Handle;
use crate::python::api::{Api, Object};
use crate::python::debug_offsets;
use crate::python::layout::{self, Layout, Links, Release};
use crate::python::memory::read;
use crate::python::offsets::TYPE_BASICSIZE;
use leaktrace_core::cpython::UNSEEN;

/// An interpreter, of whatever version.
pub struct Interpreter {
    pub api: Api,
    scope: Handle,
    /// CPython 3.8's queue of pending calls, which has to be looked at first.
    queue: Option<Queue>,
}

/// The head of the queue of pending calls in CPython 3.8. From the moment at which the interpreter begins to end,
/// which is before anybody is told, a call that comes there prints an error by way of the thread that has the GIL;
/// where none has it, the process dies of that. Other versions take the call, and forget it.
struct Queue {
    finishing: *const AtomicI32,
    lock: *const AtomicUsize,
}

impl Queue {
    /// Where they lie in 3.8's `_PyRuntime`, of every release of that version.
    const FINISHING: usize = 0x258;
    const LOCK: usize = 0x260;

    fn of(scope: Handle, version: &str) -> Option<Queue> {
        if !matches!(layout::version(version), Some((8, _))) {
            return None;
        }
        let runtime = scope.symbol(c"_PyRuntime")?;
        let at = |offset: usize| runtime.wrapping_byte_add(offset);
        Some(Queue { finishing: at(Queue::FINISHING).cast(), lock: at(Queue::LOCK).cast() })
    }

    /// Whether it takes calls: there is a lock, or what looks like the address of one, and it is not said to be
    /// closing.
    fn is_open(&self) -> bool {
        // SAFETY: aligned words inside of `_PyRuntime`, an exported structure of more than a kilobyte.
        let (finishing, lock) =
            unsafe { ((*self.finishing).load(Ordering::Acquire), (*self.lock).load(Ordering::Relaxed)) };
        finishing == 0 && lock > 4096 && lock.is_multiple_of(8)
    }
}

/// A CPython whose memory we can read. What every walk looks at comes first, on one line of the processor's
/// cache.
#[repr(C, align(64))]
pub struct Cpython {
    pub this_thread: unsafe extern "C" fn() -> Object,
    pub is_initialized: unsafe extern "C" fn() -> c_int,
    pub links: Links,
    /// A stack was seen to be what the layout says.
    pub is_verified: AtomicBool,
    /// [`end`] will be called before the interpreter ends.
    pub is_watched: AtomicBool,
    /// The main thread's state, where that can never be freed nor belong to another thread; null otherwise.
    pub main_thread: AtomicPtr<u8>,
    /// The collector's flag that it is running, and its generations; 0: not found.
    pub collecting: AtomicUsize,
    pub generations: AtomicUsize,
    pub layout: Layout,
    pub code_type: usize,
    pub str_type: usize,
    pub bytes_type: usize,
    /// The types of iterators that begin with a number which changes with each item; 0: not exported.
    pub counting_types: [usize; COUNTING.len()],
    /// The types of generators, and of dicts; 0: not exported.
    pub generator_type: usize,
    pub dict_type: usize,
    /// The types of what is often made in the memory of the one before: numbers, and cells; 0: not exported.
    pub common_types: [usize; COMMON.len()],
    pub minor: u32,
    scope: Handle,
}

/// Iterators that begin with the index of the next item (of a range also with the item itself).
const COUNTING: [&CStr; 6] = [
    c"PyRangeIter_Type",
    c"PyListIter_Type",
    c"PyTupleIter_Type",
    c"PyEnum_Type",
    // Of what has `__getitem__` and no `__iter__`, and of NumPy's arrays.
    c"PySeqIter_Type",
    c"PyReversed_Type",
];

/// The types of what local variables name, and the next call's often in the same memory.
const COMMON: [&CStr; 2] = [c"PyLong_Type", c"PyCell_Type"];

/// Null: no interpreter, or none any more.
/// Whether a thread is asking for a pending call.
static ASKING: AtomicBool = AtomicBool::new(false);
static INTERPRETER: AtomicPtr<Interpreter> = AtomicPtr::new(ptr::null_mut());
/// The last one that was found, also when it has ended.
static FOUND: AtomicPtr<Interpreter> = AtomicPtr::new(ptr::null_mut());
/// Null: as for [`INTERPRETER`], or a layout that is not known.
#[unsafe(link_section = ".data.leaktrace")]
static CPYTHON: AtomicPtr<Cpython> = AtomicPtr::new(ptr::null_mut());
static DESCRIPTION: AtomicPtr<String> = AtomicPtr::new(ptr::null_mut());
static ENDED: AtomicBool = AtomicBool::new(false);

/// The interpreter, while it is alive.
pub fn get() -> Option<&'static Interpreter> {
    // SAFETY: null or a leaked box, never freed; Acquire pairs with the Release that published it.
    unsafe { INTERPRETER.load(Ordering::Acquire).as_ref() }
}

/// Returns a new reference to `None`: what our functions answer that Python calls, which it may do while it ends, too.
///
/// # Safety
/// The interpreter calls, GIL held.
pub unsafe fn none() -> Object {
    // SAFETY: the caller's word; null or a leaked box, never freed.
    unsafe { FOUND.load(Ordering::Acquire).as_ref().map_or(ptr::null_mut(), |python| python.api.none()) }
}

/// The interpreter, while it is alive, if its memory can be read.
#[inline(always)]
pub fn cpython() -> Option<&'static Cpython> {
    // SAFETY: as in `get`.
    unsafe { CPYTHON.load(Ordering::Acquire).as_ref() }
}

/// Says that the interpreter is about to free its memory.
pub fn end() {
    ENDED.store(true, Ordering::Release);
    INTERPRETER.store(ptr::null_mut(), Ordering::SeqCst);
    CPYTHON.store(ptr::null_mut(), Ordering::SeqCst);
}

pub fn has_ended() -> bool {
    ENDED.load(Ordering::Acquire)
}

/// What the interpreter is ("CPython 3.11"), or why its stacks are not taken; empty while none was found.
pub fn description() -> &'static str {
    // SAFETY: null or what `describe` leaked.
    unsafe { DESCRIPTION.load(Ordering::Acquire).as_ref() }.map_or("", String::as_str)
}

fn describe(text: String) {
    DESCRIPTION.store(Box::into_raw(Box::new(text)), Ordering::Release);
}

/// Gives up reading the interpreter's memory: it is not what its layout says.
pub fn refuse(cpython: &Cpython) {
    CPYTHON.store(ptr::null_mut(), Ordering::Release);
    describe(format!("{}: unexpected frame layout; {UNSEEN}", cpython.name()));
}

/// Looks for an interpreter. Outside hooks. Once found, or found wanting, it stays so.
pub fn find() {
    if !description().is_empty() {
        return;
    }
    let Some(scope) = Handle::with(c"Py_GetVersion", "libpython3") else { return };
    // SAFETY: the documented signature.
    let version = unsafe { scope.function::<unsafe extern "C" fn() -> *const c_char>(c"Py_GetVersion") };
    let Some(version) = version else { return };
    // SAFETY: returns a static string, also before Py_Initialize.
    let version = unsafe { CStr::from_ptr(version()) }.to_string_lossy();
    let found = cpython_in(scope, &version);
    describe(match &found {
        Ok(cpython) => cpython.name(),
        Err(why) => {
            let number = version.split_whitespace().next().unwrap_or("?");
            format!("CPython {number}: {why}; {UNSEEN}")
        }
    });
    if let Some(api) = Api::find(scope) {
        let queue = Queue::of(scope, &version);
        let found = Box::into_raw(Box::new(Interpreter { api, scope, queue }));
        FOUND.store(found, Ordering::Release);
        INTERPRETER.store(found, Ordering::Release);
    }
    if let Ok(cpython) = found {
        CPYTHON.store(Box::into_raw(Box::new(cpython)), Ordering::Release);
    }
}

/// Returns the CPython of a version, or why its memory cannot be read.
fn cpython_in(scope: Handle, version: &str) -> Result<Cpython, &'static str> {
    let symbol = |name: &CStr| scope.symbol(name);
    let Some((minor, true)) = layout::version(version) else { return Err("not a known release") };
    let release = Release { minor, free_threaded: version.contains("free-threading") };
    let debug = [c"_Py_NegativeRefcount", c"_Py_RefTotal", c"_Py_AddToAllObjects"];
    if debug.into_iter().any(|name| symbol(name).is_some()) {
        return Err("a debug build");
    }
    let types = (symbol(c"PyCode_Type"), symbol(c"PyUnicode_Type"), symbol(c"PyBytes_Type"));
    // SAFETY: the documented signatures.
    let functions =
        unsafe { (scope.function(c"PyGILState_GetThisThreadState"), scope.function(c"Py_IsInitialized")) };
    let ((Some(code_type), Some(str_type), Some(bytes_type)), (Some(this_thread), Some(is_initialized))) =
        (types, functions)
    else {
        return Err("its types are not exported");
    };
    let words = (minor >= 13).then(|| symbol(c"_PyRuntime")).flatten().map(|runtime| {
        // SAFETY: exported data of several kilobytes; from 3.13 on it begins with constant words.
        unsafe { ptr::read(runtime.cast::<[u64; debug_offsets::WORDS]>()) }
    });
    let unknown = "unknown frame layout";
    let layout = layout::choose(release, words.as_ref()).ok_or(unknown)?;
    // SAFETY: a type object, exported data; its size was fixed long before 3.8.
    if unsafe { read::<usize>(code_type.cast(), layout.of_type(TYPE_BASICSIZE)) } != layout.code_size {
        return Err("unknown layout of code objects");
    }
    // SAFETY: asks for the calling thread's id.
    if crate::machine::own_id() != unsafe { libc::pthread_self() } {
        return Err("unknown thread ids");
    }
    Ok(Cpython {
        this_thread,
        is_initialized,
        links: Links::of(&layout).ok_or(unknown)?,
        is_verified: AtomicBool::new(false),
        is_watched: AtomicBool::new(false),
        main_thread: AtomicPtr::new(ptr::null_mut()),
        collecting: AtomicUsize::new(0),
        generations: AtomicUsize::new(0),
        layout,
        code_type: code_type.addr(),
        str_type: str_type.addr(),
        bytes_type: bytes_type.addr(),
        counting_types: COUNTING.map(|name| symbol(name).map_or(0, |found| found.addr())),
        generator_type: symbol(c"PyGen_Type").map_or(0, |found| found.addr()),
        dict_type: symbol(c"PyDict_Type").map_or(0, |found| found.addr()),
        common_types: COMMON.map(|name| symbol(name).map_or(0, |found| found.addr())),
        minor,
        scope,
    })
}

/// In a forked child: who was asking does not exist here.
pub fn after_fork_child() {
    ASKING.store(false, Ordering::Release);
}

impl Interpreter {
    /// Asks the interpreter to call `function` on its main thread, GIL in hand, when it comes to it. From any
    /// thread, with or without the GIL, also from inside a hook. Returns false if it cannot, now.
    pub fn add_pending_call(&self, function: unsafe extern "C" fn(*mut std::ffi::c_void) -> c_int) -> bool {
        let python = &self.api.functions;
        if self.queue.as_ref().is_some_and(|queue| !queue.is_open()) {
            return false;
        }
        // One at a time: from 3.13 on a thread that waits for the queue's lock gives up the GIL meanwhile, and this one may
        // have an allocator's lock, which whoever takes the GIL waits for.
        if ASKING.swap(true, Ordering::Acquire) {
            return false;
        }
        // SAFETY: both may be called from anywhere; the queue takes a function and its argument.
        let asked = unsafe {
            (python.Py_IsInitialized)() != 0 && (python.Py_AddPendingCall)(function, ptr::null_mut()) == 0
        };
        ASKING.store(false, Ordering::Release);
        asked
    }

    /// True if this very thread holds the GIL of the main interpreter, and that is not about to end.
    pub fn has_gil(&self) -> bool {
        let Some(objects) = &self.api.objects else { return false };
        let (python, objects) = (&self.api.functions, &objects.functions);
        // SAFETY: the first four only look, with the GIL or without; the interpreter is asked for with it
        // only.
        unsafe {
            if (python.Py_IsInitialized)() == 0 || (python.Py_IsFinalizing)() != 0 {
                return false;
            }
            let mine = (python.PyGILState_GetThisThreadState)();
            !mine.is_null()
                && mine == (objects.PyThreadState_GetUnchecked)()
                && (objects.PyInterpreterState_Get)() == (objects.PyInterpreterState_Main)()
        }
    }

    /// The address of a symbol of the interpreter's.
    pub fn symbol(&self, name: &CStr) -> Option<*mut std::ffi::c_void> {
        self.scope.symbol(name)
    }
}

impl Cpython {
    /// Keeps that [`end`] is called before the interpreter ends, so that whether it has ended need not be
    /// asked. With the GIL held; may be called on every thread, and is of most use on the main one.
    pub fn watched(&self) {
        // In 3.11 the main interpreter and its first thread's state lie in a variable of the library's: they
        // can be read as long as there is a process, and whose the state is stands in it. Later a thread has
        // one state per interpreter.
        let runtime = if self.minor == 11 { self.scope.variable(c"_PyRuntime") } else { None };
        // SAFETY: the interpreter is alive.
        let state = unsafe { (self.this_thread)() };
        if runtime.is_some_and(|runtime| runtime.contains(&state.addr())) {
            self.main_thread.store(state.cast(), Ordering::Release);
        }
        self.is_watched.store(true, Ordering::Release);
    }

    /// What it is called in a report.
    pub fn name(&self) -> String {
        let build = if self.layout.is_free_threaded() { ", free-threaded" } else { "" };
        format!("CPython 3.{}{build}", self.minor)
    }

    /// True if an object is a code object; in a frame, `None` may stand in its place.
    ///
    /// # Safety
    /// `object` is null or an object.
    pub unsafe fn is_code(&self, object: *const u8) -> bool {
        // SAFETY: the caller's word.
        !object.is_null() && unsafe { read::<usize>(object, self.layout.object_type()) } == self.code_type
    }
}
