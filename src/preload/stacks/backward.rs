//! The backward context of an allocation: a thread that differentiates has no Python stack, but the node it
//! evaluates was made by a line of the forward pass, and bears the number that the operation took there.
//!
//! ```text
//!  forward thread                                backward thread
//!  number taken ─▶ (thread, number) ─▶ stack id     node ─▶ (thread, number) ─▶ stack id of the forward line
//! ```
//!
//! How a node is read is not known here.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::hash::content;
use crate::lock::{Mutex, Rank};
use crate::numbering::Numbering;
use crate::thread_state::{BackwardContext, ThreadState};
use leaktrace_core::format::entry::TableEntry;

/// Forward operations remembered: those of as many nodes as may be alive before the oldest are overwritten. 2
/// MiB, of which only the pages in use exist.
const SLOTS: usize = 1 << 18;
static FORWARD: Forward = Forward([const { AtomicU64::new(0) }; SLOTS]);

/// The table has pages of its own, so that they can be discarded, where pages are that small.
#[repr(align(4096))]
struct Forward([AtomicU64; SLOTS]);

/// Remembers that a forward operation took this number on this thread, called from this stack.
#[inline]
pub fn forward(thread: u64, number: u64, stack: u32) {
    FORWARD.0[slot(thread, number)]
        .store(u64::from(tag(thread, number)) << 32 | u64::from(stack), Ordering::Relaxed);
}

/// Returns the stack that took a number; 0 if that is not known (any more).
#[inline(always)]
pub fn stack_of(thread: u64, number: u64) -> u32 {
    let known = FORWARD.0[slot(thread, number)].load(Ordering::Relaxed);
    if (known >> 32) as u32 == tag(thread, number) { known as u32 } else { 0 }
}

/// Returns the slot of a number. The numbers of one thread follow one another, and so do their slots.
#[inline(always)]
fn slot(thread: u64, number: u64) -> usize {
    (number.wrapping_add(thread.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40)) as usize % SLOTS
}

#[inline(always)]
fn tag(thread: u64, number: u64) -> u32 {
    let mixed = (number ^ thread.rotate_left(32)).wrapping_mul(0xa076_1d64_78bd_642f);
    (mixed >> 32) as u32 | 1
}

/// Who called the latest backward pass: the low half of a number that no other living thread has, and the stack.
static CALLER: AtomicU64 = AtomicU64::new(0);
/// Stands for several threads that call them: whose a node is cannot be told then.
const SEVERAL: u64 = u64::MAX;

/// Remembers that a thread called a backward pass from this stack.
pub fn called(thread: &ThreadState, stack: u32) {
    let number = thread.address() as u64 >> 4 << 32;
    let before = CALLER.load(Ordering::Relaxed);
    let is_first = before == 0 || before >> 32 == number >> 32;
    CALLER.store(if is_first { number | u64::from(stack) } else { SEVERAL }, Ordering::Relaxed);
}

/// Returns the stack that called the backward pass that runs now; 0 if that is not known.
#[inline]
pub fn caller() -> u32 {
    match CALLER.load(Ordering::Relaxed) {
        SEVERAL => 0,
        known => known as u32,
    }
}

/// Returns the forward stack of the node that the calling thread evaluates; 0 for none. A backward pass that
/// is itself differentiated makes nodes too: they belong to the same line.
#[inline]
pub fn forward_of_current(thread: &ThreadState) -> u32 {
    current(thread).map_or(0, |context| context.forward)
}

/// Returns the node that the calling thread evaluates, if it does.
#[inline(always)]
pub fn current(thread: &ThreadState) -> Option<BackwardContext> {
    // SAFETY: null, or in the frame of a call that has not ended; a jump out of it makes it null.
    unsafe { thread.backward.get().as_ref() }.copied()
}

/// The contexts of this recording.
pub static CONTEXTS: Mutex<Numbering> = Mutex::new(Rank::BackwardContexts, Numbering::new());

/// Returns the id of a context, which is described on first sight; `None` if it could not be.
pub fn id(context: BackwardContext) -> Option<u32> {
    let BackwardContext { name, forward } = context;
    let name = if name.is_null() {
        c""
    } else {
        // SAFETY: a type's name is a constant of the library that has the type; its node is being evaluated.
        unsafe { CStr::from_ptr(name) }
    };
    let name = name.to_str().unwrap_or("");
    // The types of classes local to a file begin with a star.
    let name = name.trim_start_matches('*');
    let name = name.get(..name.len().min(512)).unwrap_or("");
    let key = content(&[&forward.to_le_bytes(), name.as_bytes()]);
    CONTEXTS.lock()?.id(key, name.len(), |id| TableEntry::Backward { id, node: name, forward }).ok()
}

/// In a forked child, whose recording describes neither stacks nor contexts yet.
pub fn after_fork_child() {
    CALLER.store(0, Ordering::Relaxed);
    let Some(mut contexts) = CONTEXTS.lock() else { return };
    contexts.clear();
    // SAFETY: whole pages of a static that nobody refers into, since the child has one thread; they come back
    // zeroed. Where pages are larger the kernel refuses.
    let status = unsafe {
        libc::madvise(FORWARD.0.as_ptr().cast_mut().cast(), size_of::<Forward>(), libc::MADV_DONTNEED)
    };
    if status != 0 {
        let taken = FORWARD.0.iter().filter(|slot| slot.load(Ordering::Relaxed) != 0);
        taken.for_each(|slot| slot.store(0, Ordering::Relaxed));
    }
}
