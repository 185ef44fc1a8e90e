//! The documented records that callers pass, as our own declarations.

use std::ffi::c_void;

use crate::abi::{Addr, Handle, HostFn, Stream};

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    /// 1 device, 2 host, 3 a NUMA node, 4 the current NUMA node
    pub kind: i32,
    pub id: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Access {
    pub location: Location,
    pub flags: i32,
}

/// `CUmemAllocationProp`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllocationProps {
    pub kind: i32,
    pub handle_types: i32,
    pub location: Location,
    pub windows: usize,
    pub compression: u8,
    pub rdma: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

/// `CUmemPoolProps`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PoolProps {
    pub kind: i32,
    pub handle_types: i32,
    pub location: Location,
    pub windows: usize,
    pub most: usize,
    pub usage: u16,
    pub reserved: [u8; 54],
}

/// `CUDA_ARRAY_DESCRIPTOR`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Array2D {
    pub width: usize,
    pub height: usize,
    pub format: i32,
    pub channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Array3D {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub format: i32,
    pub channels: u32,
    pub flags: u32,
}

/// One end of a `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct End2D {
    pub x: usize,
    pub y: usize,
    pub kind: i32,
    pub host: Addr,
    pub device: Addr,
    pub array: Handle,
    pub pitch: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy2D {
    pub from: End2D,
    pub to: End2D,
    pub width: usize,
    pub height: usize,
}

/// One end of a `CUDA_MEMCPY3D`, and of a `CUDA_MEMCPY3D_PEER` (whose context stands in the reserved field).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct End3D {
    pub x: usize,
    pub y: usize,
    pub z: usize,
    pub level: usize,
    pub kind: i32,
    pub host: Addr,
    pub device: Addr,
    pub array: Handle,
    pub context: Handle,
    pub pitch: usize,
    pub height: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy3D {
    pub from: End3D,
    pub to: End3D,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// `CUlaunchConfig`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchConfig {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub stream: Stream,
    pub attributes: usize,
    pub attribute_count: u32,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`; the first version ends before `kernel`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct KernelNode {
    pub function: Handle,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub arguments: usize,
    pub extra: usize,
    pub kernel: Handle,
    pub context: Handle,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct KernelNodeV1 {
    pub function: Handle,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub arguments: usize,
    pub extra: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemsetNode {
    pub at: Addr,
    pub pitch: usize,
    pub value: u32,
    pub element: u32,
    pub width: usize,
    pub height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HostNode {
    pub function: Option<HostFn>,
    pub data: *mut c_void,
}

// The program hands the pointer over to be called with on any thread.
// SAFETY: it is only ever passed back to the program's own function.
unsafe impl Send for HostNode {}
// SAFETY: as above.
unsafe impl Sync for HostNode {}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllocNode {
    pub pool: PoolProps,
    pub access: usize,
    pub access_count: usize,
    pub bytes: usize,
    pub at: Addr,
}

/// `CUgraphNodeParams`: the kind, then a union.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AnyNode {
    pub kind: i32,
    pub reserved: [i32; 3],
    pub body: [u64; 29],
    pub reserved2: u64,
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct InstantiateParams {
    pub flags: u64,
    pub stream: Stream,
    pub bad_node: Handle,
    pub result: i32,
}

/// `CUgraphExecUpdateResultInfo`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UpdateResult {
    pub result: i32,
    pub bad_node: Handle,
    pub bad_from: Handle,
}

pub type EdgeData = [u8; 8];

/// The sizes and offsets that the CUDA documentation's records have on a 64-bit machine.
const _: () = {
    assert!(size_of::<AllocationProps>() == 32);
    assert!(size_of::<PoolProps>() == 88);
    assert!(size_of::<Access>() == 12);
    assert!(size_of::<Array3D>() == 40);
    assert!(size_of::<Copy2D>() == 128);
    assert!(size_of::<Copy3D>() == 200);
    assert!(size_of::<LaunchConfig>() == 56);
    assert!(size_of::<KernelNode>() == 72);
    assert!(size_of::<AllocNode>() == 120);
    assert!(size_of::<AnyNode>() == 256);
};
