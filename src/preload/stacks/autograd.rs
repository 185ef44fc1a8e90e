//! What happens in a backward pass, tied to the forward pass that caused it: PyTorch's autograd threads have no Python stack,
//! but the node they evaluate was made by a line of the forward pass, and bears the number it was given there.
//!
//! ```text
//!  forward thread                                backward thread
//!  number taken ─▶ (thread, number) ─▶ stack id     node ─▶ (thread, number) ─▶ stack id of the forward line
//! ```
//!
//! Reads a node's memory; knows nothing else of PyTorch.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::stacks::hash::Map;
use crate::stacks::hash::content;
use crate::stacks::hash::map;
use crate::stacks::stack_interner::count;
use crate::stacks::stack_interner::lock;
use crate::stacks::thread_state::Thread;
use crate::writer::recording::append_entry;
use leaktrace_core::format::entry::TableEntry;

/// Forward operations remembered: those of as many nodes as may be alive before the oldest are written over. 2 MiB, of which
/// only what is used is ever there.
const PLACES: usize = 1 << 18;
static FORWARD: Forward = Forward([const { AtomicU64::new(0) }; PLACES]);

/// Pages of its own, so that they can be let go of.
#[repr(align(4096))]
struct Forward([AtomicU64; PLACES]);

/// Where a node keeps the number of its operation: behind the words of a `shared_ptr`'s target (PyTorch 1 and 2), or of an
/// `intrusive_ptr`'s (from 2.15 on). Neither is assumed: the right one is where the numbers are those that were given.
const NUMBER: [usize; 2] = [3, 2];
/// From there to the id of the thread that took it, in every version looked at.
const THREAD: usize = 3;
/// The number of what takes gradients for a parameter: it belongs to no operation.
const NONE: u64 = u64::MAX;

/// The place that held the number the last time.
#[unsafe(link_section = ".data.leaktrace")]
static LIKELY: AtomicUsize = AtomicUsize::new(0);

/// What an allocation in a backward pass belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Under {
    /// The mangled name of the node's type.
    pub name: *const i8,
    /// The stack of the forward operation; 0: not known.
    pub forward: u32,
}

/// A forward operation took this number on this thread, called from this stack.
#[inline]
pub fn forward(thread: u64, number: u64, stack: u32) {
    FORWARD.0[place(thread, number)]
        .store(u64::from(tag(thread, number)) << 32 | u64::from(stack), Ordering::Relaxed);
}

/// The stack that took a number; 0 if that is not known (any more).
#[inline]
fn stack_of(thread: u64, number: u64) -> u32 {
    let known = FORWARD.0[place(thread, number)].load(Ordering::Relaxed);
    if (known >> 32) as u32 == tag(thread, number) { known as u32 } else { 0 }
}

/// The numbers of one thread follow one another, and so do their places.
#[inline(always)]
fn place(thread: u64, number: u64) -> usize {
    (number.wrapping_add(thread.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40)) as usize % PLACES
}

#[inline(always)]
fn tag(thread: u64, number: u64) -> u32 {
    let mixed = (number ^ thread.rotate_left(32)).wrapping_mul(0xa076_1d64_78bd_642f);
    (mixed >> 32) as u32 | 1
}

/// The forward stack of the node that the calling thread evaluates; 0 for none. A backward pass that is itself
/// differentiated makes nodes too: they belong to the same line.
#[inline]
pub fn forward_of_current(thread: &Thread) -> u32 {
    if thread.node == 0 { 0 } else { under(thread.node).forward }
}

/// What the calling thread's allocations belong to, if it evaluates a node.
#[inline(always)]
pub(crate) fn current(thread: &Thread) -> Option<Under> {
    if thread.node == 0 { None } else { Some(under(thread.node)) }
}

#[inline]
fn under(node: usize) -> Under {
    let words = node as *const usize;
    // SAFETY: the node that this thread evaluates at this moment, alive until then: an object with a table of virtual
    // functions, in front of which the pointer to its type's description stands, whose second word is the name.
    let name = unsafe {
        let functions = *words as *const usize;
        let kind = *functions.sub(1) as *const usize;
        if kind.is_null() { std::ptr::null() } else { *kind.add(1) as *const i8 }
    };
    let likely = LIKELY.load(Ordering::Relaxed);
    // SAFETY: as above.
    match unsafe { forward_at(words, likely) } {
        // SAFETY: as above.
        0 => unsafe { forward_elsewhere(words, likely, name) },
        forward => Under { name, forward },
    }
}

/// The forward stack by the number at one of the places where it may be; 0 for none.
///
/// # Safety
/// `words` is a living node.
#[inline(always)]
unsafe fn forward_at(words: *const usize, at: usize) -> u32 {
    let place = if at == 0 { NUMBER[0] } else { NUMBER[1] };
    // SAFETY: a node is larger than the words looked at in either layout.
    let (number, thread) = unsafe { (*words.add(place) as u64, *words.add(place + THREAD) as u64) };
    if number == NONE { 0 } else { stack_of(thread, number) }
}

/// # Safety
/// `words` is a living node.
#[inline(never)]
unsafe fn forward_elsewhere(words: *const usize, likely: usize, name: *const i8) -> Under {
    // SAFETY: the caller's word.
    let forward = unsafe { forward_at(words, 1 - likely) };
    if forward != 0 {
        LIKELY.store(1 - likely, Ordering::Relaxed);
    }
    Under { name, forward }
}

pub(crate) struct Known {
    ids: Map<u128, u32>,
    last: u32,
}

pub(crate) type Guard = MutexGuard<'static, Known>;

static KNOWN: Mutex<Known> = Mutex::new(Known { ids: map(), last: 0 });

/// The number of a (node type, forward stack) pair, written on first sight; 0 if it could not be.
pub(crate) fn number(under: Under) -> u32 {
    let name = if under.name.is_null() {
        c""
    } else {
        // SAFETY: a type's name is a constant of the library that has the type; its node is being evaluated.
        unsafe { CStr::from_ptr(under.name) }
    };
    let name = name.to_str().unwrap_or("");
    // The types of classes local to a file begin with a star.
    let name = name.trim_start_matches('*');
    let name = name.get(..name.len().min(512)).unwrap_or("");
    let key = content(&[&under.forward.to_le_bytes(), name.as_bytes()]);
    let mut known = lock(&KNOWN);
    if let Some(&id) = known.ids.get(&key) {
        return id;
    }
    let id = known.last + 1;
    if !count(name.len()) || !append_entry(&TableEntry::Backward { id, node: name, forward: under.forward }) {
        return 0;
    }
    known.last = id;
    known.ids.insert(key, id);
    id
}

pub(crate) fn lock_all() -> Guard {
    lock(&KNOWN)
}

/// In a forked child, whose recording is a new one: neither its stacks nor its backward passes have a number there yet.
pub(crate) fn forget(known: &mut Guard) {
    known.ids.clear();
    known.last = 0;
    // SAFETY: whole pages of a static that nobody refers into, since the child has one thread; they come back zeroed.
    unsafe { libc::madvise(FORWARD.0.as_ptr().cast_mut().cast(), size_of::<Forward>(), libc::MADV_DONTNEED) };
}
