//! The end of the interpreter: no thread may be reading its memory when it goes, and all that has to be asked
//! of it was asked.
//!
//! `Py_Finalize` frees the states and frames of threads that still run (daemon threads inside a call that
//! released the GIL), up to 3.10 the interpreter's own state too. A look at `Py_IsInitialized` is not enough:
//! the reader may be put to sleep right after it. So one `atexit` function of ours runs at the last moment
//! when nothing is freed yet. What the program ends with is done first, then the interpreter is said to have
//! ended, then it waits for the readers.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::python::api::{Method, Object};
use crate::python::callbacks;
use crate::python::interpreter::{self, Interpreter};
use crate::python::uncaught;
use crate::thread_state::Readers;
use crate::writer::recording;

static EXITING: Method = Method::new(c"leaktrace_exiting", exiting);

/// A pending call was queued.
static ASKED: AtomicBool = AtomicBool::new(false);
static REGISTERED: AtomicBool = AtomicBool::new(false);
/// The sequence number of the next event when the interpreter ended; 0: it has not.
static ENDED_AT: AtomicU64 = AtomicU64::new(0);

/// The first event that is a part of the interpreter's own end, or comes after it.
pub fn ended_at() -> Option<u64> {
    Some(ENDED_AT.load(Ordering::Acquire)).filter(|&seq| seq != 0)
}

/// Has [`register`] called, by a pending call, once. From anywhere, also from inside a hook. Returns false if
/// that has to be tried again.
pub fn watch() -> bool {
    let Some(python) = interpreter::get() else { return true };
    if ASKED.swap(true, Ordering::AcqRel) {
        return true;
    }
    let asked = python.add_pending_call(on_main_thread);
    // Not asked: the queue is full.
    ASKED.store(asked, Ordering::Release);
    asked
}

unsafe extern "C" fn on_main_thread(_: *mut c_void) -> c_int {
    if let Some(python) = interpreter::get() {
        // SAFETY: a pending call runs with the GIL held and no exception set.
        unsafe { register(python) };
    }
    0
}

/// Registers the `atexit` function, once.
///
/// # Safety
/// The GIL is held, and no exception is set.
pub unsafe fn register(python: &Interpreter) {
    if !REGISTERED.swap(true, Ordering::AcqRel) {
        // SAFETY: the caller's word. The module is part of the interpreter: importing it runs no Python
        // source.
        let done = unsafe {
            let mut module = python.api.imported(c"atexit");
            if module.is_null() {
                module = (python.api.functions.PyImport_ImportModule)(c"atexit".as_ptr());
            } else {
                (python.api.functions.Py_IncRef)(module);
            }
            let done = python.api.register(module, c"register", &EXITING);
            python.api.release(module);
            (python.api.functions.PyErr_Clear)();
            done
        };
        REGISTERED.store(done, Ordering::Release);
    }
    if REGISTERED.load(Ordering::Acquire)
        && let Some(cpython) = interpreter::cpython()
    {
        cpython.watched();
    }
}

unsafe extern "C" fn exiting(_: Object, _: Object) -> Object {
    // SAFETY: Python called with the GIL held.
    let Some(python) = interpreter::get() else { return unsafe { interpreter::none() } };
    // SAFETY: Python called with the GIL held and no exception set.
    let exception = unsafe { uncaught::exception(python) };
    // All that the program holds is still held, and can be searched.
    (callbacks::get().exiting)(exception.as_deref());
    ENDED_AT.store(recording::sequence(), Ordering::Release);
    interpreter::end();
    // SAFETY: Python called with the GIL held; it is released while we wait, and taken again by the same
    // thread.
    unsafe {
        let state = (python.api.functions.PyEval_SaveThread)();
        await_readers();
        (python.api.functions.PyEval_RestoreThread)(state);
        python.api.none()
    }
}

fn await_readers() {
    // A reader that began before it could see the end has said so, but its store may not have arrived yet. It
    // does within less than a microsecond; readers need no fence for this one moment.
    sleep(Duration::from_micros(50));
    // A reader waits for nothing that this thread has. The bound is only there so that an exit never hangs on
    // us.
    let mut readers = Readers::now();
    for _ in 0..1000 {
        if readers.are_done() {
            break;
        }
        sleep(Duration::from_millis(1));
    }
}
