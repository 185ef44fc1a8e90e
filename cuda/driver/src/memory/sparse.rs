//! Arrays without memory of their own: what physical handles are mapped into, tile by tile.
//!
//! A handle's bytes stay while a tile is mapped. What is copied into such an array lies in a range of its
//! own, whatever is mapped: two tiles over one handle are not one memory here.

use cudarc::driver::sys;

use crate::abi::pointers::{Handle, In, Out, Stream};
use crate::abi::records::{MapInfo, SparseProperties, Tail};
use crate::abi::status::*;
use crate::memory::array::is_sparse;
use crate::state::driver::Driver;
use crate::state::memory::{Array, Tile};

const TILE: u64 = 64 << 10;
/// The level that stands for the small ones, which share tiles.
const TAIL: u32 = u32::MAX;

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

fn properties(array: Option<&Array>, tail_from: u32) -> Res<SparseProperties> {
    let array = array.filter(|a| is_sparse(&a.shape)).ok_or(INVALID_VALUE)?;
    let [width, height, depth] = tile_of(array);
    Ok(SparseProperties {
        tileExtent: sys::CUDA_ARRAY_SPARSE_PROPERTIES_st__bindgen_ty_1 { width, height, depth },
        miptailFirstLevel: tail_from,
        miptailSize: 0,
        flags: 0,
        reserved: [0; 4],
    })
}

/// The tiles that a region is made of.
fn tiles(driver: &Driver, info: &MapInfo) -> Res<Vec<Tile>> {
    let levels = match info.resource_kind {
        0 => vec![info.resource],
        1 => driver.mipmap(info.resource)?.levels.clone(),
        _ => return Err(INVALID_VALUE),
    };
    let array = |level: u32| {
        let found = levels.get(level as usize).and_then(|l| driver.arrays.get(l));
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

fn change(driver: &mut Driver, info: &MapInfo) -> Res {
    let tiles = tiles(driver, info)?;
    if !matches!(info.operation, MAP | UNMAP) || info.flags != 0 || info.devices.count_ones() != 1 {
        return Err(INVALID_VALUE);
    }
    let mapped = if info.operation == MAP {
        let physical = driver.physical(info.memory)?;
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
            Some(id) => driver.tiles.insert(tile, id),
            None => driver.tiles.remove(&tile),
        };
        if let Some(id) = before {
            driver.release_physical("cuMemMapArrayAsync", id);
        }
    }
    Ok(())
}

driver_api! {
    fn cuArrayGetSparseProperties(driver; out: Out<SparseProperties>, array: Handle) {
        out.put(properties(driver.arrays.get(&array), 1)?)
    }

    fn cuMipmappedArrayGetSparseProperties(driver; out: Out<SparseProperties>, mipmap: Handle) {
        let levels = &driver.mipmap(mipmap)?.levels;
        out.put(properties(levels.first().and_then(|l| driver.arrays.get(l)), levels.len() as u32)?)
    }

    fn cuMemMapArrayAsync(driver; list: In<MapInfo>, count: u32, stream: Stream) [cuMemMapArrayAsync_ptsz] {
        driver.stream_owner(stream)?;
        list.list(count as usize)?.iter().try_for_each(|info| change(driver, info))
    }
}
