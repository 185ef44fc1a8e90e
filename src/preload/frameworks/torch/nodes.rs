//! The nodes of autograd graphs: reads the memory of one that is being evaluated. Knows nothing else of PyTorch.

use std::ffi::c_char;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::stacks::backward;
use crate::thread_state::BackwardContext;

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

/// Returns the name of a node's type, and the stack of the forward operation that made the node; of a node that no operation
/// made, as those are that add gradients up, the stack that called the backward pass.
///
/// # Safety
/// `node` is a living node.
#[inline(always)]
pub unsafe fn context_of(node: usize) -> BackwardContext {
    let words = node as *const usize;
    // SAFETY: the caller's word: an object with a table of virtual functions, before which lies the pointer to
    // its type's description, whose second word is the name.
    let name = unsafe {
        let functions = *words as *const usize;
        let kind = *functions.sub(1) as *const usize;
        if kind.is_null() { std::ptr::null() } else { *kind.add(1) as *const c_char }
    };
    let likely = LIKELY.load(Relaxed);
    // SAFETY: the caller's word.
    let forward = match unsafe { forward_at(words, likely) } {
        // SAFETY: the caller's word.
        0 => match unsafe { forward_elsewhere(words, likely) } {
            0 => backward::caller(),
            forward => forward,
        },
        forward => forward,
    };
    BackwardContext { name, forward }
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
    if number == NONE { 0 } else { backward::stack_of(thread, number) }
}

/// Looks for the number in the other word.
///
/// # Safety
/// `words` is a living node.
#[inline(never)]
unsafe fn forward_elsewhere(words: *const usize, likely: usize) -> u32 {
    // SAFETY: the caller's word.
    let forward = unsafe { forward_at(words, 1 - likely) };
    if forward != 0 {
        LIKELY.store(1 - likely, Relaxed);
    }
    forward
}
