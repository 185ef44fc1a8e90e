//! Primary contexts: one per device, counted.

use crate::abi::{Handle, Out};
use crate::context::Context;
use crate::error::*;
use crate::state::{Core, with};

pub struct Primary {
    pub handle: Handle,
    references: u32,
    flags: u32,
}

impl Primary {
    pub fn new(handle: Handle) -> Primary {
        Primary { handle, references: 0, flags: 0 }
    }
}

fn end(core: &mut Core, device: i32) -> Res {
    core.end_greens_of(device);
    let primary = &mut core.device(device)?.primary;
    primary.references = 0;
    let handle = primary.handle;
    if core.contexts.contains_key(&handle) {
        core.end_context(handle);
    }
    Ok(())
}

impl Core {
    pub fn retain_primary(&mut self, device: i32) -> Res<Handle> {
        let primary = &mut self.device(device)?.primary;
        let (handle, flags) = (primary.handle, primary.flags);
        primary.references += 1;
        if !self.contexts.contains_key(&handle) {
            let context = Context::new(self, device, flags);
            self.contexts.insert(handle, context);
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

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRetain(out: Out<Handle>, device: i32) -> Status {
    distinct!(cuDevicePrimaryCtxRetain);
    with(|core| {
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        out.put(core.retain_primary(device)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: i32) -> Status {
    distinct!(cuDevicePrimaryCtxRelease_v2);
    with(|core| core.release_primary(device))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxReset_v2(device: i32) -> Status {
    distinct!(cuDevicePrimaryCtxReset_v2);
    with(|core| end(core, device))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) -> Status {
    distinct!(cuDevicePrimaryCtxSetFlags_v2);
    with(|core| {
        let primary = &mut core.device(device)?.primary;
        primary.flags = flags;
        let handle = primary.handle;
        if let Some(context) = core.contexts.get_mut(&handle) {
            context.flags = flags;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) -> Status {
    distinct!(cuDevicePrimaryCtxGetState);
    with(|core| {
        let primary = &core.device(device)?.primary;
        let (handle, now) = (primary.handle, primary.flags);
        flags.put(now)?;
        active.put(core.contexts.contains_key(&handle).into())
    })
}

alias! {
    cuDevicePrimaryCtxRelease = cuDevicePrimaryCtxRelease_v2(device: i32);
    cuDevicePrimaryCtxReset = cuDevicePrimaryCtxReset_v2(device: i32);
    cuDevicePrimaryCtxSetFlags = cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32);
}
