//! Native frames of sites that are known by their Python stack alone: of each site those of its first
//! allocation, of sites under suspicion several. They are written beside the site and make no site of their
//! own, so a line stays one line, whichever operator it runs.
//!
//! The hot path knows nothing of this: a site that more samples are wanted of is left out of the threads'
//! caches, so each of its allocations takes the slow path.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::lock::{Mutex, Rank};
use crate::stacks::stack_interner;
use crate::writer::recording::append_entry;
use leaktrace_core::format::entry::TableEntry;
use leaktrace_core::format::tables::MAX_NATIVE_SAMPLES as MOST;
use leaktrace_core::int_map::{IntMap, int_map};

/// Sites under suspicion at one time.
const WATCHED: usize = 256;

pub struct Samples {
    /// A bit for each stack that was seen.
    seen: Vec<u64>,
    /// Stacks under suspicion, with the samples written of each.
    watched: IntMap<u32, Vec<u32>>,
}

pub static SAMPLES: Mutex<Samples> =
    Mutex::new(Rank::NativeSamples, Samples { seen: Vec::new(), watched: int_map() });

/// True where Python stacks get samples.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// How often native frames of a stack are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    No,
    Once,
    /// Until enough different ones were written.
    Always,
}

pub fn arm() {
    TAKEN.store(true, Ordering::Release);
}

/// True if there are samples, so that suspicions are of use.
pub fn are_taken() -> bool {
    TAKEN.load(Ordering::Acquire)
}

/// Returns whether native frames are wanted of a stack that is in no cache.
pub fn wanted(stack: u32) -> Wanted {
    let Some(mut samples) = SAMPLES.lock() else { return Wanted::No };
    if let Some(written) = samples.watched.get(&stack) {
        return if written.len() < MOST { Wanted::Always } else { Wanted::No };
    }
    let (word, bit) = (stack as usize / 64, 1 << (stack % 64));
    if samples.seen.len() <= word {
        samples.seen.resize(word + 1, 0);
    }
    let seen = samples.seen[word] & bit != 0;
    samples.seen[word] |= bit;
    // Samples take no more than half of the room for stacks.
    if seen || !stack_interner::has_much_room() { Wanted::No } else { Wanted::Once }
}

/// Writes a sample: `mixed` is a stack of the same Python frames with the native ones.
pub fn write(stack: u32, mixed: u32) {
    let Some(mut samples) = SAMPLES.lock() else { return };
    if let Some(written) = samples.watched.get_mut(&stack) {
        if written.contains(&mixed) || written.len() >= MOST {
            return;
        }
        written.push(mixed);
    }
    append_entry(&TableEntry::NativeSample { stack, mixed });
}

/// Puts stacks under suspicion, for good. Returns true if any was not before.
pub fn watch(stacks: &[u32]) -> bool {
    let Some(mut samples) = SAMPLES.lock() else { return false };
    let before = samples.watched.len();
    for &stack in stacks.iter().filter(|&&stack| stack != 0) {
        if samples.watched.len() < WATCHED {
            samples.watched.entry(stack).or_default();
        }
    }
    samples.watched.len() > before
}

/// In a forked child, whose stacks get other numbers.
pub fn after_fork_child() {
    let Some(mut samples) = SAMPLES.lock() else { return };
    samples.seen.clear();
    samples.watched.clear();
}
