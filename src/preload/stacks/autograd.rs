//! The autograd context of an allocation: PyTorch's autograd threads have no Python stack, but the node they
//! evaluate was made by a line of the forward pass, and bears the sequence number it was given there.
//!
//! ```text
//!  forward thread                                backward thread
//!  number taken ─▶ (thread, number) ─▶ stack id     node ─▶ (thread, number) ─▶ stack id of the forward line
//! ```
//!
//! Reads a node's memory; knows nothing else of PyTorch.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::hash::content;
use crate::lock::{Mutex, Rank};
use crate::numbering::Numbering;
use crate::thread_state::ThreadState;
use leaktrace_core::format::entry::TableEntry;

/// Forward operations remembered: those of as many nodes as may be alive before the oldest are overwritten. 2
/// MiB, of which only the pages in use exist.
const SLOTS: usize = 1 << 18;
static FORWARD: Forward = Forward([const { AtomicU64::new(0) }; SLOTS]);

/// The table has pages of its own, so that they can be discarded, where pages are that small.
#[repr(align(4096))]
struct Forward([AtomicU64; SLOTS]);

/// The word of a node that holds the number of its operation: behind the words of a `shared_ptr`'s target
/// (PyTorch 1 and 2), or of an `intrusive_ptr`'s (from 2.15 on). Neither is assumed: the right one holds
/// numbers that were given.
const NUMBER: [usize; 2] = [3, 2];
/// Words from there to the id of the thread that took the number, in every version looked at.
const THREAD: usize = 3;
/// The number of a node that accumulates a parameter's gradient: it belongs to no operation.
const NONE: u64 = u64::MAX;

/// The index in [`NUMBER`] that was right the last time.
#[unsafe(link_section = ".data.leaktrace")]
static LIKELY: AtomicUsize = AtomicUsize::new(0);

/// The node that a thread evaluates.
#[derive(Clone, Copy)]
pub struct AutogradContext {
    /// The mangled name of the node's type.
    pub name: *const c_char,
    /// The stack of the forward operation; 0: not known.
    pub forward: u32,
}

/// Remembers that a forward operation took this number on this thread, called from this stack.
#[inline]
pub fn forward(thread: u64, number: u64, stack: u32) {
    FORWARD.0[slot(thread, number)]
        .store(u64::from(tag(thread, number)) << 32 | u64::from(stack), Ordering::Relaxed);
}

/// Returns the stack that took a number; 0 if that is not known (any more).
#[inline]
fn stack_of(thread: u64, number: u64) -> u32 {
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

/// Returns the forward stack of the node that the calling thread evaluates; 0 for none. A backward pass that
/// is itself differentiated makes nodes too: they belong to the same line.
#[inline]
pub fn forward_of_current(thread: &ThreadState) -> u32 {
    current(thread).map_or(0, |context| context.forward)
}

/// Returns the node that the calling thread evaluates, if it does.
#[inline(always)]
pub fn current(thread: &ThreadState) -> Option<AutogradContext> {
    match thread.node.get() {
        0 => None,
        node => Some(context_of(node)),
    }
}

#[inline]
fn context_of(node: usize) -> AutogradContext {
    let words = node as *const usize;
    // SAFETY: the node that this thread evaluates at this moment, which keeps it alive: an object with a
    // table of virtual functions, before which lies the pointer to its type's description, whose second word
    // is the name.
    let name = unsafe {
        let functions = *words as *const usize;
        let kind = *functions.sub(1) as *const usize;
        if kind.is_null() { std::ptr::null() } else { *kind.add(1) as *const c_char }
    };
    let likely = LIKELY.load(Ordering::Relaxed);
    // SAFETY: a living node.
    match unsafe { forward_at(words, likely) } {
        // SAFETY: a living node.
        0 => unsafe { forward_elsewhere(words, likely, name) },
        forward => AutogradContext { name, forward },
    }
}

/// Returns the forward stack by the number in one of the words where it may be; 0 for none.
///
/// # Safety
/// `words` is a living node.
#[inline(always)]
unsafe fn forward_at(words: *const usize, which: usize) -> u32 {
    let at = if which == 0 { NUMBER[0] } else { NUMBER[1] };
    // SAFETY: a node is larger than the words read in either layout.
    let (number, thread) = unsafe { (*words.add(at) as u64, *words.add(at + THREAD) as u64) };
    if number == NONE { 0 } else { stack_of(thread, number) }
}

/// Looks for the number in the other word.
///
/// # Safety
/// `words` is a living node.
#[inline(never)]
unsafe fn forward_elsewhere(words: *const usize, likely: usize, name: *const c_char) -> AutogradContext {
    // SAFETY: the caller's word.
    let forward = unsafe { forward_at(words, 1 - likely) };
    if forward != 0 {
        LIKELY.store(1 - likely, Ordering::Relaxed);
    }
    AutogradContext { name, forward }
}

/// The contexts of this recording.
pub static CONTEXTS: Mutex<Numbering> = Mutex::new(Rank::AutogradContexts, Numbering::new());

/// Returns the id of a context, which is described on first sight; `None` if it could not be.
pub fn id(context: AutogradContext) -> Option<u32> {
    let AutogradContext { name, forward } = context;
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
