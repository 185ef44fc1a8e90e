//! Multicast objects: a team of devices, and the memory of each that is bound to the object.
//!
//! The object is a handle like a physical one (mapped, released, exported) that owns no memory; what is bound to it
//! stays as long as the binding does.

use crate::abi::{Addr, In, Out};
use crate::blocks::{GRANULARITY, Kind};
use crate::error::*;
use crate::params::{AllocationProps, Location};
use crate::state::{Core, with};
use crate::vmm::{Physical, referenced};

pub struct Multicast {
    team: usize,
    devices: Vec<i32>,
    bound: Vec<Binding>,
}

struct Binding {
    device: i32,
    offset: u64,
    bytes: u64,
    /// The physical handle, unless the memory is of another kind.
    holds: Option<u64>,
}

impl Multicast {
    /// The physical handles that bindings hold.
    pub fn holds(&self) -> impl Iterator<Item = u64> {
        self.bound.iter().filter_map(|b| b.holds)
    }
}

/// `CUmulticastObjectProp`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Props {
    devices: u32,
    bytes: usize,
    handle_types: u64,
    flags: u64,
}

fn object(core: &mut Core, id: u64) -> Res<(u64, &mut Multicast)> {
    let physical = referenced(core, id)?;
    let bytes = physical.bytes;
    Ok((bytes, physical.multicast.as_mut().ok_or(INVALID_VALUE)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMulticastGetGranularity(out: Out<usize>, props: In<Props>, option: i32) -> Status {
    distinct!(cuMulticastGetGranularity);
    with(|_| {
        if props.get()?.devices == 0 || !matches!(option, 0 | 1) {
            return Err(INVALID_VALUE);
        }
        out.put(GRANULARITY as usize)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMulticastCreate(out: Out<u64>, props: In<Props>) -> Status {
    distinct!(cuMulticastCreate);
    with(|core| {
        let Props { devices, bytes, handle_types, flags } = props.get()?;
        let bytes = bytes as u64;
        if out.is_null() || devices == 0 || bytes == 0 || !bytes.is_multiple_of(GRANULARITY) || flags != 0 {
            return Err(INVALID_VALUE);
        }
        let (location, handle_types) = (Location { kind: 1, id: 0 }, handle_types as i32);
        let props = AllocationProps {
            kind: 1,
            handle_types,
            location,
            windows: 0,
            compression: 0,
            rdma: 0,
            usage: 0,
            reserved: [0; 4],
        };
        let multicast = Some(Multicast { team: devices as usize, devices: Vec::new(), bound: Vec::new() });
        let id = core.handle() as u64;
        core.physical.insert(id, Physical { multicast, ..Physical::uncharged(bytes, props) });
        out.put(id)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMulticastAddDevice(id: u64, device: i32) -> Status {
    distinct!(cuMulticastAddDevice);
    with(|core| {
        core.device(device)?;
        let (_, object) = object(core, id)?;
        if object.devices.contains(&device) || object.devices.len() == object.team {
            return Err(INVALID_VALUE);
        }
        object.devices.push(device);
        Ok(())
    })
}

/// Binds `bytes` of memory on a device, which `holds` keeps.
fn bind(
    core: &mut Core,
    id: u64,
    offset: usize,
    bytes: usize,
    flags: u64,
    device: i32,
    holds: Option<u64>,
) -> Res {
    let (offset, bytes) = (offset as u64, bytes as u64);
    let (room, object) = object(core, id)?;
    let end = offset.checked_add(bytes).ok_or(INVALID_VALUE)?;
    let whole = offset.is_multiple_of(GRANULARITY) && bytes.is_multiple_of(GRANULARITY) && bytes > 0;
    let taken = |b: &Binding| b.device == device && b.offset < end && offset < b.offset + b.bytes;
    if !whole
        || end > room
        || flags != 0
        || !object.devices.contains(&device)
        || object.bound.iter().any(taken)
    {
        return Err(INVALID_VALUE);
    }
    if object.devices.len() < object.team {
        return Err(ILLEGAL_STATE);
    }
    object.bound.push(Binding { device, offset, bytes, holds });
    if let Some(physical) = holds.and_then(|id| core.physical.get_mut(&id)) {
        physical.maps += 1;
    }
    Ok(())
}

fn bind_memory(
    id: u64,
    wanted: Option<i32>,
    offset: usize,
    memory: u64,
    memory_offset: usize,
    bytes: usize,
    flags: u64,
) -> Status {
    with(|core| {
        let physical = referenced(core, memory)?;
        let device = physical.device();
        let end = (memory_offset as u64).checked_add(bytes as u64).ok_or(INVALID_VALUE)?;
        let wrong = wanted.is_some_and(|w| w != device) || physical.multicast.is_some();
        if wrong || end > physical.bytes || !(memory_offset as u64).is_multiple_of(GRANULARITY) {
            return Err(INVALID_VALUE);
        }
        bind(core, id, offset, bytes, flags, device, Some(memory))
    })
}

fn bind_address(
    id: u64,
    wanted: Option<i32>,
    offset: usize,
    address: Addr,
    bytes: usize,
    flags: u64,
) -> Status {
    with(|core| {
        let (start, block) = core.find(address).ok_or(INVALID_VALUE)?;
        let holds = match block.kind {
            Kind::Map(physical) => Some(physical),
            Kind::Device => None,
            _ => return Err(INVALID_VALUE),
        };
        let device = block.device;
        if wanted.is_some_and(|w| w != device) || bytes as u64 > block.size - (address - start) {
            return Err(INVALID_VALUE);
        }
        bind(core, id, offset, bytes, flags, device, holds)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMulticastBindMem(
    id: u64,
    offset: usize,
    memory: u64,
    memory_offset: usize,
    bytes: usize,
    flags: u64,
) -> Status {
    distinct!(cuMulticastBindMem);
    bind_memory(id, None, offset, memory, memory_offset, bytes, flags)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMulticastBindMem_v2(
    id: u64,
    device: i32,
    offset: usize,
    memory: u64,
    memory_offset: usize,
    bytes: usize,
    flags: u64,
) -> Status {
    distinct!(cuMulticastBindMem_v2);
    bind_memory(id, Some(device), offset, memory, memory_offset, bytes, flags)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMulticastBindAddr(
    id: u64,
    offset: usize,
    address: Addr,
    bytes: usize,
    flags: u64,
) -> Status {
    distinct!(cuMulticastBindAddr);
    bind_address(id, None, offset, address, bytes, flags)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMulticastBindAddr_v2(
    id: u64,
    device: i32,
    offset: usize,
    address: Addr,
    bytes: usize,
    flags: u64,
) -> Status {
    distinct!(cuMulticastBindAddr_v2);
    bind_address(id, Some(device), offset, address, bytes, flags)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMulticastUnbind(id: u64, device: i32, offset: usize, bytes: usize) -> Status {
    distinct!(cuMulticastUnbind);
    with(|core| {
        let (offset, bytes) = (offset as u64, bytes as u64);
        let (_, object) = object(core, id)?;
        let this = |b: &Binding| (b.device, b.offset, b.bytes) == (device, offset, bytes);
        let which = object.bound.iter().position(this).ok_or(INVALID_VALUE)?;
        if let Some(held) = object.bound.swap_remove(which).holds {
            core.let_go("cuMulticastUnbind", held);
        }
        Ok(())
    })
}
