//! Linear, pitched and managed device memory.

use crate::hooks::Status;
use crate::hooks::real;
use crate::hooks::record;
use crate::hooks::stored;
use cudarc::driver::sys::CUdeviceptr;
use leaktrace_core::format::event::MemoryClass;

/// `cuMemAlloc(CUdeviceptr *p, size_t bytes)`
pub unsafe extern "C" fn alloc<const ROW: usize, const SLOT: usize>(
    p: *mut CUdeviceptr,
    bytes: usize,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUdeviceptr, usize));
    // SAFETY: the caller's own arguments; on success `p` was written.
    record::driver_alloc(
        ROW,
        MemoryClass::Linear,
        || unsafe { real(p, bytes) },
        || (unsafe { stored(p) }, bytes as u64),
    )
}

/// `cuMemAllocPitch(CUdeviceptr *p, size_t *pitch, size_t width, size_t height, unsigned element)`
pub unsafe extern "C" fn alloc_pitch<const ROW: usize, const SLOT: usize>(
    p: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: u32,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUdeviceptr, *mut usize, usize, usize, u32));
    record::driver_alloc(
        ROW,
        MemoryClass::Pitched,
        // SAFETY: the caller's own arguments.
        || unsafe { real(p, pitch, width, height, element) },
        // SAFETY: on success both were written.
        || unsafe { (stored(p), (stored(pitch) as u64).saturating_mul(height as u64)) },
    )
}

/// `cuMemAllocManaged(CUdeviceptr *p, size_t bytes, unsigned flags)`
pub unsafe extern "C" fn alloc_managed<const ROW: usize, const SLOT: usize>(
    p: *mut CUdeviceptr,
    bytes: usize,
    flags: u32,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUdeviceptr, usize, u32));
    // SAFETY: the caller's own arguments; on success `p` was written.
    record::driver_alloc(
        ROW,
        MemoryClass::Managed,
        || unsafe { real(p, bytes, flags) },
        || (unsafe { stored(p) }, bytes as u64),
    )
}

/// `cuMemFree(CUdeviceptr p)`
pub unsafe extern "C" fn free<const ROW: usize, const SLOT: usize>(p: CUdeviceptr) -> Status {
    let real = real!(ROW, SLOT, fn(CUdeviceptr));
    // SAFETY: the caller's own argument.
    record::driver_free(ROW, MemoryClass::Linear, p, || unsafe { real(p) })
}
