//! Notes what happened: the frame around every hook's real call. Guards, errno, nesting, and the event's words.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::analysis::analyzer;
use crate::analysis::loop_steps;
use crate::analysis::step_boundaries;
use crate::hooks::Status;
use crate::hooks::driver_queries;
use crate::interpose::hook_table;
use crate::lifecycle;
use crate::shield;
use crate::stacks;
use crate::thread_state;
use crate::thread_state::ThreadState;
use crate::writer::recording;
use crate::writer::recording::Appended;
use leaktrace_core::format::event::{Event, EventKind, MemoryClass, NO_DEVICE};

/// The calling thread's block.
fn mine() -> &'static ThreadState {
    thread_state::current()
}

/// Calls the driver one level deeper: what it calls through our doors itself is no event.
pub fn deeper<R>(call: impl FnOnce() -> R) -> R {
    let depth = &mine().depth;
    depth.set(depth.get() + 1);
    let result = call();
    depth.set(depth.get() - 1);
    result
}

fn outermost() -> bool {
    mine().depth.get() == 0
}

/// Appends an event to this thread's segment.
#[inline(never)]
fn append(event: &Event) {
    append_here(event);
}

/// The same where every instruction counts.
#[inline(always)]
fn append_here(event: &Event) {
    if mine().with_cursor(|cursor| recording::append(cursor, event)) == Appended::Rolled {
        rolled();
    }
}

#[cold]
#[inline(never)]
fn rolled() {
    thread_state::watch();
    analyzer::relieve();
}

/// Appends an event from outside a hook (boundaries and the like).
pub fn mark(event: &Event) {
    shield::fenced(|| append(event));
}

/// An allocation of the driver on the current device: `real` is called, `given` says what came of it (address, bytes).
#[inline]
pub fn driver_alloc(
    row: usize,
    class: MemoryClass,
    real: impl FnOnce() -> Status,
    given: impl FnOnce() -> (u64, u64),
) -> Status {
    driver_alloc_on(row, class, None, real, given)
}

/// The same where the device is known.
#[inline]
pub fn driver_alloc_on(
    row: usize,
    class: MemoryClass,
    device: Option<u8>,
    real: impl FnOnce() -> Status,
    given: impl FnOnce() -> (u64, u64),
) -> Status {
    if !outermost() {
        return real();
    }
    let status = deeper(real);
    if status == 0 {
        shield::fenced(|| {
            let (address, size) = given();
            if address != 0 && lifecycle::enter() {
                mine().driver_events.set(mine().driver_events.get() + 1);
                let (current, context) = deeper(driver_queries::current);
                let device = device.unwrap_or(if class.is_host() { NO_DEVICE } else { current });
                allocated(name_of(row), class, device, context, address, size);
            }
        });
    }
    status
}

/// A free of the driver.
#[inline]
pub fn driver_free(row: usize, class: MemoryClass, address: u64, real: impl FnOnce() -> Status) -> Status {
    if !outermost() || address == 0 {
        return real();
    }
    // Inside a runtime call that noted this very free already, there is nothing left to note.
    if mine().freeing.get() == address {
        mine().freeing.set(0);
        return deeper(real);
    }
    if !lifecycle::is_live() {
        return deeper(real);
    }
    shield::fenced(|| freed(EventKind::Free, name_of(row), class, address));
    let status = deeper(real);
    if status != 0 {
        shield::fenced(|| freed(EventKind::FreeFailed, name_of(row), class, address));
    }
    status
}

/// An allocation of the runtime: it lends its name to the driver event inside it, and is one itself if there is none.
#[inline]
pub fn runtime_alloc(
    row: usize,
    slot: usize,
    class: MemoryClass,
    real: impl FnOnce() -> Status,
    given: impl FnOnce() -> (u64, u64),
) -> Status {
    if !outermost() || mine().runtime_entry_point.get() != 0 {
        return real();
    }
    let before = mine().driver_events.get();
    mine().runtime_entry_point.set(row as u16);
    let status = real();
    mine().runtime_entry_point.set(0);
    if status == 0 && mine().driver_events.get() == before {
        shield::fenced(|| {
            let (address, size) = given();
            if address != 0 && lifecycle::enter() {
                let device = if class.is_host() { NO_DEVICE } else { deeper(|| runtime_device(row, slot)) };
                allocated(row as u16, class, device, 0, address, size);
            }
        });
    }
    status
}

/// A free of the runtime. Noted before it, whether or not the driver is seen inside: afterwards would be too late.
#[inline]
pub fn runtime_free(row: usize, class: MemoryClass, address: u64, real: impl FnOnce() -> Status) -> Status {
    if !outermost() || mine().runtime_entry_point.get() != 0 || address == 0 || !lifecycle::is_live() {
        return real();
    }
    shield::fenced(|| freed(EventKind::Free, row as u16, class, address));
    mine().runtime_entry_point.set(row as u16);
    mine().freeing.set(address);
    let status = real();
    mine().freeing.set(0);
    mine().runtime_entry_point.set(0);
    if status != 0 {
        shield::fenced(|| freed(EventKind::FreeFailed, row as u16, class, address));
    }
    status
}

/// Anything noted after a successful call. May be the first event of all.
#[inline]
pub fn after(real: impl FnOnce() -> Status, event: impl FnOnce() -> Event) -> Status {
    if !outermost() {
        return real();
    }
    let status = deeper(real);
    if status == 0 {
        shield::fenced(|| {
            if lifecycle::enter() {
                append(&event());
            }
        });
    }
    status
}

/// What ends memory that was seen, noted after the call; it may have ended nothing.
#[inline]
pub fn ending(real: impl FnOnce() -> Status, event: impl FnOnce() -> Option<Event>) -> Status {
    if !outermost() || !lifecycle::is_live() {
        return real();
    }
    let status = deeper(real);
    if status == 0 {
        shield::fenced(|| {
            if let Some(event) = event() {
                append(&event);
            }
        });
    }
    status
}

/// A graph's allocation node, made by a successful call: address, bytes, device. Memory comes with a launch.
#[inline]
pub fn planned(
    row: usize,
    real: impl FnOnce() -> Status,
    node: impl FnOnce() -> Option<(u64, u64, u8)>,
) -> Status {
    if !outermost() {
        return real();
    }
    let status = deeper(real);
    if status == 0 {
        shield::fenced(|| {
            // Whatever it is, the runtime call we may be in allocates nothing itself.
            mine().driver_events.set(mine().driver_events.get() + 1);
            let Some((address, size, device)) = node() else { return };
            if lifecycle::enter() {
                lifecycle::sighted(device);
                let (stack, entry_point) = (stacks::stack(mine()), name_of(row));
                append(&Event {
                    address,
                    size,
                    device,
                    stack,
                    entry_point,
                    ..Event::new(EventKind::GraphAllocNode)
                });
            }
        });
    }
    status
}

/// The launch of a graph that allocates or frees. Noted after the call: its addresses are the graph's own, so that
/// nobody else can be given them meanwhile.
#[inline]
pub fn launched(row: usize, exec: u64, real: impl FnOnce() -> Status) -> Status {
    if !outermost() {
        return real();
    }
    let status = deeper(real);
    if status == 0 {
        shield::fenced(|| {
            if lifecycle::enter() {
                let (device, context) = deeper(driver_queries::current);
                pooled(device);
                step_boundaries::tick();
                loop_steps::event(false);
                append(&Event {
                    address: exec,
                    device,
                    context,
                    stack: stacks::stack(mine()),
                    entry_point: name_of(row),
                    ..Event::new(EventKind::GraphLaunch)
                });
            }
        });
    }
    status
}

/// A call that is no event itself, and what we have to learn from it once it succeeded.
#[inline]
pub fn unnoted(real: impl FnOnce() -> Status, learn: impl FnOnce()) -> Status {
    if !outermost() {
        return real();
    }
    let status = deeper(real);
    if status == 0 {
        shield::fenced(|| deeper(learn));
    }
    status
}

/// Two events that belong together, from outside the usual frame.
pub fn pair(first: &Event, second: &Event) {
    if lifecycle::enter() {
        mine().with_cursor(|cursor| recording::append_pair(cursor, first, second));
    }
}

/// Two events that belong together, after a successful call.
#[inline]
pub fn after_pair(real: impl FnOnce() -> Status, events: impl FnOnce() -> (Event, Event)) -> Status {
    if !outermost() {
        return real();
    }
    let status = deeper(real);
    if status == 0 {
        shield::fenced(|| {
            let (first, second) = events();
            if lifecycle::enter() {
                mine().with_cursor(|cursor| recording::append_pair(cursor, &first, &second));
            }
        });
    }
    status
}

/// Noted before the call; `undone` follows if it fails.
#[inline]
pub fn before(
    event: impl FnOnce() -> Event,
    real: impl FnOnce() -> Status,
    undone: impl FnOnce() -> Event,
) -> Status {
    if !outermost() || !lifecycle::is_live() {
        return real();
    }
    shield::fenced(|| append(&event()));
    let status = deeper(real);
    if status != 0 {
        shield::fenced(|| append(&undone()));
    }
    status
}

/// A block of the caching allocator. Called with its lock held: nothing here may wait for anything.
#[inline]
pub fn block_alloc(device: u8, address: u64, size: u64) {
    if lifecycle::enter() {
        step_boundaries::tick();
        let stack = loop_steps::block_stack();
        append_here(&Event { address, size, device, stack, ..Event::new(EventKind::BlockAlloc) });
    }
}

/// The same where nothing but to note it has to be done, nor can fail or touch errno; `false`: something has, and nothing was.
#[inline(always)]
pub fn block_alloc_at_once(device: u8, address: u64, size: u64) -> bool {
    let thread = mine();
    if !lifecycle::is_live() || step_boundaries::ticks() {
        return false;
    }
    let Some(stack) = loop_steps::known_stack(thread) else { return false };
    let event = Event { address, size, device, stack, ..Event::new(EventKind::BlockAlloc) };
    thread.with_cursor(|cursor| recording::append_at_once(cursor, &event))
}

/// The same of a block given back.
#[inline(always)]
pub fn block_free_at_once(device: u8, address: u64, size: u64) -> bool {
    if !lifecycle::is_live() || !loop_steps::leaves_frees_alone() {
        return false;
    }
    let thread = mine();
    let context = u8::from(crate::python::collecting(thread));
    let event = Event { address, size, device, context, ..Event::new(EventKind::BlockFree) };
    let noted = thread.with_cursor(|cursor| recording::append_at_once(cursor, &event));
    if noted {
        loop_steps::freed();
    }
    noted
}

/// A block given back.
#[inline]
pub fn block_free(device: u8, address: u64, size: u64) {
    if lifecycle::is_live() {
        loop_steps::event(true);
        let context = u8::from(crate::python::collecting(mine()));
        append_here(&Event { address, size, device, context, ..Event::new(EventKind::BlockFree) });
    }
}

/// [`forward_operation`] where nothing but to note it has to be done; `false`: something has, and nothing was.
#[inline(always)]
pub fn forward_operation_at_once(number: u64) -> bool {
    let thread = mine();
    let stack = match thread.torch_id.get() {
        0 => 0,
        _ => stacks::cached_python_stack(thread),
    };
    if stack != 0 {
        stacks::autograd::forward(u64::from(thread.torch_id.get()), number, stack);
    }
    stack != 0
}

/// A forward operation took a number: its backward node will bear it.
#[inline]
pub fn forward_operation(thread_id: u64, number: u64) {
    let thread = mine();
    let stack = match stacks::python_stack(thread) {
        0 => stacks::autograd::forward_of_current(thread),
        stack => stack,
    };
    stacks::autograd::forward(thread_id, number, stack);
}

/// An allocation that failed for want of memory.
pub fn out_of_memory(device: u8, requested: u64, allocated: u64) {
    let stack = stacks::stack(mine());
    append(&Event {
        address: allocated,
        size: requested,
        device,
        stack,
        ..Event::new(EventKind::OutOfMemory)
    });
}

/// Devices that gave memory out of a pool or a graph, a bit each.
static POOLS: AtomicU64 = AtomicU64::new(0);

fn pooled(device: u8) {
    if device < 64 {
        POOLS.fetch_or(1 << device, Relaxed);
    }
}

/// True if a device gave memory out of a pool.
pub fn pools_seen(device: u8) -> bool {
    POOLS.load(Relaxed) >> device & 1 == 1
}

fn allocated(entry_point: u16, class: MemoryClass, device: u8, context: u8, address: u64, size: u64) {
    lifecycle::sighted(device);
    crate::frameworks::torch::watch_steps();
    crate::python::poke();
    step_boundaries::tick();
    loop_steps::event(false);
    if class.is_pooled() {
        pooled(device);
    }
    let stack = stacks::stack(mine());
    append(&Event {
        address,
        size,
        device,
        stack,
        context,
        class: class as u8,
        entry_point,
        ..Event::new(EventKind::Alloc)
    });
}

fn freed(kind: EventKind, entry_point: u16, class: MemoryClass, address: u64) {
    loop_steps::event(true);
    append(&Event { address, class: class as u8, entry_point, ..Event::new(kind) });
    if kind == EventKind::Free {
        crate::analysis::annotations::given_back();
    }
}

/// The runtime call we are in gives the event its name.
fn name_of(row: usize) -> u16 {
    match mine().runtime_entry_point.get() {
        0 => row as u16,
        name => name,
    }
}

/// The device that the runtime behind a slot has current; 0 for one that cannot say.
fn runtime_device(row: usize, slot: usize) -> u8 {
    let Some(object) = crate::interpose::link_map::object_of(hook_table::real(row, slot)) else { return 0 };
    let Some(get_device) = object.find(c"cudaGetDevice") else { return 0 };
    let mut device = 0i32;
    // SAFETY: `cudaError_t cudaGetDevice(int *)` of that runtime.
    let get_device: unsafe extern "C" fn(*mut i32) -> Status = unsafe { std::mem::transmute(get_device) };
    // SAFETY: a place for one int.
    if unsafe { get_device(&mut device) } == 0 { device as u8 } else { 0 }
}
