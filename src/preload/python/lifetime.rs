//! The end of the interpreter: no thread may be reading its memory when it goes.
//!
//! `Py_Finalize` frees the states and frames of threads that still run (daemon threads inside a call that let go of the
//! GIL). A look at `Py_IsInitialized` is not enough: the reader may be put to sleep right after it. So Python is asked to
//! tell us at the last moment when nothing is gone yet: an `atexit` function, registered by a pending call, which Python
//! makes on its main thread, with the GIL, when it suits it. It switches Python stacks off and waits for the readers.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::python::cpython;
use crate::stacks::thread_state::Readers;
use crate::unwind::modules::Scope;
use crate::writer::recording;

type Object = *mut c_void;

/// `PyMethodDef`.
#[repr(C)]
struct Method {
    name: *const c_char,
    function: unsafe extern "C" fn(Object, Object) -> Object,
    flags: c_int,
    doc: *const c_char,
}

// SAFETY: constant; Python only reads it.
unsafe impl Sync for Method {}

const METH_NOARGS: c_int = 4;

static METHOD: Method =
    Method { name: c"leaktrace".as_ptr(), function: interpreter_ends, flags: METH_NOARGS, doc: ptr::null() };

/// What is called of Python's, with the GIL held; all of it is in the stable ABI.
struct Calls {
    new_function: unsafe extern "C" fn(*const Method, Object, Object) -> Object,
    import: unsafe extern "C" fn(*const c_char) -> Object,
    call_method: unsafe extern "C" fn(Object, *const c_char, *const c_char, ...) -> Object,
    release: unsafe extern "C" fn(Object),
    clear_error: unsafe extern "C" fn(),
    retain: unsafe extern "C" fn(Object),
    let_go: unsafe extern "C" fn() -> *mut c_void,
    take_back: unsafe extern "C" fn(*mut c_void),
    none: Object,
}

static CALLS: AtomicPtr<Calls> = AtomicPtr::new(ptr::null_mut());
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Asks to be told. Once; takes no GIL. `false`: not now, try again.
pub(crate) fn watch(scope: Scope) -> bool {
    if WATCHED.swap(true, Ordering::AcqRel) {
        return true;
    }
    let found = (|| {
        // SAFETY: the documented signatures of these names.
        unsafe {
            Some(Calls {
                new_function: scope.function(c"PyCFunction_NewEx")?,
                import: scope.function(c"PyImport_ImportModule")?,
                call_method: scope.function(c"PyObject_CallMethod")?,
                release: scope.function(c"Py_DecRef")?,
                clear_error: scope.function(c"PyErr_Clear")?,
                retain: scope.function(c"Py_IncRef")?,
                let_go: scope.function(c"PyEval_SaveThread")?,
                take_back: scope.function(c"PyEval_RestoreThread")?,
                none: scope.symbol(c"_Py_NoneStruct")?,
            })
        }
    })();
    type Pending = unsafe extern "C" fn(*mut c_void) -> c_int;
    type Add = unsafe extern "C" fn(Pending, *mut c_void) -> c_int;
    // SAFETY: the documented signature.
    let add = unsafe { scope.function::<Add>(c"Py_AddPendingCall") };
    let (Some(calls), Some(add)) = (found, add) else { return true };
    CALLS.store(Box::into_raw(Box::new(calls)), Ordering::Release);
    // SAFETY: may be called on any thread, with or without the GIL; `register` is what it takes.
    let added = unsafe { add(register, ptr::null_mut()) == 0 };
    // Not added: the queue is full.
    WATCHED.store(added, Ordering::Release);
    added
}

/// `atexit.register(interpreter_ends)`, where Python calls us back.
unsafe extern "C" fn register(_: *mut c_void) -> c_int {
    // SAFETY: null or leaked by `watch`. Python called this with the GIL held and no exception set.
    unsafe {
        let Some(calls) = CALLS.load(Ordering::Acquire).as_ref() else { return 0 };
        let module = (calls.import)(c"atexit".as_ptr());
        let function = (calls.new_function)(&METHOD, ptr::null_mut(), ptr::null_mut());
        if !module.is_null() && !function.is_null() {
            let registered = (calls.call_method)(module, c"register".as_ptr(), c"O".as_ptr(), function);
            if !registered.is_null() {
                cpython::end_is_told();
            }
            (calls.release)(registered);
        }
        (calls.release)(function);
        (calls.release)(module);
        (calls.clear_error)();
    }
    0
}

/// The next sequence number when the interpreter ended; 0: it did not.
static ENDED: AtomicU64 = AtomicU64::new(0);

/// The first event that is a part of the interpreter's own end, or comes after it.
pub(crate) fn ended_at() -> Option<u64> {
    Some(ENDED.load(Ordering::Acquire)).filter(|&seq| seq != 0)
}

unsafe extern "C" fn interpreter_ends(_: Object, _: Object) -> Object {
    ENDED.store(recording::sequence(), Ordering::Release);
    cpython::switch_off();
    // SAFETY: set before this function was registered. Python called it with the GIL, which is let go of while we wait and
    // taken back by the same thread; `None` lives as long as the interpreter.
    unsafe {
        let Some(calls) = CALLS.load(Ordering::Acquire).as_ref() else { return ptr::null_mut() };
        let state = (calls.let_go)();
        await_readers();
        (calls.take_back)(state);
        (calls.retain)(calls.none);
        calls.none
    }
}

fn await_readers() {
    // A reader that began before it could see the switch has said so, but its store may not have arrived yet. It does within
    // less than a microsecond; readers need no fence for this one moment.
    sleep(Duration::from_micros(50));
    // A reader waits for nothing that this thread has. The bound is only there so that an exit never hangs on us.
    let mut readers = Readers::now();
    for _ in 0..1000 {
        if readers.are_done() {
            break;
        }
        sleep(Duration::from_millis(1));
    }
}
