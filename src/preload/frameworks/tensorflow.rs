//! TensorFlow's pool of device memory, whose functions are exported here under TensorFlow's names: its tables of
//! virtual functions are filled by them. Each forwards to the real one, which is that of the object that has the
//! allocator's class: another library may have the same names.
//!
//! What an allocator is, its class says by its name (Itanium C++ ABI); which device it is for, the address of its first
//! block. The memory that it cuts up comes from the driver, where it is seen as a segment.
//!
//! A function of TensorFlow's runs on threads of its own pool, which have no Python. Each run of one, and of an operation
//! by itself, has a number, drawn at random on the thread that called it; and a thread at work knows that of the run, and
//! the operation's name. So the block is one of the line that called. What XLA compiled runs on these threads without either:
//! its blocks are of the latest call, if all calls come from one thread.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use crate::analysis::{loop_steps, step_boundaries};
use crate::coverage_gaps;
use crate::frameworks::{Original, is_recorded, poke_at_first};
use crate::hooks::{devices, driver_queries, events, record};
use crate::loader::link_map;
use crate::shield::shield;
use crate::stacks::{self, operations};
use crate::state;
use crate::thread_state;
use leaktrace_core::format::event::NO_DEVICE;
use leaktrace_core::frameworks::TENSORFLOW;

const ALLOCATOR: u16 = TENSORFLOW.number_of_allocator();

/// `tensorflow::GPUBFCAllocator`. Others of the base class have pinned memory, or the host's.
const OF_DEVICE: &CStr = c"N10tensorflow15GPUBFCAllocatorE";

const ALLOCATE: &CStr = c"_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE";
const DEALLOCATE: &CStr = c"_ZN3tsl12BFCAllocator13DeallocateRawEPv";
const SIZE: &CStr = c"_ZNK3tsl12BFCAllocator13AllocatedSizeEPKv";
/// `tsl::random::New64()`
static NUMBER: Original = Original::new(c"_ZN3tsl6random5New64Ev");
/// `tsl::profiler::ScopedMemoryDebugAnnotation::ThreadMemoryDebugAnnotation()`
static ANNOTATION: Original =
    Original::new(c"_ZN3tsl8profiler27ScopedMemoryDebugAnnotation27ThreadMemoryDebugAnnotationEv");

type Allocate = unsafe extern "C-unwind" fn(*mut c_void, usize, usize, *const u8) -> *mut c_void;
type Deallocate = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);
type Size = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void) -> usize;

/// A class of allocators, by its table of virtual functions, and the real functions.
struct Class {
    table: AtomicUsize,
    is_device: AtomicU8,
    allocate: AtomicPtr<c_void>,
    deallocate: AtomicPtr<c_void>,
    size: AtomicPtr<c_void>,
}

/// Classes of one process: TensorFlow has three.
const CLASSES: usize = 16;

static CLASS: [Class; CLASSES] = [const {
    Class {
        table: AtomicUsize::new(0),
        is_device: AtomicU8::new(0),
        allocate: AtomicPtr::new(std::ptr::null_mut()),
        deallocate: AtomicPtr::new(std::ptr::null_mut()),
        size: AtomicPtr::new(std::ptr::null_mut()),
    }
}; CLASSES];
/// The classes that somebody has begun to describe.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// What is called for an allocator, and whether it gives device memory.
#[derive(Clone, Copy)]
struct Real {
    is_device: bool,
    allocate: *mut c_void,
    deallocate: *mut c_void,
    size: *mut c_void,
}

/// Returns the real functions for an allocator.
///
/// # Safety
/// `allocator` is a living one: its first word leads to its class.
#[inline]
unsafe fn real(allocator: *mut c_void) -> Real {
    // SAFETY: the caller's word.
    let table = unsafe { *allocator.cast::<*const usize>() };
    let known = CLASS.iter().find(|class| class.table.load(Acquire) == table.addr());
    match known {
        Some(class) => Real {
            is_device: class.is_device.load(Relaxed) != 0,
            allocate: class.allocate.load(Relaxed),
            deallocate: class.deallocate.load(Relaxed),
            size: class.size.load(Relaxed),
        },
        // SAFETY: the caller's word.
        None => unsafe { learn(table) },
    }
}

/// Finds the real functions for a class, and remembers them.
///
/// # Safety
/// `table` is the table of virtual functions of a class.
#[cold]
#[inline(never)]
unsafe fn learn(table: *const usize) -> Real {
    let find = |symbol| {
        let beside = link_map::find_beside(table.cast(), symbol);
        beside.or_else(|| link_map::find_in_any(symbol)).unwrap_or(std::ptr::null_mut())
    };
    // SAFETY: before the table lies the pointer to the type's description, if it has one, whose second word is the name.
    let is_device = unsafe {
        let kind = *table.sub(1) as *const usize;
        let name = if kind.is_null() { std::ptr::null() } else { *kind.add(1) as *const c_char };
        !name.is_null() && CStr::from_ptr(name) == OF_DEVICE
    };
    if is_device {
        loop_steps::all_work_allocates();
    }
    let real = Real { is_device, allocate: find(ALLOCATE), deallocate: find(DEALLOCATE), size: find(SIZE) };
    if let Some(class) = CLASS.get(TAKEN.fetch_add(1, AcqRel)) {
        class.is_device.store(is_device.into(), Relaxed);
        class.allocate.store(real.allocate, Relaxed);
        class.deallocate.store(real.deallocate, Relaxed);
        class.size.store(real.size, Relaxed);
        class.table.store(table.addr(), Release);
    }
    real
}

/// An allocator of device memory: the device's number, and what is alive of it. They live as long as the process.
struct Pool {
    allocator: AtomicUsize,
    device: AtomicU8,
    live: AtomicU64,
}

/// Allocators of one process: one for each device, or for each part that a device was divided into.
const POOLS: usize = 256;

static POOL: [Pool; POOLS] = [const {
    Pool { allocator: AtomicUsize::new(0), device: AtomicU8::new(NO_DEVICE), live: AtomicU64::new(0) }
}; POOLS];

/// Returns the pool of an allocator; `None` if there are too many.
fn pool(allocator: *mut c_void) -> Option<&'static Pool> {
    let is_its = |pool: &&Pool| match pool.allocator.load(Acquire) {
        0 => pool
            .allocator
            .compare_exchange(0, allocator.addr(), AcqRel, Acquire)
            .map_or_else(|other| other == allocator.addr(), |_| true),
        known => known == allocator.addr(),
    };
    POOL.iter().find(is_its)
}

impl Pool {
    /// Takes a block off. Not below zero: it may be one that was never added, from before the recording or a fork.
    fn freed(&self, bytes: u64) {
        let _ = self.live.fetch_update(Relaxed, Relaxed, |live| Some(live.saturating_sub(bytes)));
    }

    /// Returns the device that a block lies on.
    fn device_of(&self, block: u64) -> Option<u8> {
        let known = self.device.load(Relaxed);
        if known != NO_DEVICE {
            return Some(known);
        }
        let device = events::reentrant(|| driver_queries::device_of(block))?;
        devices::seen(device);
        self.device.store(device, Relaxed);
        Some(device)
    }
}

/// `void *tsl::BFCAllocator::AllocateRaw(size_t alignment, size_t bytes, const AllocationAttributes &)`. The form without
/// attributes calls this one.
#[cfg_attr(
    not(test),
    unsafe(export_name = "_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE")
)]
#[cfg_attr(
    test,
    unsafe(export_name = "unhooked__ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE")
)]
unsafe extern "C-unwind" fn allocate(
    allocator: *mut c_void,
    alignment: usize,
    bytes: usize,
    attributes: *const u8,
) -> *mut c_void {
    // SAFETY: the caller's own allocator.
    let real = unsafe { real(allocator) };
    if real.allocate.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: TensorFlow's function of that name and signature, with the caller's arguments.
    let block = unsafe {
        std::mem::transmute::<*mut c_void, Allocate>(real.allocate)(allocator, alignment, bytes, attributes)
    };
    if real.is_device {
        // SAFETY: the first of the attributes says whether to try again, before anybody is told of a failure.
        let matters = || attributes.is_null() || unsafe { *attributes != 0 };
        shield(|| {
            if !block.is_null() {
                // SAFETY: the block is the allocator's, and not handed out yet.
                unsafe { born(allocator, real, block) };
            } else if bytes > 0 && matters() {
                failed(allocator, bytes);
            }
        });
    }
    block
}

/// Records a block that was allocated.
///
/// # Safety
/// The block is the allocator's, and alive.
unsafe fn born(allocator: *mut c_void, real: Real, block: *mut c_void) {
    if real.size.is_null() || !is_recorded() {
        return;
    }
    // SAFETY: TensorFlow's function of that name and signature; the allocator's lock is not held.
    let bytes = unsafe { std::mem::transmute::<*mut c_void, Size>(real.size)(allocator, block) } as u64;
    let address = block.expose_provenance() as u64;
    let pool = pool(allocator);
    let Some((pool, device)) = pool.and_then(|pool| Some((pool, pool.device_of(address)?))) else {
        coverage_gaps::report("blocks of a TensorFlow allocator whose device is not known");
        return;
    };
    pool.live.fetch_add(bytes, Relaxed);
    match operation() {
        Some((name, caller)) => {
            if (loop_steps::is_searching() || SHOWN.load(Relaxed) < CALLS / 2) && works_for_another() {
                SHOWN.store(CALLS, Relaxed);
                loop_steps::elsewhere(CALLER.load(Relaxed), false);
            }
            record::block_alloc_of_operation(ALLOCATOR, device, address, bytes, name, caller);
        }
        None => {
            record::block_alloc(ALLOCATOR, device, address, bytes);
        }
    }
    poke_at_first();
}

/// Records that memory ran out.
fn failed(allocator: *mut c_void, bytes: usize) {
    if !state::is_recording() {
        return;
    }
    let (device, live) =
        pool(allocator).map_or((NO_DEVICE, 0), |pool| (pool.device.load(Relaxed), pool.live.load(Relaxed)));
    let device = if device == NO_DEVICE { 0 } else { device };
    record::out_of_memory(device, bytes as u64, live);
    step_boundaries::out_of_memory();
}

/// `void tsl::BFCAllocator::DeallocateRaw(void *)`
#[cfg_attr(not(test), unsafe(export_name = "_ZN3tsl12BFCAllocator13DeallocateRawEPv"))]
#[cfg_attr(test, unsafe(export_name = "unhooked__ZN3tsl12BFCAllocator13DeallocateRawEPv"))]
unsafe extern "C-unwind" fn deallocate(allocator: *mut c_void, block: *mut c_void) {
    // SAFETY: the caller's own allocator.
    let real = unsafe { real(allocator) };
    if real.is_device && !block.is_null() && !real.size.is_null() && state::is_recording() {
        // Before the real call: the address may be another's at once.
        // SAFETY: the block is alive until then.
        shield(|| unsafe { ended(allocator, real, block) });
    }
    if !real.deallocate.is_null() {
        // SAFETY: TensorFlow's function of that name and signature, with the caller's arguments.
        unsafe { std::mem::transmute::<*mut c_void, Deallocate>(real.deallocate)(allocator, block) };
    }
}

/// Records a block that is freed, if its allocation was.
///
/// # Safety
/// The block is the allocator's, and alive.
unsafe fn ended(allocator: *mut c_void, real: Real, block: *mut c_void) {
    let Some(pool) = pool(allocator) else { return };
    let device = pool.device.load(Relaxed);
    if device != NO_DEVICE {
        // SAFETY: as in `born`.
        let bytes = unsafe { std::mem::transmute::<*mut c_void, Size>(real.size)(allocator, block) } as u64;
        pool.freed(bytes);
        if loop_steps::is_searching() && works_for_another() {
            loop_steps::elsewhere(CALLER.load(Relaxed), true);
        }
        record::block_free(device, block.expose_provenance() as u64, bytes);
    }
}

/// What a thread is at: an operation's name, and the number of the run that it is part of.
struct Annotation<'a> {
    name: &'a [u8],
    run: u64,
}

/// Returns what the calling thread is at, if it is at something.
fn annotation<'a>() -> Option<Annotation<'a>> {
    /// No name is so long, and no address so low.
    const LONGEST: usize = 4096;
    let ask = ANNOTATION.get();
    if ask.is_null() {
        return None;
    }
    // SAFETY: TensorFlow's function of that name, which takes nothing and returns a reference to the thread's own. The
    // name comes first, as a view (length and address; version 2.21) or as a C string, and then the number; it lives as
    // long as the thread is at it, which it is now.
    unsafe {
        let words = std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn() -> *const usize>(ask)();
        let text = |address: usize| std::ptr::with_exposed_provenance::<u8>(address);
        match *words {
            0 => None,
            length if length < LONGEST => Some(Annotation {
                name: std::slice::from_raw_parts(text(*words.add(1)), length),
                run: *words.add(2) as u64,
            }),
            address => Some(Annotation {
                name: CStr::from_ptr(text(address).cast()).to_bytes(),
                run: *words.add(1) as u64,
            }),
        }
    }
}

/// Returns the operation that the calling thread is at, and the stack that called it, or the function it is part of.
fn operation<'a>() -> Option<(&'a [u8], u32)> {
    let (name, caller) = match annotation() {
        Some(annotation) => (annotation.name, operations::caller_of(annotation.run)),
        None if works_for_another() => (UNNAMED, only_caller()),
        None => return None,
    };
    (caller != 0).then_some((name, caller))
}

/// The name of what a thread of the pool does that is at no operation: what XLA compiled runs so.
const UNNAMED: &[u8] = b"asynchronous work";

/// Returns the stack of the latest call, if only one thread ever called anything; else 0.
fn only_caller() -> u32 {
    if ARE_SEVERAL.load(Relaxed) { 0 } else { CALLER_STACK.load(Relaxed) }
}

/// `uint64 tsl::random::New64()`: what is about to run, an operation or a function, draws its number, on the thread that
/// calls it.
#[cfg_attr(not(test), unsafe(export_name = "_ZN3tsl6random5New64Ev"))]
#[cfg_attr(test, unsafe(export_name = "unhooked__ZN3tsl6random5New64Ev"))]
unsafe extern "C-unwind" fn draw() -> u64 {
    let original = NUMBER.get();
    if original.is_null() {
        return 0;
    }
    // SAFETY: TensorFlow's function of that name, which takes nothing.
    let drawn =
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn() -> u64>(original)() };
    if state::is_recording() {
        shield(|| called(drawn));
    }
    drawn
}

/// The thread that drew the last number, its stack then, and whether it is not the only one that did.
static CALLER: AtomicUsize = AtomicUsize::new(0);
static CALLER_STACK: AtomicU32 = AtomicU32::new(0);
static ARE_SEVERAL: AtomicBool = AtomicBool::new(false);
/// Calls that are still to be shown to the loop detector: that its pool's threads allocate shows only later.
static SHOWN: AtomicU32 = AtomicU32::new(CALLS);
const CALLS: u32 = 256;

/// Whether the calling thread is one of the pool's, at work for one that runs Python.
fn works_for_another() -> bool {
    let thread = thread_state::current();
    thread.address() != CALLER.load(Relaxed) && stacks::python_stack(thread) == 0
}

/// Remembers who calls what drew this number.
fn called(drawn: u64) {
    let thread = thread_state::current();
    let caller = match stacks::python_stack(thread) {
        // A function that another one calls, on a thread of the pool, is called by who called that.
        0 => annotation().map_or(0, |annotation| operations::caller_of(annotation.run)),
        stack => {
            let before = CALLER.swap(thread.address(), Relaxed);
            if before != 0 && before != thread.address() {
                ARE_SEVERAL.store(true, Relaxed);
            }
            CALLER_STACK.store(stack, Relaxed);
            // What a function allocates on other threads does not show where the loop is that calls it.
            let left = SHOWN.load(Relaxed);
            if left > 0 {
                SHOWN.store(left - 1, Relaxed);
                loop_steps::called();
            }
            stack
        }
    };
    if caller != 0 {
        // The numbers of runs are the negative ones.
        operations::remember((drawn as i64).wrapping_abs().wrapping_neg() as u64, caller);
    }
}

/// Forgets the parent's, in a forked child: its recording has none of it.
pub fn after_fork_child() {
    POOL.iter().for_each(|pool| pool.live.store(0, Relaxed));
    CALLER_STACK.store(0, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_were_never_added_leave_nothing_alive() {
        let pool = &POOL[POOLS - 1];
        pool.live.store(10, Relaxed);
        [4, 1 << 40, 7].into_iter().for_each(|bytes| pool.freed(bytes));
        assert_eq!(pool.live.fetch_add(5, Relaxed), 0);
        pool.freed(2);
        assert_eq!(pool.live.load(Relaxed), 3);
    }
}
