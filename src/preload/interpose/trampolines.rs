//! The interposers of the loader's functions: naked functions that end with a jump.
//!
//! glibc decides by the return address who is asking (`RTLD_NEXT`, `RTLD_DEFAULT`, a library's search path),
//! so no frame of ours may stand on the stack when the loader's own function runs: a trampoline asks where to
//! go, and jumps. The exported CUDA symbols jump too: every argument stays where it is, and the return
//! address tells whose scope the real function is to be taken from.
//!
//! Nothing else is decided here: `symbol_lookup` says what a look-up finds, `dispatch` where a call goes.

use std::ffi::{CStr, c_char, c_void};

use crate::hooks::{driver_queries, entry_points};
use crate::interpose::{cancel, dispatch, exec, exit, got_patch, jumps, sandbox, symbol_lookup};
use crate::lifecycle;
use crate::loader::functions::{DLCLOSE, DLERROR, DLMOPEN, DLOPEN, DLSYM, Dlclose, Dlerror, Dlopen};
use crate::loader::link_map::{self, ObjectId};
use crate::machine;
use crate::settings;

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn() = {
    // Nothing else: a process that never touches CUDA pays for a few look-ups, and a look at its environment.
    extern "C" fn constructor() {
        look_up();
        settings::note_environment();
        exit::watch();
        lifecycle::loaded();
    }
    constructor
};

/// Looks up what the interposers hand on to.
pub fn look_up() {
    DLSYM.next(c"dlsym");
    DLOPEN.next(c"dlopen");
    exec::look_up();
    jumps::look_up();
    cancel::look_up();
    sandbox::look_up();
    exit::look_up();
}

/// What a trampoline does next, returned in two registers: it returns a value, or jumps to a function.
#[repr(C)]
pub struct TailCall {
    value: *const c_void,
    jump: *const c_void,
}

impl TailCall {
    pub fn value(value: *const c_void) -> TailCall {
        TailCall { value, jump: std::ptr::null() }
    }

    pub fn jump(to: *const c_void) -> TailCall {
        TailCall { value: std::ptr::null(), jump: to }
    }

    /// Where it jumps to; null if it returns a value.
    #[cfg(test)]
    pub fn jump_target(&self) -> *const c_void {
        self.jump
    }
}

/// Interposes `dlsym`.
///
/// # Safety
/// That of the C library's function.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_dlsym"))]
pub unsafe extern "C" fn dlsym(_handle: *mut c_void, _symbol: *const c_char) -> *mut c_void {
    // A failing look-up goes on to `dlvsym`, which takes one argument more.
    machine::dlsym!(symbol_lookup::resolve_dlsym, NO_VERSION)
}

/// Interposes `dlvsym`.
///
/// # Safety
/// That of the C library's function.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_dlvsym"))]
pub unsafe extern "C" fn dlvsym(
    _handle: *mut c_void,
    _symbol: *const c_char,
    _version: *const c_char,
) -> *mut c_void {
    machine::dlvsym!(symbol_lookup::resolve_dlvsym)
}

/// The version of a look-up that is to fail, so that `dlerror` names the object it failed for; no export of
/// ours has it.
static NO_VERSION: [u8; 10] = *b"leaktrace\0";
const NO_VERSION_IN_ERROR: &[u8] = b", version leaktrace";

/// Interposes `dlerror`: where a look-up failed that would have found an export of ours, the loader's message
/// names a version that nobody asked for. What is left when that is cut off is the message of the same
/// look-up without us.
///
/// # Safety
/// That of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_dlerror"))]
pub unsafe extern "C" fn dlerror() -> *mut c_char {
    let real = DLERROR.next(c"dlerror");
    if real.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the next `dlerror`; it gives null or a C string that is the calling thread's to change until it
    // asks again, on the heap where it names a symbol.
    unsafe {
        let text = std::mem::transmute::<*mut c_void, Dlerror>(real)();
        if !text.is_null()
            && let message = CStr::from_ptr(text).to_bytes()
            && message.ends_with(NO_VERSION_IN_ERROR)
        {
            text.add(message.len() - NO_VERSION_IN_ERROR.len()).write(0);
        }
        text
    }
}

/// Interposes `dlopen`: costs one test, unless the library's own scope is to come before ours.
///
/// # Safety
/// That of the C library's function.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_dlopen"))]
pub unsafe extern "C" fn dlopen(_file: *const c_char, _mode: i32) -> *mut c_void {
    machine::dlopen!(open_deepbind, libc::RTLD_DEEPBIND, DLOPEN)
}

/// Opens a library whose own scope comes first, and patches it. Its constructors run before that: what those
/// allocate is not seen.
unsafe extern "C-unwind" fn open_deepbind(file: *const c_char, mode: i32) -> TailCall {
    let real = DLOPEN.next(c"dlopen");
    if real.is_null() || file.is_null() || mode & libc::RTLD_DEEPBIND == 0 || mode & libc::RTLD_NOLOAD != 0 {
        return TailCall::jump(real);
    }
    got_patch::poll_pending();
    // SAFETY: not null, so a C string of the caller's.
    let path = unsafe { CStr::from_ptr(file) };
    let bytes = path.to_bytes();
    if !bytes.contains(&b'/') || bytes.contains(&b'$') {
        // The loader searches on behalf of the caller.
        got_patch::patch_when_opened(path);
        return TailCall::jump(real);
    }
    // For a path the loader does not ask who is calling: it may as well be us.
    let last = got_patch::last_object();
    // SAFETY: the next `dlopen`, the caller's own arguments.
    let handle = unsafe { std::mem::transmute::<*mut c_void, Dlopen>(real)(file, mode) };
    if let Some(root) = ObjectId::of_handle(handle) {
        got_patch::patch_opened(root, last);
    }
    TailCall::value(handle)
}

/// Interposes `dlmopen`: a namespace of its own has no export of ours in it.
///
/// # Safety
/// That of the C library's function.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_dlmopen"))]
pub unsafe extern "C" fn dlmopen(_namespace: i64, _file: *const c_char, _mode: i32) -> *mut c_void {
    machine::tail_jump!(open_in_namespace)
}

unsafe extern "C" fn open_in_namespace(namespace: i64, file: *const c_char, mode: i32) -> *const c_void {
    if !file.is_null() && (namespace != 0 || mode & libc::RTLD_DEEPBIND != 0) && mode & libc::RTLD_NOLOAD == 0
    {
        // SAFETY: not null, so a C string of the caller's.
        got_patch::note_dlmopen(unsafe { CStr::from_ptr(file) });
    }
    DLMOPEN.next(c"dlmopen")
}

/// Interposes `dlclose`, so that nothing remembered of a library that is gone is taken for what now lies at
/// its addresses. Unlike `dlopen` and `dlsym` it does not ask who calls, so it may simply be called.
///
/// # Safety
/// That of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_dlclose"))]
pub unsafe extern "C-unwind" fn dlclose(handle: *mut c_void) -> i32 {
    let real = DLCLOSE.next(c"dlclose");
    if real.is_null() {
        return -1;
    }
    got_patch::poll_pending();
    // SAFETY: the next `dlclose`, the caller's own handle.
    let status = unsafe { std::mem::transmute::<*mut c_void, Dlclose>(real)(handle) };
    link_map::after_unloads(|| {
        got_patch::forget_unloaded();
        driver_queries::forget_unloaded();
        entry_points::forget_unloaded();
        dispatch::forget_unloaded();
        lifecycle::unloaded();
    });
    status
}
