//! Launches: they are checked, counted, and done.

use crate::abi::{Handle, In, Out, Stream};
use crate::error::*;
use crate::node::Op;
use crate::params::{KernelNode, LaunchConfig};
use crate::state::{Core, here, with};

const THREADS: u64 = 1024;
const WIDEST: [u32; 3] = [i32::MAX as u32, 65535, 65535];

impl Core {
    /// A kernel may have written anything: what the host wrote before no longer counts.
    pub fn launched(&mut self) {
        self.launches += 1;
        self.fresh.clear();
    }

    fn launch(&mut self, node: KernelNode, stream: Stream) -> Res {
        let at = self.stream_place(stream)?;
        let module = self.kernels.get(&node.function).ok_or(INVALID_HANDLE)?.module;
        let threads: u64 = node.block.iter().map(|&n| u64::from(n)).product();
        let too_wide = node.grid.iter().zip(WIDEST).any(|(&n, most)| n == 0 || n > most);
        if threads == 0 || threads > THREADS || too_wide {
            return Err(INVALID_VALUE);
        }
        self.bring_in(module, at)?;
        if !self.record(stream, Op::Kernel(node))? {
            self.launched();
        }
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: Stream,
    arguments: usize,
    extra: usize,
) -> Status {
    distinct!(cuLaunchKernel);
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let node = KernelNode { function, grid, block, shared, arguments, extra, kernel: 0, context: 0 };
    with(|core| core.launch(node, stream))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchCooperativeKernel(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: Stream,
    arguments: usize,
) -> Status {
    distinct!(cuLaunchCooperativeKernel);
    cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, arguments, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchKernelEx(
    config: In<LaunchConfig>,
    function: Handle,
    arguments: usize,
    extra: usize,
) -> Status {
    distinct!(cuLaunchKernelEx);
    with(|core| {
        let LaunchConfig { grid, block, shared, stream, .. } = config.get()?;
        core.launch(
            KernelNode { function, grid, block, shared, arguments, extra, kernel: 0, context: 0 },
            stream,
        )
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchKernelEx_ptsz(
    config: Out<LaunchConfig>,
    function: Handle,
    arguments: usize,
    extra: usize,
) -> Status {
    distinct!(cuLaunchKernelEx_ptsz);
    with(|core| {
        let LaunchConfig { grid, block, shared, stream, .. } = config.get()?;
        let stream = crate::abi::Own::own(stream);
        core.launch(
            KernelNode { function, grid, block, shared, arguments, extra, kernel: 0, context: 0 },
            stream,
        )
    })
}

per_thread! {
    cuLaunchKernel_ptsz = cuLaunchKernel(
        function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Stream, arguments: usize, extra: usize);
    cuLaunchCooperativeKernel_ptsz = cuLaunchCooperativeKernel(
        function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Stream, arguments: usize);
}

#[unsafe(no_mangle)]
pub extern "C" fn cuProfilerStart() -> Status {
    distinct!(cuProfilerStart);
    here(|_, _| Ok(()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuProfilerStop() -> Status {
    distinct!(cuProfilerStop);
    here(|_, _| Ok(()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuProfilerInitialize(_: In<u8>, _: In<u8>, _: i32) -> Status {
    distinct!(cuProfilerInitialize);
    NOT_SUPPORTED
}
