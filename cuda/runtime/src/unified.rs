//! What an address is, and hints for managed memory.

use crate::abi::{DEVICE_INVALID, DevPtr, Handle, Location, Stream};
use crate::driver::{D, Via};
use crate::error::{Code, Outcome};
use crate::version;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// cudaPointerAttributes; CUDA 13 appended reserved words, which a caller of 12 has no room for.
#[repr(C)]
pub struct PointerAttributes {
    kind: i32,
    device: i32,
    device_pointer: Handle,
    host_pointer: Handle,
    reserved: [i64; 8],
}
const _: () = assert!(size_of::<PointerAttributes>() == 88);

// CUpointer_attribute, CUmemorytype, cudaMemoryType, cudaMemLocationType.
const ATTRIBUTES: [c_int; 5] = [2, 3, 4, 8, 9]; // memory type, device pointer, host pointer, is managed, ordinal
const MEMORY_HOST: u32 = 1;
const MEMORY_DEVICE: u32 = 2;
const TYPE_HOST: i32 = 1;
const TYPE_DEVICE: i32 = 2;
const TYPE_MANAGED: i32 = 3;
const LOCATION_DEVICE: i32 = 1;
const CPU: i32 = -1;

export! {
    device fn cudaPointerGetAttributes(out: *mut PointerAttributes, pointer: *const c_void) {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let (mut memory, mut managed, mut ordinal) = (0u32, 0u32, DEVICE_INVALID);
        let (mut device, mut host) = (0 as DevPtr, null_mut::<c_void>());
        let mut answers: [Handle; 5] = [
            (&raw mut memory).cast(),
            (&raw mut device).cast(),
            (&raw mut host).cast(),
            (&raw mut managed).cast(),
            (&raw mut ordinal).cast(),
        ];
        D.pointer_attributes(5, ATTRIBUTES.as_ptr(), answers.as_mut_ptr(), pointer as DevPtr)?;
        if version::major() >= 13 {
            (*out).reserved = [0; 8];
        }
        let kind = match memory {
            _ if managed != 0 => TYPE_MANAGED,
            MEMORY_HOST => TYPE_HOST,
            MEMORY_DEVICE => TYPE_DEVICE,
            _ => 0,
        };
        (*out).kind = kind;
        if kind == 0 {
            // Memory CUDA knows nothing about is plain host memory.
            (*out).device = DEVICE_INVALID;
            (*out).device_pointer = null_mut();
            (*out).host_pointer = pointer.cast_mut();
        } else {
            (*out).device = ordinal;
            (*out).device_pointer = device as Handle;
            (*out).host_pointer = if kind == TYPE_DEVICE { null_mut() } else { host };
        }
        Ok(())
    }

    device fn cudaMemRangeGetAttribute(data: Handle, size: usize, attribute: i32, at: *const c_void, bytes: usize) {
        D.mem_range_attribute(data, size, attribute, at as DevPtr, bytes)
    }

    device fn cudaMemRangeGetAttributes(data: *mut Handle, sizes: *mut usize, attributes: *mut i32, count: usize,
        at: *const c_void, bytes: usize) {
        D.mem_range_attributes(data, sizes, attributes, count, at as DevPtr, bytes)
    }

    device fn cudaMemAdvise_v2(at: *const c_void, bytes: usize, advice: i32, location: Location) {
        D.mem_advise(at as DevPtr, bytes, advice, ordinal(location))
    }

    /// Where is a device number up to CUDA 12, a location since.
    device fn cudaMemAdvise(at: *const c_void, bytes: usize, advice: i32, location: u64) {
        let location = if version::major() >= 13 { ordinal(unpack(location)) } else { location as i32 };
        D.mem_advise(at as DevPtr, bytes, advice, location)
    }
}

export_streams! {
    device fn cudaMemPrefetchAsync_v2 [cudaMemPrefetchAsync_v2_ptsz] (via; at: *const c_void, bytes: usize,
        location: Location, _flags: u32, stream: Stream) {
        via.mem_prefetch(at as DevPtr, bytes, ordinal(location), stream)
    }

    /// (address, size, device, stream) up to CUDA 12; (address, size, location, flags, stream) since.
    device fn cudaMemPrefetchAsync [cudaMemPrefetchAsync_ptsz] (via; at: *const c_void, bytes: usize, location: u64,
        third: u64, fourth: Stream) {
        if version::major() >= 13 {
            prefetch(via, at, bytes, ordinal(unpack(location)), fourth)
        } else {
            prefetch(via, at, bytes, location as i32, third as Stream)
        }
    }
}

unsafe fn prefetch(via: Via, at: *const c_void, bytes: usize, device: i32, stream: Stream) -> Outcome {
    via.mem_prefetch(at as DevPtr, bytes, device, stream)
}

/// Unpacks a location that was passed by value: its two ints share one register.
fn unpack(location: u64) -> Location {
    Location { kind: location as i32, id: (location >> 32) as i32 }
}

fn ordinal(location: Location) -> i32 {
    if location.kind == LOCATION_DEVICE { location.id } else { CPU }
}
