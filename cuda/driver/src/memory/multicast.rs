//! Multicast objects: a team of devices, and the memory of each that is bound to the object.
//!
//! The object is a handle like a physical one (mapped, released, exported) that owns no memory; what is bound
//! to it stays as long as the binding does.

use crate::abi::pointers::{Addr, In, Out};
use crate::abi::records::{AllocationProps, MulticastProps};
use crate::abi::status::*;
use crate::memory::blocks::GRANULARITY;
use crate::state::driver::Driver;
use crate::state::memory::{Binding, Kind, Multicast, Physical};

fn object(driver: &mut Driver, id: u64) -> Res<(u64, &mut Multicast)> {
    let physical = driver.physical(id)?;
    let bytes = physical.bytes;
    Ok((bytes, physical.multicast.as_mut().ok_or(INVALID_VALUE)?))
}

/// Binds `bytes` of memory on a device, which `physical` keeps.
fn bind(
    driver: &mut Driver,
    id: u64,
    offset: usize,
    bytes: usize,
    flags: u64,
    device: i32,
    physical: Option<u64>,
) -> Res {
    let (offset, bytes) = (offset as u64, bytes as u64);
    let (room, object) = object(driver, id)?;
    let end = offset.checked_add(bytes).ok_or(INVALID_VALUE)?;
    let whole = offset.is_multiple_of(GRANULARITY) && bytes.is_multiple_of(GRANULARITY) && bytes > 0;
    let taken = |b: &Binding| b.device == device && b.offset < end && offset < b.offset + b.bytes;
    if !whole
        || end > room
        || flags != 0
        || !object.devices.contains(&device)
        || object.bindings.iter().any(taken)
    {
        return Err(INVALID_VALUE);
    }
    if object.devices.len() < object.team {
        return Err(ILLEGAL_STATE);
    }
    object.bindings.push(Binding { device, offset, bytes, physical });
    if let Some(physical) = physical.and_then(|id| driver.physical.get_mut(&id)) {
        physical.maps += 1;
    }
    Ok(())
}

fn bind_memory(
    driver: &mut Driver,
    id: u64,
    wanted: Option<i32>,
    offset: usize,
    memory: u64,
    memory_offset: usize,
    bytes: usize,
    flags: u64,
) -> Res {
    {
        let physical = driver.physical(memory)?;
        let device = physical.device();
        let end = (memory_offset as u64).checked_add(bytes as u64).ok_or(INVALID_VALUE)?;
        let wrong = wanted.is_some_and(|w| w != device) || physical.multicast.is_some();
        if wrong || end > physical.bytes || !(memory_offset as u64).is_multiple_of(GRANULARITY) {
            return Err(INVALID_VALUE);
        }
        bind(driver, id, offset, bytes, flags, device, Some(memory))
    }
}

fn bind_address(
    driver: &mut Driver,
    id: u64,
    wanted: Option<i32>,
    offset: usize,
    address: Addr,
    bytes: usize,
    flags: u64,
) -> Res {
    {
        let (start, block) = driver.find(address).ok_or(INVALID_VALUE)?;
        let physical = match block.kind {
            Kind::Map(physical) => Some(physical),
            Kind::Device => None,
            _ => return Err(INVALID_VALUE),
        };
        let device = block.device;
        if wanted.is_some_and(|w| w != device) || bytes as u64 > block.size - (address - start) {
            return Err(INVALID_VALUE);
        }
        bind(driver, id, offset, bytes, flags, device, physical)
    }
}

driver_api! {
    fn cuMulticastGetGranularity(_driver; out: Out<usize>, props: In<MulticastProps>, option: i32) {
        if props.get()?.numDevices == 0 || !matches!(option, 0 | 1) {
            return Err(INVALID_VALUE);
        }
        out.put(GRANULARITY as usize)
    }

    fn cuMulticastCreate(driver; out: Out<u64>, props: In<MulticastProps>) {
        let MulticastProps { numDevices: devices, size: bytes, handleTypes: handle_types, flags } = props.get()?;
        let bytes = bytes as u64;
        if out.is_null() || devices == 0 || bytes == 0 || !bytes.is_multiple_of(GRANULARITY) || flags != 0 {
            return Err(INVALID_VALUE);
        }
        let props = AllocationProps::on_device(0, handle_types as i32);
        let multicast = Some(Multicast { team: devices as usize, devices: Vec::new(), bindings: Vec::new() });
        let id = driver.new_handle() as u64;
        driver.physical.insert(id, Physical { multicast, ..Physical::uncharged(bytes, props) });
        out.put(id)
    }

    fn cuMulticastAddDevice(driver; id: u64, device: i32) {
        driver.device(device)?;
        let (_, object) = object(driver, id)?;
        if object.devices.contains(&device) || object.devices.len() == object.team {
            return Err(INVALID_VALUE);
        }
        object.devices.push(device);
        Ok(())
    }

    fn cuMulticastBindMem(driver; id: u64, offset: usize, memory: u64, memory_offset: usize, bytes: usize,
        flags: u64) {
        bind_memory(driver, id, None, offset, memory, memory_offset, bytes, flags)
    }

    fn cuMulticastBindMem_v2(driver; id: u64, device: i32, offset: usize, memory: u64, memory_offset:
        usize, bytes: usize, flags: u64) {
        bind_memory(driver, id, Some(device), offset, memory, memory_offset, bytes, flags)
    }

    fn cuMulticastBindAddr(driver; id: u64, offset: usize, address: Addr, bytes: usize, flags: u64) {
        bind_address(driver, id, None, offset, address, bytes, flags)
    }

    fn cuMulticastBindAddr_v2(driver; id: u64, device: i32, offset: usize, address: Addr, bytes: usize,
        flags: u64) {
        bind_address(driver, id, Some(device), offset, address, bytes, flags)
    }

    fn cuMulticastUnbind(driver; id: u64, device: i32, offset: usize, bytes: usize) {
        let (offset, bytes) = (offset as u64, bytes as u64);
        let (_, object) = object(driver, id)?;
        let this = |b: &Binding| (b.device, b.offset, b.bytes) == (device, offset, bytes);
        let which = object.bindings.iter().position(this).ok_or(INVALID_VALUE)?;
        if let Some(held) = object.bindings.swap_remove(which).physical {
            driver.release_physical("cuMulticastUnbind", held);
        }
        Ok(())
    }
}
