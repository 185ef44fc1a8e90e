//! Pinned host memory: what the driver allocates, and memory of the program's that it registers.

use leaktrace_core::format::event::MemoryClass::{Host, Registered};

use crate::hooks::{Arg, Handle, hooks};

hooks! {
    /// `cuMemHostAlloc(void **p, size_t bytes, unsigned flags)`
    fn host_alloc(p: Arg<Handle>, bytes: usize, flags: u32) => |call| {
        call.driver_alloc(Host, || (p.handle(), bytes as u64))
    };

    /// `cuMemAllocHost(void **p, size_t bytes)`
    fn alloc_host(p: Arg<Handle>, bytes: usize) => |call| {
        call.driver_alloc(Host, || (p.handle(), bytes as u64))
    };

    /// `cuMemFreeHost(void *p)`
    fn free(p: Handle) => |call| call.driver_free(Host, p as u64);

    /// `cuMemHostRegister(void *p, size_t bytes, unsigned flags)`. The program's own memory, page-locked from
    /// now on.
    fn register(p: Handle, bytes: usize, flags: u32) => |call| {
        call.driver_alloc(Registered, || (p as u64, bytes as u64))
    };

    /// `cuMemHostUnregister(void *p)`
    fn unregister(p: Handle) => |call| call.driver_free(Registered, p as u64);
}
