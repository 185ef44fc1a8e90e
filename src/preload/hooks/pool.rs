//! Stream-ordered memory out of pools. The per-thread-stream forms have the same signatures.
//!
//! On a stream that is being captured nothing is allocated or freed: nodes of a graph are made (see `graph`).

use crate::coverage_gaps;
use crate::hooks::Status;
use crate::hooks::driver_queries;
use crate::hooks::graph;
use crate::hooks::real;
use crate::hooks::record;
use crate::hooks::stored;
use crate::interpose::hook_table;
use cudarc::driver::sys::{CUdeviceptr, CUmemoryPool, CUstream};
use leaktrace_core::format::event::MemoryClass;

/// True if the stream, as the caller of that row means it, is being captured.
pub fn captured(row: usize, stream: CUstream) -> bool {
    /// `CU_STREAM_PER_THREAD`
    const PER_THREAD: CUstream = 2 as CUstream;
    let own = stream.is_null() && hook_table::entry_point(row).per_thread;
    driver_queries::is_capturing(if own { PER_THREAD } else { stream })
}

/// `cuMemAllocAsync(CUdeviceptr *p, size_t bytes, CUstream stream)`
pub unsafe extern "C" fn alloc<const ROW: usize, const SLOT: usize>(
    p: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUdeviceptr, usize, CUstream));
    // SAFETY: the caller's own arguments.
    let real = || unsafe { real(p, bytes, stream) };
    // SAFETY: asked after a call that succeeded, so `p` was written.
    let given = || unsafe { stored(p) };
    if captured(ROW, stream) {
        graph::node_made();
        let (device, _) = record::deeper(driver_queries::current);
        return record::planned(ROW, real, || Some((given(), bytes as u64, device)));
    }
    record::driver_alloc(ROW, MemoryClass::Async, real, || (given(), bytes as u64))
}

/// `cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t bytes, CUmemoryPool pool, CUstream stream)`
pub unsafe extern "C" fn alloc_from_pool<const ROW: usize, const SLOT: usize>(
    p: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUdeviceptr, usize, CUmemoryPool, CUstream));
    // SAFETY: the caller's own arguments.
    let real = || unsafe { real(p, bytes, pool, stream) };
    // SAFETY: asked after a call that succeeded, so `p` was written.
    let given = || unsafe { stored(p) };
    let device = driver_queries::pool_device(pool);
    if captured(ROW, stream) {
        graph::node_made();
        let device = device.unwrap_or_else(|| record::deeper(driver_queries::current).0);
        return record::planned(ROW, real, || Some((given(), bytes as u64, device)));
    }
    record::driver_alloc_on(ROW, MemoryClass::Async, device, real, || (given(), bytes as u64))
}

/// `cuMemFreeAsync(CUdeviceptr p, CUstream stream)`
pub unsafe extern "C" fn free<const ROW: usize, const SLOT: usize>(
    p: CUdeviceptr,
    stream: CUstream,
) -> Status {
    let real = real!(ROW, SLOT, fn(CUdeviceptr, CUstream));
    // SAFETY: the caller's own arguments.
    let real = || unsafe { real(p, stream) };
    if captured(ROW, stream) {
        graph::node_made();
        return real();
    }
    record::driver_free(ROW, MemoryClass::Async, p, real)
}

/// The head of `CUmemPoolProps`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Properties {
    kind: u32,
    handle_types: u32,
    location_kind: u32,
    location: i32,
}

/// `cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)`. A pool of its own is asked at each boundary
/// what it has reserved.
pub unsafe extern "C" fn create<const ROW: usize, const SLOT: usize>(
    pool: *mut CUmemoryPool,
    properties: *const Properties,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUmemoryPool, *const Properties));
    record::unnoted(
        // SAFETY: the caller's own arguments.
        || unsafe { real(pool, properties) },
        || {
            // SAFETY: the call succeeded, so it read the properties and wrote the handle.
            let (pool, made) = unsafe { (stored(pool.cast::<usize>()), stored(properties)) };
            /// `CU_MEM_LOCATION_TYPE_DEVICE`
            const DEVICE: u32 = 1;
            if made.location_kind == DEVICE && !driver_queries::pool_made(pool, made.location as u8) {
                coverage_gaps::name(
                    "more than 256 memory pools at a time: what the others hold unused is not seen",
                );
            }
        },
    )
}

/// `cuMemPoolDestroy(CUmemoryPool pool)`. What was taken from it lives on until it is freed.
pub unsafe extern "C" fn destroy<const ROW: usize, const SLOT: usize>(pool: CUmemoryPool) -> Status {
    let real = real!(ROW, SLOT, fn(CUmemoryPool));
    // Before the call: another thread may be given the same handle at once.
    driver_queries::pool_gone(pool);
    // SAFETY: the caller's own argument.
    unsafe { real(pool) }
}
