//! Arrays: device memory behind a handle.

use crate::abi::{Addr, Handle, In, Out};
use crate::arena::{PAGE, rounded, unmap};
use crate::error::*;
use crate::params::{Array2D, Array3D};
use crate::sparse::{is_sparse, room};
use crate::state::{Core, Here, here, with};

pub struct Array {
    pub shape: Array3D,
    pub element: usize,
    pub bytes: u64,
    pub at: Addr,
    pub device: i32,
    pub context: Handle,
    /// A level of a mipmapped array owns nothing.
    pub level_of: Handle,
}

impl Array {
    pub fn row(&self) -> usize {
        self.shape.width * self.element
    }
}

pub fn element(format: i32, channels: u32) -> Res<usize> {
    let each = match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => return Err(INVALID_VALUE),
    };
    if matches!(channels, 1 | 2 | 4) { Ok(each * channels as usize) } else { Err(INVALID_VALUE) }
}

pub fn bytes(shape: &Array3D) -> Res<u64> {
    if shape.width == 0 {
        return Err(INVALID_VALUE);
    }
    [shape.height.max(1), shape.depth.max(1), element(shape.format, shape.channels)?]
        .into_iter()
        .try_fold(shape.width as u64, |product, n| product.checked_mul(n as u64))
        .ok_or(OUT_OF_MEMORY)
}

fn create(core: &mut Core, api: &str, shape: Array3D, at: Here) -> Res<Handle> {
    let bytes = bytes(&shape)?;
    let element = element(shape.format, shape.channels)?;
    let handle = core.handle();
    let address = if is_sparse(&shape) {
        room(bytes)?
    } else {
        let address = core.place(at.device, rounded(bytes).ok_or(OUT_OF_MEMORY)?)?;
        core.truth.line('+', api, handle as u64, bytes, at.device);
        address
    };
    let array =
        Array { shape, element, bytes, at: address, device: at.device, context: at.context, level_of: 0 };
    core.arrays.insert(handle, array);
    Ok(handle)
}

impl Core {
    fn end_array(&mut self, api: &str, handle: Handle) {
        let Some(array) = self.arrays.remove(&handle) else { return };
        if is_sparse(&array.shape) {
            self.end_tiles_of(api, handle);
            unmap(array.at, array.bytes.next_multiple_of(PAGE));
            return;
        }
        self.truth.line('-', api, handle as u64, array.bytes, array.device);
        self.displace(array.device, array.at, rounded(array.bytes).unwrap_or(0));
    }

    pub fn end_arrays_of(&mut self, context: Handle) {
        let arrays: Vec<_> = self.arrays.iter().filter(|a| a.1.context == context).map(|a| *a.0).collect();
        for handle in arrays {
            self.end_array("implicit", handle);
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuArrayCreate_v2(out: Out<Handle>, shape: In<Array2D>) -> Status {
    distinct!(cuArrayCreate_v2);
    here(|core, at| {
        let Array2D { width, height, format, channels } = shape.get()?;
        let shape = Array3D { width, height, depth: 0, format, channels, flags: 0 };
        out.put(create(core, "cuArrayCreate_v2", shape, at)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuArray3DCreate_v2(out: Out<Handle>, shape: In<Array3D>) -> Status {
    distinct!(cuArray3DCreate_v2);
    here(|core, at| out.put(create(core, "cuArray3DCreate_v2", shape.get()?, at)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuArrayGetDescriptor_v2(out: Out<Array2D>, array: Handle) -> Status {
    distinct!(cuArrayGetDescriptor_v2);
    with(|core| {
        let Array3D { width, height, format, channels, .. } =
            core.arrays.get(&array).ok_or(INVALID_HANDLE)?.shape;
        out.put(Array2D { width, height, format, channels })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuArray3DGetDescriptor_v2(out: Out<Array3D>, array: Handle) -> Status {
    distinct!(cuArray3DGetDescriptor_v2);
    with(|core| out.put(core.arrays.get(&array).ok_or(INVALID_HANDLE)?.shape))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuArrayDestroy(array: Handle) -> Status {
    distinct!(cuArrayDestroy);
    with(|core| {
        if core.arrays.get(&array).ok_or(INVALID_HANDLE)?.level_of != 0 {
            return Err(INVALID_HANDLE);
        }
        core.end_array("cuArrayDestroy", array);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuArrayGetPlane(_: Out<Handle>, _: Handle, _: u32) -> Status {
    distinct!(cuArrayGetPlane);
    NOT_SUPPORTED
}

/// `CUDA_ARRAY_MEMORY_REQUIREMENTS`
#[repr(C)]
pub struct Requirements {
    bytes: usize,
    alignment: usize,
    reserved: [u32; 4],
}

pub fn requirements(bytes: u64) -> Requirements {
    Requirements { bytes: bytes as usize, alignment: 512, reserved: [0; 4] }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuArrayGetMemoryRequirements(
    out: Out<Requirements>,
    array: Handle,
    _device: i32,
) -> Status {
    distinct!(cuArrayGetMemoryRequirements);
    with(|core| out.put(requirements(core.arrays.get(&array).ok_or(INVALID_HANDLE)?.bytes)))
}
