//! Memsets: at most 64 MiB are really written, but zeroes always hold, by giving the pages back.

use crate::abi::{Addr, Stream};
use crate::arena::discard;
use crate::context::current;
use crate::copy::{MOST_BYTES, Side};
use crate::error::*;
use crate::node::Op;
use crate::params::MemsetNode;
use crate::state::enter;

/// From here on zeroing gives pages back instead of writing.
const WORTH_DISCARDING: u64 = 1 << 20;

pub fn fill(node: &MemsetNode, stream: Option<Stream>) -> Res {
    let &MemsetNode { at, pitch, value, element, width, height } = node;
    let row = (width as u64).checked_mul(element as u64).ok_or(INVALID_VALUE)?;
    let step = if height > 1 { pitch as u64 } else { row };
    let device_only = {
        let core = &mut *enter()?;
        match stream {
            Some(stream) => core.stream_place(stream)?,
            None => current(core)?,
        };
        if row == 0 || height == 0 {
            return Ok(());
        }
        let whole =
            (height as u64 - 1).checked_mul(step).and_then(|n| n.checked_add(row)).ok_or(INVALID_VALUE)?;
        if step < row || !matches!(element, 1 | 2 | 4) || !at.is_multiple_of(element as u64) {
            return Err(INVALID_VALUE);
        }
        if let Some(stream) = stream
            && core.record(stream, Op::Set(*node))?
        {
            return Ok(());
        }
        core.check(at, Side::Device, whole)?;
        let device_only = core.is_device_only(at);
        if device_only {
            core.fresh.wrote(at, whole);
        }
        device_only
    };
    if step == row && value == 0 && device_only && row * height as u64 >= WORTH_DISCARDING {
        zero(at, row * height as u64);
        return Ok(());
    }
    let mut budget = MOST_BYTES as u64;
    for y in 0..height as u64 {
        let bytes = row.min(budget);
        write(at + y * step, bytes, value, element);
        budget -= bytes;
        if budget == 0 {
            break;
        }
    }
    Ok(())
}

fn zero(at: Addr, bytes: u64) {
    let page = crate::arena::PAGE;
    let (start, end) = (at.next_multiple_of(page), (at + bytes) / page * page);
    if discard(at, bytes) {
        write(at, start - at, 0, 1);
        write(end, at + bytes - end, 0, 1);
    } else {
        write(at, bytes.min(MOST_BYTES as u64), 0, 1);
    }
}

fn write(at: Addr, bytes: u64, value: u32, element: u32) {
    let count = (bytes / element as u64) as usize;
    // SAFETY: the range was checked to lie in live, mapped memory, and to be aligned.
    unsafe {
        match element {
            1 => std::ptr::write_bytes(at as *mut u8, value as u8, count),
            2 => std::slice::from_raw_parts_mut(at as *mut u16, count).fill(value as u16),
            _ => std::slice::from_raw_parts_mut(at as *mut u32, count).fill(value),
        }
    }
}

macro_rules! fills {
    ($($name:ident $in_order:ident $flat:ident $flat_in_order:ident $unit:ident $element:literal;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(at: Addr, value: $unit, count: usize) -> Status {
            distinct!($name);
            let value = value.into();
            fill(&MemsetNode { at, pitch: 0, value, element: $element, width: count, height: 1 }, None).into()
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $in_order(at: Addr, value: $unit, count: usize, stream: Stream) -> Status {
            distinct!($in_order);
            let value = value.into();
            let node = MemsetNode { at, pitch: 0, value, element: $element, width: count, height: 1 };
            fill(&node, Some(stream)).into()
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $flat(at: Addr, pitch: usize, value: $unit, width: usize, height: usize) -> Status {
            distinct!($flat);
            let value = value.into();
            fill(&MemsetNode { at, pitch, value, element: $element, width, height }, None).into()
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $flat_in_order(
            at: Addr,
            pitch: usize,
            value: $unit,
            width: usize,
            height: usize,
            stream: Stream,
        ) -> Status {
            distinct!($flat_in_order);
            let value = value.into();
            fill(&MemsetNode { at, pitch, value, element: $element, width, height }, Some(stream)).into()
        }
    )*};
}
fills! {
    cuMemsetD8_v2 cuMemsetD8Async cuMemsetD2D8_v2 cuMemsetD2D8Async u8 1;
    cuMemsetD16_v2 cuMemsetD16Async cuMemsetD2D16_v2 cuMemsetD2D16Async u16 2;
    cuMemsetD32_v2 cuMemsetD32Async cuMemsetD2D32_v2 cuMemsetD2D32Async u32 4;
}

per_thread! {
    cuMemsetD8_v2_ptds = cuMemsetD8_v2(at: Addr, value: u8, count: usize);
    cuMemsetD16_v2_ptds = cuMemsetD16_v2(at: Addr, value: u16, count: usize);
    cuMemsetD32_v2_ptds = cuMemsetD32_v2(at: Addr, value: u32, count: usize);
    cuMemsetD8Async_ptsz = cuMemsetD8Async(at: Addr, value: u8, count: usize, stream: Stream);
    cuMemsetD16Async_ptsz = cuMemsetD16Async(at: Addr, value: u16, count: usize, stream: Stream);
    cuMemsetD32Async_ptsz = cuMemsetD32Async(at: Addr, value: u32, count: usize, stream: Stream);
    cuMemsetD2D8_v2_ptds = cuMemsetD2D8_v2(at: Addr, pitch: usize, value: u8, width: usize, height: usize);
    cuMemsetD2D16_v2_ptds = cuMemsetD2D16_v2(at: Addr, pitch: usize, value: u16, width: usize, height: usize);
    cuMemsetD2D32_v2_ptds = cuMemsetD2D32_v2(at: Addr, pitch: usize, value: u32, width: usize, height: usize);
    cuMemsetD2D8Async_ptsz =
        cuMemsetD2D8Async(at: Addr, pitch: usize, value: u8, width: usize, height: usize, stream: Stream);
    cuMemsetD2D16Async_ptsz =
        cuMemsetD2D16Async(at: Addr, pitch: usize, value: u16, width: usize, height: usize, stream: Stream);
    cuMemsetD2D32Async_ptsz =
        cuMemsetD2D32Async(at: Addr, pitch: usize, value: u32, width: usize, height: usize, stream: Stream);
}
