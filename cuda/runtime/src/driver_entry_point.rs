//! `cudaGetDriverEntryPoint`: the driver's own answer, by the pointer that the runtime itself uses.

use crate::abi::Handle;
use crate::error::{Code, Outcome};
use crate::lookup::{Via, find};
use crate::version;
use std::ffi::{CStr, c_char};
use std::ptr::null_mut;

// cudaDriverEntryPointQueryResult.
const FOUND: i32 = 0;
const NOT_FOUND: i32 = 1;

/// Writes the driver's answer. A name that the driver does not know is no error: there is no pointer, and the
/// status says so.
unsafe fn answer(
    name: *const c_char,
    out: *mut Handle,
    version: i32,
    flags: u64,
    status: *mut i32,
) -> Outcome {
    if name.is_null() || out.is_null() || flags > Via::PerThread as u64 {
        return Err(Code::INVALID_VALUE);
    }
    let mut said = NOT_FOUND;
    *out = match find(CStr::from_ptr(name), version, flags, &mut said) {
        Ok(pointer) => {
            said = if pointer.is_null() { said.max(NOT_FOUND) } else { FOUND };
            pointer
        }
        Err(Code::INSUFFICIENT_DRIVER) => return Err(Code::INSUFFICIENT_DRIVER),
        Err(_) => {
            said = said.max(NOT_FOUND);
            null_mut()
        }
    };
    if !status.is_null() {
        *status = said;
    }
    Ok(())
}

/// Returns the flags to look up with: without any, the per-thread variant means the thread's own default
/// stream.
fn flags_for(via: Via, flags: u64) -> u64 {
    if flags == 0 { via as u64 } else { flags }
}

export_streams! {
    /// CUDA 11 has no status.
    init fn cudaGetDriverEntryPoint [cudaGetDriverEntryPoint_ptsz] (via; name: *const c_char, out: *mut Handle,
        flags: u64, status: *mut i32) {
        let status = if version::major() >= 12 { status } else { null_mut() };
        answer(name, out, version::toolkit_version(), flags_for(via, flags), status)
    }

    init fn cudaGetDriverEntryPointByVersion [cudaGetDriverEntryPointByVersion_ptsz] (via; name: *const c_char,
        out: *mut Handle, version: u32, flags: u64, status: *mut i32) {
        answer(name, out, version as i32, flags_for(via, flags), status)
    }
}
