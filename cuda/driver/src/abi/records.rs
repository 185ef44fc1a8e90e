//! The documented records that cross the border: cudarc's declarations where no field is an enum, our own, of
//! the same layout, where one is. A caller may leave any number there, and a Rust enum may not hold any.

use std::ffi::c_void;
use std::ptr::null_mut;

use cudarc::driver::sys;

pub use sys::CUDA_ARRAY_MEMORY_REQUIREMENTS as MemoryRequirements;
pub use sys::CUDA_ARRAY_SPARSE_PROPERTIES as SparseProperties;
pub use sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC as ExternalBuffer;
pub use sys::CUDA_HOST_NODE_PARAMS as HostNode;
pub use sys::CUDA_KERNEL_NODE_PARAMS as KernelNode;
pub use sys::CUDA_KERNEL_NODE_PARAMS_v1 as KernelNodeV1;
pub use sys::CUDA_MEMSET_NODE_PARAMS as MemsetNode;
pub use sys::CUlaunchConfig as LaunchConfig;
pub use sys::CUmulticastObjectProp as MulticastProps;

use crate::abi::pointers::{Addr, Handle, Stream};

/// Declares records, each beside the one of cudarc whose layout it must have.
macro_rules! records {
    ($($(#[$meta:meta])* $name:ident like $theirs:ident
        { $($(#[$doc:meta])* $field:ident: $type:ty $(= $their_field:ident)?,)* })*) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name { $($(#[$doc])* pub $field: $type,)* }

        const _: () = {
            assert!(size_of::<$name>() == size_of::<sys::$theirs>());
            $($(assert!(std::mem::offset_of!($name, $field) == std::mem::offset_of!(sys::$theirs, $their_field));)?)*
        };
    )*};
}

records! {
    Location like CUmemLocation {
        /// 1 device, 2 host, 3 a NUMA node, 4 the current NUMA node
        kind: i32 = type_,
        id: i32 = id,
    }

    Access like CUmemAccessDesc { location: Location = location, flags: i32 = flags, }

    AllocationProps like CUmemAllocationProp {
        kind: i32 = type_,
        handle_types: i32 = requestedHandleTypes,
        location: Location = location,
        windows: usize = win32HandleMetaData,
        flags: u64 = allocFlags,
    }

    PoolProps like CUmemPoolProps {
        kind: i32 = allocType,
        handle_types: i32 = handleTypes,
        location: Location = location,
        windows: usize = win32SecurityAttributes,
        max_size: usize = maxSize,
        usage: u16 = usage,
        reserved: [u8; 54] = reserved,
    }

    Array2D like CUDA_ARRAY_DESCRIPTOR {
        width: usize = Width,
        height: usize = Height,
        format: i32 = Format,
        channels: u32 = NumChannels,
    }

    Array3D like CUDA_ARRAY3D_DESCRIPTOR {
        width: usize = Width,
        height: usize = Height,
        depth: usize = Depth,
        format: i32 = Format,
        channels: u32 = NumChannels,
        flags: u32 = Flags,
    }

    Copy2D like CUDA_MEMCPY2D {
        from: End2D = srcXInBytes,
        to: End2D = dstXInBytes,
        width: usize = WidthInBytes,
        height: usize = Height,
    }

    Copy3D like CUDA_MEMCPY3D {
        from: End3D = srcXInBytes,
        to: End3D = dstXInBytes,
        width: usize = WidthInBytes,
        height: usize = Height,
        depth: usize = Depth,
    }

    AllocNode like CUDA_MEM_ALLOC_NODE_PARAMS {
        pool: PoolProps = poolProps,
        access: usize = accessDescs,
        access_count: usize = accessDescCount,
        bytes: usize = bytesize,
        at: Addr = dptr,
    }

    /// The kind of node, then a union of the kinds' parameters.
    AnyNode like CUgraphNodeParams { kind: i32 = type_, reserved: [i32; 3] = reserved0, body: [u64; 30], }

    InstantiateParams like CUDA_GRAPH_INSTANTIATE_PARAMS {
        flags: u64 = flags,
        stream: Stream = hUploadStream,
        bad_node: Handle = hErrNode_out,
        result: i32 = result_out,
    }

    UpdateResult like CUgraphExecUpdateResultInfo {
        result: i32 = result,
        bad_node: Handle = errorNode,
        bad_from: Handle = errorFromNode,
    }

    ExternalMemory like CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
        kind: i32 = type_,
        /// A union: the descriptor, or two pointers.
        handle: [u64; 2] = handle,
        bytes: u64 = size,
        flags: u32 = flags,
        reserved: [u32; 16] = reserved,
    }

    ExternalMipmap like CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
        offset: u64 = offset,
        shape: Array3D = arrayDesc,
        levels: u32 = numLevels,
        reserved: [u32; 16] = reserved,
    }

    MapInfo like CUarrayMapInfo {
        resource_kind: i32 = resourceType,
        resource: Handle = resource,
        region_kind: i32 = subresourceType,
        region: Region = subresource,
        operation: i32 = memOperationType,
        handle_kind: i32 = memHandleType,
        memory: u64 = memHandle,
        offset: u64 = offset,
        devices: u32 = deviceBitMask,
        flags: u32 = flags,
        reserved: [u32; 2] = reserved,
    }

    Resource like CUdevResource { kind: i32 = type_, padding: [u8; 92], processors: u32, rest: [u8; 44], }

    /// The operation, the address, the value.
    BatchOp like CUstreamBatchMemOpParams { operation: i32, at: Addr, value: u64, rest: [u64; 3], }
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

/// One end of a `CUDA_MEMCPY3D`, and of a `CUDA_MEMCPY3D_PEER` (whose context stands in the reserved field).
#[repr(C)]
#[derive(Clone, Copy, Default)]
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

/// A region of a sparse array: level, layer, offset and extent; of its tail: layer, offset and size.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Region {
    pub level: [u32; 8],
    pub tail: Tail,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Tail {
    pub layer: u32,
    pub offset: u64,
    pub bytes: u64,
}

impl AllocationProps {
    /// Returns the properties of pinned memory on a device.
    pub fn on_device(device: i32, handle_types: i32) -> AllocationProps {
        let location = Location { kind: 1, id: device };
        AllocationProps { kind: 1, handle_types, location, windows: 0, flags: 0 }
    }
}

/// Makes the parameters of a kernel launch.
pub fn kernel_node(
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> KernelNode {
    KernelNode {
        func: function as sys::CUfunction,
        gridDimX: grid[0],
        gridDimY: grid[1],
        gridDimZ: grid[2],
        blockDimX: block[0],
        blockDimY: block[1],
        blockDimZ: block[2],
        sharedMemBytes: shared,
        kernelParams: arguments,
        extra,
        kern: null_mut(),
        ctx: null_mut(),
    }
}

/// `CUgraphEdgeData`, which is always zero here.
pub type EdgeData = [u8; 8];
