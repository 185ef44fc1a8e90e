//! The runtime's allocators. A driver event that happens inside one of these takes its name; where none happens (the
//! runtime's driver calls do not pass our doors), the call is the event.

use std::ffi::c_void;

use crate::hooks::Status;
use crate::hooks::real;
use crate::hooks::record;
use crate::hooks::stored;
use leaktrace_core::format::event::MemoryClass;

/// `cudaPitchedPtr`
#[derive(Clone, Copy, Default)]
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

type Pointer = *mut u64;

/// `cudaMalloc(void **p, size_t bytes)`
pub unsafe extern "C" fn malloc<const ROW: usize, const SLOT: usize>(p: Pointer, bytes: usize) -> Status {
    let real = real!(ROW, SLOT, fn(Pointer, usize));
    // SAFETY: here and below: the caller's own arguments; on success the out-parameters were written.
    record::runtime_alloc(
        ROW,
        SLOT,
        MemoryClass::Linear,
        || unsafe { real(p, bytes) },
        || unsafe { (stored(p), bytes as u64) },
    )
}

/// `cudaMallocManaged(void **p, size_t bytes, unsigned flags)`
pub unsafe extern "C" fn malloc_managed<const ROW: usize, const SLOT: usize>(
    p: Pointer,
    bytes: usize,
    flags: u32,
) -> Status {
    let real = real!(ROW, SLOT, fn(Pointer, usize, u32));
    // SAFETY: see `malloc`.
    record::runtime_alloc(
        ROW,
        SLOT,
        MemoryClass::Managed,
        || unsafe { real(p, bytes, flags) },
        || unsafe { (stored(p), bytes as u64) },
    )
}

/// `cudaMallocPitch(void **p, size_t *pitch, size_t width, size_t height)`
pub unsafe extern "C" fn malloc_pitch<const ROW: usize, const SLOT: usize>(
    p: Pointer,
    pitch: *mut usize,
    width: usize,
    height: usize,
) -> Status {
    let real = real!(ROW, SLOT, fn(Pointer, *mut usize, usize, usize));
    // SAFETY: see `malloc`.
    record::runtime_alloc(
        ROW,
        SLOT,
        MemoryClass::Pitched,
        || unsafe { real(p, pitch, width, height) },
        || unsafe { (stored(p), (stored(pitch) as u64).saturating_mul(height as u64)) },
    )
}

/// `cudaMalloc3D(cudaPitchedPtr *p, cudaExtent extent)`
pub unsafe extern "C" fn malloc_3d<const ROW: usize, const SLOT: usize>(
    p: *mut PitchedPtr,
    extent: Extent,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut PitchedPtr, Extent));
    let rows = (extent.height as u64).saturating_mul(extent.depth as u64);
    // SAFETY: see `malloc`.
    record::runtime_alloc(
        ROW,
        SLOT,
        MemoryClass::Pitched,
        || unsafe { real(p, extent) },
        || {
            // SAFETY: see `malloc`.
            let given = unsafe { stored(p) };
            (given.p, (given.pitch as u64).saturating_mul(rows))
        },
    )
}

/// `cudaMallocAsync(void **p, size_t bytes, cudaStream_t stream)`
pub unsafe extern "C" fn malloc_async<const ROW: usize, const SLOT: usize>(
    p: Pointer,
    bytes: usize,
    stream: *mut c_void,
) -> Status {
    let real = real!(ROW, SLOT, fn(Pointer, usize, *mut c_void));
    // SAFETY: see `malloc`.
    record::runtime_alloc(
        ROW,
        SLOT,
        MemoryClass::Async,
        || unsafe { real(p, bytes, stream) },
        || unsafe { (stored(p), bytes as u64) },
    )
}

/// `cudaMallocFromPoolAsync(void **p, size_t bytes, cudaMemPool_t pool, cudaStream_t stream)`
pub unsafe extern "C" fn malloc_from_pool<const ROW: usize, const SLOT: usize>(
    p: Pointer,
    bytes: usize,
    pool: *mut c_void,
    stream: *mut c_void,
) -> Status {
    let real = real!(ROW, SLOT, fn(Pointer, usize, *mut c_void, *mut c_void));
    // SAFETY: see `malloc`.
    record::runtime_alloc(
        ROW,
        SLOT,
        MemoryClass::Async,
        || unsafe { real(p, bytes, pool, stream) },
        || unsafe { (stored(p), bytes as u64) },
    )
}

/// `cudaMallocHost(void **p, size_t bytes)`
pub unsafe extern "C" fn malloc_host<const ROW: usize, const SLOT: usize>(
    p: Pointer,
    bytes: usize,
) -> Status {
    let real = real!(ROW, SLOT, fn(Pointer, usize));
    // SAFETY: see `malloc`.
    record::runtime_alloc(
        ROW,
        SLOT,
        MemoryClass::Host,
        || unsafe { real(p, bytes) },
        || unsafe { (stored(p), bytes as u64) },
    )
}

/// `cudaHostAlloc(void **p, size_t bytes, unsigned flags)`
pub unsafe extern "C" fn host_alloc<const ROW: usize, const SLOT: usize>(
    p: Pointer,
    bytes: usize,
    flags: u32,
) -> Status {
    let real = real!(ROW, SLOT, fn(Pointer, usize, u32));
    // SAFETY: see `malloc`.
    record::runtime_alloc(
        ROW,
        SLOT,
        MemoryClass::Host,
        || unsafe { real(p, bytes, flags) },
        || unsafe { (stored(p), bytes as u64) },
    )
}

/// `cudaFree(void *p)`
pub unsafe extern "C" fn free<const ROW: usize, const SLOT: usize>(p: *mut c_void) -> Status {
    let real = real!(ROW, SLOT, fn(*mut c_void));
    // SAFETY: see `malloc`.
    record::runtime_free(ROW, MemoryClass::Linear, p as u64, || unsafe { real(p) })
}

/// `cudaFreeAsync(void *p, cudaStream_t stream)`
pub unsafe extern "C" fn free_async<const ROW: usize, const SLOT: usize>(
    p: *mut c_void,
    stream: *mut c_void,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut c_void, *mut c_void));
    // SAFETY: see `malloc`.
    let real = || unsafe { real(p, stream) };
    if crate::hooks::pool::captured(ROW, stream.cast()) {
        crate::hooks::graph::node_made();
        return real();
    }
    record::runtime_free(ROW, MemoryClass::Async, p as u64, real)
}

/// `cudaFreeHost(void *p)`
pub unsafe extern "C" fn free_host<const ROW: usize, const SLOT: usize>(p: *mut c_void) -> Status {
    let real = real!(ROW, SLOT, fn(*mut c_void));
    // SAFETY: see `malloc`.
    record::runtime_free(ROW, MemoryClass::Host, p as u64, || unsafe { real(p) })
}

/// `cudaHostRegister(void *p, size_t bytes, unsigned flags)`
pub unsafe extern "C" fn host_register<const ROW: usize, const SLOT: usize>(
    p: *mut c_void,
    bytes: usize,
    flags: u32,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut c_void, usize, u32));
    record::runtime_alloc(
        ROW,
        SLOT,
        MemoryClass::Registered,
        // SAFETY: see `malloc`.
        || unsafe { real(p, bytes, flags) },
        || (p as u64, bytes as u64),
    )
}

/// `cudaHostUnregister(void *p)`
pub unsafe extern "C" fn host_unregister<const ROW: usize, const SLOT: usize>(p: *mut c_void) -> Status {
    let real = real!(ROW, SLOT, fn(*mut c_void));
    // SAFETY: see `malloc`.
    record::runtime_free(ROW, MemoryClass::Registered, p as u64, || unsafe { real(p) })
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

/// `cudaMallocArray(cudaArray_t *array, const cudaChannelFormatDesc *, size_t width, size_t height, unsigned flags)`
pub unsafe extern "C" fn malloc_array<const ROW: usize, const SLOT: usize>(
    array: Pointer,
    channels: *const Channels,
    width: usize,
    height: usize,
    flags: u32,
) -> Status {
    let real = real!(ROW, SLOT, fn(Pointer, *const Channels, usize, usize, u32));
    // SAFETY: see `malloc`.
    record::runtime_alloc(
        ROW,
        SLOT,
        MemoryClass::Array,
        || unsafe { real(array, channels, width, height, flags) },
        || unsafe { (stored(array), stored(channels).bytes(Extent { width, height, depth: 0 })) },
    )
}

/// `cudaMalloc3DArray(cudaArray_t *array, const cudaChannelFormatDesc *, cudaExtent extent, unsigned flags)`
pub unsafe extern "C" fn malloc_3d_array<const ROW: usize, const SLOT: usize>(
    array: Pointer,
    channels: *const Channels,
    extent: Extent,
    flags: u32,
) -> Status {
    let real = real!(ROW, SLOT, fn(Pointer, *const Channels, Extent, u32));
    // SAFETY: see `malloc`.
    record::runtime_alloc(
        ROW,
        SLOT,
        MemoryClass::Array,
        || unsafe { real(array, channels, extent, flags) },
        || unsafe { (stored(array), stored(channels).bytes(extent)) },
    )
}

/// `cudaMallocMipmappedArray(cudaMipmappedArray_t *array, const cudaChannelFormatDesc *, cudaExtent extent, unsigned levels,
/// unsigned flags)`
pub unsafe extern "C" fn malloc_mipmapped_array<const ROW: usize, const SLOT: usize>(
    array: Pointer,
    channels: *const Channels,
    extent: Extent,
    levels: u32,
    flags: u32,
) -> Status {
    let real = real!(ROW, SLOT, fn(Pointer, *const Channels, Extent, u32, u32));
    let level = |n: u32| {
        let halved = |size: usize| size >> n.min(63);
        Extent { width: halved(extent.width), height: halved(extent.height), depth: halved(extent.depth) }
    };
    // SAFETY: see `malloc`.
    record::runtime_alloc(
        ROW,
        SLOT,
        MemoryClass::Array,
        || unsafe { real(array, channels, extent, levels, flags) },
        || {
            // SAFETY: see `malloc`.
            let (array, channels) = unsafe { (stored(array), stored(channels)) };
            let largest = extent.width.max(extent.height).max(extent.depth).max(1);
            let levels = levels.clamp(1, largest.ilog2() + 1);
            (array, (0..levels).fold(0, |sum, n| sum.saturating_add(channels.bytes(level(n)))))
        },
    )
}

/// `cudaFreeArray(cudaArray_t array)`, `cudaFreeMipmappedArray(cudaMipmappedArray_t array)`
pub unsafe extern "C" fn free_array<const ROW: usize, const SLOT: usize>(array: *mut c_void) -> Status {
    let real = real!(ROW, SLOT, fn(*mut c_void));
    // SAFETY: see `malloc`.
    record::runtime_free(ROW, MemoryClass::Array, array as u64, || unsafe { real(array) })
}
