//! Stream-ordered memory out of pools. The per-thread-stream forms have the same signatures.

use super::{Status, real, stored};
use crate::preload::note;
use crate::trace::record::Class;
use cudarc::driver::sys::{CUdeviceptr, CUmemoryPool, CUstream};

/// `cuMemAllocAsync(CUdeviceptr *p, size_t bytes, CUstream stream)`
pub unsafe extern "C" fn alloc<const ROW: usize, const SLOT: usize>(
    p: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUdeviceptr, usize, CUstream));
    // SAFETY: the caller's own arguments; on success `p` was written.
    note::driver_alloc(
        ROW,
        Class::Async,
        || unsafe { real(p, bytes, stream) },
        || (unsafe { stored(p) }, bytes as u64),
    )
}

/// `cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t bytes, CUmemoryPool pool, CUstream stream)`
pub unsafe extern "C" fn alloc_from_pool<const ROW: usize, const SLOT: usize>(
    p: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUdeviceptr, usize, CUmemoryPool, CUstream));
    // SAFETY: the caller's own arguments; on success `p` was written.
    note::driver_alloc(
        ROW,
        Class::Async,
        || unsafe { real(p, bytes, pool, stream) },
        || (unsafe { stored(p) }, bytes as u64),
    )
}

/// `cuMemFreeAsync(CUdeviceptr p, CUstream stream)`
pub unsafe extern "C" fn free<const ROW: usize, const SLOT: usize>(
    p: CUdeviceptr,
    stream: CUstream,
) -> Status {
    let real = real!(ROW, SLOT, fn(CUdeviceptr, CUstream));
    // SAFETY: the caller's own arguments.
    note::driver_free(ROW, Class::Async, p, || unsafe { real(p, stream) })
}
