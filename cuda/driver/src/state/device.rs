//! Devices and contexts, and each thread's stack of current contexts.

use std::cell::Cell;

use crate::abi::pointers::Handle;
use crate::abi::status::*;
use crate::state::arena::Arena;

pub struct Device {
    pub arena: Arena,
    /// The physical number: the one before `CUDA_VISIBLE_DEVICES`.
    pub number: u32,
    /// Bytes charged.
    pub used: u64,
    pub primary: Primary,
    pub default_pool: Handle,
    pub pool: Handle,
    pub graph_pool: GraphPool,
}

/// A device's memory for graphs: what live blocks use, and what is charged for them.
#[derive(Default)]
pub struct GraphPool {
    pub used: u64,
    pub used_high: u64,
    pub reserved: u64,
    pub reserved_high: u64,
}

/// A device's primary context, which is alive while it is retained.
pub struct Primary {
    pub handle: Handle,
    pub references: u32,
    pub flags: u32,
}

pub struct Context {
    pub device: i32,
    pub flags: u32,
    pub id: u64,
    pub limits: [usize; 7],
    pub cache: i32,
}

/// Stack size, printf FIFO, malloc heap, runtime sync depth, pending launches, L2 fetch granularity,
/// persisting L2.
const DEFAULT_LIMITS: [usize; 7] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0];

impl Context {
    pub fn new(device: i32, flags: u32, id: u64) -> Context {
        Context { device, flags, id, limits: DEFAULT_LIMITS, cache: 0 }
    }
}

/// A green context: a context of its own with a share of the device's multiprocessors.
pub struct Green {
    /// The context that the program makes current.
    pub context: Handle,
    pub device: i32,
    pub processors: u32,
}

/// What a new object belongs to: a context and its device.
#[derive(Clone, Copy)]
pub struct Owner {
    pub context: Handle,
    pub device: i32,
}

const MAX_DEPTH: usize = 64;
thread_local! {
    // No destructor: the program may free memory after the thread's destructors have run.
    static STACK: [Cell<Handle>; MAX_DEPTH] = const { [const { Cell::new(0) }; MAX_DEPTH] };
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Returns the calling thread's current context, or 0.
pub fn top() -> Handle {
    match DEPTH.get() {
        0 => 0,
        depth => STACK.with(|s| s[depth - 1].get()),
    }
}

pub fn push(context: Handle) -> Res {
    let depth = DEPTH.get();
    if depth == MAX_DEPTH {
        return Err(INVALID_CONTEXT);
    }
    STACK.with(|s| s[depth].set(context));
    DEPTH.set(depth + 1);
    Ok(())
}

pub fn pop() -> Option<Handle> {
    let context = top();
    (context != 0).then(|| {
        DEPTH.set(DEPTH.get() - 1);
        context
    })
}
