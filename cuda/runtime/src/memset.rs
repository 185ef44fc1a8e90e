//! Filling memory.

use crate::abi::{DevPtr, Extent, Handle, PitchedPtr, Stream};
use crate::driver::Via;
use crate::error::Outcome;

unsafe fn fill(via: Via, at: DevPtr, value: i32, bytes: usize, on: Option<Stream>) -> Outcome {
    match on {
        _ if bytes == 0 => Ok(()),
        Some(stream) => via.set_d8_async(at, value as u8, bytes, stream),
        None => via.set_d8(at, value as u8, bytes),
    }
}

unsafe fn rows(
    via: Via,
    at: DevPtr,
    pitch: usize,
    value: i32,
    width: usize,
    height: usize,
    on: Option<Stream>,
) -> Outcome {
    match on {
        _ if width == 0 || height == 0 => Ok(()),
        Some(stream) => via.set_d2d8_async(at, pitch, value as u8, width, height, stream),
        None => via.set_d2d8(at, pitch, value as u8, width, height),
    }
}

unsafe fn slices(via: Via, block: PitchedPtr, value: i32, extent: Extent, on: Option<Stream>) -> Outcome {
    for slice in 0..extent.depth {
        let at = block.ptr as DevPtr + (slice * block.pitch * block.height) as u64;
        rows(via, at, block.pitch, value, extent.width, extent.height, on)?;
    }
    Ok(())
}

export_streams! {
    device fn cudaMemset [cudaMemset_ptds] (via; at: Handle, value: i32, bytes: usize) {
        fill(via, at as DevPtr, value, bytes, None)
    }

    device fn cudaMemsetAsync [cudaMemsetAsync_ptsz] (via; at: Handle, value: i32, bytes: usize, stream: Stream) {
        fill(via, at as DevPtr, value, bytes, Some(stream))
    }

    device fn cudaMemset2D [cudaMemset2D_ptds] (via; at: Handle, pitch: usize, value: i32, width: usize,
        height: usize) {
        rows(via, at as DevPtr, pitch, value, width, height, None)
    }

    device fn cudaMemset2DAsync [cudaMemset2DAsync_ptsz] (via; at: Handle, pitch: usize, value: i32, width: usize,
        height: usize, stream: Stream) {
        rows(via, at as DevPtr, pitch, value, width, height, Some(stream))
    }

    device fn cudaMemset3D [cudaMemset3D_ptds] (via; block: PitchedPtr, value: i32, extent: Extent) {
        slices(via, block, value, extent, None)
    }

    device fn cudaMemset3DAsync [cudaMemset3DAsync_ptsz] (via; block: PitchedPtr, value: i32, extent: Extent,
        stream: Stream) {
        slices(via, block, value, extent, Some(stream))
    }
}
