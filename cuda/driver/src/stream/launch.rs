//! Launches: they are checked, counted, and done.

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::abi::pointers::{Handle, In, PerThread, Stream};
use crate::abi::records::{KernelNode, LaunchConfig, kernel_node};
use crate::abi::status::*;
use crate::state::driver::Driver;
use crate::state::work::Op;

const MAX_THREADS: u64 = 1024;
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];

impl Driver {
    /// Forgets what the host wrote: a kernel may have written anything.
    pub fn launched(&mut self) {
        self.host_writes.clear();
    }

    fn launch(&mut self, node: KernelNode, stream: Stream) -> Res {
        let owner = self.stream_owner(stream)?;
        let module = self.kernel(node.func as Handle)?.module;
        let threads = [node.blockDimX, node.blockDimY, node.blockDimZ].map(u64::from).iter().product();
        let grid = [node.gridDimX, node.gridDimY, node.gridDimZ];
        if !(1..=MAX_THREADS).contains(&threads)
            || grid.iter().zip(MAX_GRID).any(|(&n, most)| n == 0 || n > most)
        {
            return Err(INVALID_VALUE);
        }
        self.load_code(module, owner)?;
        if !self.record(stream, Op::Kernel(node))? {
            self.launched();
        }
        Ok(())
    }
}

fn launch_configured(
    driver: &mut Driver,
    config: &LaunchConfig,
    stream: Stream,
    function: Handle,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Res {
    let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
    let block = [config.blockDimX, config.blockDimY, config.blockDimZ];
    driver.launch(kernel_node(function, grid, block, config.sharedMemBytes, arguments, extra), stream)
}

driver_api! {
    fn cuLaunchKernel(driver; function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
        block_z: u32, shared: u32, stream: Stream, arguments: *mut *mut c_void, extra: *mut *mut c_void)
        [cuLaunchKernel_ptsz] {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        driver.launch(kernel_node(function, grid, block, shared, arguments, extra), stream)
    }

    fn cuLaunchCooperativeKernel(driver; function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32,
        block_y: u32, block_z: u32, shared: u32, stream: Stream, arguments: *mut *mut c_void)
        [cuLaunchCooperativeKernel_ptsz] {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        driver.launch(kernel_node(function, grid, block, shared, arguments, null_mut()), stream)
    }

    fn cuLaunchKernelEx(driver; config: In<LaunchConfig>, function: Handle, arguments: *mut *mut c_void,
        extra: *mut *mut c_void) {
        let config = config.get()?;
        launch_configured(driver, &config, Stream(config.hStream as Handle), function, arguments, extra)
    }

    fn cuLaunchKernelEx_ptsz(driver; config: In<LaunchConfig>, function: Handle, arguments: *mut *mut
        c_void, extra: *mut *mut c_void) {
        let config = config.get()?;
        let stream = Stream(config.hStream as Handle).per_thread();
        launch_configured(driver, &config, stream, function, arguments, extra)
    }
}
