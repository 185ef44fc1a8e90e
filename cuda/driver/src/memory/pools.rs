//! Memory pools: how they are made, asked, shared with peers and trimmed.

use crate::abi::pointers::{Handle, In, Out};
use crate::abi::records::{Access, Location, PoolProps};
use crate::abi::status::*;
use crate::state::driver::Driver;
use crate::state::memory::Pool;

const READ_WRITE: i32 = 3;

/// Returns the device of a location whose pool is asked for (CUDA 13): for pinned memory only.
fn located(driver: &mut Driver, location: In<Location>, kind: i32) -> Res<i32> {
    let location = location.get()?;
    match (location.kind, kind) {
        (1, 1) => driver.device(location.id).map(|_| location.id),
        _ => Err(NOT_SUPPORTED),
    }
}

driver_api! {
    fn cuMemPoolCreate(driver; out: Out<Handle>, props: In<PoolProps>) {
        let props = props.get()?;
        if props.kind != 1 || props.location.kind != 1 {
            return Err(if props.kind == 1 { NOT_SUPPORTED } else { INVALID_VALUE });
        }
        driver.device(props.location.id)?;
        let handle = driver.new_handle();
        out.put(handle)?;
        let pool = Pool { handle_types: props.handle_types, ..Pool::new(props.location.id) };
        driver.pools.insert(handle, pool);
        Ok(())
    }

    /// Outstanding blocks live on; the pool ends with the last of them.
    fn cuMemPoolDestroy(driver; pool: Handle) {
        if driver.devices.iter().any(|d| d.default_pool == pool) {
            return Err(INVALID_VALUE);
        }
        driver.pool(pool)?.destroyed = true;
        for device in &mut driver.devices {
            if device.pool == pool {
                device.pool = device.default_pool;
            }
        }
        driver.trim_pool(pool, 0, 1);
        Ok(())
    }

    fn cuMemPoolTrimTo(driver; pool: Handle, keep: usize) {
        driver.pool(pool)?;
        driver.trim_pool_to(pool, keep as u64);
        Ok(())
    }

    fn cuMemPoolSetAttribute(driver; pool: Handle, attribute: i32, value: Out<u64>) {
        let pool = driver.pool(pool)?;
        match attribute {
            1..=3 => pool.reuse[attribute as usize - 1] = value.cast::<i32>().get()?,
            4 => pool.threshold = value.get()?,
            6 | 8 if value.get()? != 0 => return Err(INVALID_VALUE), // a high mark can only be reset
            6 => pool.reserved_high = pool.reserved,
            8 => pool.used_high = pool.used,
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    }

    /// Refused in a capture, as by a device (580.159).
    fn cuMemPoolGetAttribute(driver; pool: Handle, attribute: i32, value: Out<u64>) {
        driver.refuse_during_capture()?;
        let pool = driver.pool(pool)?;
        match attribute {
            1..=3 => value.cast::<i32>().put(pool.reuse[attribute as usize - 1]),
            4 => value.put(pool.threshold),
            5 => value.put(pool.reserved),
            6 => value.put(pool.reserved_high),
            7 => value.put(pool.used),
            8 => value.put(pool.used_high),
            _ => Err(INVALID_VALUE),
        }
    }

    fn cuMemPoolSetAccess(driver; pool: Handle, list: In<Access>, count: usize) {
        let wanted = list.list(count)?;
        for access in &wanted {
            driver.device(access.location.id)?;
        }
        let pool = driver.pool(pool)?;
        for Access { location, flags } in wanted {
            if location.id == pool.device && flags != READ_WRITE {
                return Err(INVALID_VALUE); // the owner always has access
            }
            pool.access.retain(|a| a.0 != location.id);
            pool.access.push((location.id, flags));
        }
        Ok(())
    }

    fn cuMemPoolGetAccess(driver; out: Out<i32>, pool: Handle, location: In<Location>) {
        let id = location.get()?.id;
        driver.device(id)?;
        let pool = driver.pool(pool)?;
        let granted = pool.access.iter().find(|a| a.0 == id).map_or(0, |a| a.1);
        out.put(if id == pool.device { READ_WRITE } else { granted })
    }

    fn cuMemGetDefaultMemPool(driver; out: Out<Handle>, location: In<Location>, kind: i32) {
        let device = located(driver, location, kind)?;
        out.put(driver.device(device)?.default_pool)
    }

    fn cuMemGetMemPool(driver; out: Out<Handle>, location: In<Location>, kind: i32) {
        let device = located(driver, location, kind)?;
        out.put(driver.device(device)?.pool)
    }

    fn cuMemSetMemPool(driver; location: In<Location>, kind: i32, pool: Handle) {
        let device = located(driver, location, kind)?;
        if driver.pool(pool)?.local()?.device != device {
            return Err(INVALID_VALUE);
        }
        driver.device(device)?.pool = pool;
        Ok(())
    }
}
