//! The frame around a hook's real call: guards, errno, nesting, and the event's fields.
//!
//! It knows what an event is made of, not which functions of CUDA there are.

use leaktrace_core::format::event::{Event, EventKind, MemoryClass, NO_DEVICE};

use crate::analysis::{annotations, loop_steps, step_boundaries};
use crate::coverage_gaps;
use crate::hooks::events::{append, append_inline, append_pair, is_top_level, reentrant, this_thread};
use crate::hooks::{Call, Status, devices, driver_queries, entry_points, events};
use crate::shield::shield;
use crate::stacks;
use crate::state;

impl<R: FnOnce() -> Status> Call<R> {
    /// Records an allocation of the driver on the current device; `given` tells address and bytes once it
    /// succeeded.
    #[inline]
    pub fn driver_alloc(self, class: MemoryClass, given: impl FnOnce() -> (u64, u64)) -> Status {
        self.driver_alloc_on(None, class, given)
    }

    /// Records an allocation of the driver on a device that is known, if any is.
    #[inline]
    pub fn driver_alloc_on(
        self,
        device: Option<u8>,
        class: MemoryClass,
        given: impl FnOnce() -> (u64, u64),
    ) -> Status {
        let id = self.id;
        self.then(|| {
            let (address, size) = given();
            if address != 0 && state::ensure_recording() {
                this_thread().driver_events.set(this_thread().driver_events.get().wrapping_add(1));
                let (current, context) = reentrant(driver_queries::current);
                let device = device.unwrap_or(if class.is_host() { NO_DEVICE } else { current });
                allocated(entry_point(id), class, device, context, address, size);
            }
        })
    }

    /// Records a free of the driver's.
    #[inline]
    pub fn driver_free(self, class: MemoryClass, address: u64) -> Status {
        if !is_top_level() || address == 0 {
            return self.pass();
        }
        // Inside a runtime call that recorded this very free already, there is nothing left to record.
        if this_thread().freeing.get() == address {
            this_thread().freeing.set(0);
            return self.pass_inside();
        }
        if !state::is_recording() {
            return self.pass_inside();
        }
        let entry_point = entry_point(self.id);
        shield(|| freed(EventKind::Free, entry_point, class, address));
        let status = self.pass_inside();
        if status != 0 {
            shield(|| freed(EventKind::FreeFailed, entry_point, class, address));
        }
        status
    }

    /// Records an allocation of the runtime's: it lends its name to the driver event inside it, and is an
    /// event itself if there is none.
    #[inline]
    pub fn runtime_alloc(self, class: MemoryClass, given: impl FnOnce() -> (u64, u64)) -> Status {
        if !is_top_level() || this_thread().runtime_entry_point.get() != 0 {
            return self.pass();
        }
        let (id, provider) = (self.id, self.provider);
        let before = this_thread().driver_events.get();
        let inside = Inside::begin(id, 0);
        let status = self.pass();
        if status == 0 && this_thread().driver_events.get() == before {
            shield(|| {
                let (address, size) = given();
                if address != 0 && state::ensure_recording() {
                    let ask = || entry_points::runtime_device(id, provider);
                    let device = if class.is_host() { NO_DEVICE } else { reentrant(ask) };
                    allocated(id as u16, class, device, 0, address, size);
                }
            });
        }
        inside.end();
        status
    }

    /// Records a free of the runtime's: before it, whether or not the driver is seen inside. Afterwards would
    /// be too late.
    #[inline]
    pub fn runtime_free(self, class: MemoryClass, address: u64) -> Status {
        let nested = !is_top_level() || this_thread().runtime_entry_point.get() != 0;
        if nested || address == 0 || !state::is_recording() {
            return self.pass();
        }
        let entry_point = self.id as u16;
        let inside = Inside::begin(self.id, address);
        shield(|| freed(EventKind::Free, entry_point, class, address));
        let status = self.pass();
        if status != 0 {
            shield(|| freed(EventKind::FreeFailed, entry_point, class, address));
        }
        inside.end();
        status
    }

    /// Runs `work` after a successful call of the program's.
    #[inline]
    fn then(self, work: impl FnOnce()) -> Status {
        if !is_top_level() {
            return self.pass();
        }
        inside(|| {
            let status = self.pass();
            if status == 0 {
                shield(work);
            }
            status
        })
    }

    /// Calls the real function: what it calls itself is no event.
    #[inline]
    fn pass_inside(self) -> Status {
        inside(|| self.pass())
    }

    /// Runs `learn` after a successful call that is no event itself.
    #[inline]
    pub fn call_then(self, learn: impl FnOnce()) -> Status {
        self.then(|| reentrant(learn))
    }

    /// Records an event after a successful call. It may be the first event of all.
    #[inline]
    pub fn record_after(self, event: impl FnOnce() -> Event) -> Status {
        self.then(|| {
            if state::ensure_recording() {
                append(&event());
            }
        })
    }

    /// Records two events that belong together after a successful call.
    #[inline]
    pub fn record_pair(self, events: impl FnOnce() -> (Event, Event)) -> Status {
        self.then(|| {
            let (first, second) = events();
            append_pair(&first, &second);
        })
    }

    /// Records, after the call, that it ended memory which was seen; it may have ended nothing.
    #[inline]
    pub fn record_release(self, event: impl FnOnce() -> Option<Event>) -> Status {
        if !state::is_recording() {
            return self.pass();
        }
        self.then(|| {
            if let Some(event) = event() {
                append(&event);
            }
        })
    }

    /// Records an event before the call; `undone` follows if it fails.
    #[inline]
    pub fn record_before(self, event: impl FnOnce() -> Event, undone: impl FnOnce() -> Event) -> Status {
        if !is_top_level() || !state::is_recording() {
            return self.pass();
        }
        shield(|| append(&event()));
        let status = self.pass_inside();
        if status != 0 {
            shield(|| append(&undone()));
        }
        status
    }

    /// Records an allocation node that a successful call made in a graph: address, bytes, device. Memory
    /// comes with a launch.
    #[inline]
    pub fn record_graph_node(self, node: impl FnOnce() -> Option<(u64, u64, u8)>) -> Status {
        let id = self.id;
        self.then(|| {
            // Whatever it is, the runtime call we may be in allocates nothing itself.
            this_thread().driver_events.set(this_thread().driver_events.get().wrapping_add(1));
            let Some((address, size, device)) = node() else { return };
            if state::ensure_recording() {
                devices::seen(device);
                let (stack, entry_point) = (stacks::stack(this_thread()), entry_point(id));
                append(&Event {
                    address,
                    size,
                    device,
                    stack,
                    entry_point,
                    ..Event::new(EventKind::GraphAllocNode)
                });
            }
        })
    }

    /// Records the launch of a graph that allocates or frees. After the call: its addresses are the graph's
    /// own, so that nobody else can be given them meanwhile.
    #[inline]
    pub fn record_launch(self, exec: u64) -> Status {
        let id = self.id;
        self.then(|| {
            if state::ensure_recording() {
                let (device, context) = reentrant(driver_queries::current);
                events::note_pool(device);
                step_boundaries::tick();
                loop_steps::event(false);
                append(&Event {
                    address: exec,
                    device,
                    context,
                    stack: stacks::stack(this_thread()),
                    entry_point: entry_point(id),
                    ..Event::new(EventKind::GraphLaunch)
                });
            }
        })
    }
}

/// Runs a call of the driver's and what belongs to it: nothing in it is an event.
#[inline]
fn inside(call: impl FnOnce() -> Status) -> Status {
    /// Ends where an unwinding passes.
    struct Left;
    impl Drop for Left {
        #[cold]
        fn drop(&mut self) {
            coverage_gaps::call_was_left();
        }
    }
    reentrant(|| {
        let left = Left;
        let status = call();
        std::mem::forget(left);
        status
    })
}

/// A call of the runtime's under way, for the driver events inside it.
struct Inside;

impl Inside {
    /// Begins a call that frees this address, or none.
    #[inline(always)]
    fn begin(id: usize, freeing: u64) -> Inside {
        this_thread().runtime_entry_point.set(id as u16);
        this_thread().freeing.set(freeing);
        Inside
    }

    /// Ends it, since the real function has returned.
    #[inline(always)]
    fn end(self) {
        std::mem::forget(self);
        this_thread().freeing.set(0);
        this_thread().runtime_entry_point.set(0);
    }
}

impl Drop for Inside {
    /// An unwinding passes.
    #[cold]
    fn drop(&mut self) {
        this_thread().leave_call();
        coverage_gaps::call_was_left();
    }
}

fn allocated(entry_point: u16, class: MemoryClass, device: u8, context: u8, address: u64, size: u64) {
    devices::seen(device);
    events::allocated(class);
    step_boundaries::tick();
    loop_steps::event(false);
    if class.is_pooled() {
        events::note_pool(device);
    }
    let stack = stacks::stack(this_thread());
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
        annotations::memory_freed();
    }
}

/// The entry point that an event is named after: the runtime call it happens in, or else its own.
fn entry_point(id: usize) -> u16 {
    match this_thread().runtime_entry_point.get() {
        0 => id as u16,
        runtime => runtime,
    }
}

/// Records a block of a framework's allocator, by the number that its blocks bear as their entry point; returns its
/// stack. Called with the allocator's lock held: nothing here may wait for anything.
#[inline]
pub fn block_alloc(entry_point: u16, device: u8, address: u64, size: u64) -> Option<u32> {
    state::ensure_recording().then(|| {
        step_boundaries::tick();
        loop_steps::block_seen();
        let stack = loop_steps::block_stack();
        block_of(stack, entry_point, device, address, size);
        stack
    })
}

/// Records a block whose allocator has just asked the driver for its segment, in the same call of the program's: the loop
/// detector has seen that, and what Python did in between was for the allocator.
pub fn block_alloc_in_new_segment(entry_point: u16, device: u8, address: u64, size: u64) {
    if state::ensure_recording() {
        step_boundaries::tick();
        loop_steps::block_seen();
        block_of(stacks::stack(this_thread()), entry_point, device, address, size);
    }
}

/// Records another block of the operation whose first one has this stack.
#[inline]
pub fn block_alloc_beside(stack: u32, entry_point: u16, device: u8, address: u64, size: u64) {
    // Where loops have come round is seen by the first one.
    if loop_steps::is_searching() {
        loop_steps::event(false);
    }
    block_of(stack, entry_point, device, address, size);
}

#[inline(always)]
fn block_of(stack: u32, entry_point: u16, device: u8, address: u64, size: u64) {
    append_inline(&Event { address, size, device, stack, entry_point, ..Event::new(EventKind::BlockAlloc) });
}

/// Records a program that a framework compiled for a device, by its handle.
pub fn program(entry_point: u16, device: u8, handle: u64, size: u64) {
    if state::ensure_recording() {
        loop_steps::event(false);
        let (stack, class) = (stacks::stack(this_thread()), MemoryClass::Code as u8);
        let event = Event::new(EventKind::Alloc);
        append(&Event { address: handle, size, device, stack, class, entry_point, ..event });
    }
}

/// Records that such a program is about to end.
pub fn program_end(entry_point: u16, handle: u64) {
    if state::is_recording() {
        // A function that returns may give up its programs, and nothing else.
        loop_steps::event(true);
        let class = MemoryClass::Code as u8;
        append(&Event { address: handle, class, entry_point, ..Event::new(EventKind::Free) });
    }
}

/// Records that the program copies memory to the host.
pub fn copy_to_host(address: u64, size: u64) {
    if state::is_recording() {
        append(&Event { address, size, ..Event::new(EventKind::CopyToHost) });
    }
}

/// Records that something ran that trains.
pub fn trained() {
    append(&Event::new(EventKind::Trained));
    loop_steps::updated();
}

/// [`block_alloc`] by an operation of that name, in a function that was called from some stack.
pub fn block_alloc_of_operation(
    entry_point: u16,
    device: u8,
    address: u64,
    size: u64,
    name: &[u8],
    caller: u32,
) {
    if state::ensure_recording() {
        step_boundaries::tick();
        loop_steps::block_seen();
        loop_steps::event(false);
        let stack = stacks::operations::stack(this_thread(), name, caller);
        append(&Event { address, size, device, stack, entry_point, ..Event::new(EventKind::BlockAlloc) });
    }
}

/// [`block_alloc`] where nothing but to record it has to be done, nor can fail or touch errno. `false`:
/// something has, and nothing was recorded.
#[inline(always)]
pub fn block_alloc_at_once(device: u8, address: u64, size: u64) -> bool {
    let thread = this_thread();
    if !state::is_recording() || step_boundaries::ticks() {
        return false;
    }
    let Some(stack) = loop_steps::known_stack(thread) else { return false };
    let event = Event { address, size, device, stack, ..Event::new(EventKind::BlockAlloc) };
    thread.append_in_segment(&event)
}

/// Records that a block went back to the caching allocator.
#[inline]
pub fn block_free(device: u8, address: u64, size: u64) {
    if state::is_recording() {
        loop_steps::event(true);
        let context = u8::from(crate::python::collecting(this_thread()));
        append_inline(&Event { address, size, device, context, ..Event::new(EventKind::BlockFree) });
    }
}

/// Records that a block ended whose memory another one has now.
pub fn block_given_on(device: u8, address: u64, size: u64) {
    if state::is_recording() {
        loop_steps::event(true);
        append(&Event { address, size, device, context: 2, ..Event::new(EventKind::BlockFree) });
    }
}

/// [`block_free`] under the conditions of [`block_alloc_at_once`].
#[inline(always)]
pub fn block_free_at_once(device: u8, address: u64, size: u64) -> bool {
    if !state::is_recording() || !loop_steps::ignores_frees() {
        return false;
    }
    let thread = this_thread();
    let context = u8::from(crate::python::collecting(thread));
    let event = Event { address, size, device, context, ..Event::new(EventKind::BlockFree) };
    let recorded = thread.append_in_segment(&event);
    if recorded {
        loop_steps::freed();
    }
    recorded
}

/// Records which stack a forward operation had that took a sequence number: its backward node will bear the
/// number.
#[inline]
pub fn forward_operation(thread_id: u64, number: u64) {
    let thread = this_thread();
    let stack = match stacks::python_stack(thread) {
        0 => stacks::backward::forward_of_current(thread),
        stack => stack,
    };
    stacks::backward::forward(thread_id, number, stack);
}

/// Records from which stack a backward pass is called.
pub fn backward_called() {
    let thread = this_thread();
    stacks::backward::called(thread, stacks::python_stack(thread));
}

/// [`forward_operation`] under the conditions of [`block_alloc_at_once`].
#[inline(always)]
pub fn forward_operation_at_once(number: u64) -> bool {
    let thread = this_thread();
    let stack = match thread.framework_id.get() {
        0 => 0,
        _ => stacks::cached_python_stack(thread),
    };
    if stack != 0 {
        stacks::backward::forward(u64::from(thread.framework_id.get()), number, stack);
    }
    stack != 0
}

/// Records an allocation that failed for want of memory.
pub fn out_of_memory(device: u8, requested: u64, allocated: u64) {
    out_of_memory_at(None, device, requested, allocated);
}

/// [`out_of_memory`] of an allocation that was asked for by a stack that is known, or else where this thread is.
pub fn out_of_memory_at(stack: Option<u32>, device: u8, requested: u64, allocated: u64) {
    let stack = stack.unwrap_or_else(|| stacks::stack(this_thread()));
    append(&Event {
        address: allocated,
        size: requested,
        device,
        stack,
        ..Event::new(EventKind::OutOfMemory)
    });
}
