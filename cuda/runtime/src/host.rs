//! Host memory the device can reach: pinned, registered.

use crate::abi::Handle;
use crate::driver::D;
use crate::error::Code;
use std::ptr::null_mut;

/// The flag that every runtime allocation of pinned memory has: usable from all contexts.
const PORTABLE: u32 = 1;

unsafe fn pinned(out: *mut Handle, bytes: usize, flags: u32) -> Result<(), Code> {
    if out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    if bytes == 0 {
        *out = null_mut();
        return Ok(());
    }
    D.host_alloc(out, bytes, flags)
}

export! {
    device fn cudaMallocHost(out: *mut Handle, bytes: usize) {
        pinned(out, bytes, PORTABLE)
    }

    device fn cudaHostAlloc(out: *mut Handle, bytes: usize, flags: u32) {
        pinned(out, bytes, flags | PORTABLE)
    }

    device fn cudaFreeHost(pointer: Handle) {
        if pointer.is_null() { Ok(()) } else { D.host_free(pointer) }
    }

    device fn cudaHostRegister(pointer: Handle, bytes: usize, flags: u32) {
        D.host_register(pointer, bytes, flags | PORTABLE)
    }

    device fn cudaHostGetDevicePointer(out: *mut Handle, host: Handle, flags: u32) {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let mut address = 0;
        D.host_pointer(&mut address, host, flags)?;
        *out = address as Handle;
        Ok(())
    }
}

forward! {
    device fn cudaHostUnregister(pointer: Handle) => host_unregister;
    device fn cudaHostGetFlags(flags: *mut u32, host: Handle) => host_flags;
}
