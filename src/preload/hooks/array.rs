//! Arrays and mipmapped arrays: device memory behind a handle. Their bytes come from the descriptor: the
//! driver tells the requirements of arrays with deferred mapping only, and those own no memory.
//!
//! The descriptors are cudarc's, read field by field: the format is a number here, since one of a newer
//! driver is no value of the enum that cudarc has for it.

use std::mem::offset_of;

use cudarc::driver::sys::{CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR, CUarray, CUmipmappedArray};
use leaktrace_core::format::event::MemoryClass::Array;

use crate::hooks::{Arg, hooks};

/// What an array is made of.
struct Shape {
    width: usize,
    height: usize,
    depth: usize,
    /// `CUarray_format`
    format: u32,
    channels: u32,
    flags: u32,
}

/// `CUDA_ARRAY3D_LAYERED`, `CUDA_ARRAY3D_CUBEMAP`
const LAYERED: u32 = 0x01 | 0x04;
/// `CUDA_ARRAY3D_SPARSE`, `CUDA_ARRAY3D_DEFERRED_MAPPING`: the memory is mapped in later, and seen where it
/// is made.
const UNBACKED: u32 = 0x40 | 0x80;

impl Shape {
    fn of(descriptor: Arg<CUDA_ARRAY_DESCRIPTOR>) -> Shape {
        Shape {
            width: descriptor.field(offset_of!(CUDA_ARRAY_DESCRIPTOR, Width)),
            height: descriptor.field(offset_of!(CUDA_ARRAY_DESCRIPTOR, Height)),
            depth: 0,
            format: descriptor.field(offset_of!(CUDA_ARRAY_DESCRIPTOR, Format)),
            channels: descriptor.field(offset_of!(CUDA_ARRAY_DESCRIPTOR, NumChannels)),
            flags: 0,
        }
    }

    fn of_3d(descriptor: Arg<CUDA_ARRAY3D_DESCRIPTOR>) -> Shape {
        Shape {
            width: descriptor.field(offset_of!(CUDA_ARRAY3D_DESCRIPTOR, Width)),
            height: descriptor.field(offset_of!(CUDA_ARRAY3D_DESCRIPTOR, Height)),
            depth: descriptor.field(offset_of!(CUDA_ARRAY3D_DESCRIPTOR, Depth)),
            format: descriptor.field(offset_of!(CUDA_ARRAY3D_DESCRIPTOR, Format)),
            channels: descriptor.field(offset_of!(CUDA_ARRAY3D_DESCRIPTOR, NumChannels)),
            flags: descriptor.field(offset_of!(CUDA_ARRAY3D_DESCRIPTOR, Flags)),
        }
    }

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

    /// Bytes of a mipmapped array; the number of levels is clamped to 1 + floor(log2(largest extent)), as
    /// documented.
    fn mipmapped_bytes(&self, levels: u32) -> u64 {
        let depth = if self.flags & LAYERED != 0 { 0 } else { self.depth };
        let largest = self.width.max(self.height).max(depth).max(1);
        self.bytes(levels.clamp(1, largest.ilog2() + 1))
    }
}

hooks! {
    /// `cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)`
    fn create(array: Arg<CUarray>, descriptor: Arg<CUDA_ARRAY_DESCRIPTOR>) => |call| {
        call.driver_alloc(Array, || (array.handle(), Shape::of(descriptor).bytes(1)))
    };

    /// `cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)`
    fn create_3d(array: Arg<CUarray>, descriptor: Arg<CUDA_ARRAY3D_DESCRIPTOR>) => |call| {
        call.driver_alloc(Array, || (array.handle(), Shape::of_3d(descriptor).bytes(1)))
    };

    /// `cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned
    /// levels)`
    fn create_mipmapped(
        array: Arg<CUmipmappedArray>,
        descriptor: Arg<CUDA_ARRAY3D_DESCRIPTOR>,
        levels: u32,
    ) => |call| {
        call.driver_alloc(Array, || (array.handle(), Shape::of_3d(descriptor).mipmapped_bytes(levels)))
    };

    /// `cuArrayDestroy(CUarray array)`, `cuMipmappedArrayDestroy(CUmipmappedArray array)`
    fn destroy(array: CUarray) => |call| call.driver_free(Array, array as u64);
}
