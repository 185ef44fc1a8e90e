//! The types that cross the border: handles, and the structs whose layout both sides must agree on.
//!
//! They are our own and not cudarc's: callers may leave any number in an enum field, and the archive that the
//! runtime is linked from would grow by 10 MB.

use std::ffi::c_void;

/// Handles are the driver's own; the runtime never looks behind them.
pub type Handle = *mut c_void;
pub type Stream = Handle;
pub type Event = Handle;
pub type Graph = Handle;
pub type GraphExec = Handle;
pub type Node = Handle;
pub type Pool = Handle;
pub type Array = Handle;
/// A device address as the driver spells it.
pub type DevPtr = u64;

pub const DEVICE_INVALID: i32 = -2;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dim3 {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Extent {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct PitchedPtr {
    pub ptr: *mut c_void,
    pub pitch: usize,
    pub width: usize,
    pub height: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Pos {
    pub x: usize,
    pub y: usize,
    pub z: usize,
}

/// cudaMemcpy3DParms.
#[repr(C)]
pub struct Copy3DParams {
    pub src_array: Array,
    pub src_pos: Pos,
    pub src_ptr: PitchedPtr,
    pub dst_array: Array,
    pub dst_pos: Pos,
    pub dst_ptr: PitchedPtr,
    pub extent: Extent,
    pub kind: i32,
}

/// cudaChannelFormatDesc.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Channel {
    pub bits: [i32; 4],
    pub kind: i32,
}

/// 64 opaque bytes, passed by value: memory and event handles for other processes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle(pub [u8; 64]);

/// cudaMemLocation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    pub kind: i32,
    pub id: i32,
}

/// CUDA_ARRAY3D_DESCRIPTOR.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ArrayDescriptor {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub format: i32,
    pub channels: u32,
    pub flags: u32,
}

/// CUDA_MEMCPY2D.
#[repr(C)]
pub struct DriverCopy2D {
    pub src: Side2D,
    pub dst: Side2D,
    pub width: usize,
    pub height: usize,
}

#[repr(C)]
pub struct Side2D {
    pub x: usize,
    pub y: usize,
    pub memory: i32,
    pub host: *const c_void,
    pub device: DevPtr,
    pub array: Array,
    pub pitch: usize,
}

/// CUDA_MEMCPY3D.
#[repr(C)]
pub struct DriverCopy3D {
    pub src: Side3D,
    pub dst: Side3D,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

#[repr(C)]
pub struct Side3D {
    pub x: usize,
    pub y: usize,
    pub z: usize,
    pub lod: usize,
    pub memory: i32,
    pub host: *const c_void,
    pub device: DevPtr,
    pub array: Array,
    pub reserved: *mut c_void,
    pub pitch: usize,
    pub height: usize,
}

/// cudaKernelNodeParams.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelParams {
    pub function: *const c_void,
    pub grid: Dim3,
    pub block: Dim3,
    pub shared: u32,
    pub args: *mut Handle,
    pub extra: *mut Handle,
}

/// CUDA_KERNEL_NODE_PARAMS: the same, with a kernel in a function's place and a context.
#[repr(C)]
pub struct DriverKernelParams {
    pub params: KernelParams,
    pub kernel: Handle,
    pub context: Handle,
}

/// CUmemorytype: an array, or an address which the driver resolves by itself.
pub const MEMORY_ARRAY: i32 = 3;
pub const MEMORY_UNIFIED: i32 = 4;

const _: () = assert!(size_of::<DriverCopy2D>() == 128);
const _: () = assert!(size_of::<DriverCopy3D>() == 200);
const _: () = assert!(size_of::<Copy3DParams>() == 160);
const _: () = assert!(size_of::<ArrayDescriptor>() == 40);
const _: () = assert!(size_of::<DriverKernelParams>() == 72);
