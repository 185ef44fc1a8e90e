//! Stream-ordered allocation and its pools.

use crate::abi::{DevPtr, Handle, Location, Pool, Stream};
use crate::driver::D;
use crate::error::Code;
use crate::state;
use std::ffi::c_void;
use std::ptr::null_mut;

export_streams! {
    device fn cudaMallocAsync [cudaMallocAsync_ptsz] (via; out: *mut Handle, bytes: usize, stream: Stream) {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        if bytes == 0 {
            *out = null_mut();
            return Ok(());
        }
        let mut address = 0;
        via.mem_alloc_async(&mut address, bytes, stream)?;
        *out = address as Handle;
        Ok(())
    }

    device fn cudaMallocFromPoolAsync [cudaMallocFromPoolAsync_ptsz] (via; out: *mut Handle, bytes: usize,
        pool: Pool, stream: Stream) {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        if bytes == 0 {
            *out = null_mut();
            return Ok(());
        }
        let mut address = 0;
        via.mem_alloc_from_pool(&mut address, bytes, pool, stream)?;
        *out = address as Handle;
        Ok(())
    }

    device fn cudaFreeAsync [cudaFreeAsync_ptsz] (via; pointer: Handle, stream: Stream) {
        if pointer.is_null() { Ok(()) } else { via.mem_free_async(pointer as DevPtr, stream) }
    }
}

export! {
    device fn cudaDeviceGetDefaultMemPool(out: *mut Pool, device: i32) {
        state::valid(device)?;
        D.device_default_pool(out, device)
    }

    device fn cudaDeviceGetMemPool(out: *mut Pool, device: i32) {
        state::valid(device)?;
        D.device_pool(out, device)
    }

    device fn cudaDeviceSetMemPool(device: i32, pool: Pool) {
        state::valid(device)?;
        D.device_set_pool(device, pool)
    }

    device fn cudaMemPoolExportToShareableHandle(out: Handle, pool: Pool, kind: i32, flags: u32) {
        D.pool_export(out, pool, kind, u64::from(flags))
    }

    device fn cudaMemPoolImportFromShareableHandle(out: *mut Pool, shared: Handle, kind: i32, flags: u32) {
        D.pool_import(out, shared, kind, u64::from(flags))
    }

    device fn cudaMemPoolExportPointer(out: Handle, pointer: Handle) {
        D.pool_export_pointer(out, pointer as DevPtr)
    }

    device fn cudaMemPoolImportPointer(out: *mut Handle, pool: Pool, data: Handle) {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let mut address = 0;
        D.pool_import_pointer(&mut address, pool, data)?;
        *out = address as Handle;
        Ok(())
    }
}

forward! {
    device fn cudaMemPoolCreate(out: *mut Pool, properties: *const c_void) => pool_create;
    device fn cudaMemPoolDestroy(pool: Pool) => pool_destroy;
    device fn cudaMemPoolTrimTo(pool: Pool, keep: usize) => pool_trim;
    device fn cudaMemPoolGetAttribute(pool: Pool, attribute: i32, value: Handle) => pool_attribute;
    device fn cudaMemPoolSetAttribute(pool: Pool, attribute: i32, value: Handle) => pool_set_attribute;
    device fn cudaMemPoolGetAccess(flags: *mut i32, pool: Pool, location: *mut Location) => pool_access;
    device fn cudaMemPoolSetAccess(pool: Pool, access: *const c_void, count: usize) => pool_set_access;
}
