//! Copies of rows and planes.

use crate::abi::{Addr, In, Stream};
use crate::context::current;
use crate::copy::{MOST_BYTES, Plan, Side, carry_out};
use crate::error::*;
use crate::node::Op;
use crate::params::{Copy2D, Copy3D, End2D, End3D};
use crate::state::{Core, enter};

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

fn rows(core: &Core, end: &End3D, shape: &Copy3D) -> Res<Rows> {
    let (base, pitch, height) = match end.kind {
        HOST => (end.host, end.pitch, end.height),
        DEVICE | UNIFIED => (end.device, end.pitch, end.height),
        ARRAY => {
            let array = core.arrays.get(&end.array).ok_or(INVALID_HANDLE)?;
            (array.at, array.row(), array.shape.height.max(1))
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
            let array = core.arrays.get(&end.array).ok_or(INVALID_HANDLE)?;
            if last > array.at + array.bytes {
                return Err(INVALID_VALUE);
            }
        }
        DEVICE => core.check(at, Side::Device, last - at)?,
        _ => core.check(at, Side::Unified, 0)?,
    }
    Ok(Rows { at, row: row as u64, plane })
}

/// Does a copy, unless its stream is capturing: then it becomes a node.
pub fn copy(shape: &Copy3D, stream: Option<Stream>) -> Res {
    let total = shape.width as u64 * shape.height as u64 * shape.depth as u64;
    let (to, from, plan) = {
        let core = &mut *enter()?;
        match stream {
            Some(stream) => core.stream_place(stream)?,
            None => current(core)?,
        };
        if total == 0 {
            return Ok(());
        }
        if let Some(stream) = stream
            && core.record(stream, Op::Copy(Box::new(*shape)))?
        {
            return Ok(());
        }
        let (to, from) = (rows(core, &shape.to, shape)?, rows(core, &shape.from, shape)?);
        let mut plan = Plan::Move;
        for (to, from) in each(to, from, shape) {
            if let Plan::Zero = core.plan(to, from, shape.width as u64)
                && total <= crate::fresh::SMALL_READ
            {
                plan = Plan::Zero;
            }
        }
        (to, from, plan)
    };
    let mut budget = MOST_BYTES;
    for (to, from) in each(to, from, shape) {
        let bytes = shape.width.min(budget);
        let step = if matches!(plan, Plan::Zero) { Plan::Zero } else { Plan::Move };
        carry_out(step, to, from, bytes);
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
    let end = |e: End2D| End3D {
        x: e.x,
        y: e.y,
        z: 0,
        level: 0,
        kind: e.kind,
        host: e.host,
        device: e.device,
        array: e.array,
        context: 0,
        pitch: e.pitch,
        height: 0,
    };
    Ok(Copy3D { from: end(from), to: end(to), width, height, depth: 1 })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpy2D_v2(shape: In<Copy2D>) -> Status {
    distinct!(cuMemcpy2D_v2);
    flat(shape).and_then(|s| copy(&s, None)).into()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpy2DAsync_v2(shape: In<Copy2D>, stream: Stream) -> Status {
    distinct!(cuMemcpy2DAsync_v2);
    flat(shape).and_then(|s| copy(&s, Some(stream))).into()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpy3D_v2(shape: In<Copy3D>) -> Status {
    distinct!(cuMemcpy3D_v2);
    shape.get().and_then(|s| copy(&s, None)).into()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpy3DAsync_v2(shape: In<Copy3D>, stream: Stream) -> Status {
    distinct!(cuMemcpy3DAsync_v2);
    shape.get().and_then(|s| copy(&s, Some(stream))).into()
}

alias! {
    cuMemcpy2DUnaligned_v2 = cuMemcpy2D_v2(shape: In<Copy2D>);
    cuMemcpy3DPeer = cuMemcpy3D_v2(shape: In<Copy3D>);
    cuMemcpy3DPeerAsync = cuMemcpy3DAsync_v2(shape: In<Copy3D>, stream: Stream);
}

per_thread! {
    cuMemcpy2D_v2_ptds = cuMemcpy2D_v2(shape: In<Copy2D>);
    cuMemcpy2DUnaligned_v2_ptds = cuMemcpy2D_v2(shape: In<Copy2D>);
    cuMemcpy2DAsync_v2_ptsz = cuMemcpy2DAsync_v2(shape: In<Copy2D>, stream: Stream);
    cuMemcpy3D_v2_ptds = cuMemcpy3D_v2(shape: In<Copy3D>);
    cuMemcpy3DAsync_v2_ptsz = cuMemcpy3DAsync_v2(shape: In<Copy3D>, stream: Stream);
    cuMemcpy3DPeer_ptds = cuMemcpy3DPeer(shape: In<Copy3D>);
    cuMemcpy3DPeerAsync_ptsz = cuMemcpy3DPeerAsync(shape: In<Copy3D>, stream: Stream);
}
