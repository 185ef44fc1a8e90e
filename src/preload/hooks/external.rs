//! External memory: another process's, another interface's, or none at all behind a handle. It counts apart,
//! and keeps the owner's memory alive.

use std::mem::offset_of;

use cudarc::driver::sys::{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUdeviceptr, CUexternalMemory, CUipcMemHandle,
    CUmemGenericAllocationHandle, CUmemPoolPtrExportData, CUmemoryPool, CUmipmappedArray,
};
use leaktrace_core::format::event::MemoryClass::{External, ExternalHandle};

use crate::hooks::{Arg, Handle, driver_queries, hooks};

hooks! {
    /// `cuIpcOpenMemHandle(CUdeviceptr *p, CUipcMemHandle handle, unsigned flags)`. Opened again, it is the
    /// same pointer with one more reference.
    fn open_ipc(p: Arg<CUdeviceptr>, handle: CUipcMemHandle, flags: u32) => |call| {
        call.driver_alloc(External, || (p.get(), driver_queries::extent(p.get())))
    };

    /// `cuIpcCloseMemHandle(CUdeviceptr p)`
    fn close_ipc(p: CUdeviceptr) => |call| call.driver_free(External, p);

    /// `cuMemPoolImportPointer(CUdeviceptr *p, CUmemoryPool pool, CUmemPoolPtrExportData *data)`
    fn import_pointer(p: Arg<CUdeviceptr>, pool: CUmemoryPool, data: Arg<CUmemPoolPtrExportData>) => |call| {
        call.driver_alloc(External, || (p.get(), driver_queries::extent(p.get())))
    };

    /// `cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *h, void *os_handle,
    /// CUmemAllocationHandleType type)`. How large the memory is, the driver does not tell before it is
    /// mapped.
    fn import_handle(handle: Arg<CUmemGenericAllocationHandle>, os_handle: Handle, kind: u32) => |call| {
        call.driver_alloc(ExternalHandle, || (handle.get(), 0))
    };

    /// `cuMulticastCreate(CUmemGenericAllocationHandle *h, const CUmulticastObjectProp *prop)`. A multicast
    /// object owns no memory: what is bound to it does, and is seen where it is made.
    fn create_multicast(handle: Arg<CUmemGenericAllocationHandle>, properties: Handle) => |call| {
        call.driver_alloc(ExternalHandle, || (handle.get(), 0))
    };

    /// `cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *descriptor)`
    fn import_external(
        memory: Arg<CUexternalMemory>,
        descriptor: Arg<CUDA_EXTERNAL_MEMORY_HANDLE_DESC>,
    ) => |call| call.driver_alloc(ExternalHandle, || {
        (memory.handle(), descriptor.field(offset_of!(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size)))
    });

    /// `cuDestroyExternalMemory(CUexternalMemory memory)`
    fn destroy_external(memory: CUexternalMemory) => |call| call.driver_free(ExternalHandle, memory as u64);

    /// `cuExternalMemoryGetMappedBuffer(CUdeviceptr *p, CUexternalMemory memory, const
    /// CUDA_EXTERNAL_MEMORY_BUFFER_DESC *)`. A view of memory whose bytes count where it was imported.
    fn map_external_buffer(p: Arg<CUdeviceptr>, memory: CUexternalMemory, descriptor: Handle) => |call| {
        call.driver_alloc(External, || (p.get(), 0))
    };

    /// `cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *a, CUexternalMemory memory, const
    /// CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *)`
    fn map_external_array(
        array: Arg<CUmipmappedArray>,
        memory: CUexternalMemory,
        descriptor: Handle,
    ) => |call| call.driver_alloc(ExternalHandle, || (array.handle(), 0));
}
