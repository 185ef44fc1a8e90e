//! Linear, pitched and managed device memory.

use cudarc::driver::sys::CUdeviceptr;
use leaktrace_core::format::event::MemoryClass::{Linear, Managed, Pitched};

use crate::hooks::{Arg, hooks};

hooks! {
    /// `cuMemAlloc(CUdeviceptr *p, size_t bytes)`
    fn alloc(p: Arg<CUdeviceptr>, bytes: usize) => |call| {
        call.driver_alloc(Linear, || (p.get(), bytes as u64))
    };

    /// `cuMemAllocPitch(CUdeviceptr *p, size_t *pitch, size_t width, size_t height, unsigned element)`
    fn alloc_pitch(
        p: Arg<CUdeviceptr>,
        pitch: Arg<usize>,
        width: usize,
        height: usize,
        element: u32,
    ) => |call| {
        call.driver_alloc(Pitched, || (p.get(), (pitch.get() as u64).saturating_mul(height as u64)))
    };

    /// `cuMemAllocManaged(CUdeviceptr *p, size_t bytes, unsigned flags)`
    fn alloc_managed(p: Arg<CUdeviceptr>, bytes: usize, flags: u32) => |call| {
        call.driver_alloc(Managed, || (p.get(), bytes as u64))
    };

    /// `cuMemFree(CUdeviceptr p)`
    fn free(p: CUdeviceptr) => |call| call.driver_free(Linear, p);
}
