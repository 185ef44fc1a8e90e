//! Installs what the interpreter calls back: a framework's post hook of all optimizers, and our `atexit` function.
//!
//! The ways in: a pending call, which the main thread runs at the next bytecode; and the helper, if it does not come to it.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering::*};

use crate::python::api::{Method, Object};
use crate::python::helper::{Helper, Turn};
use crate::python::interpreter::{self, Interpreter};
use crate::python::{callbacks, codes, gc, lifetime, optimizers};
use crate::thread_state;
use leaktrace_core::frameworks::{ALL as FRAMEWORKS, OptimizerSteps};

static OPTIMIZER_STEPPED: Method = Method::new(c"leaktrace_optimizer_stepped", optimizer_stepped);

#[unsafe(link_section = ".data.leaktrace")]
static STATE: AtomicU8 = AtomicU8::new(WANTED);
const WANTED: u8 = 0;
const ASKED: u8 = 1;
const INSTALLED: u8 = 2;
/// On some thread. Without a GIL, or where an import gives it up, another may come to it meanwhile.
const UNDER_WAY: u8 = 3;

/// The framework's handle of the post hook, by which it is removed; null: there is none.
static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static POKES: AtomicU32 = AtomicU32::new(0);
static HELPER: Helper = Helper::new(turn, attempt);
/// Whether the helper was started: once per process, since a program without optimizers has it asked again for ever.
static HELPED: AtomicBool = AtomicBool::new(false);

/// True while a block hook has to poke.
#[inline(always)]
pub fn is_poked() -> bool {
    STATE.load(Relaxed) == WANTED
}

/// Has the hooks installed, if they are not. From any hook.
#[inline(always)]
pub fn poke() {
    if is_poked() {
        ask();
    }
}

/// Every so many pokes it is tried again: the framework may still be importing its optimizers.
const INTERVAL: u32 = 16;

#[cold]
fn ask() {
    if !POKES.fetch_add(1, Relaxed).is_multiple_of(INTERVAL) {
        return;
    }
    if STATE.compare_exchange(WANTED, ASKED, AcqRel, Acquire).is_ok() && !schedule() {
        STATE.store(WANTED, Release);
    }
}

/// Asks the interpreter for a moment. Returns false if there is none now, or never.
fn schedule() -> bool {
    let asked = interpreter::get().is_some_and(|python| python.add_pending_call(on_main_thread));
    // Who was attached to was asked while it held the GIL.
    if asked && !HELPED.swap(true, AcqRel) {
        HELPER.start();
    }
    asked
}

fn turn() -> Turn {
    match STATE.load(Acquire) {
        INSTALLED => Turn::Never,
        ASKED => Turn::Now,
        _ => Turn::Later,
    }
}

unsafe extern "C" fn on_main_thread(_: *mut c_void) -> c_int {
    if let Some(python) = interpreter::get() {
        // SAFETY: a pending call runs with the GIL held.
        unsafe { attempt(python) };
    }
    0
}

/// Installs, if that is asked for.
///
/// # Safety
/// The GIL is held.
unsafe fn attempt(python: &'static Interpreter) {
    if STATE.compare_exchange(ASKED, UNDER_WAY, AcqRel, Acquire).is_ok() {
        gc::find(python);
        // A search at the very end sees no frame by which the layout could be confirmed.
        crate::python::thread_frames::verify(python);
        // SAFETY: the caller's word.
        let done = unsafe { install(python) };
        STATE.store(if done { INSTALLED } else { WANTED }, Release);
    }
}

/// Installs now, if this thread has the GIL.
pub fn install_now() {
    if let Some(cpython) = interpreter::cpython() {
        codes::watch_deallocation(cpython);
    }
    if let Some(python) = interpreter::get().filter(|python| python.has_gil()) {
        let _ = STATE.compare_exchange(WANTED, ASKED, AcqRel, Acquire);
        // SAFETY: just asked.
        unsafe { attempt(python) };
    }
}

/// Removes the post hook, if this thread has the GIL. Our `atexit` function stays, and does nothing.
pub fn remove() {
    if let Some(cpython) = interpreter::cpython() {
        codes::unwatch_deallocation(cpython);
    }
    let Some(python) = interpreter::get().filter(|python| python.has_gil()) else { return };
    if STATE.compare_exchange(INSTALLED, UNDER_WAY, AcqRel, Acquire).is_err() {
        return;
    }
    let (api, calls) = (&python.api, &python.api.functions);
    // SAFETY: the GIL is held; every reference made here is given up here, and the handle is ours.
    unsafe {
        let (mut kind, mut value, mut trace) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        (calls.PyErr_Fetch)(&mut kind, &mut value, &mut trace);
        let handle = HANDLE.swap(ptr::null_mut(), AcqRel);
        if !handle.is_null() {
            let remove = (calls.PyObject_GetAttrString)(handle, c"remove".as_ptr());
            if !remove.is_null() {
                api.release((calls.PyObject_CallFunctionObjArgs)(remove, ptr::null_mut(), ptr::null_mut()));
            }
            api.release(remove);
            api.release(handle);
        }
        (calls.PyErr_Clear)();
        (calls.PyErr_Restore)(kind, value, trace);
    }
    STATE.store(WANTED, Release);
}

/// # Safety
/// The GIL is held.
unsafe fn install(python: &Interpreter) -> bool {
    let (api, calls) = (&python.api, &python.api.functions);
    // SAFETY: the GIL is held; references that `PyDict_GetItemString` returns are borrowed.
    unsafe {
        let (mut kind, mut value, mut trace) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        (calls.PyErr_Fetch)(&mut kind, &mut value, &mut trace);
        lifetime::register(python);
        let modules = (calls.PyImport_GetModuleDict)();
        let imported = |name: &CStr| (calls.PyDict_GetItemString)(modules, name.as_ptr());
        // A half-imported module may lack the function, or have it and not be ready for it.
        let is_ready = |steps: &&OptimizerSteps| {
            let package = imported(steps.package);
            !package.is_null() && !imported(steps.module).is_null() && !is_importing(python, package)
        };
        let steps =
            FRAMEWORKS.iter().filter_map(|framework| framework.optimizer_steps.as_ref()).find(is_ready);
        if let Some(steps) = steps {
            let module = imported(steps.module);
            let handle = api.result_of_registering(module, steps.function, &OPTIMIZER_STEPPED);
            api.release(HANDLE.swap(handle, AcqRel));
        }
        (calls.PyErr_Clear)();
        (calls.PyErr_Restore)(kind, value, trace);
        steps.is_some()
    }
}

/// Reads `module.__spec__._initializing`.
///
/// # Safety
/// The GIL is held.
pub unsafe fn is_importing(python: &Interpreter, module: Object) -> bool {
    let (api, calls) = (&python.api, &python.api.functions);
    // SAFETY: the GIL is held; every reference made here is given up here.
    unsafe {
        let spec = (calls.PyObject_GetAttrString)(module, c"__spec__".as_ptr());
        if spec.is_null() {
            (calls.PyErr_Clear)();
            return false;
        }
        let flag = (calls.PyObject_GetAttrString)(spec, c"_initializing".as_ptr());
        let importing = !flag.is_null() && (calls.PyObject_IsTrue)(flag) == 1;
        api.release(flag);
        api.release(spec);
        (calls.PyErr_Clear)();
        importing
    }
}

/// `hook(optimizer, args, kwargs)`.
unsafe extern "C" fn optimizer_stepped(_: Object, arguments: Object) -> Object {
    // SAFETY: called by the interpreter, GIL held.
    let Some(python) = interpreter::get() else { return unsafe { interpreter::none() } };
    // SAFETY: called by the interpreter, GIL held, with an argument tuple; the reference is borrowed.
    let optimizer = unsafe { (python.api.functions.PyTuple_GetItem)(arguments, 0) };
    thread_state::current().optimizer_hooked.set(true);
    // SAFETY: the GIL is held.
    let id =
        (!optimizer.is_null()).then(|| unsafe { optimizers::identify(&python.api, optimizer) }).flatten();
    (callbacks::get().optimizer_stepped)(id);
    // SAFETY: the GIL is held.
    unsafe { python.api.none() }
}

/// In a forked child there is no pending call of the parent's.
pub fn after_fork_child() {
    let _ = STATE.compare_exchange(ASKED, WANTED, AcqRel, Acquire);
    // What another thread of the parent's began is not carried on.
    let _ = STATE.compare_exchange(UNDER_WAY, WANTED, AcqRel, Acquire);
    HELPER.after_fork_child();
    HELPED.store(false, Release);
}
