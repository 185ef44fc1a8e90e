//! Pinned host memory: the driver's own, and the program's made so.

use std::ffi::c_void;

use crate::hooks::Status;
use crate::hooks::real;
use crate::hooks::record;
use crate::hooks::stored;
use leaktrace_core::format::event::MemoryClass;

/// `cuMemHostAlloc(void **p, size_t bytes, unsigned flags)`
pub unsafe extern "C" fn host_alloc<const ROW: usize, const SLOT: usize>(
    p: *mut *mut c_void,
    bytes: usize,
    flags: u32,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut *mut c_void, usize, u32));
    // SAFETY: the caller's own arguments; on success `p` was written.
    record::driver_alloc(
        ROW,
        MemoryClass::Host,
        || unsafe { real(p, bytes, flags) },
        || (unsafe { stored(p.cast::<u64>()) }, bytes as u64),
    )
}

/// `cuMemAllocHost(void **p, size_t bytes)`
pub unsafe extern "C" fn alloc_host<const ROW: usize, const SLOT: usize>(
    p: *mut *mut c_void,
    bytes: usize,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut *mut c_void, usize));
    // SAFETY: the caller's own arguments; on success `p` was written.
    record::driver_alloc(
        ROW,
        MemoryClass::Host,
        || unsafe { real(p, bytes) },
        || (unsafe { stored(p.cast::<u64>()) }, bytes as u64),
    )
}

/// `cuMemFreeHost(void *p)`
pub unsafe extern "C" fn free<const ROW: usize, const SLOT: usize>(p: *mut c_void) -> Status {
    let real = real!(ROW, SLOT, fn(*mut c_void));
    // SAFETY: the caller's own argument.
    record::driver_free(ROW, MemoryClass::Host, p as u64, || unsafe { real(p) })
}

/// `cuMemHostRegister(void *p, size_t bytes, unsigned flags)`. The program's own memory, page-locked from now on.
pub unsafe extern "C" fn register<const ROW: usize, const SLOT: usize>(
    p: *mut c_void,
    bytes: usize,
    flags: u32,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut c_void, usize, u32));
    record::driver_alloc(
        ROW,
        MemoryClass::Registered,
        // SAFETY: the caller's own arguments.
        || unsafe { real(p, bytes, flags) },
        || (p as u64, bytes as u64),
    )
}

/// `cuMemHostUnregister(void *p)`
pub unsafe extern "C" fn unregister<const ROW: usize, const SLOT: usize>(p: *mut c_void) -> Status {
    let real = real!(ROW, SLOT, fn(*mut c_void));
    // SAFETY: the caller's own argument.
    record::driver_free(ROW, MemoryClass::Registered, p as u64, || unsafe { real(p) })
}
