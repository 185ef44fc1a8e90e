//! Memsets: at most 64 MiB are really written, but zeroes always hold, because their pages are discarded.

use crate::abi::pointers::{Addr, Stream};
use crate::abi::records::MemsetNode;
use crate::abi::status::*;
use crate::state::driver::lock;
use crate::state::mapping::{PAGE, discard};
use crate::state::work::Op;
use crate::stream::copy::{MAX_BYTES, Side};

/// From this many bytes on, zeroing gives pages back instead of writing.
const MIN_DISCARDED: u64 = 1 << 20;

/// Does a memset, unless its stream is capturing: then it becomes a node.
pub fn memset(node: &MemsetNode, stream: Option<Stream>) -> Res {
    let &MemsetNode { dst: at, pitch, value, elementSize: element, width, height } = node;
    let row = (width as u64).checked_mul(element as u64).ok_or(INVALID_VALUE)?;
    let step = if height > 1 { pitch as u64 } else { row };
    let device_only = {
        let driver = &mut *lock()?;
        match stream {
            Some(stream) => driver.stream_owner(stream)?,
            None => driver.current()?,
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
            && driver.record(stream, Op::Set(*node))?
        {
            return Ok(());
        }
        driver.check(at, Side::Device, whole)?;
        let device_only = driver.is_device_only(at);
        if device_only {
            driver.host_writes.insert(at, whole);
        }
        device_only
    };
    if step == row && value == 0 && device_only && row * height as u64 >= MIN_DISCARDED {
        zero(at, row * height as u64);
        return Ok(());
    }
    let mut budget = MAX_BYTES as u64;
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
    let (start, end) = (at.next_multiple_of(PAGE), (at + bytes) / PAGE * PAGE);
    if discard(at, bytes) {
        write(at, start - at, 0, 1);
        write(end, at + bytes - end, 0, 1);
    } else {
        write(at, bytes.min(MAX_BYTES as u64), 0, 1);
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

macro_rules! memsets {
    ($($unit:ident $element:literal: $name:ident $ptds:ident, $in_order:ident $ptsz:ident,
        $flat:ident $flat_ptds:ident, $flat_in_order:ident $flat_ptsz:ident;)*) => {$(driver_api! {
        fn $name(; dst: Addr, value: $unit, width: usize) [$ptds] {
            memset(&node!(dst, 0, value, $element, width, 1), None)
        }

        fn $in_order(; dst: Addr, value: $unit, width: usize, stream: Stream) [$ptsz] {
            memset(&node!(dst, 0, value, $element, width, 1), Some(stream))
        }

        fn $flat(; dst: Addr, pitch: usize, value: $unit, width: usize, height: usize) [$flat_ptds] {
            memset(&node!(dst, pitch, value, $element, width, height), None)
        }

        fn $flat_in_order(; dst: Addr, pitch: usize, value: $unit, width: usize, height: usize, stream:
            Stream) [$flat_ptsz] {
            memset(&node!(dst, pitch, value, $element, width, height), Some(stream))
        }
    })*};
}

macro_rules! node {
    ($dst:expr, $pitch:expr, $value:expr, $element:expr, $width:expr, $height:expr) => {
        MemsetNode {
            dst: $dst,
            pitch: $pitch,
            value: $value.into(),
            elementSize: $element,
            width: $width,
            height: $height,
        }
    };
}

memsets! {
    u8 1: cuMemsetD8_v2 cuMemsetD8_v2_ptds, cuMemsetD8Async cuMemsetD8Async_ptsz,
        cuMemsetD2D8_v2 cuMemsetD2D8_v2_ptds, cuMemsetD2D8Async cuMemsetD2D8Async_ptsz;
    u16 2: cuMemsetD16_v2 cuMemsetD16_v2_ptds, cuMemsetD16Async cuMemsetD16Async_ptsz,
        cuMemsetD2D16_v2 cuMemsetD2D16_v2_ptds, cuMemsetD2D16Async cuMemsetD2D16Async_ptsz;
    u32 4: cuMemsetD32_v2 cuMemsetD32_v2_ptds, cuMemsetD32Async cuMemsetD32Async_ptsz,
        cuMemsetD2D32_v2 cuMemsetD2D32_v2_ptds, cuMemsetD2D32Async cuMemsetD2D32Async_ptsz;
}
