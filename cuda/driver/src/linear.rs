//! Linear device memory: plain, pitched, managed; how much is left.

use crate::abi::{Addr, In, Out};
use crate::blocks::Kind;
use crate::error::*;
use crate::params::Location;
use crate::state::{here, with};

const PITCH: usize = 512;

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAlloc_v2(out: Out<Addr>, bytes: usize) -> Status {
    distinct!(cuMemAlloc_v2);
    here(|core, at| {
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        out.put(core.allocate("cuMemAlloc_v2", Kind::Device, bytes as u64, at)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAllocPitch_v2(
    out: Out<Addr>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    element: u32,
) -> Status {
    distinct!(cuMemAllocPitch_v2);
    here(|core, at| {
        if out.is_null() || pitch.is_null() || width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
            return Err(INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(PITCH).ok_or(OUT_OF_MEMORY)?;
        let bytes = row.checked_mul(height).ok_or(OUT_OF_MEMORY)?;
        let address = core.allocate("cuMemAllocPitch_v2", Kind::Device, bytes as u64, at)?;
        pitch.put(row)?;
        out.put(address)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAllocManaged(out: Out<Addr>, bytes: usize, flags: u32) -> Status {
    distinct!(cuMemAllocManaged);
    here(|core, at| {
        if out.is_null() || !matches!(flags, 1 | 2) {
            return Err(INVALID_VALUE);
        }
        out.put(core.allocate("cuMemAllocManaged", Kind::Managed, bytes as u64, at)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: Addr) -> Status {
    distinct!(cuMemFree_v2);
    here(|core, _| match core.blocks.get(&address).map(|b| b.kind) {
        Some(Kind::Device | Kind::Managed | Kind::Pool(_) | Kind::Graph | Kind::Foreign { .. }) => {
            core.end("cuMemFree_v2", address)
        }
        _ if address == 0 => Ok(()),
        _ => Err(INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> Status {
    distinct!(cuMemGetInfo_v2);
    here(|core, at| {
        let used = core.device(at.device)?.used;
        free.put((core.memory - used) as usize)?;
        total.put(core.memory as usize)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetAddressRange_v2(base: Out<Addr>, bytes: Out<usize>, address: Addr) -> Status {
    distinct!(cuMemGetAddressRange_v2);
    with(|core| {
        let (start, block) = core.find(address).ok_or(INVALID_VALUE)?;
        base.put_opt(start);
        bytes.put_opt(block.asked as usize);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetHandleForAddressRange(_: Out<i32>, _: Addr, _: usize, _: i32, _: u64) -> Status {
    distinct!(cuMemGetHandleForAddressRange);
    NOT_SUPPORTED
}

/// Advice on managed memory is taken and changes nothing: all of it is always everywhere.
fn advise(address: Addr, bytes: usize) -> Status {
    with(|core| if core.covered(address, bytes as u64) { Ok(()) } else { Err(INVALID_VALUE) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAdvise(address: Addr, bytes: usize, _advice: i32, _device: i32) -> Status {
    distinct!(cuMemAdvise);
    advise(address, bytes)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAdvise_v2(address: Addr, bytes: usize, _advice: i32, _where: Location) -> Status {
    distinct!(cuMemAdvise_v2);
    advise(address, bytes)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPrefetchAsync(address: Addr, bytes: usize, _device: i32, _stream: usize) -> Status {
    distinct!(cuMemPrefetchAsync);
    advise(address, bytes)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPrefetchAsync_v2(
    address: Addr,
    bytes: usize,
    _where: Location,
    _flags: u32,
    _stream: usize,
) -> Status {
    distinct!(cuMemPrefetchAsync_v2);
    advise(address, bytes)
}

impl crate::abi::Own for Location {
    fn own(self) -> Self {
        self
    }
}

per_thread! {
    cuMemPrefetchAsync_ptsz = cuMemPrefetchAsync(address: Addr, bytes: usize, device: i32, stream: usize);
    cuMemPrefetchAsync_v2_ptsz =
        cuMemPrefetchAsync_v2(address: Addr, bytes: usize, place: Location, flags: u32, stream: usize);
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemRangeGetAttribute(
    out: Out<i32>,
    room: usize,
    attribute: i32,
    at: Addr,
    bytes: usize,
) -> Status {
    distinct!(cuMemRangeGetAttribute);
    with(|core| {
        if room < 4 || !core.covered(at, bytes as u64) {
            return Err(INVALID_VALUE);
        }
        match attribute {
            1 => out.put(0),      // read mostly
            2 | 4 => out.put(-2), // preferred location, last prefetch: none
            3 => out.put(-2),     // accessed by: none
            _ => Err(INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemRangeGetAttributes(
    out: Out<Out<i32>>,
    rooms: In<usize>,
    attributes: In<i32>,
    count: usize,
    at: Addr,
    bytes: usize,
) -> Status {
    distinct!(cuMemRangeGetAttributes);
    let each = || {
        let rooms = rooms.list(count)?;
        for (i, attribute) in attributes.list(count)?.into_iter().enumerate() {
            let slot = out.at(i)?;
            match cuMemRangeGetAttribute(slot, rooms[i], attribute, at, bytes) {
                SUCCESS => {}
                bad => return Err(bad),
            }
        }
        Ok(())
    };
    Status::from(each())
}
