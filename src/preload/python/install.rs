//! Installs two callbacks in the interpreter: PyTorch's global optimizer post hook, and an exit handler.
//!
//! The ways in: a pending call, which the main thread runs at the next bytecode; and, for a main thread that waits in
//! `join` while another one trains, a short-lived thread of our own that takes the GIL.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::*};

use crate::analysis::step_boundaries;
use crate::frameworks::torch;
use crate::python::ASKED;
use crate::python::INSTALLED;
use crate::python::STATE;
use crate::python::WANTED;
use crate::python::api;
use crate::python::api::Api;
use crate::python::api::Method;
use crate::python::api::Object;
use crate::stacks::thread_state;
use crate::writer::signals::calmly;

/// `METH_VARARGS`
const VARARGS: c_int = 1;

static OPTIMIZER_STEPPED: Method = Method {
    name: c"leaktrace_optimizer_stepped".as_ptr(),
    function: optimizer_stepped,
    flags: VARARGS,
    doc: std::ptr::null(),
};
static EXITING: Method =
    Method { name: c"leaktrace_exiting".as_ptr(), function: exiting, flags: VARARGS, doc: std::ptr::null() };

static HELPER: AtomicBool = AtomicBool::new(false);
static EXIT_HANDLER: AtomicBool = AtomicBool::new(false);

/// Asks the interpreter for a moment. `false`: not now, or never.
pub fn schedule() -> bool {
    let Some(python) = api::get() else { return false };
    // SAFETY: callable from any thread, with or without the GIL.
    let asked = unsafe {
        (python.Py_IsInitialized)() != 0
            && (python.Py_AddPendingCall)(on_main_thread, std::ptr::null_mut()) == 0
    };
    if asked && !HELPER.swap(true, AcqRel) {
        start_helper();
    }
    asked
}

unsafe extern "C" fn on_main_thread(_: *mut c_void) -> c_int {
    if let Some(python) = api::get() {
        attempt(python);
    }
    0
}

/// With the GIL held.
fn attempt(python: &Api) {
    if STATE.load(Acquire) == ASKED {
        crate::python::gc::arm();
        // SAFETY: the GIL is held.
        let done = unsafe { install(python) };
        STATE.store(if done { INSTALLED } else { WANTED }, Release);
    }
}

/// # Safety
/// The GIL is held.
unsafe fn install(python: &Api) -> bool {
    // SAFETY: the GIL is held; every reference made here is given up here, but for those the interpreter takes.
    unsafe {
        let (mut kind, mut value, mut trace) =
            (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        (python.PyErr_Fetch)(&mut kind, &mut value, &mut trace);
        let modules = (python.PyImport_GetModuleDict)();
        if !EXIT_HANDLER.load(Acquire) {
            // Part of the interpreter, loaded or built in: importing it runs no Python source.
            let exits = (python.PyImport_ImportModule)(c"atexit".as_ptr());
            EXIT_HANDLER.store(register(python, exits, c"register".as_ptr(), &EXITING), Release);
            release(python, exits);
        }
        let torch = (python.PyDict_GetItemString)(modules, c"torch".as_ptr());
        let optimizers = (python.PyDict_GetItemString)(modules, c"torch.optim.optimizer".as_ptr());
        // A half-imported module may lack the function, or have it and not be ready for it.
        let ready = !torch.is_null() && !optimizers.is_null() && !importing(python, torch);
        let name = c"register_optimizer_step_post_hook".as_ptr();
        let done = ready && register(python, optimizers, name, &OPTIMIZER_STEPPED);
        (python.PyErr_Clear)();
        (python.PyErr_Restore)(kind, value, trace);
        // PyTorch before 2.0 has no such function: the native callback alone tells of its steps.
        done || ready
    }
}

/// Calls `module.name(our function)`.
unsafe fn register(
    python: &Api,
    module: Object,
    name: *const std::ffi::c_char,
    method: &'static Method,
) -> bool {
    if module.is_null() {
        return false;
    }
    // SAFETY: the GIL is held (see `install`).
    unsafe {
        let function = (python.PyObject_GetAttrString)(module, name);
        let ours = (python.PyCFunction_NewEx)(method, std::ptr::null_mut(), std::ptr::null_mut());
        let mut done = false;
        if !function.is_null() && !ours.is_null() {
            let result = (python.PyObject_CallFunctionObjArgs)(function, ours, std::ptr::null_mut());
            done = !result.is_null();
            release(python, result);
        }
        release(python, ours);
        release(python, function);
        (python.PyErr_Clear)();
        done
    }
}

/// `module.__spec__._initializing`
unsafe fn importing(python: &Api, module: Object) -> bool {
    // SAFETY: the GIL is held (see `install`).
    unsafe {
        let spec = (python.PyObject_GetAttrString)(module, c"__spec__".as_ptr());
        if spec.is_null() {
            (python.PyErr_Clear)();
            return false;
        }
        let flag = (python.PyObject_GetAttrString)(spec, c"_initializing".as_ptr());
        let importing = !flag.is_null() && (python.PyObject_IsTrue)(flag) == 1;
        release(python, flag);
        release(python, spec);
        (python.PyErr_Clear)();
        importing
    }
}

unsafe fn release(python: &Api, object: Object) {
    if !object.is_null() {
        // SAFETY: a reference of ours; the GIL is held.
        unsafe { (python.Py_DecRef)(object) };
    }
}

/// `hook(optimizer, args, kwargs)`: the optimizer's address tells it from others, nothing of it is kept.
unsafe extern "C" fn optimizer_stepped(_: Object, arguments: Object) -> Object {
    let Some(python) = api::get() else { return std::ptr::null_mut() };
    // SAFETY: called by the interpreter, GIL held, with an argument tuple; the reference is borrowed.
    let optimizer = unsafe { (python.PyTuple_GetItem)(arguments, 0) };
    // SAFETY: this thread's own block.
    unsafe { (*thread_state::thread()).optimizer_hooked = true };
    torch::leave_ranges();
    step_boundaries::optimizer((!optimizer.is_null()).then_some(optimizer as usize));
    none(python)
}

/// The exit handler: now everything the program holds is still held; a moment later it is torn down.
unsafe extern "C" fn exiting(_: Object, _: Object) -> Object {
    crate::shield::fenced(step_boundaries::exit);
    api::get().map_or(std::ptr::null_mut(), none)
}

fn none(python: &Api) -> Object {
    // SAFETY: the GIL is held; `None` lives for ever.
    unsafe { (python.Py_IncRef)(python.none) };
    python.none
}

/// Starts the thread that installs when the main thread does not come to it.
fn start_helper() {
    // Begun where signals wait, it never takes one: those are the program's threads' to take.
    // SAFETY: plain thread creation; the thread is detached and ends by itself.
    calmly(|| unsafe {
        let mut thread = std::mem::zeroed();
        let entry: extern "C" fn(*mut c_void) -> *mut c_void =
            std::mem::transmute::<extern "C-unwind" fn(*mut c_void) -> *mut c_void, _>(helper);
        if libc::pthread_create(&mut thread, std::ptr::null(), entry, std::ptr::null_mut()) == 0 {
            libc::pthread_detach(thread);
        }
    });
}

/// Unwinding passes through: an interpreter that is shutting down ends threads that ask for its GIL.
extern "C-unwind" fn helper(_: *mut c_void) -> *mut c_void {
    const PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    for _ in 0..50 {
        // SAFETY: a constant duration.
        unsafe { libc::nanosleep(&PAUSE, std::ptr::null_mut()) };
        let Some(python) = api::get() else { break };
        match STATE.load(Acquire) {
            INSTALLED => break,
            // SAFETY: the interpreter is up; Ensure and Release pair.
            ASKED if unsafe { (python.Py_IsInitialized)() } != 0 => unsafe {
                let gil = (python.PyGILState_Ensure)();
                attempt(python);
                (python.PyGILState_Release)(gil);
            },
            _ => {}
        }
    }
    std::ptr::null_mut()
}

/// In a forked child the helper does not exist.
pub fn after_fork_child() {
    HELPER.store(false, Release);
}
