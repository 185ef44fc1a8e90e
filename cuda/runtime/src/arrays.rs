//! CUDA arrays and mipmaps.

use crate::abi::{Array, ArrayDescriptor, Channel, Extent, Handle};
use crate::driver::D;
use crate::error::{Code, Outcome};

/// The driver's format for each kind and width of channel.
#[rustfmt::skip]
const FORMATS: [(i32, i32, i32); 8] = [
    (1, 8, 0x01), (1, 16, 0x02), (1, 32, 0x03), // unsigned
    (0, 8, 0x08), (0, 16, 0x09), (0, 32, 0x0a), // signed
    (2, 16, 0x10), (2, 32, 0x20), // float
];

unsafe fn describe(channel: *const Channel, extent: Extent, flags: u32) -> Result<ArrayDescriptor, Code> {
    let Some(channel) = channel.as_ref() else { return Err(Code::INVALID_VALUE) };
    let used = channel.bits.iter().take_while(|bits| **bits != 0).count();
    let format = FORMATS.iter().find(|f| f.0 == channel.kind && f.1 == channel.bits[0]);
    let (1 | 2 | 4, Some(format)) = (used, format) else { return Err(Code::INVALID_CHANNEL) };
    let Extent { width, height, depth } = extent;
    Ok(ArrayDescriptor { width, height, depth, format: format.2, channels: used as u32, flags })
}

fn channel_of(array: &ArrayDescriptor) -> Channel {
    let (kind, bits, _) = *FORMATS.iter().find(|f| f.2 == array.format).unwrap_or(&FORMATS[0]);
    let mut channel = Channel { bits: [0; 4], kind };
    for each in channel.bits.iter_mut().take(array.channels as usize) {
        *each = bits;
    }
    channel
}

unsafe fn descriptor(array: Array) -> Result<ArrayDescriptor, Code> {
    let mut descriptor = ArrayDescriptor::default();
    D.array_descriptor(&mut descriptor, array)?;
    Ok(descriptor)
}

pub unsafe fn element_bytes(array: Array) -> Result<usize, Code> {
    let channel = channel_of(&descriptor(array)?);
    Ok(channel.bits.iter().sum::<i32>() as usize / 8)
}

unsafe fn create(out: *mut Array, channel: *const Channel, extent: Extent, flags: u32) -> Outcome {
    let descriptor = describe(channel, extent, flags)?;
    D.array_create(out, &descriptor)
}

export! {
    device fn cudaMallocArray(out: *mut Array, channel: *const Channel, width: usize, height: usize, flags: u32) {
        create(out, channel, Extent { width, height, depth: 0 }, flags)
    }

    device fn cudaMalloc3DArray(out: *mut Array, channel: *const Channel, extent: Extent, flags: u32) {
        create(out, channel, extent, flags)
    }

    device fn cudaFreeArray(array: Array) {
        if array.is_null() { Ok(()) } else { D.array_destroy(array) }
    }

    device fn cudaArrayGetInfo(channel: *mut Channel, extent: *mut Extent, flags: *mut u32, array: Array) {
        let found = descriptor(array)?;
        if !channel.is_null() {
            *channel = channel_of(&found);
        }
        if !extent.is_null() {
            *extent = Extent { width: found.width, height: found.height, depth: found.depth };
        }
        if !flags.is_null() {
            *flags = found.flags;
        }
        Ok(())
    }

    device fn cudaGetChannelDesc(channel: *mut Channel, array: Array) {
        if channel.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        *channel = channel_of(&descriptor(array)?);
        Ok(())
    }

    device fn cudaMallocMipmappedArray(out: *mut Handle, channel: *const Channel, extent: Extent, levels: u32, flags: u32) {
        let descriptor = describe(channel, extent, flags)?;
        D.mipmap_create(out, &descriptor, levels)
    }

    device fn cudaFreeMipmappedArray(mipmap: Handle) {
        if mipmap.is_null() { Ok(()) } else { D.mipmap_destroy(mipmap) }
    }
}

forward! {
    device fn cudaGetMipmappedArrayLevel(out: *mut Array, mipmap: Handle, level: u32) => mipmap_level;
}

/// Makes a channel description: bits per channel, and the kind of number.
#[unsafe(no_mangle)]
pub extern "C" fn cudaCreateChannelDesc(x: i32, y: i32, z: i32, w: i32, kind: i32) -> Channel {
    Channel { bits: [x, y, z, w], kind }
}
