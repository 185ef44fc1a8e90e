//! Stream-ordered memory out of pools. The per-thread-stream forms have the same signatures.
//!
//! On a stream that is being captured nothing is allocated or freed: nodes of a graph are made (see `graph`).

use std::mem::offset_of;

use cudarc::driver::sys::{CUdeviceptr, CUmemPoolProps, CUmemoryPool, CUstream};
use leaktrace_core::format::event::MemoryClass::Async;

use crate::coverage_gaps;
use crate::hooks::virtual_memory::LOCATION_DEVICE;
use crate::hooks::{Arg, driver_queries, entry_points, events, graph, hooks};

/// True if the stream, as the caller of that entry point means it, is being captured.
pub fn is_capturing(id: usize, stream: CUstream) -> bool {
    /// `CU_STREAM_PER_THREAD`
    const PER_THREAD: CUstream = 2 as CUstream;
    let own = stream.is_null() && entry_points::entry_point(id).per_thread;
    driver_queries::is_capturing(if own { PER_THREAD } else { stream })
}

hooks! {
    /// `cuMemAllocAsync(CUdeviceptr *p, size_t bytes, CUstream stream)`
    fn alloc(p: Arg<CUdeviceptr>, bytes: usize, stream: CUstream) => |call| {
        if is_capturing(call.id, stream) {
            graph::note_memory_node();
            let (device, _) = events::reentrant(driver_queries::current);
            return call.record_graph_node(|| Some((p.get(), bytes as u64, device)));
        }
        call.driver_alloc(Async, || (p.get(), bytes as u64))
    };

    /// `cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t bytes, CUmemoryPool pool, CUstream stream)`
    fn alloc_from_pool(p: Arg<CUdeviceptr>, bytes: usize, pool: CUmemoryPool, stream: CUstream) => |call| {
        let device = driver_queries::pool_device(pool);
        if is_capturing(call.id, stream) {
            graph::note_memory_node();
            let device = device.unwrap_or_else(|| events::reentrant(driver_queries::current).0);
            return call.record_graph_node(|| Some((p.get(), bytes as u64, device)));
        }
        call.driver_alloc_on(device, Async, || (p.get(), bytes as u64))
    };

    /// `cuMemFreeAsync(CUdeviceptr p, CUstream stream)`
    fn free(p: CUdeviceptr, stream: CUstream) => |call| {
        if is_capturing(call.id, stream) {
            graph::note_memory_node();
            return call.pass();
        }
        call.driver_free(Async, p)
    };

    /// `cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)`. A pool that the program makes
    /// is asked at each boundary what it has reserved.
    fn create(pool: Arg<CUmemoryPool>, properties: Arg<CUmemPoolProps>) => |call| call.call_then(|| {
        let kind: u32 = properties.field(offset_of!(CUmemPoolProps, location.type_));
        let device: i32 = properties.field(offset_of!(CUmemPoolProps, location.id));
        if kind == LOCATION_DEVICE && !driver_queries::pool_made(pool.handle() as usize, device as u8) {
            coverage_gaps::report(
                "more than 256 memory pools at a time: what the others hold unused is not seen",
            );
        }
    });

    /// `cuMemPoolDestroy(CUmemoryPool pool)`. What was taken from it lives on until it is freed.
    fn destroy(pool: CUmemoryPool) => |call| {
        // Before the call: another thread may be given the same handle at once.
        driver_queries::pool_gone(pool);
        call.pass()
    };
}
