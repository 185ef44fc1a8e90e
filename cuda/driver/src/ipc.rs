//! Memory and events of one process opened by another.
//!
//! A device's memory is a file, so a handle says which process, which descriptor, and where. The opener maps it and
//! keeps it even when the exporter ends; nothing is left behind, since the file never had a name.

use crate::abi::{Addr, Handle, Out};
use crate::arena::{PAGE, RW, close, map};
use crate::blocks::{Block, Kind};
use crate::error::*;
use crate::event::Event;
use crate::state::{Core, Here, here};
use crate::vmm_share::{duplicate, identity};

/// Our 64 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle {
    magic: u64,
    pid: u32,
    file: i32,
    inode: u64,
    offset: u64,
    asked: u64,
    number: u32,
    rest: [u32; 5],
}
const _: () = assert!(size_of::<IpcHandle>() == 64);

const MEMORY: u64 = 0x6d65_6d6f_7279_2121;
const EVENT: u64 = 0x6576_656e_7421_2121;

impl crate::abi::Own for IpcHandle {
    fn own(self) -> Self {
        self
    }
}

fn blank(magic: u64) -> IpcHandle {
    let pid = std::process::id();
    IpcHandle { magic, pid, file: -1, inode: 0, offset: 0, asked: 0, number: 0, rest: [0; 5] }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuIpcGetMemHandle(out: Out<IpcHandle>, address: Addr) -> Status {
    distinct!(cuIpcGetMemHandle);
    here(|core, _| {
        let (start, block) = core.find(address).ok_or(INVALID_VALUE)?;
        if block.kind != Kind::Device {
            return Err(INVALID_VALUE);
        }
        let (asked, device) = (block.asked, block.device);
        let device = core.device(device)?;
        let file = device.arena.file;
        let inode = identity(file).ok_or(NOT_SUPPORTED)?.0;
        let offset = device.arena.offset(start) as u64;
        out.put(IpcHandle { file, inode, offset, asked, number: device.number, ..blank(MEMORY) })
    })
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

fn open(core: &mut Core, at: Here, handle: IpcHandle) -> Res<Addr> {
    if handle.magic != MEMORY {
        return Err(INVALID_VALUE);
    }
    let same = |b: &Block| matches!(b.kind, Kind::Ipc { inode, offset, .. } if inode == handle.inode && offset == handle.offset);
    if let Some((&address, block)) = core.blocks.iter_mut().find(|(_, b)| same(b)) {
        if let Kind::Ipc { opened, .. } = &mut block.kind {
            *opened += 1;
        }
        return Ok(address);
    }
    let file = open_file(&handle)?;
    let skip = handle.offset % PAGE;
    let size = (skip + handle.asked).next_multiple_of(PAGE);
    let genuine = identity(file).is_some_and(|i| i.0 == handle.inode);
    let mapped = if genuine { map(0, size, RW, file, (handle.offset - skip) as i64) } else { None };
    close(file);
    let address = mapped.ok_or(INVALID_VALUE)? + skip;
    let device = core.devices.iter().position(|d| d.number == handle.number).map_or(at.device, |d| d as i32);
    let kind = Kind::Ipc { opened: 1, skip, inode: handle.inode, offset: handle.offset };
    let block = Block::new(kind, handle.asked, handle.asked, Here { device, ..at });
    core.begin("cuIpcOpenMemHandle_v2", address, block);
    Ok(address)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuIpcOpenMemHandle_v2(out: Out<Addr>, handle: IpcHandle, flags: u32) -> Status {
    distinct!(cuIpcOpenMemHandle_v2);
    here(|core, at| {
        if out.is_null() || flags > 1 {
            return Err(INVALID_VALUE);
        }
        out.put(open(core, at, handle)?)
    })
}

alias! { cuIpcOpenMemHandle = cuIpcOpenMemHandle_v2(out: Out<Addr>, handle: IpcHandle, flags: u32); }

#[unsafe(no_mangle)]
pub extern "C" fn cuIpcCloseMemHandle(address: Addr) -> Status {
    distinct!(cuIpcCloseMemHandle);
    here(|core, _| match core.blocks.get_mut(&address).map(|b| &mut b.kind) {
        Some(Kind::Ipc { opened: 1, .. }) => core.end("cuIpcCloseMemHandle", address),
        Some(Kind::Ipc { opened, .. }) => {
            *opened -= 1;
            Ok(())
        }
        _ => Err(INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuIpcGetEventHandle(out: Out<IpcHandle>, event: Handle) -> Status {
    distinct!(cuIpcGetEventHandle);
    here(|core, _| {
        core.event(event)?;
        out.put(blank(EVENT))
    })
}

/// Everything completes at once, so the other process's event is one that has always happened.
#[unsafe(no_mangle)]
pub extern "C" fn cuIpcOpenEventHandle(out: Out<Handle>, handle: IpcHandle) -> Status {
    distinct!(cuIpcOpenEventHandle);
    here(|core, at| {
        if handle.magic != EVENT {
            return Err(INVALID_VALUE);
        }
        let event = core.handle();
        out.put(event)?;
        core.events.insert(event, Event::new(at.context, 2));
        Ok(())
    })
}
