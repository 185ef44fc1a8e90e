//! PyTorch's own reporting functions: blocks of its caching allocator, memory that ran out, optimizer steps,
//! backward passes. They are exported here under PyTorch's names, which its libraries bind to; each forwards
//! to the real one.
//!
//! All of them take integers and pointers only, so no C++ type is known here. The block and memory hooks run
//! under the allocator's lock: nothing in them may take the GIL, call CUDA or PyTorch, or ask the loader.

mod nodes;

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use crate::analysis::{counters, step_boundaries};
use crate::frameworks::Original;
use crate::hooks::record;
use crate::lifecycle;
use crate::loader::link_map;
use crate::machine;
use crate::python;
use crate::settings;
use crate::shield::shield;
use crate::state;
use crate::thread_state::{self, BackwardContext};
use crate::writer::recording;
use leaktrace_core::format::entry::TableEntry;

/// `c10::Device`: type and index, in one register.
#[derive(Clone, Copy)]
#[repr(C)]
struct Device {
    kind: i8,
    index: i8,
}

/// `c10::DeviceType::CUDA`
const CUDA: i8 = 1;

/// `c10::reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, Device)`, PyTorch 2.0 and later
#[unsafe(link_section = ".data.leaktrace")]
static BLOCK: Original = Original::new(c"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
/// `c10::reportMemoryUsageToProfiler` of PyTorch 1, where the totals are signed
static BLOCK_1: Original = Original::new(c"_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE");
/// `c10::reportOutOfMemoryToProfiler(int64_t, size_t, size_t, Device)`
static MEMORY_OUT: Original = Original::new(c"_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");
/// `torch::autograd::Engine::execute(…)`
static EXECUTE: Original = Original::new(
    c"_ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EERKS2_IN2at6TensorESaIS9_EEbbbS7_",
);

/// `torch::autograd::Engine::evaluate_function(…)`
#[unsafe(link_section = ".data.leaktrace")]
static EVALUATE: Original = Original::new(
    c"_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_4NodeERNS0_11InputBufferERKS2_INS0_10ReadyQueueEE",
);
/// `at::sequence_number::get_and_increment()`
#[unsafe(link_section = ".data.leaktrace")]
static NUMBER: Original = Original::new(c"_ZN2at15sequence_number17get_and_incrementEv");
/// `at::RecordFunction::currentThreadId()`
static THREAD_ID: Original = Original::new(c"_ZN2at14RecordFunction15currentThreadIdEv");

type Report = unsafe extern "C-unwind" fn(*mut c_void, i64, u64, u64, Device);

#[cfg_attr(not(test), unsafe(export_name = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"))]
#[cfg_attr(test, unsafe(export_name = "unhooked__ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"))]
#[unsafe(link_section = ".text.leaktrace")]
unsafe extern "C-unwind" fn report_block(
    block: *mut c_void,
    size: i64,
    allocated: u64,
    reserved: u64,
    device: Device,
) {
    // SAFETY: forwarded.
    unsafe { block_event(&BLOCK, block, size, allocated, reserved, device) }
}

#[cfg_attr(not(test), unsafe(export_name = "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE"))]
#[cfg_attr(test, unsafe(export_name = "unhooked__ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE"))]
unsafe extern "C-unwind" fn report_block_1(
    block: *mut c_void,
    size: i64,
    allocated: u64,
    reserved: u64,
    device: Device,
) {
    // SAFETY: forwarded.
    unsafe { block_event(&BLOCK_1, block, size, allocated, reserved, device) }
}

/// Records a block that is allocated (`size` > 0) or freed (`size` < 0), then calls PyTorch's own function.
#[inline(always)]
unsafe fn block_event(
    original: &Original,
    block: *mut c_void,
    size: i64,
    allocated: u64,
    reserved: u64,
    device: Device,
) {
    if device.kind == CUDA {
        record_block(device.index as u8, block as u64, size, allocated, reserved);
    }
    let original = original.get();
    if !original.is_null() {
        // SAFETY: PyTorch's function of that name and signature, with the caller's arguments.
        unsafe {
            std::mem::transmute::<*mut c_void, Report>(original)(block, size, allocated, reserved, device)
        };
    }
}

/// Records a block. Nearly all of them take the short way, where nothing has to be done but to append an
/// event.
#[inline(always)]
fn record_block(device: u8, block: u64, size: i64, allocated: u64, reserved: u64) {
    let recorded = if size < 0 {
        record::block_free_at_once(device, block, size.unsigned_abs())
    } else {
        !is_unregistered() && !python::is_poked() && record::block_alloc_at_once(device, block, size as u64)
    };
    if recorded {
        counters::allocator_reports(device, allocated, reserved);
    } else {
        record_block_slow(device, block, size, allocated, reserved);
    }
}

/// Records a block for which more has to be done than to append an event.
#[inline(never)]
fn record_block_slow(device: u8, block: u64, size: i64, allocated: u64, reserved: u64) {
    shield(move || {
        if size >= 0 {
            // Nothing was looked up before the first block, where the driver is out of our sight.
            if !state::is_recording() && !lifecycle::start() {
                return;
            }
            record::block_alloc(0, device, block, size as u64);
            watch_steps();
            python::poke();
        } else {
            record::block_free(device, block, size.unsigned_abs());
        }
        counters::allocator_reports(device, allocated, reserved);
    });
}

#[cfg_attr(not(test), unsafe(export_name = "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE"))]
#[cfg_attr(test, unsafe(export_name = "unhooked__ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE"))]
unsafe extern "C-unwind" fn report_memory_out(requested: i64, allocated: u64, reserved: u64, device: Device) {
    if device.kind == CUDA && state::is_recording() {
        shield(|| {
            record::out_of_memory(device.index as u8, requested.unsigned_abs(), allocated);
            step_boundaries::out_of_memory();
        });
    }
    let original = MEMORY_OUT.get();
    if !original.is_null() {
        type ReportOut = unsafe extern "C-unwind" fn(i64, u64, u64, Device);
        // SAFETY: as above.
        unsafe {
            std::mem::transmute::<*mut c_void, ReportOut>(original)(requested, allocated, reserved, device)
        };
    }
}

/// `Engine::execute`: takes the backward pass in, then jumps to the real one with every argument as it came.
/// What it returns, and how, need not be known.
#[unsafe(naked)]
#[cfg_attr(
    not(test),
    unsafe(
        export_name = "_ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EERKS2_IN2at6TensorESaIS9_EEbbbS7_"
    )
)]
#[cfg_attr(
    test,
    unsafe(
        export_name = "unhooked__ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EERKS2_IN2at6TensorESaIS9_EEbbbS7_"
    )
)]
unsafe extern "C" fn execute() {
    machine::tail_jump!(backward_begins)
}

unsafe extern "C" fn backward_begins() -> *mut c_void {
    if state::is_recording() {
        shield(record::backward_called);
    }
    step_boundaries::backward();
    EXECUTE.get()
}

// ── backward tied to forward ─────────────────────────────────────────────────────────────────────────────────────────

/// Restores the thread's node, however the call ends: C++ exceptions pass through here.
struct Evaluating(*const BackwardContext);

impl Drop for Evaluating {
    fn drop(&mut self) {
        thread_state::current().backward.set(self.0);
    }
}

/// `Engine::evaluate_function(std::shared_ptr<GraphTask> &, Node *, InputBuffer &, const
/// std::shared_ptr<ReadyQueue> &)`: until it returns, what this thread allocates belongs to that node.
#[cfg_attr(
    not(test),
    unsafe(
        export_name = "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_4NodeERNS0_11InputBufferERKS2_INS0_10ReadyQueueEE"
    )
)]
#[cfg_attr(
    test,
    unsafe(
        export_name = "unhooked__ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_4NodeERNS0_11InputBufferERKS2_INS0_10ReadyQueueEE"
    )
)]
#[unsafe(link_section = ".text.leaktrace")]
unsafe extern "C-unwind" fn evaluate_function(
    engine: *mut c_void,
    task: *mut c_void,
    node: *mut c_void,
    inputs: *mut c_void,
    queue: *mut c_void,
) {
    type Evaluate =
        unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void);
    let original = EVALUATE.get();
    if original.is_null() {
        return;
    }
    // SAFETY: the engine keeps alive what it has evaluated.
    let context = unsafe { nodes::context_of(node as usize) };
    let _before = Evaluating(thread_state::current().backward.replace(&raw const context));
    // SAFETY: PyTorch's function of that name and signature, with the caller's arguments.
    unsafe { std::mem::transmute::<*mut c_void, Evaluate>(original)(engine, task, node, inputs, queue) }
}

/// `at::sequence_number::get_and_increment()`: the number that a forward operation gives to its node.
#[cfg_attr(not(test), unsafe(export_name = "_ZN2at15sequence_number17get_and_incrementEv"))]
#[cfg_attr(test, unsafe(export_name = "unhooked__ZN2at15sequence_number17get_and_incrementEv"))]
#[unsafe(link_section = ".text.leaktrace")]
unsafe extern "C-unwind" fn take_number() -> u64 {
    type Take = unsafe extern "C-unwind" fn() -> u64;
    let original = NUMBER.get();
    if original.is_null() {
        return 0;
    }
    // SAFETY: PyTorch's function of that name, which takes nothing.
    let number = unsafe { std::mem::transmute::<*mut c_void, Take>(original)() };
    if state::is_recording() && !record::forward_operation_at_once(number) {
        forward_operation_slow(number);
    }
    number
}

/// Records a forward operation for which more has to be done than to look its stack up.
#[inline(never)]
fn forward_operation_slow(number: u64) {
    shield(|| {
        if let Some(id) = thread_id() {
            record::forward_operation(id, number);
        }
    });
}

/// Returns PyTorch's number for the calling thread, which it gives out once.
#[inline(always)]
fn thread_id() -> Option<u64> {
    match thread_state::current().framework_id.get() {
        0 => ask_thread_id(),
        id => Some(u64::from(id)),
    }
}

#[cold]
fn ask_thread_id() -> Option<u64> {
    let ask = THREAD_ID.get();
    if ask.is_null() {
        return None;
    }
    // SAFETY: PyTorch's function of that name, which takes nothing.
    let id = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn() -> u64>(ask)() };
    // One that does not fit is asked for again.
    thread_state::current().framework_id.set(u32::try_from(id).unwrap_or(0));
    Some(id)
}

// ── optimizer steps, natively ────────────────────────────────────────────────────────────────────────────────────────

/// `at::RecordFunctionCallback` as PyTorch 1.13 to 2.15 lay it out, passed by value in memory.
#[repr(C)]
struct Callback {
    /// Takes a range and returns a `unique_ptr`: not as a C function would.
    start: unsafe extern "C" fn(),
    end: unsafe extern "C" fn(*const c_void, *mut c_void),
    probability: f64,
    scopes: [u8; 10],
    needs: [u8; 3],
    padding: [u8; 3],
}

/// `at::RecordScope::USER_SCOPE`
const USER_SCOPE: usize = 7;

static NAME: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// The handle of our callback while PyTorch has it; 0: it has none of ours.
static HANDLE: AtomicU64 = AtomicU64::new(0);
/// The attempts to reach PyTorch, from 1; [`REGISTERED`] once our callback is registered.
#[unsafe(link_section = ".data.leaktrace")]
static WATCHING: AtomicU32 = AtomicU32::new(1);
const REGISTERED: u32 = u32::MAX / 2;
/// `void at::removeCallback(uint64_t)`
const REMOVE: &CStr = c"_ZN2at14removeCallbackEm";

/// Returns whether our callback is still to be registered.
#[inline(always)]
fn is_unregistered() -> bool {
    WATCHING.load(Relaxed) < REGISTERED
}

/// Registers a callback for user-level ranges, once PyTorch is there; every optimizer opens one.
#[inline(always)]
pub fn watch_steps() {
    if is_unregistered() && state::is_recording() {
        register_for_ranges();
    }
}

#[cold]
fn register_for_ranges() {
    // PyTorch may be loaded later than the first memory comes; it is searched for ever more rarely.
    let attempt = WATCHING.fetch_add(1, AcqRel);
    if attempt >= REGISTERED || !attempt.is_power_of_two() {
        return;
    }
    let add = link_map::find_in_any(c"_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE");
    let name = link_map::find_in_any(c"_ZNK2at14RecordFunction4nameEv");
    let (Some(add), Some(name)) = (add, name) else { return };
    if WATCHING.swap(REGISTERED, AcqRel) >= REGISTERED {
        return;
    }
    NAME.store(name, Release);
    let mut scopes = [0; 10];
    scopes[USER_SCOPE] = 1;
    let callback = Callback {
        start: range_starts,
        end: range_ends,
        probability: 1.0,
        scopes,
        needs: [0; 3],
        padding: [0; 3],
    };
    // SAFETY: PyTorch's function of that name; a struct of more than 16 bytes goes by value, in memory, as C
    // passes it.
    unsafe {
        let add: unsafe extern "C" fn(Callback) -> u64 = std::mem::transmute(add);
        HANDLE.store(add(callback), Release);
    }
}

/// Removes the callback again, since Python's post hook reports every optimizer step, and better. While
/// anybody has one, autograd builds its list of callbacks anew at every node, which was a third of what we
/// cost a backward pass.
///
/// Not for the inside of a callback.
pub fn leave_ranges() {
    // A range that the user has named ends the steps.
    if HANDLE.load(Relaxed) == 0 || settings::get().range.is_some() {
        return;
    }
    let Some(remove) = link_map::find_in_any(REMOVE) else { return };
    let handle = HANDLE.swap(0, AcqRel);
    if handle != 0 {
        // Ranges were seen at the beginning of the run only.
        recording::append_entry(&TableEntry::Meta { key: "ranges", value: "some" });
        // SAFETY: PyTorch's `void at::removeCallback(uint64_t)`, with a handle of its own, once.
        unsafe {
            let remove: unsafe extern "C" fn(u64) = std::mem::transmute(remove);
            remove(handle);
        }
    }
}

/// Takes our callback out of PyTorch, since the tracing ends; the next recording gets another. Not for the inside of a
/// callback.
pub fn leave() {
    let handle = HANDLE.swap(0, AcqRel);
    if handle != 0
        && let Some(remove) = link_map::find_in_any(REMOVE)
    {
        // SAFETY: as in `leave_ranges`.
        unsafe {
            let remove: unsafe extern "C" fn(u64) = std::mem::transmute(remove);
            remove(handle);
        }
    }
    WATCHING.store(1, Release);
}

/// Begins a range. Returns the `unique_ptr` of a context that we do not need: null, where the caller wants
/// it.
#[unsafe(naked)]
unsafe extern "C" fn range_starts() {
    machine::returns_object!(begin_range)
}

unsafe extern "C" fn begin_range(context: *mut *mut c_void, range: *const c_void) -> *mut *mut c_void {
    // SAFETY: room for the returned object, by the C++ ABI.
    unsafe { *context = std::ptr::null_mut() };
    if is_optimizer(range) {
        thread_state::current().optimizer_hooked.set(false);
    }
    context
}

unsafe extern "C" fn range_ends(range: *const c_void, _context: *mut c_void) {
    let hooked = is_optimizer(range).then(|| thread_state::current().optimizer_hooked.take());
    // Python's post hook knows which optimizer it was; where it ran, it has reported the step already.
    if hooked == Some(false) {
        step_boundaries::optimizer(None);
    }
    if hooked.is_none()
        && let Some(name) = name_of(range)
    {
        step_boundaries::range(name);
    }
}

fn is_optimizer(range: *const c_void) -> bool {
    name_of(range).is_some_and(|name| name.starts_with(b"Optimizer.step#"))
}

/// Returns the name of a range, which lives as long as the range.
fn name_of<'a>(range: *const c_void) -> Option<&'a [u8]> {
    let name = NAME.load(Acquire);
    if name.is_null() {
        return None;
    }
    // SAFETY: `const char *at::RecordFunction::name() const` of the range we were handed.
    let text = unsafe {
        let name: unsafe extern "C" fn(*const c_void) -> *const c_char = std::mem::transmute(name);
        name(range)
    };
    // SAFETY: null or a C string that lives as long as the range.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}
