//! The native frames of sites that are known by their Python stack alone: of each the way into the allocator that was seen
//! first, of sites under suspicion several. They are told beside the site and make no site of their own, so a line stays one
//! line, whichever operator it runs.
//!
//! The hot path knows nothing of this: a site that more is wanted of is left out of the threads' caches, and so comes to
//! [`crate::stacks::miss`] each time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::stacks::hash::Map;
use crate::stacks::hash::map;
use crate::stacks::stack_interner;
use crate::stacks::stack_interner::lock;
use crate::writer::recording::append_entry;
use leaktrace_core::format::entry::TableEntry;
use leaktrace_core::format::tables::MAX_NATIVE_SAMPLES as MOST;

/// Sites under suspicion at one time.
const WATCHED: usize = 256;

pub(crate) struct Examples {
    /// A bit for each stack that was seen.
    seen: Vec<u64>,
    /// Stacks under suspicion, with what was told of each.
    watched: Map<u32, Vec<u32>>,
}

pub(crate) type Guard = MutexGuard<'static, Examples>;

static EXAMPLES: Mutex<Examples> = Mutex::new(Examples { seen: Vec::new(), watched: map() });

/// Set where Python stacks get examples.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Whether native frames are wanted of a stack that comes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    No,
    /// This once.
    Once,
    /// And whenever it comes.
    Always,
}

pub(crate) fn arm() {
    TAKEN.store(true, Ordering::Release);
}

/// True if suspicions are of use here.
pub(crate) fn are_taken() -> bool {
    TAKEN.load(Ordering::Acquire)
}

/// To be asked when a stack comes to a miss.
pub(crate) fn wanted(stack: u32) -> Wanted {
    let mut examples = lock(&EXAMPLES);
    if let Some(told) = examples.watched.get(&stack) {
        return if told.len() < MOST { Wanted::Always } else { Wanted::No };
    }
    let (word, bit) = (stack as usize / 64, 1 << (stack % 64));
    if examples.seen.len() <= word {
        examples.seen.resize(word + 1, 0);
    }
    let seen = examples.seen[word] & bit != 0;
    examples.seen[word] |= bit;
    // What stacks themselves may need one day is not spent on this.
    if seen || !stack_interner::has_much_room() { Wanted::No } else { Wanted::Once }
}

/// `whole` is a stack of the same Python frames with the native ones.
pub(crate) fn tell(stack: u32, whole: u32) {
    let mut examples = lock(&EXAMPLES);
    if let Some(told) = examples.watched.get_mut(&stack) {
        if told.contains(&whole) || told.len() >= MOST {
            return;
        }
        told.push(whole);
    }
    append_entry(&TableEntry::NativeSample { stack, mixed: whole });
}

/// Puts stacks under suspicion, for good. True if any was not before.
pub(crate) fn watch(stacks: &[u32]) -> bool {
    let mut examples = lock(&EXAMPLES);
    let before = examples.watched.len();
    for &stack in stacks.iter().filter(|&&stack| stack != 0) {
        if examples.watched.len() < WATCHED {
            examples.watched.entry(stack).or_default();
        }
    }
    examples.watched.len() > before
}

pub(crate) fn lock_all() -> Guard {
    lock(&EXAMPLES)
}

/// In a forked child, whose stacks get other numbers.
pub(crate) fn forget(examples: &mut Guard) {
    examples.seen.clear();
    examples.watched.clear();
}
