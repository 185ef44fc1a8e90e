//! Occupancy: what the attributes of the device allow, since no kernel's needs are known.

use crate::abi::{Handle, In, Out};
use crate::attributes::{BLOCKS, PROCESSORS, THREADS, WARP};
use crate::error::*;
use crate::params::LaunchConfig;
use crate::state::with;

const SHARED: usize = 164 << 10;
const LARGEST_BLOCK: i32 = 1024;

fn blocks(block: i32, shared: usize) -> i32 {
    let by_threads = THREADS / (block.max(1) as u32).next_multiple_of(WARP as u32) as i32;
    let by_shared = SHARED.checked_div(shared).map_or(BLOCKS, |n| n.min(BLOCKS as usize) as i32);
    by_threads.min(by_shared).min(BLOCKS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    out: Out<i32>,
    function: Handle,
    block: i32,
    shared: usize,
) -> Status {
    distinct!(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    with(|core| {
        core.kernels.get(&function).ok_or(INVALID_HANDLE)?;
        if block <= 0 {
            return Err(INVALID_VALUE);
        }
        out.put(if block > LARGEST_BLOCK { 0 } else { blocks(block, shared) })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    out: Out<i32>,
    function: Handle,
    block: i32,
    shared: usize,
    _flags: u32,
) -> Status {
    distinct!(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
    cuOccupancyMaxActiveBlocksPerMultiprocessor(out, function, block, shared)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuOccupancyMaxPotentialBlockSize(
    grid: Out<i32>,
    block: Out<i32>,
    function: Handle,
    _shared_of: Handle,
    shared: usize,
    limit: i32,
) -> Status {
    distinct!(cuOccupancyMaxPotentialBlockSize);
    with(|core| {
        core.kernels.get(&function).ok_or(INVALID_HANDLE)?;
        let size = if limit > 0 { limit.min(LARGEST_BLOCK) } else { LARGEST_BLOCK };
        grid.put(PROCESSORS * blocks(size, shared).max(1))?;
        block.put(size)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    grid: Out<i32>,
    block: Out<i32>,
    function: Handle,
    shared_of: Handle,
    shared: usize,
    limit: i32,
    _flags: u32,
) -> Status {
    distinct!(cuOccupancyMaxPotentialBlockSizeWithFlags);
    cuOccupancyMaxPotentialBlockSize(grid, block, function, shared_of, shared, limit)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuOccupancyAvailableDynamicSMemPerBlock(
    out: Out<usize>,
    function: Handle,
    count: i32,
    _block: i32,
) -> Status {
    distinct!(cuOccupancyAvailableDynamicSMemPerBlock);
    with(|core| {
        core.kernels.get(&function).ok_or(INVALID_HANDLE)?;
        out.put(SHARED / count.max(1) as usize)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuOccupancyMaxPotentialClusterSize(
    out: Out<i32>,
    function: Handle,
    _: In<LaunchConfig>,
) -> Status {
    distinct!(cuOccupancyMaxPotentialClusterSize);
    with(|core| {
        core.kernels.get(&function).ok_or(INVALID_HANDLE)?;
        out.put(if core.cc.0 >= 9 { 8 } else { 1 })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuOccupancyMaxActiveClusters(
    out: Out<i32>,
    function: Handle,
    _: In<LaunchConfig>,
) -> Status {
    distinct!(cuOccupancyMaxActiveClusters);
    with(|core| {
        core.kernels.get(&function).ok_or(INVALID_HANDLE)?;
        out.put(if core.cc.0 >= 9 { PROCESSORS / 2 } else { 1 })
    })
}
