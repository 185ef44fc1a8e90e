//! Virtual memory management: reserved addresses, physical handles, and mappings of one onto the other.

use crate::abi::pointers::{Addr, In, Out};
use crate::abi::records::{Access, AllocationProps, Location};
use crate::abi::status::*;
use crate::memory::blocks::GRANULARITY;
use crate::state::arena::LARGE;
use crate::state::device::Owner;
use crate::state::driver::Driver;
use crate::state::mapping::{PAGE, map, shared_file, unmap};
use crate::state::memory::{Block, Kind, ON_DEVICE, Physical};

/// Reserves the address that the program would like, if nothing is there.
fn reserve_at(hint: Addr, bytes: u64, align: u64) -> Option<Addr> {
    if hint == 0 || !hint.is_multiple_of(align) {
        return None;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE touches no existing mapping.
    let got = unsafe { libc::mmap(hint as *mut _, bytes as usize, libc::PROT_NONE, flags, -1, 0) };
    if got == libc::MAP_FAILED {
        return None;
    }
    if got as u64 != hint {
        unmap(got as u64, bytes); // an old kernel took it for a hint
        return None;
    }
    Some(hint)
}

/// Returns the mappings that make up exactly this range.
fn mappings(driver: &Driver, address: Addr, bytes: u64) -> Res<Vec<Addr>> {
    let end = address.checked_add(bytes).ok_or(INVALID_VALUE)?;
    let (mut at, mut list) = (address, Vec::new());
    while at < end {
        let block = driver.blocks.get(&at).filter(|b| matches!(b.kind, Kind::Map(_))).ok_or(INVALID_VALUE)?;
        list.push(at);
        at += block.size;
    }
    if at == end && !list.is_empty() { Ok(list) } else { Err(INVALID_VALUE) }
}

driver_api! {
    fn cuMemGetAllocationGranularity(_driver; out: Out<usize>, props: In<AllocationProps>, option: i32) {
        if props.get()?.kind != 1 || !matches!(option, 0 | 1) {
            return Err(INVALID_VALUE);
        }
        out.put(GRANULARITY as usize)
    }

    fn cuMemAddressReserve(driver; out: Out<Addr>, bytes: usize, align: usize, hint: Addr, flags: u64) {
        let (bytes, align) = (bytes as u64, (align as u64).max(LARGE));
        if out.is_null()
            || bytes == 0
            || !bytes.is_multiple_of(PAGE)
            || !align.is_power_of_two()
            || flags != 0
        {
            return Err(INVALID_VALUE);
        }
        let room = bytes.checked_add(align).ok_or(OUT_OF_MEMORY)?;
        let got = reserve_at(hint, bytes, align)
            .or_else(|| {
                let raw = map(0, room, libc::PROT_NONE, -1, 0)?;
                let start = raw.next_multiple_of(align);
                if start > raw {
                    unmap(raw, start - raw);
                }
                unmap(start + bytes, raw + room - start - bytes);
                Some(start)
            })
            .ok_or(OUT_OF_MEMORY)?;
        driver.reservations.insert(got, bytes);
        out.put(got)
    }

    fn cuMemAddressFree(driver; address: Addr, bytes: usize) {
        let bytes = bytes as u64;
        let in_use = |driver: &Driver| driver.blocks.range(address..address + bytes).next().is_some();
        if driver.reservations.get(&address) != Some(&bytes) || in_use(driver) {
            return Err(INVALID_VALUE);
        }
        driver.reservations.remove(&address);
        unmap(address, bytes);
        Ok(())
    }

    fn cuMemCreate(driver; out: Out<u64>, bytes: usize, props: In<AllocationProps>, flags: u64) {
        let (bytes, props) = (bytes as u64, props.get()?);
        if out.is_null() || bytes == 0 || !bytes.is_multiple_of(GRANULARITY) || props.kind != 1 || flags != 0
        {
            return Err(INVALID_VALUE);
        }
        let (at, file, device) = match props.location.kind {
            ON_DEVICE => {
                driver.device(props.location.id)?;
                (driver.allocate_range(props.location.id, bytes)?, -1, props.location.id)
            }
            2..=4 => (0, shared_file(bytes).ok_or(OUT_OF_MEMORY)?, -1),
            _ => return Err(INVALID_VALUE),
        };
        let id = driver.new_handle() as u64;
        driver.truth_log.write('+', "cuMemCreate", id, bytes, device);
        driver.physical.insert(id, Physical { at, file, charged: true, ..Physical::uncharged(bytes, props) });
        out.put(id)
    }

    fn cuMemRelease(driver; id: u64) {
        driver.physical(id)?.references -= 1;
        driver.drop_physical("cuMemRelease", id);
        Ok(())
    }

    fn cuMemMap(driver; address: Addr, bytes: usize, offset: usize, id: u64, flags: u64) {
        let bytes = bytes as u64;
        let whole = address.is_multiple_of(GRANULARITY) && bytes.is_multiple_of(GRANULARITY);
        if bytes == 0 || !whole || offset != 0 || flags != 0 || bytes > driver.physical(id)?.bytes {
            return Err(INVALID_VALUE);
        }
        let end = address.checked_add(bytes).ok_or(INVALID_VALUE)?;
        let reserved = driver.reservations.range(..=address).next_back().is_some_and(|(&s, &n)| end <= s + n);
        let taken = driver.blocks.range(..end).next_back().is_some_and(|(&s, b)| s + b.size > address);
        if !reserved || taken {
            return Err(INVALID_VALUE);
        }
        driver.map_physical(address, bytes, id)?;
        let device = driver.physical(id)?.device().max(0);
        driver.physical(id)?.maps += 1;
        let block = Block::new(Kind::Map(id), bytes, bytes, Owner { context: 0, device });
        driver.add_block("cuMemMap", address, block);
        Ok(())
    }

    fn cuMemUnmap(driver; address: Addr, bytes: usize) {
        for at in mappings(driver, address, bytes as u64)? {
            driver.end_block("cuMemUnmap", at)?;
        }
        Ok(())
    }

    /// Access is remembered, not enforced: a mapping can be used at once.
    fn cuMemSetAccess(driver; address: Addr, bytes: usize, list: In<Access>, count: usize) {
        let flags = list.list(count)?.first().map(|a| a.flags).ok_or(INVALID_VALUE)?;
        for at in mappings(driver, address, bytes as u64)? {
            if let Some(block) = driver.blocks.get_mut(&at) {
                block.flags = flags as u32;
            }
        }
        Ok(())
    }

    fn cuMemGetAccess(driver; out: Out<u64>, location: In<Location>, address: Addr) {
        let device = location.get()?.id;
        match driver.find(address) {
            Some((_, b)) if matches!(b.kind, Kind::Map(_)) => {
                out.put(if b.device == device { b.flags.into() } else { 0 })
            }
            _ => Err(INVALID_VALUE),
        }
    }

    fn cuMemRetainAllocationHandle(driver; out: Out<u64>, address: Addr) {
        match driver.find(address).map(|(_, b)| b.kind) {
            Some(Kind::Map(id)) => {
                out.put(id)?;
                driver.physical.get_mut(&id).ok_or(INVALID_VALUE)?.references += 1;
                Ok(())
            }
            _ => Err(INVALID_VALUE),
        }
    }

    fn cuMemGetAllocationPropertiesFromHandle(driver; out: Out<AllocationProps>, id: u64) {
        out.put(driver.physical(id)?.props)
    }
}
