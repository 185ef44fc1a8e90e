//! Arrays and mipmapped arrays: device memory behind a handle. Their bytes come from the descriptor: the driver tells the
//! requirements of arrays with deferred mapping only, and those own no memory.

use crate::hooks::Status;
use crate::hooks::real;
use crate::hooks::record;
use crate::hooks::stored;
use cudarc::driver::sys::{CUarray, CUmipmappedArray};
use leaktrace_core::format::event::MemoryClass;

/// `CUDA_ARRAY3D_DESCRIPTOR`. The format as a number: one of a newer driver is no value of today's enum.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Descriptor {
    width: usize,
    height: usize,
    depth: usize,
    format: u32,
    channels: u32,
    flags: u32,
}

/// `CUDA_ARRAY_DESCRIPTOR`
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Descriptor2D {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_LAYERED`, `CUDA_ARRAY3D_CUBEMAP`
const LAYERED: u32 = 0x01 | 0x04;
/// `CUDA_ARRAY3D_SPARSE`, `CUDA_ARRAY3D_DEFERRED_MAPPING`: the memory is mapped in later, and seen where it is made.
const UNBACKED: u32 = 0x40 | 0x80;

impl Descriptor {
    /// Bits of one element, all channels; 0 for a format that is not known.
    fn bits(&self) -> u64 {
        let each = match self.format {
            0x01 | 0x08 => 8,
            0x02 | 0x09 | 0x10 => 16,
            0x03 | 0x0a | 0x20 => 32,
            // Formats that name all their channels: block-compressed ones, NV12, and normalised integers.
            0x91 | 0x92 | 0x97 | 0x98 => return 4,
            0x93..=0x9e => return 8,
            0xb0 => return 12,
            0xc0 | 0xc6 => return 8,
            0xc1 | 0xc3 | 0xc7 | 0xc9 => return 16,
            0xc2 | 0xc4 | 0xc8 | 0xca => return 32,
            0xc5 | 0xcb => return 64,
            _ => 0,
        };
        each * u64::from(self.channels)
    }

    /// Bytes of an array with so many mipmap levels.
    fn bytes(&self, levels: u32) -> u64 {
        if self.flags & UNBACKED != 0 {
            return 0;
        }
        let level = |n: u32| {
            let halved = |size: usize| (size as u64 >> n.min(63)).max(1);
            // Layers are not halved.
            let depth =
                if self.flags & LAYERED != 0 { (self.depth as u64).max(1) } else { halved(self.depth) };
            let elements = halved(self.width).saturating_mul(halved(self.height)).saturating_mul(depth);
            elements.saturating_mul(self.bits()) / 8
        };
        (0..levels.min(64)).map(level).fold(0, u64::saturating_add)
    }
}

/// `cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)`
pub unsafe extern "C" fn create<const ROW: usize, const SLOT: usize>(
    array: *mut CUarray,
    descriptor: *const Descriptor2D,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUarray, *const Descriptor2D));
    record::driver_alloc(
        ROW,
        MemoryClass::Array,
        // SAFETY: the caller's own arguments.
        || unsafe { real(array, descriptor) },
        || {
            // SAFETY: the call succeeded, so it read the descriptor and wrote the handle.
            let (d, handle) = unsafe { (stored(descriptor), stored(array.cast::<u64>())) };
            let Descriptor2D { width, height, format, channels } = d;
            (handle, Descriptor { width, height, depth: 0, format, channels, flags: 0 }.bytes(1))
        },
    )
}

/// `cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)`
pub unsafe extern "C" fn create_3d<const ROW: usize, const SLOT: usize>(
    array: *mut CUarray,
    descriptor: *const Descriptor,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUarray, *const Descriptor));
    record::driver_alloc(
        ROW,
        MemoryClass::Array,
        // SAFETY: the caller's own arguments.
        || unsafe { real(array, descriptor) },
        // SAFETY: the call succeeded, so it read the descriptor and wrote the handle.
        || unsafe { (stored(array.cast::<u64>()), stored(descriptor).bytes(1)) },
    )
}

/// `cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels)`
pub unsafe extern "C" fn create_mipmapped<const ROW: usize, const SLOT: usize>(
    array: *mut CUmipmappedArray,
    descriptor: *const Descriptor,
    levels: u32,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUmipmappedArray, *const Descriptor, u32));
    record::driver_alloc(
        ROW,
        MemoryClass::Array,
        // SAFETY: the caller's own arguments.
        || unsafe { real(array, descriptor, levels) },
        || {
            // SAFETY: the call succeeded, so it read the descriptor and wrote the handle.
            let (d, handle) = unsafe { (stored(descriptor), stored(array.cast::<u64>())) };
            // Documented: the number of levels is clamped to 1 + floor(log2(largest extent)).
            let largest = if d.flags & LAYERED != 0 {
                d.width.max(d.height)
            } else {
                d.width.max(d.height).max(d.depth)
            };
            (handle, d.bytes(levels.clamp(1, largest.max(1).ilog2() + 1)))
        },
    )
}

/// `cuArrayDestroy(CUarray array)`, `cuMipmappedArrayDestroy(CUmipmappedArray array)`
pub unsafe extern "C" fn destroy<const ROW: usize, const SLOT: usize>(array: CUarray) -> Status {
    let real = real!(ROW, SLOT, fn(CUarray));
    // SAFETY: the caller's own argument.
    record::driver_free(ROW, MemoryClass::Array, array as u64, || unsafe { real(array) })
}
