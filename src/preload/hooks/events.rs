//! Appends events to the calling thread's segment, and counts how deep in a call of the driver's it is.
//!
//! It knows no driver and no analysis: what else has to be done when events come is called back.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use leaktrace_core::format::event::{Event, MemoryClass};
use once_cell::race::OnceBox;

use crate::shield::shield;
use crate::state;
use crate::thread_state::{self, ThreadState};
use crate::writer::recording;

/// What is done beside recording; set once, before the first event.
pub struct Callbacks {
    /// The driver or the runtime allocated something: frameworks may be in the process by now.
    pub allocated: fn(),
}

static CALLBACKS: OnceBox<Callbacks> = OnceBox::new();

pub fn set_callbacks(callbacks: Callbacks) {
    let _ = CALLBACKS.set(Box::new(callbacks));
}

/// The calling thread's state.
#[inline(always)]
pub fn this_thread() -> &'static ThreadState {
    thread_state::current()
}

/// Calls the driver one level deeper: what it calls through our hooks itself is no event.
pub fn reentrant<R>(call: impl FnOnce() -> R) -> R {
    thread_state::without_events(call)
}

/// True for a call of the program's, false for one that the driver, or leaktrace, makes inside another.
pub fn is_top_level() -> bool {
    this_thread().depth.get() == 0
}

/// Appends an event.
#[inline(never)]
pub fn append(event: &Event) {
    append_inline(event);
}

/// [`append`] where every instruction counts.
#[inline(always)]
pub fn append_inline(event: &Event) {
    this_thread().with_cursor(|cursor| recording::append(cursor, event));
}

/// Appends an event from outside a hook (boundaries and the like).
pub fn append_shielded(event: &Event) {
    shield(|| append(event));
}

/// Appends two events that belong together.
pub fn append_pair(first: &Event, second: &Event) {
    if state::ensure_recording() {
        this_thread().with_cursor(|cursor| recording::append_pair(cursor, first, second));
    }
}

/// How often the driver gave device memory.
static GIVEN: AtomicU32 = AtomicU32::new(0);

/// Returns how often the driver has given device memory: a framework's pool may have grown since it was less.
#[inline]
pub fn times_given() -> u32 {
    GIVEN.load(Relaxed)
}

/// Calls back after an allocation of the driver's.
pub fn allocated(class: MemoryClass) {
    if !class.is_host() {
        GIVEN.fetch_add(1, Relaxed);
    }
    if let Some(callbacks) = CALLBACKS.get() {
        (callbacks.allocated)();
    }
}

/// Devices that gave memory out of a pool or a graph, a bit each.
static WITH_POOLS: AtomicU64 = AtomicU64::new(0);

pub fn note_pool(device: u8) {
    if device < 64 {
        WITH_POOLS.fetch_or(1 << device, Relaxed);
    }
}

/// Returns those devices.
pub fn devices_with_pools() -> u64 {
    WITH_POOLS.load(Relaxed)
}
