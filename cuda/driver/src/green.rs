//! Green contexts: contexts of their own with a share of the device's processors.
//!
//! What is allocated while one is current ends with it. It keeps the device's primary context alive.

use crate::abi::{Handle, In, Out, Stream};
use crate::attributes::PROCESSORS;
use crate::context::{Context, named};
use crate::error::*;
use crate::state::{Core, Here, with};

pub struct Green {
    /// The context that the program makes current.
    pub context: Handle,
    device: i32,
    processors: u32,
}

/// `CUdevResource`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Resource {
    kind: i32,
    padding: [u8; 92],
    processors: u32,
    rest: [u8; 44],
}
const _: () = assert!(size_of::<Resource>() == 144);

/// `CU_DEV_RESOURCE_TYPE_SM`
const SM: i32 = 1;
/// `CU_GREEN_CTX_DEFAULT_STREAM`
const DEFAULT_STREAM: u32 = 1;
const NON_BLOCKING: u32 = 1;

fn resource(processors: u32) -> Resource {
    Resource { kind: SM, padding: [0; 92], processors, rest: [0; 44] }
}

fn answer(out: Out<Resource>, kind: i32, processors: u32) -> Res {
    if kind == SM { out.put(resource(processors)) } else { Err(INVALID_RESOURCE_TYPE) }
}

impl Core {
    /// The least share of a device, and the step of shares: documented per compute capability.
    fn shares(&self) -> (u32, u32) {
        if self.cc.0 >= 9 { (8, 8) } else { (4, 2) }
    }

    fn green(&self, green: Handle) -> Res<&Green> {
        self.greens.get(&green).ok_or(INVALID_HANDLE)
    }

    fn end_green(&mut self, green: Handle) -> Option<i32> {
        let Green { context, device, .. } = self.greens.remove(&green)?;
        self.end_context(context);
        Some(device)
    }

    /// The primary context is reset: everything that stands on it goes.
    pub fn end_greens_of(&mut self, device: i32) {
        let all: Vec<_> = self.greens.iter().filter(|g| g.1.device == device).map(|g| *g.0).collect();
        for green in all {
            self.end_green(green);
        }
    }

    /// The green context's handle, if the context is one's.
    pub fn green_of(&self, context: Handle) -> Option<Handle> {
        self.greens.iter().find(|g| g.1.context == context).map(|g| *g.0)
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetDevResource(device: i32, out: Out<Resource>, kind: i32) -> Status {
    distinct!(cuDeviceGetDevResource);
    with(|core| {
        core.device(device)?;
        answer(out, kind, PROCESSORS as u32)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetDevResource(context: Handle, out: Out<Resource>, kind: i32) -> Status {
    distinct!(cuCtxGetDevResource);
    with(|core| {
        named(core, context)?;
        let green = core.greens.values().find(|g| g.context == context);
        answer(out, kind, green.map_or(PROCESSORS as u32, |g| g.processors))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGreenCtxGetDevResource(green: Handle, out: Out<Resource>, kind: i32) -> Status {
    distinct!(cuGreenCtxGetDevResource);
    with(|core| answer(out, kind, core.green(green)?.processors))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevSmResourceSplitByCount(
    out: Out<Resource>,
    groups: Out<u32>,
    whole: In<Resource>,
    rest: Out<Resource>,
    flags: u32,
    least: u32,
) -> Status {
    distinct!(cuDevSmResourceSplitByCount);
    with(|core| {
        let Resource { kind, processors, .. } = whole.get()?;
        let (smallest, step) = core.shares();
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
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevResourceGenerateDesc(out: Out<Handle>, list: In<Resource>, count: u32) -> Status {
    distinct!(cuDevResourceGenerateDesc);
    with(|core| {
        let list = list.list(count as usize)?;
        let processors: u32 = list.iter().map(|r| r.processors).sum();
        if list.iter().any(|r| r.kind != SM) {
            return Err(INVALID_RESOURCE_TYPE);
        }
        if processors == 0 || processors > PROCESSORS as u32 {
            return Err(INVALID_RESOURCE_CONFIGURATION);
        }
        let handle = core.handle();
        core.shares_wanted.insert(handle, processors);
        out.put(handle)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGreenCtxCreate(out: Out<Handle>, share: Handle, device: i32, flags: u32) -> Status {
    distinct!(cuGreenCtxCreate);
    with(|core| {
        let processors = *core.shares_wanted.get(&share).ok_or(INVALID_HANDLE)?;
        if out.is_null() || flags != DEFAULT_STREAM {
            return Err(INVALID_VALUE);
        }
        core.retain_primary(device)?;
        let (green, context) = (core.handle(), core.handle());
        let state = Context::new(core, device, 0);
        core.contexts.insert(context, state);
        core.greens.insert(green, Green { context, device, processors });
        out.put(green)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGreenCtxDestroy(green: Handle) -> Status {
    distinct!(cuGreenCtxDestroy);
    with(|core| {
        let device = core.end_green(green).ok_or(INVALID_HANDLE)?;
        core.release_primary(device)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxFromGreenCtx(out: Out<Handle>, green: Handle) -> Status {
    distinct!(cuCtxFromGreenCtx);
    with(|core| out.put(core.green(green)?.context))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGreenCtxStreamCreate(
    out: Out<Handle>,
    green: Handle,
    flags: u32,
    priority: i32,
) -> Status {
    distinct!(cuGreenCtxStreamCreate);
    with(|core| {
        let &Green { context, device, .. } = core.green(green)?;
        if flags != NON_BLOCKING {
            return Err(INVALID_VALUE);
        }
        core.add_stream(out, Here { context, device }, flags, priority)
    })
}

/// Null for a stream of an ordinary context.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamGetGreenCtx(stream: Stream, out: Out<Handle>) -> Status {
    distinct!(cuStreamGetGreenCtx);
    with(|core| {
        let context = core.stream_place(stream)?.context;
        out.put(core.green_of(context).unwrap_or(0))
    })
}

/// Everything in a context is complete, so recording and waiting for all of it is recording and nothing.
#[unsafe(no_mangle)]
pub extern "C" fn cuGreenCtxRecordEvent(green: Handle, event: Handle) -> Status {
    distinct!(cuGreenCtxRecordEvent);
    with(|core| {
        core.green(green)?;
        core.event(event)?;
        core.happened(event);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGreenCtxWaitEvent(green: Handle, event: Handle) -> Status {
    distinct!(cuGreenCtxWaitEvent);
    with(|core| {
        core.green(green)?;
        core.event(event).map(drop)
    })
}
