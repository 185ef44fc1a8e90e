//! `cuGetProcAddress`: the runtime's way to the driver. Asks the real one, then puts a hook in front of what it found.

use std::ffi::{CStr, c_char, c_void};

use crate::hooks::Status;
use crate::hooks::driver_queries;
use crate::hooks::real;
use crate::interpose::hook_table;

/// `cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)`, CUDA 11
pub unsafe extern "C" fn get_proc_address<const ROW: usize, const SLOT: usize>(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: i32,
    flags: u64,
) -> Status {
    let real = real!(ROW, SLOT, fn(*const c_char, *mut *mut c_void, i32, u64));
    // SAFETY: the caller's own arguments.
    let status = unsafe { real(symbol, function, version, flags) };
    // SAFETY: as just used by the real function.
    unsafe { put_hook(status, symbol, function, version, meant(ROW, flags)) };
    status
}

/// The same with `CUdriverProcAddressQueryResult *status`, which may be null, CUDA 12 and later
pub unsafe extern "C" fn get_proc_address_v2<const ROW: usize, const SLOT: usize>(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: i32,
    flags: u64,
    found: *mut c_void,
) -> Status {
    let real = real!(ROW, SLOT, fn(*const c_char, *mut *mut c_void, i32, u64, *mut c_void));
    // SAFETY: the caller's own arguments.
    let status = unsafe { real(symbol, function, version, flags, found) };
    // SAFETY: as just used by the real function.
    unsafe { put_hook(status, symbol, function, version, meant(ROW, flags)) };
    status
}

/// The forms for programs compiled with the per-thread default stream take no flags to mean theirs.
fn meant(row: usize, flags: u64) -> u64 {
    if flags == 0 && hook_table::entry_point(row).per_thread {
        driver_queries::PER_THREAD_STREAM
    } else {
        flags
    }
}

/// # Safety
/// `symbol` is null or a C string, `function` null or what the real function wrote to.
unsafe fn put_hook(
    status: Status,
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: i32,
    flags: u64,
) {
    if status != 0 || symbol.is_null() || function.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let address = *function;
        if !address.is_null() {
            *function = driver_queries::hook_for(CStr::from_ptr(symbol), address, version, flags).cast_mut();
        }
    }
}
