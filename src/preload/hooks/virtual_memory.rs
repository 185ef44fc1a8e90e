//! Physical memory by handle, and where it is mapped. Its bytes end with the last reference and the last
//! mapping.

use std::mem::offset_of;

use cudarc::driver::sys::{CUdeviceptr, CUmemAllocationProp, CUmemGenericAllocationHandle};
use leaktrace_core::format::event::{Event, EventKind, MemoryClass, NO_DEVICE};

use crate::hooks::{Arg, Handle, hooks};

/// `CU_MEM_LOCATION_TYPE_DEVICE`
pub const LOCATION_DEVICE: u32 = 1;

hooks! {
    /// `cuMemAddressReserve(CUdeviceptr *p, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long
    /// long flags)`
    fn reserve(p: Arg<CUdeviceptr>, bytes: usize, alignment: usize, hint: CUdeviceptr, flags: u64) => |call| {
        call.record_after(|| Event { address: p.get(), size: bytes as u64, ..Event::new(EventKind::Reserve) })
    };

    /// `cuMemAddressFree(CUdeviceptr p, size_t bytes)`
    fn unreserve(p: CUdeviceptr, bytes: usize) => |call| {
        let event = |kind| Event { address: p, size: bytes as u64, ..Event::new(kind) };
        call.record_before(|| event(EventKind::Unreserve), || event(EventKind::Reserve))
    };

    /// `cuMemCreate(CUmemGenericAllocationHandle *h, size_t bytes, const CUmemAllocationProp *prop, unsigned
    /// long long flags)`
    fn create(
        handle: Arg<CUmemGenericAllocationHandle>,
        bytes: usize,
        properties: Arg<CUmemAllocationProp>,
        flags: u64,
    ) => |call| {
        let device = || match properties.field(offset_of!(CUmemAllocationProp, location.type_)) {
            LOCATION_DEVICE => properties.field::<i32>(offset_of!(CUmemAllocationProp, location.id)) as u8,
            _ => NO_DEVICE,
        };
        let device = if properties.is_null() { NO_DEVICE } else { device() };
        call.driver_alloc_on(Some(device), MemoryClass::Physical, || (handle.get(), bytes as u64))
    };

    /// `cuMemRelease(CUmemGenericAllocationHandle handle)`
    fn release(handle: CUmemGenericAllocationHandle) => |call| {
        call.driver_free(MemoryClass::Physical, handle)
    };

    /// `cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)`
    fn retain(handle: Arg<CUmemGenericAllocationHandle>, address: Handle) => |call| {
        let class = MemoryClass::Physical as u8;
        call.record_after(|| Event { address: handle.get(), class, ..Event::new(EventKind::Retain) })
    };

    /// `cuMemMap(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned
    /// long long flags)`
    fn map(
        p: CUdeviceptr,
        bytes: usize,
        offset: usize,
        handle: CUmemGenericAllocationHandle,
        flags: u64,
    ) => |call| call.record_pair(|| {
        let mapped = Event { address: p, size: bytes as u64, ..Event::new(EventKind::Map) };
        (mapped, Event { address: handle, ..Event::new(EventKind::MapHandle) })
    });

    /// `cuMemUnmap(CUdeviceptr p, size_t bytes)`. Recorded after the call, not before: the range belongs to
    /// the caller's reservation, so nobody else can be given it meanwhile, and a failed unmap has no undo.
    fn unmap(p: CUdeviceptr, bytes: usize) => |call| {
        call.record_release(|| Some(Event { address: p, size: bytes as u64, ..Event::new(EventKind::Unmap) }))
    };
}
