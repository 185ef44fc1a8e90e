//! Pinned host memory, and the program's own memory registered.

use crate::abi::pointers::{Addr, Out};
use crate::abi::status::*;
use crate::state::device::Owner;
use crate::state::driver::Driver;
use crate::state::mapping::{PAGE, RW, map};
use crate::state::memory::{Block, Kind};

const DEVICE_MAP: u32 = 2;

fn allocate(driver: &mut Driver, api: &str, out: Out<Addr>, bytes: usize, flags: u32, owner: Owner) -> Res {
    if out.is_null() || bytes == 0 || flags > 7 {
        return Err(INVALID_VALUE);
    }
    let size = (bytes as u64).checked_next_multiple_of(PAGE).ok_or(OUT_OF_MEMORY)?;
    let address = map(0, size, RW, -1, 0).ok_or(OUT_OF_MEMORY)?;
    let mut block = Block::new(Kind::Pinned, bytes as u64, size, owner);
    block.flags = flags | DEVICE_MAP;
    driver.add_block(api, address, block);
    out.put(address)
}

driver_api! {
    fn cuMemHostAlloc(driver, owner; out: Out<Addr>, bytes: usize, flags: u32) {
        allocate(driver, "cuMemHostAlloc", out, bytes, flags, owner)
    }

    fn cuMemAllocHost_v2(driver, owner; out: Out<Addr>, bytes: usize) {
        allocate(driver, "cuMemAllocHost_v2", out, bytes, 0, owner)
    }

    fn cuMemFreeHost(driver, _owner; address: Addr) {
        match driver.blocks.get(&address).map(|b| b.kind) {
            Some(Kind::Pinned) => driver.end_block("cuMemFreeHost", address),
            _ => Err(INVALID_VALUE),
        }
    }

    fn cuMemHostRegister_v2(driver, owner; address: Addr, bytes: usize, flags: u32) = cuMemHostRegister {
        let end = address.checked_add(bytes as u64).ok_or(INVALID_VALUE)?;
        if address == 0 || bytes == 0 || flags > 15 {
            return Err(INVALID_VALUE);
        }
        if driver.blocks.range(..end).next_back().is_some_and(|(start, b)| start + b.size > address) {
            return Err(ALREADY_REGISTERED);
        }
        let mut block = Block::new(Kind::Registered, bytes as u64, bytes as u64, owner);
        block.flags = flags | DEVICE_MAP;
        driver.add_block("cuMemHostRegister_v2", address, block);
        Ok(())
    }

    fn cuMemHostUnregister(driver, _owner; address: Addr) {
        match driver.blocks.get(&address).map(|b| b.kind) {
            Some(Kind::Registered) => driver.end_block("cuMemHostUnregister", address),
            _ => Err(NOT_REGISTERED),
        }
    }

    fn cuMemHostGetDevicePointer_v2(driver, _owner; out: Out<Addr>, address: Addr, flags: u32) {
        match driver.find(address) {
            Some((_, block)) if block.kind.shared_with_host() && flags == 0 => out.put(address),
            _ => Err(INVALID_VALUE),
        }
    }

    fn cuMemHostGetFlags(driver; out: Out<u32>, address: Addr) {
        match driver.find(address) {
            Some((_, block)) if block.kind.on_host() => out.put(block.flags),
            _ => Err(INVALID_VALUE),
        }
    }
}
