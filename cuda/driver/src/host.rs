//! Pinned host memory, and the program's own memory registered.

use crate::abi::{Addr, Out};
use crate::arena::{PAGE, RW, map};
use crate::blocks::{Block, Kind};
use crate::error::*;
use crate::state::{Core, Here, here, with};

const DEVICE_MAP: u32 = 2;

fn allocate(core: &mut Core, api: &str, out: Out<Addr>, bytes: usize, flags: u32, at: Here) -> Res {
    if out.is_null() || bytes == 0 || flags > 7 {
        return Err(INVALID_VALUE);
    }
    let size = (bytes as u64).checked_next_multiple_of(PAGE).ok_or(OUT_OF_MEMORY)?;
    let address = map(0, size, RW, -1, 0).ok_or(OUT_OF_MEMORY)?;
    let mut block = Block::new(Kind::Pinned, bytes as u64, size, at);
    block.flags = flags | DEVICE_MAP;
    core.begin(api, address, block);
    out.put(address)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostAlloc(out: Out<Addr>, bytes: usize, flags: u32) -> Status {
    distinct!(cuMemHostAlloc);
    here(|core, at| allocate(core, "cuMemHostAlloc", out, bytes, flags, at))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAllocHost_v2(out: Out<Addr>, bytes: usize) -> Status {
    distinct!(cuMemAllocHost_v2);
    here(|core, at| allocate(core, "cuMemAllocHost_v2", out, bytes, 0, at))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeHost(address: Addr) -> Status {
    distinct!(cuMemFreeHost);
    here(|core, _| match core.blocks.get(&address).map(|b| b.kind) {
        Some(Kind::Pinned) => core.end("cuMemFreeHost", address),
        _ => Err(INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostRegister_v2(address: Addr, bytes: usize, flags: u32) -> Status {
    distinct!(cuMemHostRegister_v2);
    here(|core, at| {
        let end = address.checked_add(bytes as u64).ok_or(INVALID_VALUE)?;
        if address == 0 || bytes == 0 || flags > 15 {
            return Err(INVALID_VALUE);
        }
        if core.blocks.range(..end).next_back().is_some_and(|(start, b)| start + b.size > address) {
            return Err(ALREADY_REGISTERED);
        }
        let mut block = Block::new(Kind::Registered, bytes as u64, bytes as u64, at);
        block.flags = flags | DEVICE_MAP;
        core.begin("cuMemHostRegister_v2", address, block);
        Ok(())
    })
}

alias! { cuMemHostRegister = cuMemHostRegister_v2(address: Addr, bytes: usize, flags: u32); }

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostUnregister(address: Addr) -> Status {
    distinct!(cuMemHostUnregister);
    here(|core, _| match core.blocks.get(&address).map(|b| b.kind) {
        Some(Kind::Registered) => core.end("cuMemHostUnregister", address),
        _ => Err(NOT_REGISTERED),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostGetDevicePointer_v2(out: Out<Addr>, address: Addr, flags: u32) -> Status {
    distinct!(cuMemHostGetDevicePointer_v2);
    here(|core, _| match core.find(address) {
        Some((_, block)) if block.kind.shared_with_host() && flags == 0 => out.put(address),
        _ => Err(INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostGetFlags(out: Out<u32>, address: Addr) -> Status {
    distinct!(cuMemHostGetFlags);
    with(|core| match core.find(address) {
        Some((_, block)) if block.kind.on_host() => out.put(block.flags),
        _ => Err(INVALID_VALUE),
    })
}
