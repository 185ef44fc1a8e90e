//! Primary contexts: one per device, counted.

use crate::abi::pointers::{Handle, Out};
use crate::abi::status::*;
use crate::state::driver::Driver;

fn end(driver: &mut Driver, device: i32) -> Res {
    driver.end_greens_of(device);
    let primary = &mut driver.device(device)?.primary;
    primary.references = 0;
    let handle = primary.handle;
    if driver.contexts.contains_key(&handle) {
        driver.end_context(handle);
    }
    Ok(())
}

impl Driver {
    pub fn retain_primary(&mut self, device: i32) -> Res<Handle> {
        let primary = &mut self.device(device)?.primary;
        let (handle, flags) = (primary.handle, primary.flags);
        primary.references += 1;
        if !self.contexts.contains_key(&handle) {
            self.add_context(handle, device, flags);
        }
        Ok(handle)
    }

    pub fn release_primary(&mut self, device: i32) -> Res {
        let primary = &mut self.device(device)?.primary;
        match primary.references {
            0 => Err(INVALID_CONTEXT),
            1 => end(self, device),
            _ => {
                primary.references -= 1;
                Ok(())
            }
        }
    }
}

driver_api! {
    fn cuDevicePrimaryCtxRetain(driver; out: Out<Handle>, device: i32) {
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        out.put(driver.retain_primary(device)?)
    }

    fn cuDevicePrimaryCtxRelease_v2(driver; device: i32) = cuDevicePrimaryCtxRelease {
        driver.release_primary(device)
    }

    fn cuDevicePrimaryCtxReset_v2(driver; device: i32) = cuDevicePrimaryCtxReset { end(driver, device) }

    fn cuDevicePrimaryCtxSetFlags_v2(driver; device: i32, flags: u32) = cuDevicePrimaryCtxSetFlags {
        let primary = &mut driver.device(device)?.primary;
        primary.flags = flags;
        let handle = primary.handle;
        if let Some(context) = driver.contexts.get_mut(&handle) {
            context.flags = flags;
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(driver; device: i32, flags: Out<u32>, active: Out<i32>) {
        let primary = &driver.device(device)?.primary;
        let (handle, now) = (primary.handle, primary.flags);
        flags.put(now)?;
        active.put(driver.contexts.contains_key(&handle).into())
    }
}
