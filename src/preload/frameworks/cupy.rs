//! CuPy's pool of device memory, by the hooks that it documents (`cupy.cuda.MemoryHook`): the pool calls those of the thread
//! for each block that it gives out and takes back. The memory that it cuts up comes from the driver, where it is seen as a
//! segment; without the pool each array is an allocation of the driver's.
//!
//! Hooks belong to a thread. Whether a thread has any, the pool asks a function of another module, by a pointer that Cython
//! filled when the pool was imported. It is pointed to a function of ours, which adds a hook for the thread that asks: no
//! thread is missed, and none that never allocates is touched. Where the pointer is not found, the thread that
//! imports CuPy has the hook, and the others are named as a gap.
//!
//! All of it is called with the GIL held.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering::*};

use crate::analysis::loop_steps;
use crate::coverage_gaps;
use crate::frameworks::{InFrontOf, is_recorded, poke_at_first};
use crate::hooks::record;
use crate::lifecycle;
use crate::loader::link_map::{self, LoadedObjects};
use crate::loader::object::{LinkMap, Version};
use crate::python::api::{Method, Object};
use crate::python::interpreter::{self, Interpreter};
use crate::python::is_importing;
use crate::shield::shield;
use crate::state;
use crate::thread_state;
use leaktrace_core::frameworks::CUPY;

const ALLOCATOR: u16 = CUPY.number_of_allocator();

/// The modules of the pool and of its hooks, the folder they are in, and the file of the pool's.
const POOL: &CStr = c"cupy.cuda.memory";
const HOOKS: &CStr = c"cupy.cuda.memory_hook";
const FOLDER: &[u8] = b"/cupy/cuda/";
const FILE: &[u8] = b"memory.";

/// What Python looks up in an extension module that it has opened.
const INIT_OF_POOL: &CStr = c"PyInit_memory";
const INIT: &[u8] = b"PyInit_";

/// The functions that the module of hooks gives to other modules of Cython's, and their signatures there.
const HAS_HOOKS: (&CStr, &CStr) = (c"_has_memory_hooks", c"int (int __pyx_skip_dispatch)");
const GET_HOOKS: (&CStr, &CStr) = (c"get_memory_hooks", c"PyObject *(int __pyx_skip_dispatch)");

type HasHooks = unsafe extern "C-unwind" fn(c_int) -> c_int;
type GetHooks = unsafe extern "C-unwind" fn(c_int) -> Object;

/// The name of our hook among a thread's.
const NAME: &CStr = c"leaktrace";
const NO_HOOKS: &str = "blocks of CuPy's pool: its memory hooks have a form that is not known";
const ONE_THREAD: &str = "blocks of CuPy's pool on other threads than the one that imported CuPy";

static STATE: AtomicU8 = AtomicU8::new(ABSENT);
const ABSENT: u8 = 0;
/// The pool's module was opened, and may be about to be imported.
const OPENED: u8 = 1;
const INSTALLED: u8 = 2;

/// An address in the pool's module, and the real functions.
static OPENED_AT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static HAS: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static GET: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// Our hook, its name among others, and the names of arguments, as Python's objects: they live as long as the process.
static HOOK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static NAMED: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static DEVICE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static BYTES: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static ADDRESS: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// What a hook has to have (CuPy's documentation, `cupy.cuda.MemoryHook`).
static METHODS: [Method; 6] = [
    Method::with_keywords(c"alloc_preprocess", nothing),
    Method::with_keywords(c"alloc_postprocess", nothing),
    Method::with_keywords(c"malloc_preprocess", asked),
    Method::with_keywords(c"malloc_postprocess", given_out),
    Method::with_keywords(c"free_preprocess", taken_back),
    Method::with_keywords(c"free_postprocess", nothing),
];

/// Returns what stands in front of a symbol by which Python imports an extension module, until the hook is there.
pub fn in_front_of(symbol: &CStr) -> Option<InFrontOf> {
    match STATE.load(Relaxed) {
        ABSENT if symbol == INIT_OF_POOL => Some(module_opened),
        // By then it may be imported; CuPy imports others after it, before it can be used.
        OPENED if symbol.to_bytes().starts_with(INIT) => Some(another_opened),
        _ => None,
    }
}

fn module_opened(found: *mut c_void) -> *const c_void {
    if link_map::with_objects(|objects| objects.at(found).is_some_and(is_pool)) == Some(true) {
        OPENED_AT.store(found, Release);
        STATE.store(OPENED, Release);
    }
    found
}

fn is_pool(object: &LinkMap) -> bool {
    let path = object.path().to_bytes();
    object.file_name().starts_with(FILE) && path.windows(FOLDER.len()).any(|part| part == FOLDER)
}

fn another_opened(found: *mut c_void) -> *const c_void {
    lifecycle::arm();
    if state::get() != state::State::Off {
        shield(install_if_imported);
    }
    found
}

/// The pool may have been imported before this library was opened.
pub fn come_late() {
    let init = link_map::with_objects(|objects| {
        let pool = objects.dlopened_objects().find(|object| is_pool(object));
        pool.and_then(|pool| pool.definition(INIT_OF_POOL, Version::Any))
    });
    if let Some(address) = init.flatten() {
        OPENED_AT.store(address, Release);
        STATE.store(OPENED, Release);
        install_if_imported();
    }
}

/// Leads the pool past us again. The hooks stay, and do nothing.
pub fn leave() {
    if STATE.swap(ABSENT, AcqRel) == INSTALLED {
        point_pool(has_hooks as *mut c_void, HAS.load(Acquire));
    }
}

fn install_if_imported() {
    if let Some(python) = interpreter::get().filter(|python| python.has_gil()) {
        // SAFETY: just asked.
        unsafe { install(python) };
    }
}

/// # Safety
/// The GIL is held.
unsafe fn install(python: &Interpreter) {
    let calls = &python.api.functions;
    // SAFETY: the GIL is held; what `PyDict_GetItemString` returns is borrowed.
    unsafe {
        let modules = (calls.PyImport_GetModuleDict)();
        let pool = (calls.PyDict_GetItemString)(modules, POOL.as_ptr());
        let hooks = (calls.PyDict_GetItemString)(modules, HOOKS.as_ptr());
        if pool.is_null() || hooks.is_null() || is_importing(python, pool) {
            return;
        }
        STATE.store(INSTALLED, Release);
        let given = (calls.PyObject_GetAttrString)(hooks, c"__pyx_capi__".as_ptr());
        let (has, get) = (function(python, given, HAS_HOOKS), function(python, given, GET_HOOKS));
        python.api.release(given);
        let known = !has.is_null() && !get.is_null() && make_hook(python);
        (calls.PyErr_Clear)();
        if !known {
            return coverage_gaps::report(NO_HOOKS);
        }
        HAS.store(has, Release);
        GET.store(get, Release);
    }
    if point_pool(HAS.load(Acquire), has_hooks as *mut c_void) == 0 {
        coverage_gaps::report(ONE_THREAD);
    }
    // SAFETY: the GIL is held, and the hook was made.
    unsafe { hook_thread(python) };
}

/// Returns a function that a module of Cython's gives to others; null if it gives none of that signature.
///
/// # Safety
/// The GIL is held; `given` is null or an object.
unsafe fn function(python: &Interpreter, given: Object, (name, signature): (&CStr, &CStr)) -> *mut c_void {
    let calls = &python.api.functions;
    if given.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the caller's word; what a dictionary's look-up returns is borrowed, and what is no capsule of that name is
    // refused.
    unsafe {
        let capsule = (calls.PyDict_GetItemString)(given, name.as_ptr());
        if capsule.is_null() {
            return ptr::null_mut();
        }
        (calls.PyCapsule_GetPointer)(capsule, signature.as_ptr())
    }
}

/// Makes the objects of Python's that are needed, once; false if one cannot be made.
///
/// # Safety
/// The GIL is held.
unsafe fn make_hook(python: &Interpreter) -> bool {
    let calls = &python.api.functions;
    if !HOOK.load(Acquire).is_null() {
        return true;
    }
    let texts = [(&NAMED, NAME), (&DEVICE, c"device_id"), (&BYTES, c"mem_size"), (&ADDRESS, c"mem_ptr")];
    // SAFETY: the GIL is held. The references that are kept are never given up.
    unsafe {
        for (place, text) in texts {
            place.store((calls.PyUnicode_InternFromString)(text.as_ptr()), Release);
            if place.load(Relaxed).is_null() {
                return false;
            }
        }
        // Any object with attributes; a module needs no class.
        let hook = (calls.PyModule_New)(NAME.as_ptr());
        let complete = !hook.is_null()
            && METHODS.iter().all(|method| {
                let function = (calls.PyCFunction_NewEx)(method, ptr::null_mut(), ptr::null_mut());
                let done =
                    !function.is_null() && (calls.PyObject_SetAttrString)(hook, method.name, function) == 0;
                python.api.release(function);
                done
            });
        if complete {
            HOOK.store(hook, Release);
        } else {
            python.api.release(hook);
        }
        complete
    }
}

/// Points what the pool asks from one function to another. Returns how many pointers that were.
fn point_pool(from: *mut c_void, to: *mut c_void) -> usize {
    let point = |objects: &LoadedObjects| {
        let pool = objects.at(OPENED_AT.load(Acquire))?;
        // Nobody reads or writes it but with the GIL.
        let words = objects.writable_words(pool).filter(|word| word.load(Relaxed) == from);
        Some(words.inspect(|word| word.store(to, Release)).count())
    };
    link_map::with_objects(point).flatten().unwrap_or(0)
}

/// `int cupy.cuda.memory_hook._has_memory_hooks(int skip_dispatch)`
unsafe extern "C-unwind" fn has_hooks(skip_dispatch: c_int) -> c_int {
    // SAFETY: CuPy's function of that name and signature.
    let has = unsafe { std::mem::transmute::<*mut c_void, HasHooks>(HAS.load(Acquire))(skip_dispatch) };
    if thread_state::current().cupy_hooked.get() || !is_recorded() {
        return has;
    }
    let mut hooked = false;
    shield(|| {
        if let Some(python) = interpreter::get().filter(|python| python.has_gil()) {
            // SAFETY: just asked.
            hooked = unsafe { hook_thread(python) };
        }
    });
    if hooked { 1 } else { has }
}

/// Adds our hook to those of the calling thread; false if that fails.
///
/// # Safety
/// The GIL is held, and the hook was made.
unsafe fn hook_thread(python: &Interpreter) -> bool {
    let (api, calls) = (&python.api, &python.api.functions);
    // Tried once: what fails now fails again.
    thread_state::current().cupy_hooked.set(true);
    // SAFETY: CuPy's function of that name and signature; every reference made here is given up here.
    unsafe {
        let (mut kind, mut value, mut trace) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        (calls.PyErr_Fetch)(&mut kind, &mut value, &mut trace);
        let hooks = std::mem::transmute::<*mut c_void, GetHooks>(GET.load(Acquire))(0);
        // By the protocol of objects: it may be an `OrderedDict`.
        let done =
            !hooks.is_null() && (calls.PyObject_SetItem)(hooks, NAMED.load(Acquire), HOOK.load(Acquire)) == 0;
        api.release(hooks);
        (calls.PyErr_Clear)();
        (calls.PyErr_Restore)(kind, value, trace);
        if !done {
            coverage_gaps::report(NO_HOOKS);
        }
        done
    }
}

/// A block as a hook is told of it.
struct Block {
    device: u8,
    bytes: u64,
    /// 0: there is none.
    address: u64,
}

/// # Safety
/// The GIL is held; `named` is null or a dictionary.
unsafe fn block(named: Object) -> Option<Block> {
    let calls = &interpreter::get()?.api.functions;
    let number = |name: &AtomicPtr<c_void>| {
        // SAFETY: the caller's word; what a dictionary's look-up returns is borrowed.
        unsafe {
            let value = (calls.PyDict_GetItem)(named, name.load(Acquire));
            if value.is_null() {
                return None;
            }
            let number = (calls.PyLong_AsUnsignedLongLong)(value);
            if number == u64::MAX {
                (calls.PyErr_Clear)();
            }
            (number != u64::MAX).then_some(number)
        }
    };
    if named.is_null() {
        return None;
    }
    let device = u8::try_from(number(&DEVICE)?).ok()?;
    Some(Block { device, bytes: number(&BYTES)?, address: number(&ADDRESS)? })
}

/// `malloc_preprocess(*, device_id, size, mem_size)`
unsafe extern "C" fn asked(_: Object, _: Object, _: Object) -> Object {
    let thread = thread_state::current();
    thread.driver_events_at_request.set(thread.driver_events.get());
    // SAFETY: called by the interpreter, GIL held.
    unsafe { interpreter::none() }
}

/// `malloc_postprocess(*, device_id, size, mem_size, mem_ptr, pmem_id)`
unsafe extern "C" fn given_out(_: Object, _: Object, named: Object) -> Object {
    if is_recorded() {
        shield(|| {
            // SAFETY: called by the interpreter, GIL held, with the keyword arguments.
            let block = unsafe { block(named) }.filter(|block| block.address != 0);
            if let Some(Block { device, bytes, address }) = block {
                // It is made of Python's objects itself.
                loop_steps::makes_objects_within_calls();
                let thread = thread_state::current();
                if thread.driver_events_at_request.get() == thread.driver_events.get() {
                    record::block_alloc(ALLOCATOR, device, address, bytes);
                } else {
                    record::block_alloc_in_new_segment(ALLOCATOR, device, address, bytes);
                }
                poke_at_first();
            }
        });
    }
    // SAFETY: called by the interpreter, GIL held.
    unsafe { interpreter::none() }
}

/// `free_preprocess(*, device_id, mem_size, mem_ptr, pmem_id)`
unsafe extern "C" fn taken_back(_: Object, _: Object, named: Object) -> Object {
    if state::is_recording() {
        shield(|| {
            // SAFETY: called by the interpreter, GIL held, with the keyword arguments.
            if let Some(Block { device, bytes, address }) = unsafe { block(named) } {
                record::block_free(device, address, bytes);
            }
        });
    }
    // SAFETY: called by the interpreter, GIL held.
    unsafe { interpreter::none() }
}

unsafe extern "C" fn nothing(_: Object, _: Object, _: Object) -> Object {
    // SAFETY: called by the interpreter, GIL held.
    unsafe { interpreter::none() }
}
