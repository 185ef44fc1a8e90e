//! Linear device memory: plain, pitched, managed; how much is left.

use crate::abi::pointers::{Addr, In, Out};
use crate::abi::status::*;
use crate::state::driver::Driver;
use crate::state::memory::Kind;

const PITCH: usize = 512;

fn range_attribute(
    driver: &Driver,
    out: Out<i32>,
    room: usize,
    attribute: i32,
    at: Addr,
    bytes: usize,
) -> Res {
    if room < 4 || !driver.covered(at, bytes as u64) {
        return Err(INVALID_VALUE);
    }
    match attribute {
        1 => out.put(0),      // read mostly
        2 | 4 => out.put(-2), // preferred location, last prefetch: none
        3 => out.put(-2),     // accessed by: none
        _ => Err(INVALID_VALUE),
    }
}

driver_api! {
    fn cuMemAlloc_v2(driver, owner; out: Out<Addr>, bytes: usize) {
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        out.put(driver.allocate("cuMemAlloc_v2", Kind::Device, bytes as u64, owner)?)
    }

    fn cuMemAllocPitch_v2(driver, owner; out: Out<Addr>, pitch: Out<usize>, width: usize, height: usize,
        element: u32) {
        if out.is_null() || pitch.is_null() || width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
            return Err(INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(PITCH).ok_or(OUT_OF_MEMORY)?;
        let bytes = row.checked_mul(height).ok_or(OUT_OF_MEMORY)?;
        let address = driver.allocate("cuMemAllocPitch_v2", Kind::Device, bytes as u64, owner)?;
        pitch.put(row)?;
        out.put(address)
    }

    fn cuMemAllocManaged(driver, owner; out: Out<Addr>, bytes: usize, flags: u32) {
        if out.is_null() || !matches!(flags, 1 | 2) {
            return Err(INVALID_VALUE);
        }
        out.put(driver.allocate("cuMemAllocManaged", Kind::Managed, bytes as u64, owner)?)
    }

    fn cuMemFree_v2(driver, _owner; address: Addr) {
        match driver.blocks.get(&address).map(|b| b.kind) {
            Some(Kind::Device | Kind::Managed | Kind::Pool(_) | Kind::Graph | Kind::Foreign { .. }) => {
                driver.end_block("cuMemFree_v2", address)
            }
            _ if address == 0 => Ok(()),
            _ => Err(INVALID_VALUE),
        }
    }

    fn cuMemGetInfo_v2(driver, owner; free: Out<usize>, total: Out<usize>) {
        let used = driver.device(owner.device)?.used;
        free.put((driver.memory - used) as usize)?;
        total.put(driver.memory as usize)
    }

    fn cuMemGetAddressRange_v2(driver; base: Out<Addr>, bytes: Out<usize>, address: Addr) {
        let (start, block) = driver.find(address).ok_or(INVALID_VALUE)?;
        base.put_opt(start);
        bytes.put_opt(block.requested as usize);
        Ok(())
    }

    fn cuMemRangeGetAttribute(driver; out: Out<i32>, room: usize, attribute: i32, at: Addr, bytes: usize) {
        range_attribute(driver, out, room, attribute, at, bytes)
    }

    fn cuMemRangeGetAttributes(driver; out: Out<Out<i32>>, rooms: In<usize>, attributes: In<i32>, count:
        usize, at: Addr, bytes: usize) {
        let rooms = rooms.list(count)?;
        for (i, attribute) in attributes.list(count)?.into_iter().enumerate() {
            range_attribute(driver, out.at(i)?, rooms[i], attribute, at, bytes)?;
        }
        Ok(())
    }
}
