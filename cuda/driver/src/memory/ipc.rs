//! Memory and events of one process opened by another.
//!
//! A device's memory is a file, so a handle says which process, which descriptor, and where. The opener maps
//! it and keeps it even when the exporter ends; nothing is left behind, since the file never had a name.

use crate::abi::pointers::{Addr, Handle, Out};
use crate::abi::status::*;
use crate::state::device::Owner;
use crate::state::driver::Driver;
use crate::state::mapping::{PAGE, RW, close, duplicate, identity, map};
use crate::state::memory::{Block, Kind};
use crate::state::work::Event;

/// What this driver keeps in the 64 opaque bytes of a `CUipcMemHandle` or `CUipcEventHandle`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle {
    magic: u64,
    pid: u32,
    file: i32,
    inode: u64,
    offset: u64,
    requested: u64,
    number: u32,
    rest: [u32; 5],
}
const _: () = assert!(size_of::<IpcHandle>() == 64);

const MEMORY: u64 = 0x6d65_6d6f_7279_2121;
const EVENT: u64 = 0x6576_656e_7421_2121;

fn blank(magic: u64) -> IpcHandle {
    let pid = std::process::id();
    IpcHandle { magic, pid, file: -1, inode: 0, offset: 0, requested: 0, number: 0, rest: [0; 5] }
}

fn open_file(handle: &IpcHandle) -> Res<i32> {
    if handle.pid == std::process::id() {
        return duplicate(handle.file);
    }
    let path = format!("/proc/{}/fd/{}\0", handle.pid, handle.file);
    // SAFETY: a NUL-terminated path.
    let file = unsafe { libc::open(path.as_ptr().cast(), libc::O_RDWR | libc::O_CLOEXEC) };
    if file < 0 { Err(INVALID_VALUE) } else { Ok(file) }
}

fn open(driver: &mut Driver, owner: Owner, handle: IpcHandle) -> Res<Addr> {
    if handle.magic != MEMORY {
        return Err(INVALID_VALUE);
    }
    let same = |b: &Block| matches!(b.kind, Kind::Ipc { inode, offset, .. } if (inode, offset) == (handle.inode, handle.offset));
    if let Some((&address, block)) = driver.blocks.iter_mut().find(|(_, b)| same(b)) {
        if let Kind::Ipc { opened, .. } = &mut block.kind {
            *opened += 1;
        }
        return Ok(address);
    }
    let file = open_file(&handle)?;
    let skip = handle.offset % PAGE;
    let size = (skip + handle.requested).next_multiple_of(PAGE);
    let genuine = identity(file).is_some_and(|i| i.0 == handle.inode);
    let mapped = if genuine { map(0, size, RW, file, (handle.offset - skip) as i64) } else { None };
    close(file);
    let address = mapped.ok_or(INVALID_VALUE)? + skip;
    let device =
        driver.devices.iter().position(|d| d.number == handle.number).map_or(owner.device, |d| d as i32);
    let kind = Kind::Ipc { opened: 1, skip, inode: handle.inode, offset: handle.offset };
    let block = Block::new(kind, handle.requested, handle.requested, Owner { device, ..owner });
    driver.add_block("cuIpcOpenMemHandle_v2", address, block);
    Ok(address)
}

driver_api! {
    fn cuIpcGetMemHandle(driver, _owner; out: Out<IpcHandle>, address: Addr) {
        let (start, block) = driver.find(address).ok_or(INVALID_VALUE)?;
        if block.kind != Kind::Device {
            return Err(INVALID_VALUE);
        }
        let (requested, device) = (block.requested, block.device);
        let device = driver.device(device)?;
        let file = device.arena.file;
        let inode = identity(file).ok_or(NOT_SUPPORTED)?.0;
        let offset = device.arena.offset(start) as u64;
        out.put(IpcHandle { file, inode, offset, requested, number: device.number, ..blank(MEMORY) })
    }

    fn cuIpcOpenMemHandle_v2(driver, owner; out: Out<Addr>, handle: IpcHandle, flags: u32) =
        cuIpcOpenMemHandle {
        if out.is_null() || flags > 1 {
            return Err(INVALID_VALUE);
        }
        out.put(open(driver, owner, handle)?)
    }

    fn cuIpcCloseMemHandle(driver, _owner; address: Addr) {
        match driver.blocks.get_mut(&address).map(|b| &mut b.kind) {
            Some(Kind::Ipc { opened: 1, .. }) => driver.end_block("cuIpcCloseMemHandle", address),
            Some(Kind::Ipc { opened, .. }) => {
                *opened -= 1;
                Ok(())
            }
            _ => Err(INVALID_VALUE),
        }
    }

    fn cuIpcGetEventHandle(driver, _owner; out: Out<IpcHandle>, event: Handle) {
        driver.event(event)?;
        out.put(blank(EVENT))
    }

    /// Everything completes at once, so the other process's event counts as completed.
    fn cuIpcOpenEventHandle(driver, owner; out: Out<Handle>, handle: IpcHandle) {
        if handle.magic != EVENT {
            return Err(INVALID_VALUE);
        }
        let event = driver.new_handle();
        out.put(event)?;
        driver.events.insert(event, Event::new(owner.context, 2));
        Ok(())
    }
}
