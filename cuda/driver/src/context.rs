//! Contexts: each thread's stack of them, and what they own.

use std::cell::Cell;

use crate::abi::{Handle, In, Out};
use crate::error::*;
use crate::state::{Core, Here, enter, here, with};

pub struct Context {
    pub device: i32,
    pub flags: u32,
    pub id: u64,
    pub limits: [usize; LIMITS],
    pub cache: i32,
}

const LIMITS: usize = 7;
/// Stack size, printf FIFO, malloc heap, runtime sync depth, pending launches, L2 fetch granularity, persisting L2.
const LIMITS_AT_FIRST: [usize; LIMITS] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0];

impl Context {
    pub fn new(core: &mut Core, device: i32, flags: u32) -> Context {
        Context { device, flags, id: core.handle() as u64 >> 4, limits: LIMITS_AT_FIRST, cache: 0 }
    }
}

const DEEPEST: usize = 64;
thread_local! {
    // No destructor: the program may free memory after the thread's destructors have run.
    static STACK: [Cell<Handle>; DEEPEST] = const { [const { Cell::new(0) }; DEEPEST] };
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

fn top() -> Handle {
    match DEPTH.get() {
        0 => 0,
        depth => STACK.with(|s| s[depth - 1].get()),
    }
}

fn push(context: Handle) -> Res {
    let depth = DEPTH.get();
    if depth == DEEPEST {
        return Err(INVALID_CONTEXT);
    }
    STACK.with(|s| s[depth].set(context));
    DEPTH.set(depth + 1);
    Ok(())
}

fn pop() -> Option<Handle> {
    let context = top();
    (context != 0).then(|| {
        DEPTH.set(DEPTH.get() - 1);
        context
    })
}

/// The calling thread's current context.
pub fn current(core: &Core) -> Res<Here> {
    let context = top();
    if context == 0 {
        return Err(INVALID_CONTEXT);
    }
    let device = core.contexts.get(&context).ok_or(CONTEXT_IS_DESTROYED)?.device;
    Ok(Here { context, device })
}

/// A context by handle; null means the current one.
pub fn named(core: &mut Core, context: Handle) -> Res<&mut Context> {
    let context = if context == 0 { current(core)?.context } else { context };
    core.contexts.get_mut(&context).ok_or(INVALID_CONTEXT)
}

fn create(out: Out<Handle>, flags: u32, device: i32) -> Status {
    with(|core| {
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        core.device(device)?;
        let handle = core.handle();
        let context = Context::new(core, device, flags);
        push(handle)?;
        core.contexts.insert(handle, context);
        out.put(handle)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxCreate_v2(out: Out<Handle>, flags: u32, device: i32) -> Status {
    distinct!(cuCtxCreate_v2);
    create(out, flags, device)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxCreate_v3(out: Out<Handle>, _: In<u64>, _: i32, flags: u32, device: i32) -> Status {
    distinct!(cuCtxCreate_v3);
    create(out, flags, device)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxCreate_v4(out: Out<Handle>, _: In<u64>, flags: u32, device: i32) -> Status {
    distinct!(cuCtxCreate_v4);
    create(out, flags, device)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxDestroy_v2(context: Handle) -> Status {
    distinct!(cuCtxDestroy_v2);
    with(|core| {
        let primary = core.devices.iter().any(|d| d.primary.handle == context);
        if primary || core.green_of(context).is_some() || !core.contexts.contains_key(&context) {
            return Err(INVALID_CONTEXT);
        }
        core.end_context(context);
        if top() == context {
            pop();
        }
        Ok(())
    })
}

impl Core {
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
                self.forget_stream(key, capture);
            }
        }
        self.events.retain(|_, e| e.context != context);
        self.end_modules_of(context);
        self.peers.retain(|p| p.0 != context && p.1 != context);
        self.contexts.remove(&context);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxPushCurrent_v2(context: Handle) -> Status {
    distinct!(cuCtxPushCurrent_v2);
    with(|core| if core.contexts.contains_key(&context) { push(context) } else { Err(INVALID_CONTEXT) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxPopCurrent_v2(out: Out<Handle>) -> Status {
    distinct!(cuCtxPopCurrent_v2);
    with(|_| {
        let context = pop().ok_or(INVALID_CONTEXT)?;
        out.put_opt(context);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: Handle) -> Status {
    distinct!(cuCtxSetCurrent);
    with(|core| {
        if context == 0 {
            pop();
            return Ok(());
        }
        if !core.contexts.contains_key(&context) {
            return Err(INVALID_CONTEXT);
        }
        pop();
        push(context)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetCurrent(out: Out<Handle>) -> Status {
    distinct!(cuCtxGetCurrent);
    with(|_| out.put(top()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetDevice(out: Out<i32>) -> Status {
    distinct!(cuCtxGetDevice);
    here(|_, at| out.put(at.device))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetDevice_v2(out: Out<i32>, context: Handle) -> Status {
    distinct!(cuCtxGetDevice_v2);
    with(|core| out.put(named(core, context)?.device))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetFlags(out: Out<u32>) -> Status {
    distinct!(cuCtxGetFlags);
    here(|core, at| out.put(named(core, at.context)?.flags))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetFlags(flags: u32) -> Status {
    distinct!(cuCtxSetFlags);
    here(|core, at| {
        named(core, at.context)?.flags = flags;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetId(context: Handle, out: Out<u64>) -> Status {
    distinct!(cuCtxGetId);
    with(|core| out.put(named(core, context)?.id))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetApiVersion(context: Handle, out: Out<u32>) -> Status {
    distinct!(cuCtxGetApiVersion);
    with(|core| {
        named(core, context)?;
        out.put(3020)
    })
}

fn synchronise(context: Handle) -> Status {
    with(|core| {
        let device = named(core, context)?.device;
        core.refuse_in_capture()?;
        core.settle_pools(device);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> Status {
    distinct!(cuCtxSynchronize);
    synchronise(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize_v2(context: Handle) -> Status {
    distinct!(cuCtxSynchronize_v2);
    synchronise(context)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetLimit(limit: u32, value: usize) -> Status {
    distinct!(cuCtxSetLimit);
    here(|core, at| {
        let slot = named(core, at.context)?.limits.get_mut(limit as usize).ok_or(UNSUPPORTED_LIMIT)?;
        *slot = value;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetLimit(out: Out<usize>, limit: u32) -> Status {
    distinct!(cuCtxGetLimit);
    here(|core, at| out.put(*named(core, at.context)?.limits.get(limit as usize).ok_or(UNSUPPORTED_LIMIT)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetCacheConfig(out: Out<i32>) -> Status {
    distinct!(cuCtxGetCacheConfig);
    here(|core, at| out.put(named(core, at.context)?.cache))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCacheConfig(config: i32) -> Status {
    distinct!(cuCtxSetCacheConfig);
    here(|core, at| {
        named(core, at.context)?.cache = config;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetSharedMemConfig(out: Out<i32>) -> Status {
    distinct!(cuCtxGetSharedMemConfig);
    here(|_, _| out.put(1))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetSharedMemConfig(_: i32) -> Status {
    distinct!(cuCtxSetSharedMemConfig);
    here(|_, _| Ok(()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) -> Status {
    distinct!(cuCtxGetStreamPriorityRange);
    here(|_, _| {
        least.put_opt(0);
        greatest.put_opt(-5);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxResetPersistingL2Cache() -> Status {
    distinct!(cuCtxResetPersistingL2Cache);
    here(|_, _| Ok(()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetExecAffinity(_: Out<u64>, _: i32) -> Status {
    distinct!(cuCtxGetExecAffinity);
    NOT_SUPPORTED
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxEnablePeerAccess(peer: Handle, flags: u32) -> Status {
    distinct!(cuCtxEnablePeerAccess);
    here(|core, at| {
        let to = core.contexts.get(&peer).ok_or(INVALID_CONTEXT)?.device;
        match (flags, to == at.device) {
            (1.., _) => Err(INVALID_VALUE),
            (0, true) => Err(INVALID_DEVICE),
            (0, false) if core.peers.insert((at.context, peer)) => Ok(()),
            (0, false) => Err(PEER_ACCESS_ALREADY_ENABLED),
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxDisablePeerAccess(peer: Handle) -> Status {
    distinct!(cuCtxDisablePeerAccess);
    here(
        |core, at| if core.peers.remove(&(at.context, peer)) { Ok(()) } else { Err(PEER_ACCESS_NOT_ENABLED) },
    )
}

/// The device of a context handle, or of the current one for null.
pub fn device_of(context: Handle) -> Res<i32> {
    Ok(named(&mut *enter()?, context)?.device)
}
