//! The runtime's allocators. A driver event that happens inside one of these takes its name; where none
//! happens (the runtime's driver calls do not come through our hooks), the call is the event.
//!
//! The structs are our own: cudarc's bindings of the runtime are many thousand lines, for three that are as
//! they were in CUDA 3, one of them passed by value.

use std::mem::offset_of;

use cudarc::driver::sys::CUstream;
use leaktrace_core::format::event::MemoryClass::{Array, Async, Host, Linear, Managed, Pitched, Registered};

use crate::hooks::{Arg, Handle, graph, hooks, pool};

/// `cudaPitchedPtr`
#[repr(C)]
pub struct PitchedPtr {
    p: u64,
    pitch: usize,
    width: usize,
    height: usize,
}

/// `cudaExtent`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Extent {
    width: usize,
    height: usize,
    depth: usize,
}

/// `cudaChannelFormatDesc`: bits per channel, and a kind.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Channels {
    bits: [i32; 4],
    kind: u32,
}

impl Channels {
    fn bytes(&self, extent: Extent) -> u64 {
        let bits: u64 = self.bits.iter().map(|&b| u64::from(b.unsigned_abs())).sum();
        let lengths = [extent.width, extent.height, extent.depth].map(|n| (n as u64).max(1));
        lengths.into_iter().fold(bits, u64::saturating_mul) / 8
    }
}

hooks! {
    /// `cudaMalloc(void **p, size_t bytes)`
    fn malloc(p: Arg<u64>, bytes: usize) => |call| call.runtime_alloc(Linear, || (p.get(), bytes as u64));

    /// `cudaMallocManaged(void **p, size_t bytes, unsigned flags)`
    fn malloc_managed(p: Arg<u64>, bytes: usize, flags: u32) => |call| {
        call.runtime_alloc(Managed, || (p.get(), bytes as u64))
    };

    /// `cudaMallocPitch(void **p, size_t *pitch, size_t width, size_t height)`
    fn malloc_pitch(p: Arg<u64>, pitch: Arg<usize>, width: usize, height: usize) => |call| {
        call.runtime_alloc(Pitched, || (p.get(), (pitch.get() as u64).saturating_mul(height as u64)))
    };

    /// `cudaMalloc3D(cudaPitchedPtr *p, cudaExtent extent)`
    fn malloc_3d(p: Arg<PitchedPtr>, extent: Extent) => |call| call.runtime_alloc(Pitched, || {
        let rows = (extent.height as u64).saturating_mul(extent.depth as u64);
        let pitch: usize = p.field(offset_of!(PitchedPtr, pitch));
        (p.field(offset_of!(PitchedPtr, p)), (pitch as u64).saturating_mul(rows))
    });

    /// `cudaMallocAsync(void **p, size_t bytes, cudaStream_t stream)`
    fn malloc_async(p: Arg<u64>, bytes: usize, stream: Handle) => |call| {
        call.runtime_alloc(Async, || (p.get(), bytes as u64))
    };

    /// `cudaMallocFromPoolAsync(void **p, size_t bytes, cudaMemPool_t pool, cudaStream_t stream)`
    fn malloc_from_pool(p: Arg<u64>, bytes: usize, pool: Handle, stream: Handle) => |call| {
        call.runtime_alloc(Async, || (p.get(), bytes as u64))
    };

    /// `cudaMallocHost(void **p, size_t bytes)`
    fn malloc_host(p: Arg<u64>, bytes: usize) => |call| call.runtime_alloc(Host, || (p.get(), bytes as u64));

    /// `cudaHostAlloc(void **p, size_t bytes, unsigned flags)`
    fn host_alloc(p: Arg<u64>, bytes: usize, flags: u32) => |call| {
        call.runtime_alloc(Host, || (p.get(), bytes as u64))
    };

    /// `cudaFree(void *p)`
    fn free(p: Handle) => |call| call.runtime_free(Linear, p as u64);

    /// `cudaFreeAsync(void *p, cudaStream_t stream)`
    fn free_async(p: Handle, stream: CUstream) => |call| {
        if pool::is_capturing(call.id, stream) {
            graph::note_memory_node();
            return call.pass();
        }
        call.runtime_free(Async, p as u64)
    };

    /// `cudaFreeHost(void *p)`
    fn free_host(p: Handle) => |call| call.runtime_free(Host, p as u64);

    /// `cudaHostRegister(void *p, size_t bytes, unsigned flags)`
    fn host_register(p: Handle, bytes: usize, flags: u32) => |call| {
        call.runtime_alloc(Registered, || (p as u64, bytes as u64))
    };

    /// `cudaHostUnregister(void *p)`
    fn host_unregister(p: Handle) => |call| call.runtime_free(Registered, p as u64);

    /// `cudaMallocArray(cudaArray_t *array, const cudaChannelFormatDesc *, size_t width, size_t height,
    /// unsigned flags)`
    fn malloc_array(
        array: Arg<u64>,
        channels: Arg<Channels>,
        width: usize,
        height: usize,
        flags: u32,
    ) => |call| call.runtime_alloc(Array, || {
        (array.get(), channels.get().bytes(Extent { width, height, depth: 0 }))
    });

    /// `cudaMalloc3DArray(cudaArray_t *array, const cudaChannelFormatDesc *, cudaExtent extent, unsigned
    /// flags)`
    fn malloc_3d_array(array: Arg<u64>, channels: Arg<Channels>, extent: Extent, flags: u32) => |call| {
        call.runtime_alloc(Array, || (array.get(), channels.get().bytes(extent)))
    };

    /// `cudaMallocMipmappedArray(cudaMipmappedArray_t *array, const cudaChannelFormatDesc *, cudaExtent
    /// extent, unsigned levels, unsigned flags)`
    fn malloc_mipmapped_array(
        array: Arg<u64>,
        channels: Arg<Channels>,
        extent: Extent,
        levels: u32,
        flags: u32,
    ) => |call| call.runtime_alloc(Array, || (array.get(), mipmapped_bytes(channels.get(), extent, levels)));

    /// `cudaFreeArray(cudaArray_t array)`, `cudaFreeMipmappedArray(cudaMipmappedArray_t array)`
    fn free_array(array: Handle) => |call| call.runtime_free(Array, array as u64);
}

/// Bytes of a mipmapped array; the number of levels is clamped to 1 + floor(log2(largest extent)), as
/// documented.
fn mipmapped_bytes(channels: Channels, extent: Extent, levels: u32) -> u64 {
    let Extent { width, height, depth } = extent;
    let largest = width.max(height).max(depth).max(1);
    let level = |n: u32| {
        let halved = |size: usize| size >> n.min(63);
        Extent { width: halved(width), height: halved(height), depth: halved(depth) }
    };
    let levels = levels.clamp(1, largest.ilog2() + 1);
    (0..levels).fold(0, |sum, n| sum.saturating_add(channels.bytes(level(n))))
}
