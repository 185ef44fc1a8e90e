//! Copies of rectangles and boxes, with or without arrays.

use crate::abi::*;
use crate::arrays::element_bytes;
use crate::driver::{D, Via};
use crate::error::{Code, Outcome};
use std::ffi::c_void;
use std::ptr::{null, null_mut};

fn linear_side(at: *const c_void, pitch: usize) -> Side2D {
    Side2D {
        x: 0,
        y: 0,
        memory: MEMORY_UNIFIED,
        host: null(),
        device: at as DevPtr,
        array: null_mut(),
        pitch,
    }
}

fn array_side(array: Array, x: usize, y: usize) -> Side2D {
    Side2D { x, y, memory: MEMORY_ARRAY, host: null(), device: 0, array, pitch: 0 }
}

unsafe fn rectangle(
    via: Via,
    dst: Side2D,
    src: Side2D,
    width: usize,
    height: usize,
    on: Option<Stream>,
) -> Outcome {
    if width == 0 || height == 0 {
        return Ok(());
    }
    let copy = DriverCopy2D { src, dst, width, height };
    match on {
        Some(stream) => via.copy_2d_async(&copy, stream),
        None => via.copy_2d(&copy),
    }
}

unsafe fn side_3d(array: Array, pos: Pos, ptr: PitchedPtr) -> Result<(Side3D, usize), Code> {
    let is_array = !array.is_null();
    let element = if is_array { element_bytes(array)? } else { 1 };
    let side = Side3D {
        x: pos.x * element,
        y: pos.y,
        z: pos.z,
        lod: 0,
        memory: if is_array { MEMORY_ARRAY } else { MEMORY_UNIFIED },
        host: null(),
        device: ptr.ptr as DevPtr,
        array,
        reserved: null_mut(),
        pitch: ptr.pitch,
        height: ptr.height,
    };
    Ok((side, element))
}

/// Returns the driver's description of a copy of a box.
pub unsafe fn box_copy(params: *const Copy3DParams) -> Result<DriverCopy3D, Code> {
    let Some(params) = params.as_ref() else { return Err(Code::INVALID_VALUE) };
    let (src, src_element) = side_3d(params.src_array, params.src_pos, params.src_ptr)?;
    let (dst, dst_element) = side_3d(params.dst_array, params.dst_pos, params.dst_ptr)?;
    let Extent { width, height, depth } = params.extent;
    // With an array on either side the width counts elements.
    Ok(DriverCopy3D { src, dst, width: width * src_element.max(dst_element), height, depth })
}

unsafe fn copy_box(via: Via, params: *const Copy3DParams, on: Option<Stream>) -> Outcome {
    let copy = box_copy(params)?;
    if copy.width == 0 || copy.height == 0 || copy.depth == 0 {
        return Ok(());
    }
    match on {
        Some(stream) => via.copy_3d_async(&copy, stream),
        None => via.copy_3d(&copy),
    }
}

export_streams! {
    device fn cudaMemcpy2D [cudaMemcpy2D_ptds] (via; to: Handle, to_pitch: usize, from: *const c_void,
        from_pitch: usize, width: usize, height: usize, _kind: i32) {
        rectangle(via, linear_side(to, to_pitch), linear_side(from, from_pitch), width, height, None)
    }

    device fn cudaMemcpy2DAsync [cudaMemcpy2DAsync_ptsz] (via; to: Handle, to_pitch: usize, from: *const c_void,
        from_pitch: usize, width: usize, height: usize, _kind: i32, stream: Stream) {
        rectangle(via, linear_side(to, to_pitch), linear_side(from, from_pitch), width, height, Some(stream))
    }

    device fn cudaMemcpy2DToArray [cudaMemcpy2DToArray_ptds] (via; to: Array, x: usize, y: usize,
        from: *const c_void, pitch: usize, width: usize, height: usize, _kind: i32) {
        rectangle(via, array_side(to, x, y), linear_side(from, pitch), width, height, None)
    }

    device fn cudaMemcpy2DToArrayAsync [cudaMemcpy2DToArrayAsync_ptsz] (via; to: Array, x: usize, y: usize,
        from: *const c_void, pitch: usize, width: usize, height: usize, _kind: i32, stream: Stream) {
        rectangle(via, array_side(to, x, y), linear_side(from, pitch), width, height, Some(stream))
    }

    device fn cudaMemcpy2DFromArray [cudaMemcpy2DFromArray_ptds] (via; to: Handle, pitch: usize, from: Array,
        x: usize, y: usize, width: usize, height: usize, _kind: i32) {
        rectangle(via, linear_side(to, pitch), array_side(from, x, y), width, height, None)
    }

    device fn cudaMemcpy2DFromArrayAsync [cudaMemcpy2DFromArrayAsync_ptsz] (via; to: Handle, pitch: usize,
        from: Array, x: usize, y: usize, width: usize, height: usize, _kind: i32, stream: Stream) {
        rectangle(via, linear_side(to, pitch), array_side(from, x, y), width, height, Some(stream))
    }

    device fn cudaMemcpy3D [cudaMemcpy3D_ptds] (via; params: *const Copy3DParams) {
        copy_box(via, params, None)
    }

    device fn cudaMemcpy3DAsync [cudaMemcpy3DAsync_ptsz] (via; params: *const Copy3DParams, stream: Stream) {
        copy_box(via, params, Some(stream))
    }
}

export! {
    device fn cudaMemcpy2DArrayToArray(to: Array, to_x: usize, to_y: usize, from: Array, x: usize, y: usize,
        width: usize, height: usize, _kind: i32) {
        rectangle(D, array_side(to, to_x, to_y), array_side(from, x, y), width, height, None)
    }
}
