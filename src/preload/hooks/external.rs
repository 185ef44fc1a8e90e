//! Memory that is somebody else's: another process's, another interface's, or none at all behind a handle. It is had on
//! loan: it counts apart, and keeps the lender's memory alive.

use std::ffi::c_void;

use crate::hooks::Status;
use crate::hooks::driver_queries;
use crate::hooks::real;
use crate::hooks::record;
use crate::hooks::stored;
use cudarc::driver::sys::{
    CUdeviceptr, CUexternalMemory, CUipcMemHandle, CUmemGenericAllocationHandle as Handle,
    CUmemPoolPtrExportData, CUmemoryPool, CUmipmappedArray,
};
use leaktrace_core::format::event::MemoryClass;

/// `cuIpcOpenMemHandle(CUdeviceptr *p, CUipcMemHandle handle, unsigned flags)`. Opened again, it is the same pointer with
/// one more reference.
pub unsafe extern "C" fn open_ipc<const ROW: usize, const SLOT: usize>(
    p: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: u32,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUdeviceptr, CUipcMemHandle, u32));
    record::driver_alloc(
        ROW,
        MemoryClass::External,
        // SAFETY: the caller's own arguments.
        || unsafe { real(p, handle, flags) },
        || {
            // SAFETY: on success `p` was written.
            let p = unsafe { stored(p) };
            (p, driver_queries::extent(p))
        },
    )
}

/// `cuIpcCloseMemHandle(CUdeviceptr p)`
pub unsafe extern "C" fn close_ipc<const ROW: usize, const SLOT: usize>(p: CUdeviceptr) -> Status {
    let real = real!(ROW, SLOT, fn(CUdeviceptr));
    // SAFETY: the caller's own argument.
    record::driver_free(ROW, MemoryClass::External, p, || unsafe { real(p) })
}

/// `cuMemPoolImportPointer(CUdeviceptr *p, CUmemoryPool pool, CUmemPoolPtrExportData *data)`
pub unsafe extern "C" fn import_pointer<const ROW: usize, const SLOT: usize>(
    p: *mut CUdeviceptr,
    pool: CUmemoryPool,
    data: *mut CUmemPoolPtrExportData,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUdeviceptr, CUmemoryPool, *mut CUmemPoolPtrExportData));
    record::driver_alloc(
        ROW,
        MemoryClass::External,
        // SAFETY: the caller's own arguments.
        || unsafe { real(p, pool, data) },
        || {
            // SAFETY: on success `p` was written.
            let p = unsafe { stored(p) };
            (p, driver_queries::extent(p))
        },
    )
}

/// `cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *h, void *os_handle, CUmemAllocationHandleType type)`.
/// How large the memory is, the driver does not tell before it is mapped.
pub unsafe extern "C" fn import_handle<const ROW: usize, const SLOT: usize>(
    handle: *mut Handle,
    os_handle: *mut c_void,
    kind: u32,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut Handle, *mut c_void, u32));
    record::driver_alloc(
        ROW,
        MemoryClass::ExternalHandle,
        // SAFETY: the caller's own arguments; on success `handle` was written.
        || unsafe { real(handle, os_handle, kind) },
        // SAFETY: as above.
        || (unsafe { stored(handle) }, 0),
    )
}

/// `cuMulticastCreate(CUmemGenericAllocationHandle *h, const CUmulticastObjectProp *prop)`. A multicast object owns no
/// memory: what is bound to it does, and is seen where it is made.
pub unsafe extern "C" fn create_multicast<const ROW: usize, const SLOT: usize>(
    handle: *mut Handle,
    properties: *const c_void,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut Handle, *const c_void));
    record::driver_alloc(
        ROW,
        MemoryClass::ExternalHandle,
        // SAFETY: the caller's own arguments; on success `handle` was written.
        || unsafe { real(handle, properties) },
        // SAFETY: as above.
        || (unsafe { stored(handle) }, 0),
    )
}

/// The head of `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct External {
    kind: u32,
    handle: [u64; 2],
    size: u64,
    flags: u32,
}

/// `cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *descriptor)`
pub unsafe extern "C" fn import_external<const ROW: usize, const SLOT: usize>(
    memory: *mut CUexternalMemory,
    descriptor: *const External,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUexternalMemory, *const External));
    record::driver_alloc(
        ROW,
        MemoryClass::ExternalHandle,
        // SAFETY: the caller's own arguments.
        || unsafe { real(memory, descriptor) },
        // SAFETY: the call succeeded, so it read the descriptor and wrote the handle.
        || unsafe { (stored(memory.cast::<u64>()), stored(descriptor).size) },
    )
}

/// `cuDestroyExternalMemory(CUexternalMemory memory)`
pub unsafe extern "C" fn destroy_external<const ROW: usize, const SLOT: usize>(
    memory: CUexternalMemory,
) -> Status {
    let real = real!(ROW, SLOT, fn(CUexternalMemory));
    // SAFETY: the caller's own argument.
    record::driver_free(ROW, MemoryClass::ExternalHandle, memory as u64, || unsafe { real(memory) })
}

/// `cuExternalMemoryGetMappedBuffer(CUdeviceptr *p, CUexternalMemory memory, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *)`.
/// A view of memory whose bytes count where it was imported.
pub unsafe extern "C" fn map_external_buffer<const ROW: usize, const SLOT: usize>(
    p: *mut CUdeviceptr,
    memory: CUexternalMemory,
    descriptor: *const c_void,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUdeviceptr, CUexternalMemory, *const c_void));
    record::driver_alloc(
        ROW,
        MemoryClass::External,
        // SAFETY: the caller's own arguments; on success `p` was written.
        || unsafe { real(p, memory, descriptor) },
        // SAFETY: as above.
        || (unsafe { stored(p) }, 0),
    )
}

/// `cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *a, CUexternalMemory memory, const
/// CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *)`
pub unsafe extern "C" fn map_external_array<const ROW: usize, const SLOT: usize>(
    array: *mut CUmipmappedArray,
    memory: CUexternalMemory,
    descriptor: *const c_void,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUmipmappedArray, CUexternalMemory, *const c_void));
    record::driver_alloc(
        ROW,
        MemoryClass::ExternalHandle,
        // SAFETY: the caller's own arguments; on success `array` was written.
        || unsafe { real(array, memory, descriptor) },
        // SAFETY: as above.
        || (unsafe { stored(array.cast::<u64>()) }, 0),
    )
}
