//! Mipmapped arrays: one piece of memory, an array per level.

use crate::abi::{Addr, Handle, In, Out};
use crate::arena::{PAGE, rounded, unmap};
use crate::array::{Array, Requirements, bytes, element, requirements};
use crate::error::*;
use crate::params::Array3D;
use crate::sparse::{is_sparse, room};
use crate::state::{Core, Here, here, with};

pub struct Mipmap {
    levels: Vec<Handle>,
    bytes: u64,
    at: Addr,
    device: i32,
    context: Handle,
    /// A mapping of ours that is no memory of the device's, so far into its first page: of an external file, or none.
    foreign: Option<u64>,
}

impl Mipmap {
    pub fn levels(&self) -> &[Handle] {
        &self.levels
    }
}

/// The levels that a mipmapped array will have.
pub struct Plan {
    levels: Vec<(Array3D, u64)>,
    element: usize,
}

impl Plan {
    pub fn new(base: Array3D, levels: u32) -> Res<Plan> {
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
        Ok(Plan { levels, element: element(base.format, base.channels)? })
    }

    fn is_sparse(&self) -> bool {
        self.levels.first().is_some_and(|l| is_sparse(&l.0))
    }

    pub fn bytes(&self) -> u64 {
        self.levels.iter().map(|l| l.1).sum()
    }
}

impl Core {
    pub fn add_mipmap(&mut self, plan: Plan, at: Addr, foreign: Option<u64>, here: Here) -> Handle {
        let (handle, total, element) = (self.handle(), plan.bytes(), plan.element);
        let (mut next, mut levels) = (at, Vec::new());
        for (shape, bytes) in plan.levels {
            let level = self.handle();
            let array =
                Array { shape, element, bytes, at: next, device: here.device, context: 0, level_of: handle };
            self.arrays.insert(level, array);
            next += bytes;
            levels.push(level);
        }
        let mipmap = Mipmap { levels, bytes: total, at, device: here.device, context: here.context, foreign };
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
                self.truth.line('-', api, handle as u64, mipmap.bytes, mipmap.device);
                self.displace(mipmap.device, mipmap.at, rounded(mipmap.bytes).unwrap_or(0));
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

#[unsafe(no_mangle)]
pub extern "C" fn cuMipmappedArrayCreate(out: Out<Handle>, shape: In<Array3D>, levels: u32) -> Status {
    distinct!(cuMipmappedArrayCreate);
    here(|core, at| {
        let plan = Plan::new(shape.get()?, levels)?;
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        let bytes = plan.bytes();
        if plan.is_sparse() {
            return out.put(core.add_mipmap(plan, room(bytes)?, Some(0), at));
        }
        let address = core.place(at.device, rounded(bytes).ok_or(OUT_OF_MEMORY)?)?;
        let handle = core.add_mipmap(plan, address, None, at);
        core.truth.line('+', "cuMipmappedArrayCreate", handle as u64, bytes, at.device);
        out.put(handle)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMipmappedArrayGetLevel(out: Out<Handle>, handle: Handle, level: u32) -> Status {
    distinct!(cuMipmappedArrayGetLevel);
    with(|core| {
        let mipmap = core.mipmaps.get(&handle).ok_or(INVALID_HANDLE)?;
        out.put(*mipmap.levels.get(level as usize).ok_or(INVALID_VALUE)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMipmappedArrayDestroy(handle: Handle) -> Status {
    distinct!(cuMipmappedArrayDestroy);
    with(|core| {
        if !core.mipmaps.contains_key(&handle) {
            return Err(INVALID_HANDLE);
        }
        core.end_mipmap("cuMipmappedArrayDestroy", handle);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMipmappedArrayGetMemoryRequirements(
    out: Out<Requirements>,
    handle: Handle,
    _device: i32,
) -> Status {
    distinct!(cuMipmappedArrayGetMemoryRequirements);
    with(|core| out.put(requirements(core.mipmaps.get(&handle).ok_or(INVALID_HANDLE)?.bytes)))
}
