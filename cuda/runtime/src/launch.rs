//! Kernel launches.

use crate::abi::{Dim3, Handle, Stream};
use crate::driver::Via;
use crate::error::{Code, Outcome};
use crate::modules;
use std::ffi::c_void;
use std::ptr::null_mut;

/// cudaLaunchConfig_t, whose memory layout is CUlaunchConfig's too.
#[repr(C)]
pub struct LaunchConfig {
    pub grid: Dim3,
    pub block: Dim3,
    pub shared: usize,
    pub stream: Stream,
    pub attributes: *const c_void,
    pub count: u32,
}
const _: () = assert!(size_of::<LaunchConfig>() == 56);

fn shared_bytes(shared: usize) -> Result<u32, Code> {
    u32::try_from(shared).map_err(|_| Code::INVALID_VALUE)
}

unsafe fn launch(
    via: Via,
    kernel: Handle,
    g: Dim3,
    b: Dim3,
    args: *mut Handle,
    shared: usize,
    on: Stream,
) -> Outcome {
    via.launch(kernel, g.x, g.y, g.z, b.x, b.y, b.z, shared_bytes(shared)?, on, args, null_mut())
}

export_streams! {
    device fn cudaLaunchKernel [cudaLaunchKernel_ptsz] (via; function: *const c_void, grid: Dim3, block: Dim3,
        args: *mut Handle, shared: usize, stream: Stream) {
        launch(via, modules::kernel(function)?, grid, block, args, shared, stream)
    }

    device fn __cudaLaunchKernel [__cudaLaunchKernel_ptsz] (via; kernel: Handle, grid: Dim3, block: Dim3,
        args: *mut Handle, shared: usize, stream: Stream) {
        launch(via, kernel, grid, block, args, shared, stream)
    }

    device fn cudaLaunchCooperativeKernel [cudaLaunchCooperativeKernel_ptsz] (via; function: *const c_void,
        grid: Dim3, block: Dim3, args: *mut Handle, shared: usize, stream: Stream) {
        let kernel = modules::kernel(function)?;
        let (g, b) = (grid, block);
        via.launch_cooperative(kernel, g.x, g.y, g.z, b.x, b.y, b.z, shared_bytes(shared)?, stream, args)
    }

    device fn cudaLaunchKernelExC [cudaLaunchKernelExC_ptsz] (via; config: *const LaunchConfig,
        function: *const c_void, args: *mut Handle) {
        let Some(asked) = config.as_ref() else { return Err(Code::INVALID_VALUE) };
        // The driver's field for shared memory has 32 bits; the other half of the word is not read.
        shared_bytes(asked.shared)?;
        via.launch_ex(config.cast(), modules::kernel(function)?, args, null_mut())
    }
}
