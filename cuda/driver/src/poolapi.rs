//! Stream-ordered memory and the calls on pools.

use crate::abi::{Addr, Handle, In, Out, Stream};
use crate::blocks::Kind;
use crate::error::*;
use crate::params::{Access, Location, PoolProps};
use crate::pool::Pool;
use crate::state::{Core, Here, with};

const READ_WRITE: i32 = 3;

fn allocate(
    core: &mut Core,
    api: &str,
    out: Out<Addr>,
    bytes: usize,
    pool: Handle,
    at: Here,
    s: Stream,
) -> Res {
    if out.is_null() || bytes == 0 {
        return Err(INVALID_VALUE);
    }
    let device = live(core, pool)?.own()?.device;
    let at = Here { device, ..at };
    let address = match core.capture_of(s)? {
        Some(capture) => core.capture_allocation(capture, bytes as u64, at)?,
        None => core.allocate(api, Kind::Pool(pool), bytes as u64, at)?,
    };
    out.put(address)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAllocAsync(out: Out<Addr>, bytes: usize, stream: Stream) -> Status {
    distinct!(cuMemAllocAsync);
    with(|core| {
        let at = core.stream_place(stream)?;
        let pool = core.device(at.device)?.pool;
        allocate(core, "cuMemAllocAsync", out, bytes, pool, at, stream)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAllocFromPoolAsync(
    out: Out<Addr>,
    bytes: usize,
    pool: Handle,
    stream: Stream,
) -> Status {
    distinct!(cuMemAllocFromPoolAsync);
    with(|core| {
        let at = core.stream_place(stream)?;
        allocate(core, "cuMemAllocFromPoolAsync", out, bytes, pool, at, stream)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeAsync(address: Addr, stream: Stream) -> Status {
    distinct!(cuMemFreeAsync);
    with(|core| {
        core.stream_place(stream)?;
        if let Some(capture) = core.capture_of(stream)? {
            return core.capture_free(capture, address);
        }
        match core.blocks.get(&address).map(|b| b.kind) {
            Some(
                Kind::Pool(_)
                | Kind::Graph
                | Kind::Device
                | Kind::Managed
                | Kind::Foreign { from_pool: true, .. },
            ) => core.end("cuMemFreeAsync", address),
            _ => Err(INVALID_VALUE),
        }
    })
}

per_thread! {
    cuMemAllocAsync_ptsz = cuMemAllocAsync(out: Out<Addr>, bytes: usize, stream: Stream);
    cuMemAllocFromPoolAsync_ptsz = cuMemAllocFromPoolAsync(out: Out<Addr>, bytes: usize, pool: Handle, stream: Stream);
    cuMemFreeAsync_ptsz = cuMemFreeAsync(address: Addr, stream: Stream);
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolCreate(out: Out<Handle>, props: In<PoolProps>) -> Status {
    distinct!(cuMemPoolCreate);
    with(|core| {
        let props = props.get()?;
        if props.kind != 1 || props.location.kind != 1 {
            return Err(if props.kind == 1 { NOT_SUPPORTED } else { INVALID_VALUE });
        }
        core.device(props.location.id)?;
        let handle = core.handle();
        out.put(handle)?;
        let pool = Pool { handle_types: props.handle_types, ..Pool::new(props.location.id) };
        core.pools.insert(handle, pool);
        Ok(())
    })
}

pub fn live(core: &mut Core, pool: Handle) -> Res<&mut Pool> {
    core.pools.get_mut(&pool).filter(|p| !p.destroyed).ok_or(INVALID_VALUE)
}

/// Outstanding blocks live on; the pool ends with the last of them.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolDestroy(pool: Handle) -> Status {
    distinct!(cuMemPoolDestroy);
    with(|core| {
        if core.devices.iter().any(|d| d.default_pool == pool) {
            return Err(INVALID_VALUE);
        }
        live(core, pool)?.destroyed = true;
        for device in &mut core.devices {
            if device.pool == pool {
                device.pool = device.default_pool;
            }
        }
        core.trim_pool(pool, 0, 1);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolTrimTo(pool: Handle, keep: usize) -> Status {
    distinct!(cuMemPoolTrimTo);
    with(|core| {
        live(core, pool)?;
        core.trim_pool_to(pool, keep as u64);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolSetAttribute(pool: Handle, attribute: i32, value: Out<u64>) -> Status {
    distinct!(cuMemPoolSetAttribute);
    with(|core| {
        let pool = live(core, pool)?;
        match attribute {
            1..=3 => pool.reuse[attribute as usize - 1] = value.cast::<i32>().get()?,
            4 => pool.threshold = value.get()?,
            6 | 8 if value.get()? != 0 => return Err(INVALID_VALUE), // a high mark can only be reset
            6 => pool.reserved_high = pool.reserved,
            8 => pool.used_high = pool.used,
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolGetAttribute(pool: Handle, attribute: i32, value: Out<u64>) -> Status {
    distinct!(cuMemPoolGetAttribute);
    with(|core| {
        let pool = live(core, pool)?;
        match attribute {
            1..=3 => value.cast::<i32>().put(pool.reuse[attribute as usize - 1]),
            4 => value.put(pool.threshold),
            5 => value.put(pool.reserved),
            6 => value.put(pool.reserved_high),
            7 => value.put(pool.used),
            8 => value.put(pool.used_high),
            _ => Err(INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolSetAccess(pool: Handle, list: In<Access>, count: usize) -> Status {
    distinct!(cuMemPoolSetAccess);
    with(|core| {
        let wanted = list.list(count)?;
        for access in &wanted {
            core.device(access.location.id)?;
        }
        let pool = live(core, pool)?;
        for Access { location, flags } in wanted {
            if location.id == pool.device && flags != READ_WRITE {
                return Err(INVALID_VALUE); // the owner always has access
            }
            pool.access.retain(|a| a.0 != location.id);
            pool.access.push((location.id, flags));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolGetAccess(out: Out<i32>, pool: Handle, location: In<Location>) -> Status {
    distinct!(cuMemPoolGetAccess);
    with(|core| {
        let id = location.get()?.id;
        core.device(id)?;
        let pool = live(core, pool)?;
        let granted = pool.access.iter().find(|a| a.0 == id).map_or(0, |a| a.1);
        out.put(if id == pool.device { READ_WRITE } else { granted })
    })
}

/// The pool of a location (CUDA 13): a device's, of pinned allocations.
fn located(core: &mut Core, location: In<Location>, kind: i32) -> Res<i32> {
    let location = location.get()?;
    match (location.kind, kind) {
        (1, 1) => core.device(location.id).map(|_| location.id),
        _ => Err(NOT_SUPPORTED),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetDefaultMemPool(out: Out<Handle>, location: In<Location>, kind: i32) -> Status {
    distinct!(cuMemGetDefaultMemPool);
    with(|core| {
        let device = located(core, location, kind)?;
        out.put(core.device(device)?.default_pool)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetMemPool(out: Out<Handle>, location: In<Location>, kind: i32) -> Status {
    distinct!(cuMemGetMemPool);
    with(|core| {
        let device = located(core, location, kind)?;
        out.put(core.device(device)?.pool)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemSetMemPool(location: In<Location>, kind: i32, pool: Handle) -> Status {
    distinct!(cuMemSetMemPool);
    with(|core| {
        let device = located(core, location, kind)?;
        if live(core, pool)?.own()?.device != device {
            return Err(INVALID_VALUE);
        }
        core.device(device)?.pool = pool;
        Ok(())
    })
}
