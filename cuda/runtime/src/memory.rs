//! Device memory: linear, pitched, managed; and what is left of it.

use crate::abi::{Extent, Handle, PitchedPtr};
use crate::driver::D;
use crate::error::Code;
use std::ptr::null_mut;

/// The element size that the driver chooses a pitch for.
const PITCH_ELEMENT: u32 = 4;

export! {
    device fn cudaMalloc(out: *mut Handle, bytes: usize) {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        if bytes == 0 {
            *out = null_mut();
            return Ok(());
        }
        let mut address = 0;
        D.mem_alloc(&mut address, bytes)?;
        *out = address as Handle;
        Ok(())
    }

    device fn cudaMallocManaged(out: *mut Handle, bytes: usize, flags: u32) {
        if out.is_null() || bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let mut address = 0;
        D.mem_alloc_managed(&mut address, bytes, flags)?;
        *out = address as Handle;
        Ok(())
    }

    device fn cudaMallocPitch(out: *mut Handle, pitch: *mut usize, width: usize, height: usize) {
        if out.is_null() || pitch.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        if width == 0 || height == 0 {
            (*out, *pitch) = (null_mut(), 0);
            return Ok(());
        }
        let mut address = 0;
        D.mem_alloc_pitch(&mut address, pitch, width, height, PITCH_ELEMENT)?;
        *out = address as Handle;
        Ok(())
    }

    device fn cudaMalloc3D(out: *mut PitchedPtr, extent: Extent) {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let Extent { width, height, depth } = extent;
        let (mut address, mut pitch) = (0, 0);
        if width != 0 && height != 0 && depth != 0 {
            let rows = height.checked_mul(depth).ok_or(Code::INVALID_VALUE)?;
            D.mem_alloc_pitch(&mut address, &mut pitch, width, rows, PITCH_ELEMENT)?;
        }
        *out = PitchedPtr { ptr: address as Handle, pitch, width, height };
        Ok(())
    }

    device fn cudaFree(pointer: Handle) {
        if pointer.is_null() { Ok(()) } else { D.mem_free(pointer as u64) }
    }

    device fn cudaMemGetInfo(free: *mut usize, total: *mut usize) {
        let (mut left, mut all) = (0, 0);
        D.mem_info(&mut left, &mut all)?;
        if !free.is_null() {
            *free = left;
        }
        if !total.is_null() {
            *total = all;
        }
        Ok(())
    }
}
