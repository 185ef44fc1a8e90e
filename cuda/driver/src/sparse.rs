//! Arrays without memory of their own: what physical handles are mapped into, tile by tile.
//!
//! A handle's bytes stay while a tile is mapped. What is copied into such an array lies in a range of its own, whatever
//! is mapped: two tiles over one handle are not one memory here.

use crate::abi::{Handle, In, Out, Stream};
use crate::arena::{PAGE, RW, map};
use crate::array::Array;
use crate::error::*;
use crate::params::Array3D;
use crate::state::{Core, with};
use crate::vmm::referenced;

/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`
const WITHOUT_MEMORY: u32 = 0x40 | 0x80;
const TILE: u64 = 64 << 10;

pub fn is_sparse(shape: &Array3D) -> bool {
    shape.flags & WITHOUT_MEMORY != 0
}

/// Where copies into the array go.
pub fn room(bytes: u64) -> Res<u64> {
    map(0, bytes.next_multiple_of(PAGE), RW, -1, 0).ok_or(OUT_OF_MEMORY)
}

/// The array or mipmap, the level, and which tile of it.
pub type Tile = (Handle, u32, [u32; 4]);
/// The level that stands for the small ones, which share tiles.
const TAIL: u32 = u32::MAX;

/// `CUDA_ARRAY_SPARSE_PROPERTIES`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Properties {
    tile: [u32; 3],
    tail_from: u32,
    tail_bytes: u64,
    flags: u32,
    reserved: [u32; 4],
}

/// `CUarrayMapInfo`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MapInfo {
    resource_kind: i32,
    resource: Handle,
    region_kind: i32,
    /// level, layer, offset and extent; of the tail: layer, offset and size
    region: Region,
    operation: i32,
    handle_kind: i32,
    memory: u64,
    offset: u64,
    devices: u32,
    flags: u32,
    reserved: [u32; 2],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union Region {
    level: [u32; 8],
    tail: Tail,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Tail {
    layer: u32,
    offset: u64,
    bytes: u64,
}
const _: () = assert!(size_of::<MapInfo>() == 96 && size_of::<Properties>() == 48);

/// A tile's extent: 64 KiB, as square as powers of two allow.
fn tile(element: usize, flat: bool) -> [u32; 3] {
    match (element, flat) {
        (1, true) => [256, 256, 1],
        (2, true) => [256, 128, 1],
        (4, true) => [128, 128, 1],
        (8, true) => [128, 64, 1],
        (_, true) => [64, 64, 1],
        (1, _) => [64, 32, 32],
        (2, _) => [32, 32, 32],
        (4, _) => [32, 32, 16],
        (8, _) => [32, 16, 16],
        (..) => [16, 16, 16],
    }
}

fn tile_of(array: &Array) -> [u32; 3] {
    tile(array.element, array.shape.depth == 0)
}

fn properties(array: Option<&Array>, tail_from: u32) -> Res<Properties> {
    let array = array.filter(|a| is_sparse(&a.shape)).ok_or(INVALID_VALUE)?;
    Ok(Properties { tile: tile_of(array), tail_from, tail_bytes: 0, flags: 0, reserved: [0; 4] })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuArrayGetSparseProperties(out: Out<Properties>, array: Handle) -> Status {
    distinct!(cuArrayGetSparseProperties);
    with(|core| out.put(properties(core.arrays.get(&array), 1)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMipmappedArrayGetSparseProperties(out: Out<Properties>, mipmap: Handle) -> Status {
    distinct!(cuMipmappedArrayGetSparseProperties);
    with(|core| {
        let levels = core.mipmaps.get(&mipmap).ok_or(INVALID_HANDLE)?.levels();
        out.put(properties(levels.first().and_then(|l| core.arrays.get(l)), levels.len() as u32)?)
    })
}

/// The tiles that a region is made of.
fn tiles(core: &Core, info: &MapInfo) -> Res<Vec<Tile>> {
    let levels = match info.resource_kind {
        0 => vec![info.resource],
        1 => core.mipmaps.get(&info.resource).ok_or(INVALID_HANDLE)?.levels().to_vec(),
        _ => return Err(INVALID_VALUE),
    };
    let array = |level: u32| {
        let found = levels.get(level as usize).and_then(|l| core.arrays.get(l));
        found.filter(|a| is_sparse(&a.shape)).ok_or(INVALID_VALUE)
    };
    if info.region_kind == 1 {
        array(0)?;
        // SAFETY: every bit pattern is a number.
        let Tail { layer, offset, bytes } = unsafe { info.region.tail };
        if bytes == 0 || bytes > 1 << 32 || !offset.is_multiple_of(TILE) {
            return Err(INVALID_VALUE);
        }
        let first = offset / TILE;
        let last = first + bytes.div_ceil(TILE);
        return Ok((first..last).map(|n| (info.resource, TAIL, [layer, n as u32, 0, 0])).collect());
    }
    // SAFETY: as above.
    let [level, layer, x, y, z, width, height, depth] = unsafe { info.region.level };
    let array = array(level)?;
    let (shape, step) = (&array.shape, tile_of(array));
    let whole = [shape.width, shape.height.max(1), shape.depth.max(1)].map(|n| n as u64);
    let (from, extent) = ([x, y, z], [width, height, depth]);
    for d in 0..3 {
        let end = u64::from(from[d]) + u64::from(extent[d]);
        let aligned = from[d] % step[d] == 0 && (extent[d] % step[d] == 0 || end == whole[d]);
        if extent[d] == 0 || !aligned || end > whole[d].next_multiple_of(u64::from(step[d])) {
            return Err(INVALID_VALUE);
        }
    }
    let range = |d: usize| from[d] / step[d]..(from[d] + extent[d]).div_ceil(step[d]);
    let mut list = Vec::new();
    for z in range(2) {
        for y in range(1) {
            list.extend(range(0).map(|x| (info.resource, level, [layer, x, y, z])));
        }
    }
    Ok(list)
}

const MAP: i32 = 1;
const UNMAP: i32 = 2;

fn change(core: &mut Core, info: &MapInfo) -> Res {
    let tiles = tiles(core, info)?;
    if !matches!(info.operation, MAP | UNMAP) || info.flags != 0 || info.devices.count_ones() != 1 {
        return Err(INVALID_VALUE);
    }
    let mapped = if info.operation == MAP {
        let physical = referenced(core, info.memory)?;
        let end = info.offset.checked_add(tiles.len() as u64 * TILE).ok_or(INVALID_VALUE)?;
        if info.handle_kind != 0 || !info.offset.is_multiple_of(TILE) || end > physical.bytes {
            return Err(INVALID_VALUE);
        }
        physical.maps += tiles.len() as u32;
        Some(info.memory)
    } else {
        None
    };
    for tile in tiles {
        let before = match mapped {
            Some(id) => core.tiles.insert(tile, id),
            None => core.tiles.remove(&tile),
        };
        if let Some(id) = before {
            core.let_go("cuMemMapArrayAsync", id);
        }
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemMapArrayAsync(list: In<MapInfo>, count: u32, stream: Stream) -> Status {
    distinct!(cuMemMapArrayAsync);
    with(|core| {
        core.stream_place(stream)?;
        list.list(count as usize)?.iter().try_for_each(|info| change(core, info))
    })
}

per_thread! { cuMemMapArrayAsync_ptsz = cuMemMapArrayAsync(list: In<MapInfo>, count: u32, stream: Stream); }

impl Core {
    /// An array or mipmap ends: nothing is mapped into it any more.
    pub fn end_tiles_of(&mut self, api: &str, resource: Handle) {
        let all = (resource, 0, [0; 4])..=(resource, TAIL, [u32::MAX; 4]);
        let mine: Vec<(Tile, u64)> = self.tiles.range(all).map(|(&t, &id)| (t, id)).collect();
        for (tile, id) in mine {
            self.tiles.remove(&tile);
            self.let_go(api, id);
        }
    }
}
