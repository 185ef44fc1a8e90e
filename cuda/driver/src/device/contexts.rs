//! Contexts: each thread's stack of them, and what they own.

use crate::abi::pointers::{Handle, In, Out};
use crate::abi::status::*;
use crate::state::device::{Context, Green, pop, push, top};
use crate::state::driver::Driver;

fn create(driver: &mut Driver, out: Out<Handle>, flags: u32, device: i32) -> Res {
    if out.is_null() {
        return Err(INVALID_VALUE);
    }
    driver.device(device)?;
    let handle = driver.new_handle();
    push(handle)?;
    driver.add_context(handle, device, flags);
    out.put(handle)
}

impl Driver {
    pub fn add_context(&mut self, handle: Handle, device: i32, flags: u32) {
        let context = Context::new(device, flags, self.new_id());
        self.contexts.insert(handle, context);
    }

    /// Ends a context and all it owns.
    pub fn end_context(&mut self, context: Handle) {
        self.end_blocks_of(context);
        self.end_mipmaps_of(context);
        self.end_arrays_of(context);
        self.end_externals_of(context);
        let streams: Vec<_> = self
            .streams
            .iter()
            .filter(|s| s.1.context == context)
            .map(|(&key, s)| (key, s.capture))
            .collect();
        for (key, capture) in streams {
            self.streams.remove(&key);
            if let Some(capture) = capture {
                self.drop_capture_of(key, capture);
            }
        }
        self.events.retain(|_, e| e.context != context);
        self.end_modules_of(context);
        self.peers.retain(|p| p.0 != context && p.1 != context);
        self.contexts.remove(&context);
    }

    /// Ends a green context. Returns its device.
    pub fn end_green(&mut self, green: Handle) -> Option<i32> {
        let Green { context, device, .. } = self.greens.remove(&green)?;
        self.end_context(context);
        Some(device)
    }

    /// Ends the green contexts of a device, whose primary context is being reset.
    pub fn end_greens_of(&mut self, device: i32) {
        let all: Vec<_> = self.greens.iter().filter(|g| g.1.device == device).map(|g| *g.0).collect();
        for green in all {
            self.end_green(green);
        }
    }
}

fn synchronise(driver: &mut Driver, context: Handle) -> Res {
    let device = driver.context(context)?.device;
    driver.refuse_during_capture()?;
    driver.trim_pools_to_threshold(device);
    Ok(())
}

driver_api! {
    fn cuCtxCreate_v2(driver; out: Out<Handle>, flags: u32, device: i32) {
        create(driver, out, flags, device)
    }

    fn cuCtxCreate_v3(driver; out: Out<Handle>, _unused: In<u64>, _unused2: i32, flags: u32, device: i32) {
        create(driver, out, flags, device)
    }

    fn cuCtxCreate_v4(driver; out: Out<Handle>, _unused: In<u64>, flags: u32, device: i32) {
        create(driver, out, flags, device)
    }

    fn cuCtxDestroy_v2(driver; context: Handle) {
        let primary = driver.devices.iter().any(|d| d.primary.handle == context);
        if primary || driver.green_of(context).is_some() || !driver.contexts.contains_key(&context) {
            return Err(INVALID_CONTEXT);
        }
        driver.end_context(context);
        if top() == context {
            pop();
        }
        Ok(())
    }

    fn cuCtxPushCurrent_v2(driver; context: Handle) {
        if driver.contexts.contains_key(&context) { push(context) } else { Err(INVALID_CONTEXT) }
    }

    fn cuCtxPopCurrent_v2(_driver; out: Out<Handle>) {
        let context = pop().ok_or(INVALID_CONTEXT)?;
        out.put_opt(context);
        Ok(())
    }

    fn cuCtxSetCurrent(driver; context: Handle) {
        if context == 0 {
            pop();
            return Ok(());
        }
        if !driver.contexts.contains_key(&context) {
            return Err(INVALID_CONTEXT);
        }
        pop();
        push(context)
    }

    fn cuCtxGetCurrent(_driver; out: Out<Handle>) { out.put(top()) }

    fn cuCtxGetDevice(_driver, owner; out: Out<i32>) { out.put(owner.device) }

    fn cuCtxGetDevice_v2(driver; out: Out<i32>, context: Handle) { out.put(driver.context(context)?.device) }

    fn cuCtxGetFlags(driver, owner; out: Out<u32>) { out.put(driver.context(owner.context)?.flags) }

    fn cuCtxSetFlags(driver, owner; flags: u32) {
        driver.context(owner.context)?.flags = flags;
        Ok(())
    }

    fn cuCtxGetId(driver; context: Handle, out: Out<u64>) { out.put(driver.context(context)?.id) }

    fn cuCtxGetApiVersion(driver; context: Handle, out: Out<u32>) {
        driver.context(context)?;
        out.put(3020)
    }

    fn cuCtxSynchronize(driver;) {
        synchronise(driver, 0)
    }

    fn cuCtxSynchronize_v2(driver; context: Handle) {
        synchronise(driver, context)
    }

    fn cuCtxSetLimit(driver, owner; limit: u32, value: usize) {
        let slot = driver.context(owner.context)?.limits.get_mut(limit as usize).ok_or(UNSUPPORTED_LIMIT)?;
        *slot = value;
        Ok(())
    }

    fn cuCtxGetLimit(driver, owner; out: Out<usize>, limit: u32) {
        out.put(*driver.context(owner.context)?.limits.get(limit as usize).ok_or(UNSUPPORTED_LIMIT)?)
    }

    fn cuCtxGetCacheConfig(driver, owner; out: Out<i32>) { out.put(driver.context(owner.context)?.cache) }

    fn cuCtxSetCacheConfig(driver, owner; config: i32) {
        driver.context(owner.context)?.cache = config;
        Ok(())
    }

    fn cuCtxGetSharedMemConfig(_driver, _owner; out: Out<i32>) { out.put(1) }

    fn cuCtxGetStreamPriorityRange(_driver, _owner; least: Out<i32>, greatest: Out<i32>) {
        least.put_opt(0);
        greatest.put_opt(-5);
        Ok(())
    }

    fn cuCtxEnablePeerAccess(driver, owner; peer: Handle, flags: u32) {
        let to = driver.contexts.get(&peer).ok_or(INVALID_CONTEXT)?.device;
        match (flags, to == owner.device) {
            (1.., _) => Err(INVALID_VALUE),
            (0, true) => Err(INVALID_DEVICE),
            (0, false) if driver.peers.insert((owner.context, peer)) => Ok(()),
            (0, false) => Err(PEER_ACCESS_ALREADY_ENABLED),
        }
    }

    fn cuCtxDisablePeerAccess(driver, owner; peer: Handle) {
        if driver.peers.remove(&(owner.context, peer)) { Ok(()) } else { Err(PEER_ACCESS_NOT_ENABLED) }
    }
}
