//! Virtual memory management: reserved addresses, physical handles, and mappings of one onto the other.
//!
//! A handle's bytes end when its references and its mappings are both 0.

use crate::abi::{Addr, In, Out};
use crate::arena::{LARGE, PAGE, RW, close, map, shared_file, unmap};
use crate::blocks::{Block, GRANULARITY, Kind};
use crate::error::*;
use crate::multicast::Multicast;
use crate::params::{Access, AllocationProps, Location};
use crate::state::{Core, Here, with};

pub struct Physical {
    pub bytes: u64,
    pub props: AllocationProps,
    /// Where it lies in its device's arena, unless it has a file of its own.
    pub at: Addr,
    pub file: i32,
    pub references: u32,
    pub maps: u32,
    /// Charged and in the truth: not another process's, nor a multicast object.
    pub charged: bool,
    pub multicast: Option<Multicast>,
}

const ON_DEVICE: i32 = 1;

impl Physical {
    /// One that stands for no memory of this process's.
    pub fn uncharged(bytes: u64, props: AllocationProps) -> Physical {
        Physical { bytes, props, at: 0, file: -1, references: 1, maps: 0, charged: false, multicast: None }
    }

    pub fn device(&self) -> i32 {
        if self.props.location.kind == ON_DEVICE { self.props.location.id } else { -1 }
    }
}

impl Core {
    /// The file and offset that a handle's bytes are at.
    fn backing(&self, physical: &Physical) -> (i32, i64) {
        match self.devices.get(physical.device().max(0) as usize) {
            Some(device) if physical.charged && physical.file < 0 && device.arena.file >= 0 => {
                (device.arena.file, device.arena.offset(physical.at))
            }
            _ => (physical.file, 0),
        }
    }

    pub fn map_physical(&self, at: Addr, bytes: u64, id: u64) -> Res {
        let (file, offset) = self.backing(self.physical.get(&id).ok_or(INVALID_VALUE)?);
        map(at, bytes, RW, file, offset).map(drop).ok_or(OUT_OF_MEMORY)
    }

    pub fn mapping_ended(&mut self, api: &str, at: Addr, bytes: u64, id: u64) {
        let _ = map(at, bytes, libc::PROT_NONE, -1, 0);
        self.let_go(api, id);
    }

    /// A mapping or a binding of a handle ends.
    pub fn let_go(&mut self, api: &str, id: u64) {
        if let Some(physical) = self.physical.get_mut(&id) {
            physical.maps -= 1;
        }
        self.drop_physical(api, id);
    }

    fn drop_physical(&mut self, api: &str, id: u64) {
        let Some(physical) = self.physical.get(&id) else { return };
        if physical.references > 0 || physical.maps > 0 {
            return;
        }
        let Some(physical) = self.physical.remove(&id) else { return };
        let device = physical.device();
        for held in physical.multicast.iter().flat_map(Multicast::holds) {
            self.let_go(api, held);
        }
        if physical.charged {
            self.truth.line('-', api, id, physical.bytes, device);
            if device >= 0 {
                self.displace(device, physical.at, physical.bytes);
            }
        }
        if physical.file >= 0 {
            close(physical.file);
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetAllocationGranularity(
    out: Out<usize>,
    props: In<AllocationProps>,
    option: i32,
) -> Status {
    distinct!(cuMemGetAllocationGranularity);
    with(|_| {
        if props.get()?.kind != 1 || !matches!(option, 0 | 1) {
            return Err(INVALID_VALUE);
        }
        out.put(GRANULARITY as usize)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAddressReserve(
    out: Out<Addr>,
    bytes: usize,
    align: usize,
    wish: Addr,
    flags: u64,
) -> Status {
    distinct!(cuMemAddressReserve);
    with(|core| {
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
        let got = reserve_at(wish, bytes, align)
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
        core.reservations.insert(got, bytes);
        out.put(got)
    })
}

/// The address the program would like, if nothing is there.
fn reserve_at(wish: Addr, bytes: u64, align: u64) -> Option<Addr> {
    if wish == 0 || !wish.is_multiple_of(align) {
        return None;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE touches no existing mapping.
    let got = unsafe { libc::mmap(wish as *mut _, bytes as usize, libc::PROT_NONE, flags, -1, 0) };
    if got == libc::MAP_FAILED {
        return None;
    }
    if got as u64 != wish {
        unmap(got as u64, bytes); // an old kernel took it for a hint
        return None;
    }
    Some(wish)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAddressFree(address: Addr, bytes: usize) -> Status {
    distinct!(cuMemAddressFree);
    with(|core| {
        let bytes = bytes as u64;
        let in_use = |core: &Core| core.blocks.range(address..address + bytes).next().is_some();
        if core.reservations.get(&address) != Some(&bytes) || in_use(core) {
            return Err(INVALID_VALUE);
        }
        core.reservations.remove(&address);
        unmap(address, bytes);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemCreate(out: Out<u64>, bytes: usize, props: In<AllocationProps>, flags: u64) -> Status {
    distinct!(cuMemCreate);
    with(|core| {
        let (bytes, props) = (bytes as u64, props.get()?);
        if out.is_null() || bytes == 0 || !bytes.is_multiple_of(GRANULARITY) || props.kind != 1 || flags != 0
        {
            return Err(INVALID_VALUE);
        }
        let (at, file, device) = match props.location.kind {
            ON_DEVICE => {
                core.device(props.location.id)?;
                (core.place(props.location.id, bytes)?, -1, props.location.id)
            }
            2..=4 => (0, shared_file(bytes).ok_or(OUT_OF_MEMORY)?, -1),
            _ => return Err(INVALID_VALUE),
        };
        let id = core.handle() as u64;
        core.truth.line('+', "cuMemCreate", id, bytes, device);
        core.physical.insert(id, Physical { at, file, charged: true, ..Physical::uncharged(bytes, props) });
        out.put(id)
    })
}

pub fn referenced(core: &mut Core, id: u64) -> Res<&mut Physical> {
    core.physical.get_mut(&id).filter(|p| p.references > 0).ok_or(INVALID_VALUE)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemRelease(id: u64) -> Status {
    distinct!(cuMemRelease);
    with(|core| {
        referenced(core, id)?.references -= 1;
        core.drop_physical("cuMemRelease", id);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemMap(address: Addr, bytes: usize, offset: usize, id: u64, flags: u64) -> Status {
    distinct!(cuMemMap);
    with(|core| {
        let bytes = bytes as u64;
        let whole = address.is_multiple_of(GRANULARITY) && bytes.is_multiple_of(GRANULARITY);
        if bytes == 0 || !whole || offset != 0 || flags != 0 || bytes > referenced(core, id)?.bytes {
            return Err(INVALID_VALUE);
        }
        let end = address.checked_add(bytes).ok_or(INVALID_VALUE)?;
        let reserved = core.reservations.range(..=address).next_back().is_some_and(|(&s, &n)| end <= s + n);
        let taken = core.blocks.range(..end).next_back().is_some_and(|(&s, b)| s + b.size > address);
        if !reserved || taken {
            return Err(INVALID_VALUE);
        }
        core.map_physical(address, bytes, id)?;
        let device = referenced(core, id)?.device().max(0);
        referenced(core, id)?.maps += 1;
        let block = Block::new(Kind::Map(id), bytes, bytes, Here { context: 0, device });
        core.begin("cuMemMap", address, block);
        Ok(())
    })
}

/// The mappings that make up exactly this range, or an error.
fn mappings(core: &Core, address: Addr, bytes: u64) -> Res<Vec<Addr>> {
    let end = address.checked_add(bytes).ok_or(INVALID_VALUE)?;
    let (mut at, mut list) = (address, Vec::new());
    while at < end {
        let block = core.blocks.get(&at).filter(|b| matches!(b.kind, Kind::Map(_))).ok_or(INVALID_VALUE)?;
        list.push(at);
        at += block.size;
    }
    if at == end && !list.is_empty() { Ok(list) } else { Err(INVALID_VALUE) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemUnmap(address: Addr, bytes: usize) -> Status {
    distinct!(cuMemUnmap);
    with(|core| {
        for at in mappings(core, address, bytes as u64)? {
            core.end("cuMemUnmap", at)?;
        }
        Ok(())
    })
}

/// Access is remembered, not enforced: a mapping can be used at once.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemSetAccess(address: Addr, bytes: usize, list: In<Access>, count: usize) -> Status {
    distinct!(cuMemSetAccess);
    with(|core| {
        let flags = list.list(count)?.first().map(|a| a.flags).ok_or(INVALID_VALUE)?;
        for at in mappings(core, address, bytes as u64)? {
            if let Some(block) = core.blocks.get_mut(&at) {
                block.flags = flags as u32;
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetAccess(out: Out<u64>, location: In<Location>, address: Addr) -> Status {
    distinct!(cuMemGetAccess);
    with(|core| {
        let device = location.get()?.id;
        match core.find(address) {
            Some((_, b)) if matches!(b.kind, Kind::Map(_)) => {
                out.put(if b.device == device { b.flags.into() } else { 0 })
            }
            _ => Err(INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemRetainAllocationHandle(out: Out<u64>, address: Addr) -> Status {
    distinct!(cuMemRetainAllocationHandle);
    with(|core| match core.find(address).map(|(_, b)| b.kind) {
        Some(Kind::Map(id)) => {
            out.put(id)?;
            core.physical.get_mut(&id).ok_or(INVALID_VALUE)?.references += 1;
            Ok(())
        }
        _ => Err(INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetAllocationPropertiesFromHandle(out: Out<AllocationProps>, id: u64) -> Status {
    distinct!(cuMemGetAllocationPropertiesFromHandle);
    with(|core| out.put(referenced(core, id)?.props))
}
