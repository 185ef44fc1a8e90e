//! Occupancy: what the attributes of the device allow, since no kernel's needs are known.

use crate::abi::pointers::{Handle, In, Out};
use crate::abi::records::LaunchConfig;
use crate::abi::status::*;
use crate::state::attributes::{BLOCKS, PROCESSORS, THREADS, WARP};

const SHARED: usize = 164 << 10;
const LARGEST_BLOCK: i32 = 1024;

fn blocks(block: i32, shared: usize) -> i32 {
    let by_threads = THREADS / (block.max(1) as u32).next_multiple_of(WARP as u32) as i32;
    let by_shared = SHARED.checked_div(shared).map_or(BLOCKS, |n| n.min(BLOCKS as usize) as i32);
    by_threads.min(by_shared).min(BLOCKS)
}

driver_api! {
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(driver; out: Out<i32>, function: Handle, block: i32,
        shared: usize) = cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags {
        driver.kernel(function)?;
        if block <= 0 {
            return Err(INVALID_VALUE);
        }
        out.put(if block > LARGEST_BLOCK { 0 } else { blocks(block, shared) })
    }

    fn cuOccupancyMaxPotentialBlockSize(driver; grid: Out<i32>, block: Out<i32>, function: Handle,
        _shared_of: Handle, shared: usize, limit: i32) = cuOccupancyMaxPotentialBlockSizeWithFlags {
        driver.kernel(function)?;
        let size = if limit > 0 { limit.min(LARGEST_BLOCK) } else { LARGEST_BLOCK };
        grid.put(PROCESSORS * blocks(size, shared).max(1))?;
        block.put(size)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(driver; out: Out<usize>, function: Handle, count: i32,
        _block: i32) {
        driver.kernel(function)?;
        out.put(SHARED / count.max(1) as usize)
    }

    fn cuOccupancyMaxPotentialClusterSize(driver; out: Out<i32>, function: Handle, _unused:
        In<LaunchConfig>) {
        driver.kernel(function)?;
        out.put(if driver.cc.0 >= 9 { 8 } else { 1 })
    }

    fn cuOccupancyMaxActiveClusters(driver; out: Out<i32>, function: Handle, _unused: In<LaunchConfig>) {
        driver.kernel(function)?;
        out.put(if driver.cc.0 >= 9 { PROCESSORS / 2 } else { 1 })
    }
}
