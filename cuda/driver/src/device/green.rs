//! Green contexts: contexts of their own with a share of the device's processors.
//!
//! What is allocated while one is current ends with it. It keeps the device's primary context alive.

use crate::abi::pointers::{Handle, In, Out, Stream};
use crate::abi::records::Resource;
use crate::abi::status::*;
use crate::state::attributes::PROCESSORS;
use crate::state::device::{Green, Owner};
use crate::state::driver::Driver;

/// `CU_DEV_RESOURCE_TYPE_SM`
const SM: i32 = 1;
/// `CU_GREEN_CTX_DEFAULT_STREAM`
const DEFAULT_STREAM: u32 = 1;
const NON_BLOCKING: u32 = 1;

fn resource(processors: u32) -> Resource {
    Resource { kind: SM, padding: [0; 92], processors, rest: [0; 44] }
}

fn put_resource(out: Out<Resource>, kind: i32, processors: u32) -> Res {
    if kind == SM { out.put(resource(processors)) } else { Err(INVALID_RESOURCE_TYPE) }
}

impl Driver {
    /// Returns the least share of a device and the step of shares, as documented for the compute capability.
    fn shares(&self) -> (u32, u32) {
        if self.cc.0 >= 9 { (8, 8) } else { (4, 2) }
    }
}

driver_api! {
    fn cuDeviceGetDevResource(driver; device: i32, out: Out<Resource>, kind: i32) {
        driver.device(device)?;
        put_resource(out, kind, PROCESSORS as u32)
    }

    fn cuCtxGetDevResource(driver; context: Handle, out: Out<Resource>, kind: i32) {
        driver.context(context)?;
        let green = driver.greens.values().find(|g| g.context == context);
        put_resource(out, kind, green.map_or(PROCESSORS as u32, |g| g.processors))
    }

    fn cuGreenCtxGetDevResource(driver; green: Handle, out: Out<Resource>, kind: i32) {
        put_resource(out, kind, driver.green(green)?.processors)
    }

    fn cuDevSmResourceSplitByCount(driver; out: Out<Resource>, groups: Out<u32>, whole: In<Resource>,
        rest: Out<Resource>, flags: u32, least: u32) {
        let Resource { kind, processors, .. } = whole.get()?;
        let (smallest, step) = driver.shares();
        if kind != SM {
            return Err(INVALID_RESOURCE_TYPE);
        }
        let wanted = least.max(smallest).checked_next_multiple_of(step).ok_or(INVALID_VALUE)?;
        let possible = processors / wanted;
        if flags > 3 || possible == 0 {
            return Err(INVALID_RESOURCE_CONFIGURATION);
        }
        if out.is_null() {
            return groups.put(possible);
        }
        let made = groups.get()?.min(possible);
        for i in 0..made {
            out.put_at(i as usize, resource(wanted))?;
        }
        rest.put_opt(resource(processors - made * wanted));
        groups.put(made)
    }

    fn cuDevResourceGenerateDesc(driver; out: Out<Handle>, list: In<Resource>, count: u32) {
        let list = list.list(count as usize)?;
        let processors: u32 = list.iter().map(|r| r.processors).sum();
        if list.iter().any(|r| r.kind != SM) {
            return Err(INVALID_RESOURCE_TYPE);
        }
        if processors == 0 || processors > PROCESSORS as u32 {
            return Err(INVALID_RESOURCE_CONFIGURATION);
        }
        let handle = driver.new_handle();
        driver.resource_descriptors.insert(handle, processors);
        out.put(handle)
    }

    fn cuGreenCtxCreate(driver; out: Out<Handle>, share: Handle, device: i32, flags: u32) {
        let processors = *driver.resource_descriptors.get(&share).ok_or(INVALID_HANDLE)?;
        if out.is_null() || flags != DEFAULT_STREAM {
            return Err(INVALID_VALUE);
        }
        driver.retain_primary(device)?;
        let (green, context) = (driver.new_handle(), driver.new_handle());
        driver.add_context(context, device, 0);
        driver.greens.insert(green, Green { context, device, processors });
        out.put(green)
    }

    fn cuGreenCtxDestroy(driver; green: Handle) {
        let device = driver.end_green(green).ok_or(INVALID_HANDLE)?;
        driver.release_primary(device)
    }

    fn cuCtxFromGreenCtx(driver; out: Out<Handle>, green: Handle) { out.put(driver.green(green)?.context) }

    fn cuGreenCtxStreamCreate(driver; out: Out<Handle>, green: Handle, flags: u32, priority: i32) {
        let &Green { context, device, .. } = driver.green(green)?;
        if flags != NON_BLOCKING {
            return Err(INVALID_VALUE);
        }
        driver.add_stream(out, Owner { context, device }, flags, priority)
    }

    /// Writes null for a stream of an ordinary context.
    fn cuStreamGetGreenCtx(driver; stream: Stream, out: Out<Handle>) {
        let context = driver.stream_owner(stream)?.context;
        out.put(driver.green_of(context).unwrap_or(0))
    }

    /// Records an event: everything in the context is complete.
    fn cuGreenCtxRecordEvent(driver; green: Handle, event: Handle) {
        driver.green(green)?;
        driver.event(event)?;
        driver.complete_event(event);
        Ok(())
    }

}
