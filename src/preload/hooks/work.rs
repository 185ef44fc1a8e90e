//! Work that the device is given: copies and kernels. No memory begins or ends with it, but a program that allocates seldom
//! shows by it where its loop comes round: a server copies each request in and its answer out, and who finds in a cache
//! what it needs only computes with it.

use crate::analysis::loop_steps;
use crate::hooks::{hooks, record};
use crate::shield::shield;
use crate::state;
use leaktrace_core::steps::loops::Shown;

hooks! {
    /// Any copy of at most eight words, see `untracked::count`; or what fills memory.
    fn copy(
        a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize, h: usize,
    ) => |call| {
        show(Shown::Copy);
        call.pass()
    };

    /// `cuMemcpyDtoHAsync(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)`, and `cuMemcpyDtoH`, which
    /// has no stream.
    fn copy_to_host(to: usize, from: u64, bytes: usize, stream: usize) => |call| {
        show(Shown::Copy);
        shield(|| record::copy_to_host(from, bytes as u64));
        call.pass()
    };

    /// `cuLaunchKernel(CUfunction f, unsigned int gridDimX, …, CUstream hStream, void **kernelParams, void **extra)`, and
    /// `cuLaunchCooperativeKernel`, which has no `extra`.
    fn launch(
        a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize, h: usize, i: usize, j: usize, k: usize,
    ) => |call| {
        show(Shown::Work);
        call.pass()
    };

    /// `cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)`
    fn launch_ex(config: usize, f: usize, params: usize, extra: usize) => |call| {
        show(Shown::Work);
        call.pass()
    };
}

/// Takes in that the calling thread is about to give the device work.
#[inline(always)]
pub fn show(what: Shown) {
    if state::is_recording() && loop_steps::wants_work() {
        shield(|| loop_steps::gives_work(what));
    }
}
