//! Device code that a program loads itself (CUDA 12 and later).

use crate::abi::{DevPtr, Handle};
use crate::driver::D;
use crate::error::Code;
use std::ffi::{c_char, c_void};

export! {
    device fn cudaLibraryGetGlobal(out: *mut Handle, bytes: *mut usize, library: Handle, name: *const c_char) {
        let (mut at, mut size): (DevPtr, usize) = (0, 0);
        D.library_global(&mut at, &mut size, library, name)?;
        put(out, bytes, at, size)
    }

    device fn cudaLibraryGetManaged(out: *mut Handle, bytes: *mut usize, library: Handle, name: *const c_char) {
        let (mut at, mut size): (DevPtr, usize) = (0, 0);
        D.library_managed(&mut at, &mut size, library, name)?;
        put(out, bytes, at, size)
    }
}

forward! {
    device fn cudaLibraryLoadData(out: *mut Handle, code: *const c_void, jit: Handle, jit_values: Handle,
        jit_count: u32, options: Handle, values: Handle, count: u32) => library_load;
    device fn cudaLibraryLoadFromFile(out: *mut Handle, path: *const c_char, jit: Handle, jit_values:
        Handle, jit_count: u32, options: Handle, values: Handle, count: u32) => library_load_file;
    device fn cudaLibraryUnload(library: Handle) => library_unload;
    device fn cudaLibraryGetKernel(out: *mut Handle, library: Handle, name: *const c_char) =>
        library_kernel;
}

unsafe fn put(out: *mut Handle, bytes: *mut usize, at: DevPtr, size: usize) -> Result<(), Code> {
    if !out.is_null() {
        *out = at as Handle;
    }
    if !bytes.is_null() {
        *bytes = size;
    }
    Ok(())
}
