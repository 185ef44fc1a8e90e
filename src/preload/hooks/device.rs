//! Linear, pitched and managed device memory.

use super::{Status, real, stored};
use crate::preload::note;
use crate::trace::record::Class;
use cudarc::driver::sys::CUdeviceptr;

/// `cuMemAlloc(CUdeviceptr *p, size_t bytes)`
pub unsafe extern "C" fn alloc<const ROW: usize, const SLOT: usize>(
    p: *mut CUdeviceptr,
    bytes: usize,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUdeviceptr, usize));
    // SAFETY: the caller's own arguments; on success `p` was written.
    note::driver_alloc(
        ROW,
        Class::Linear,
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
    note::driver_alloc(
        ROW,
        Class::Pitched,
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
    note::driver_alloc(
        ROW,
        Class::Managed,
        || unsafe { real(p, bytes, flags) },
        || (unsafe { stored(p) }, bytes as u64),
    )
}

/// `cuMemFree(CUdeviceptr p)`
pub unsafe extern "C" fn free<const ROW: usize, const SLOT: usize>(p: CUdeviceptr) -> Status {
    let real = real!(ROW, SLOT, fn(CUdeviceptr));
    // SAFETY: the caller's own argument.
    note::driver_free(ROW, Class::Linear, p, || unsafe { real(p) })
}
