//! Arrays: device memory behind a handle. Sparse ones have none of their own.

use crate::abi::pointers::{Handle, In, Out};
use crate::abi::records::{Array2D, Array3D, MemoryRequirements};
use crate::abi::status::*;
use crate::state::arena::rounded;
use crate::state::device::Owner;
use crate::state::driver::Driver;
use crate::state::mapping::{PAGE, RW, map, unmap};
use crate::state::memory::{Array, Tile};

/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`
const WITHOUT_MEMORY: u32 = 0x40 | 0x80;
pub fn is_sparse(shape: &Array3D) -> bool {
    shape.flags & WITHOUT_MEMORY != 0
}

/// Reserves a range for what is copied into the array.
pub fn reserve_backing(bytes: u64) -> Res<u64> {
    map(0, bytes.next_multiple_of(PAGE), RW, -1, 0).ok_or(OUT_OF_MEMORY)
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

fn create(driver: &mut Driver, api: &str, shape: Array3D, owner: Owner) -> Res<Handle> {
    let bytes = bytes(&shape)?;
    let element = element(shape.format, shape.channels)?;
    let handle = driver.new_handle();
    let address = if is_sparse(&shape) {
        reserve_backing(bytes)?
    } else {
        let address = driver.allocate_range(owner.device, rounded(bytes).ok_or(OUT_OF_MEMORY)?)?;
        driver.truth_log.write('+', api, handle as u64, bytes, owner.device);
        address
    };
    let Owner { context, device } = owner;
    driver.arrays.insert(handle, Array { shape, element, bytes, at: address, device, context, level_of: 0 });
    Ok(handle)
}

impl Driver {
    fn end_array(&mut self, api: &str, handle: Handle) {
        let Some(array) = self.arrays.remove(&handle) else { return };
        if is_sparse(&array.shape) {
            self.end_tiles_of(api, handle);
            unmap(array.at, array.bytes.next_multiple_of(PAGE));
            return;
        }
        self.truth_log.write('-', api, handle as u64, array.bytes, array.device);
        self.free_range(array.device, array.at, rounded(array.bytes).unwrap_or(0));
    }

    pub fn end_arrays_of(&mut self, context: Handle) {
        let arrays: Vec<_> = self.arrays.iter().filter(|a| a.1.context == context).map(|a| *a.0).collect();
        for handle in arrays {
            self.end_array("implicit", handle);
        }
    }
}

pub fn requirements(bytes: u64) -> MemoryRequirements {
    MemoryRequirements { size: bytes as usize, alignment: 512, reserved: [0; 4] }
}

impl Driver {
    /// Unmaps every tile of an array or mipmap that ends.
    pub fn end_tiles_of(&mut self, api: &str, resource: Handle) {
        let all = (resource, 0, [0; 4])..=(resource, u32::MAX, [u32::MAX; 4]);
        let mine: Vec<(Tile, u64)> = self.tiles.range(all).map(|(&t, &id)| (t, id)).collect();
        for (tile, id) in mine {
            self.tiles.remove(&tile);
            self.release_physical(api, id);
        }
    }
}

driver_api! {
    fn cuArrayCreate_v2(driver, owner; out: Out<Handle>, shape: In<Array2D>) {
        let Array2D { width, height, format, channels } = shape.get()?;
        let shape = Array3D { width, height, depth: 0, format, channels, flags: 0 };
        out.put(create(driver, "cuArrayCreate_v2", shape, owner)?)
    }

    fn cuArray3DCreate_v2(driver, owner; out: Out<Handle>, shape: In<Array3D>) {
        out.put(create(driver, "cuArray3DCreate_v2", shape.get()?, owner)?)
    }

    fn cuArrayGetDescriptor_v2(driver; out: Out<Array2D>, array: Handle) {
        let Array3D { width, height, format, channels, .. } = driver.array(array)?.shape;
        out.put(Array2D { width, height, format, channels })
    }

    fn cuArray3DGetDescriptor_v2(driver; out: Out<Array3D>, array: Handle) {
        out.put(driver.array(array)?.shape)
    }

    fn cuArrayDestroy(driver; array: Handle) {
        if driver.array(array)?.level_of != 0 {
            return Err(INVALID_HANDLE);
        }
        driver.end_array("cuArrayDestroy", array);
        Ok(())
    }

    fn cuArrayGetMemoryRequirements(driver; out: Out<MemoryRequirements>, array: Handle, _device: i32) {
        out.put(requirements(driver.array(array)?.bytes))
    }
}
