//! Copies of rows and planes.

use crate::abi::pointers::{Addr, In, Stream};
use crate::abi::records::{Copy2D, Copy3D, End2D, End3D};
use crate::abi::status::*;
use crate::state::driver::{Driver, lock};
use crate::state::host_writes::SMALL_READ;
use crate::state::work::Op;
use crate::stream::copy::{MAX_BYTES, Method, Side, copy_bytes};

/// Rows of bytes: where the first is, and the steps from row to row and from plane to plane.
#[derive(Clone, Copy)]
struct Rows {
    at: Addr,
    row: u64,
    plane: u64,
}

const HOST: i32 = 1;
const DEVICE: i32 = 2;
const ARRAY: i32 = 3;
const UNIFIED: i32 = 4;

fn rows(driver: &Driver, end: &End3D, shape: &Copy3D) -> Res<Rows> {
    let (base, pitch, height) = match end.kind {
        HOST => (end.host, end.pitch, end.height),
        DEVICE | UNIFIED => (end.device, end.pitch, end.height),
        ARRAY => {
            let array = driver.array(end.array)?;
            (array.at, array.row_bytes(), array.shape.height.max(1))
        }
        _ => return Err(INVALID_VALUE),
    };
    let row = if pitch == 0 { shape.width } else { pitch };
    let plane = row as u64 * (if height == 0 { shape.height } else { height }) as u64;
    if row < shape.width && shape.height > 1 {
        return Err(INVALID_VALUE);
    }
    let at = base + end.x as u64 + (end.y * row) as u64 + end.z as u64 * plane;
    let last = at + (shape.depth as u64 - 1) * plane + ((shape.height - 1) * row + shape.width) as u64;
    match end.kind {
        ARRAY => {
            let array = driver.array(end.array)?;
            if last > array.at + array.bytes {
                return Err(INVALID_VALUE);
            }
        }
        DEVICE => driver.check(at, Side::Device, last - at)?,
        _ => driver.check(at, Side::Unified, 0)?,
    }
    Ok(Rows { at, row: row as u64, plane })
}

/// Does a copy, unless its stream is capturing: then it becomes a node.
pub fn copy(shape: &Copy3D, stream: Option<Stream>) -> Res {
    let total = shape.width as u64 * shape.height as u64 * shape.depth as u64;
    let (to, from, method) = {
        let driver = &mut *lock()?;
        match stream {
            Some(stream) => driver.stream_owner(stream)?,
            None => driver.current()?,
        };
        if total == 0 {
            return Ok(());
        }
        if let Some(stream) = stream
            && driver.record(stream, Op::Copy(Box::new(*shape)))?
        {
            return Ok(());
        }
        let (to, from) = (rows(driver, &shape.to, shape)?, rows(driver, &shape.from, shape)?);
        let mut method = Method::Move;
        for (to, from) in each(to, from, shape) {
            let fill = driver.copy_method(to, from, shape.width as u64);
            if matches!(fill, Method::Fill(_)) && total <= SMALL_READ {
                method = fill;
            }
        }
        (to, from, method)
    };
    let mut budget = MAX_BYTES;
    for (to, from) in each(to, from, shape) {
        let bytes = shape.width.min(budget);
        copy_bytes(method, to, from, bytes);
        budget -= bytes;
        if budget == 0 {
            break;
        }
    }
    Ok(())
}

/// The pairs of rows.
fn each(to: Rows, from: Rows, shape: &Copy3D) -> impl Iterator<Item = (Addr, Addr)> {
    let (height, depth) = (shape.height as u64, shape.depth as u64);
    let row = |r: Rows, y: u64, z: u64| r.at + z * r.plane + y * r.row;
    (0..depth).flat_map(move |z| (0..height).map(move |y| (row(to, y, z), row(from, y, z))))
}

fn flat(shape: In<Copy2D>) -> Res<Copy3D> {
    let Copy2D { from, to, width, height } = shape.get()?;
    let end = |e: End2D| {
        let End2D { x, y, kind, host, device, array, pitch } = e;
        End3D { x, y, kind, host, device, array, pitch, ..End3D::default() }
    };
    Ok(Copy3D { from: end(from), to: end(to), width, height, depth: 1 })
}

driver_api! {
    fn cuMemcpy2D_v2(; shape: In<Copy2D>) = cuMemcpy2DUnaligned_v2 [cuMemcpy2D_v2_ptds
        cuMemcpy2DUnaligned_v2_ptds] {
        flat(shape).and_then(|s| copy(&s, None))
    }

    fn cuMemcpy2DAsync_v2(; shape: In<Copy2D>, stream: Stream) [cuMemcpy2DAsync_v2_ptsz] {
        flat(shape).and_then(|s| copy(&s, Some(stream)))
    }

    fn cuMemcpy3D_v2(; shape: In<Copy3D>) = cuMemcpy3DPeer [cuMemcpy3D_v2_ptds cuMemcpy3DPeer_ptds] {
        shape.get().and_then(|s| copy(&s, None))
    }

    fn cuMemcpy3DAsync_v2(; shape: In<Copy3D>, stream: Stream) = cuMemcpy3DPeerAsync
        [cuMemcpy3DAsync_v2_ptsz cuMemcpy3DPeerAsync_ptsz] {
        shape.get().and_then(|s| copy(&s, Some(stream)))
    }
}
