//! Occupancy: how many blocks fit.

use crate::driver::D;
use crate::launch::LaunchConfig;
use crate::modules;
use std::ffi::c_void;

export! {
    device fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(out: *mut i32, function: *const c_void, block: i32,
        shared: usize) {
        D.occupancy(out, modules::kernel(function)?, block, shared, 0)
    }

    device fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out: *mut i32, function: *const c_void,
        block: i32, shared: usize, flags: u32) {
        D.occupancy(out, modules::kernel(function)?, block, shared, flags)
    }

    device fn cudaOccupancyAvailableDynamicSMemPerBlock(out: *mut usize, function: *const c_void, blocks: i32,
        block: i32) {
        D.occupancy_smem(out, modules::kernel(function)?, blocks, block)
    }

    device fn cudaOccupancyMaxActiveClusters(out: *mut i32, function: *const c_void, config: *const LaunchConfig) {
        D.occupancy_clusters(out, modules::kernel(function)?, config.cast())
    }

    device fn cudaOccupancyMaxPotentialClusterSize(out: *mut i32, function: *const c_void,
        config: *const LaunchConfig) {
        D.occupancy_cluster_size(out, modules::kernel(function)?, config.cast())
    }
}
