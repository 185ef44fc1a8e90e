//! Physical memory by handle, and where it is mapped. Its bytes end with the last reference and the last mapping.

use crate::hooks::Status;
use crate::hooks::real;
use crate::hooks::record;
use crate::hooks::stored;
use cudarc::driver::sys::{CUdeviceptr, CUmemAllocationProp, CUmemGenericAllocationHandle as Handle};
use leaktrace_core::format::event::{Event, EventKind, MemoryClass, NO_DEVICE};

/// `CU_MEM_LOCATION_TYPE_DEVICE`
const LOCATION_DEVICE: u32 = 1;

/// `cuMemAddressReserve(CUdeviceptr *p, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags)`
pub unsafe extern "C" fn reserve<const ROW: usize, const SLOT: usize>(
    p: *mut CUdeviceptr,
    bytes: usize,
    alignment: usize,
    hint: CUdeviceptr,
    flags: u64,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUdeviceptr, usize, usize, CUdeviceptr, u64));
    // SAFETY: the caller's own arguments; on success `p` was written.
    record::after(
        || unsafe { real(p, bytes, alignment, hint, flags) },
        // SAFETY: as above.
        || Event { address: unsafe { stored(p) }, size: bytes as u64, ..Event::new(EventKind::Reserve) },
    )
}

/// `cuMemAddressFree(CUdeviceptr p, size_t bytes)`
pub unsafe extern "C" fn unreserve<const ROW: usize, const SLOT: usize>(
    p: CUdeviceptr,
    bytes: usize,
) -> Status {
    let real = real!(ROW, SLOT, fn(CUdeviceptr, usize));
    let given_back = || Event { address: p, size: bytes as u64, ..Event::new(EventKind::Unreserve) };
    let restored = || Event { address: p, size: bytes as u64, ..Event::new(EventKind::Reserve) };
    // SAFETY: the caller's own arguments.
    record::before(given_back, || unsafe { real(p, bytes) }, restored)
}

/// `cuMemCreate(CUmemGenericAllocationHandle *h, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags)`
pub unsafe extern "C" fn create<const ROW: usize, const SLOT: usize>(
    handle: *mut Handle,
    bytes: usize,
    properties: *const CUmemAllocationProp,
    flags: u64,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut Handle, usize, *const CUmemAllocationProp, u64));
    // The location's type is read as a number: one of a newer driver is no value of today's enum.
    let device = if properties.is_null() {
        NO_DEVICE
    } else {
        // SAFETY: the caller's properties, which the real function reads too.
        unsafe {
            let location = &raw const (*properties).location;
            match (&raw const (*location).type_).cast::<u32>().read() {
                LOCATION_DEVICE => (&raw const (*location).id).read() as u8,
                _ => NO_DEVICE,
            }
        }
    };
    record::driver_alloc_on(
        ROW,
        MemoryClass::Physical,
        Some(device),
        // SAFETY: the caller's own arguments.
        || unsafe { real(handle, bytes, properties, flags) },
        // SAFETY: on success `handle` was written.
        || (unsafe { stored(handle) }, bytes as u64),
    )
}

/// `cuMemRelease(CUmemGenericAllocationHandle handle)`
pub unsafe extern "C" fn release<const ROW: usize, const SLOT: usize>(handle: Handle) -> Status {
    let real = real!(ROW, SLOT, fn(Handle));
    // SAFETY: the caller's own argument.
    record::driver_free(ROW, MemoryClass::Physical, handle, || unsafe { real(handle) })
}

/// `cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)`
pub unsafe extern "C" fn retain<const ROW: usize, const SLOT: usize>(
    handle: *mut Handle,
    address: *mut std::ffi::c_void,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut Handle, *mut std::ffi::c_void));
    // SAFETY: the caller's own arguments; on success `handle` was written.
    record::after(
        || unsafe { real(handle, address) },
        || Event {
            // SAFETY: as above.
            address: unsafe { stored(handle) },
            class: MemoryClass::Physical as u8,
            ..Event::new(EventKind::Retain)
        },
    )
}

/// `cuMemMap(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)`
pub unsafe extern "C" fn map<const ROW: usize, const SLOT: usize>(
    p: CUdeviceptr,
    bytes: usize,
    offset: usize,
    handle: Handle,
    flags: u64,
) -> Status {
    let real = real!(ROW, SLOT, fn(CUdeviceptr, usize, usize, Handle, u64));
    record::after_pair(
        // SAFETY: the caller's own arguments.
        || unsafe { real(p, bytes, offset, handle, flags) },
        || {
            let mapped = Event { address: p, size: bytes as u64, ..Event::new(EventKind::Map) };
            (mapped, Event { address: handle, ..Event::new(EventKind::MapHandle) })
        },
    )
}

/// `cuMemUnmap(CUdeviceptr p, size_t bytes)`
pub unsafe extern "C" fn unmap<const ROW: usize, const SLOT: usize>(p: CUdeviceptr, bytes: usize) -> Status {
    let real = real!(ROW, SLOT, fn(CUdeviceptr, usize));
    // After, not before: the range belongs to the caller's reservation, so nobody else can be given it meanwhile, and
    // a failed unmap has no undo.
    // SAFETY: the caller's own arguments.
    record::ending(
        || unsafe { real(p, bytes) },
        || Some(Event { address: p, size: bytes as u64, ..Event::new(EventKind::Unmap) }),
    )
}
