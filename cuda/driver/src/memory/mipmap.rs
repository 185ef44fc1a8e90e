//! Mipmapped arrays: one piece of memory, an array per level.

use crate::abi::pointers::{Addr, Handle, In, Out};
use crate::abi::records::{Array3D, MemoryRequirements};
use crate::abi::status::*;
use crate::memory::array::{bytes, element, is_sparse, requirements, reserve_backing};
use crate::state::arena::rounded;
use crate::state::device::Owner;
use crate::state::driver::Driver;
use crate::state::mapping::{PAGE, unmap};
use crate::state::memory::{Array, Mipmap};

/// The levels that a mipmapped array will have.
pub struct MipmapPlan {
    levels: Vec<(Array3D, u64)>,
    element: usize,
}

impl MipmapPlan {
    pub fn new(base: Array3D, levels: u32) -> Res<MipmapPlan> {
        let widest = base.width.max(base.height).max(base.depth).max(1);
        let half = |n: usize, level: u32| if n == 0 { 0 } else { (n >> level).max(1) };
        let shape = |l| Array3D {
            width: half(base.width, l),
            height: half(base.height, l),
            depth: half(base.depth, l),
            ..base
        };
        let levels = (0..levels.clamp(1, widest.ilog2() + 1)).map(shape);
        let levels = levels.map(|shape| Ok((shape, bytes(&shape)?))).collect::<Res<Vec<_>>>()?;
        Ok(MipmapPlan { levels, element: element(base.format, base.channels)? })
    }

    fn is_sparse(&self) -> bool {
        self.levels.first().is_some_and(|l| is_sparse(&l.0))
    }

    pub fn bytes(&self) -> u64 {
        self.levels.iter().map(|l| l.1).sum()
    }
}

impl Driver {
    pub fn add_mipmap(&mut self, plan: MipmapPlan, at: Addr, foreign: Option<u64>, owner: Owner) -> Handle {
        let (handle, total, element) = (self.new_handle(), plan.bytes(), plan.element);
        let (mut next, mut levels) = (at, Vec::new());
        for (shape, bytes) in plan.levels {
            let level = self.new_handle();
            let array =
                Array { shape, element, bytes, at: next, device: owner.device, context: 0, level_of: handle };
            self.arrays.insert(level, array);
            next += bytes;
            levels.push(level);
        }
        let mipmap =
            Mipmap { levels, bytes: total, at, device: owner.device, context: owner.context, foreign };
        self.mipmaps.insert(handle, mipmap);
        handle
    }

    fn end_mipmap(&mut self, api: &str, handle: Handle) {
        let Some(mipmap) = self.mipmaps.remove(&handle) else { return };
        for level in mipmap.levels {
            self.arrays.remove(&level);
        }
        self.end_tiles_of(api, handle);
        match mipmap.foreign {
            Some(skip) => unmap(mipmap.at - skip, (skip + mipmap.bytes).next_multiple_of(PAGE)),
            None => {
                self.truth_log.write('-', api, handle as u64, mipmap.bytes, mipmap.device);
                self.free_range(mipmap.device, mipmap.at, rounded(mipmap.bytes).unwrap_or(0));
            }
        }
    }

    pub fn end_mipmaps_of(&mut self, context: Handle) {
        let mipmaps: Vec<_> = self.mipmaps.iter().filter(|m| m.1.context == context).map(|m| *m.0).collect();
        for handle in mipmaps {
            self.end_mipmap("implicit", handle);
        }
    }
}

driver_api! {
    fn cuMipmappedArrayCreate(driver, owner; out: Out<Handle>, shape: In<Array3D>, levels: u32) {
        let plan = MipmapPlan::new(shape.get()?, levels)?;
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        let bytes = plan.bytes();
        if plan.is_sparse() {
            return out.put(driver.add_mipmap(plan, reserve_backing(bytes)?, Some(0), owner));
        }
        let address = driver.allocate_range(owner.device, rounded(bytes).ok_or(OUT_OF_MEMORY)?)?;
        let handle = driver.add_mipmap(plan, address, None, owner);
        driver.truth_log.write('+', "cuMipmappedArrayCreate", handle as u64, bytes, owner.device);
        out.put(handle)
    }

    fn cuMipmappedArrayGetLevel(driver; out: Out<Handle>, handle: Handle, level: u32) {
        let mipmap = driver.mipmap(handle)?;
        out.put(*mipmap.levels.get(level as usize).ok_or(INVALID_VALUE)?)
    }

    fn cuMipmappedArrayDestroy(driver; handle: Handle) {
        driver.mipmap(handle)?;
        driver.end_mipmap("cuMipmappedArrayDestroy", handle);
        Ok(())
    }

    fn cuMipmappedArrayGetMemoryRequirements(driver; out: Out<MemoryRequirements>, handle: Handle,
        _device: i32) {
        out.put(requirements(driver.mipmap(handle)?.bytes))
    }
}
