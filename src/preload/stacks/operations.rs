//! The operations of a framework's functions, which run on threads without Python: each run of a function has a number,
//! and was called from some stack.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::hash::{Hash, content};
use crate::stacks::{Key, first_seen};
use crate::thread_state::{self, BackwardContext, ThreadState};
use leaktrace_core::format::entry::OPERATION;

/// Runs remembered: those that may be under way before the oldest are overwritten. A power of two.
const SLOTS: usize = 1 << 12;
static CALLERS: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];

/// Bytes of a name that are kept.
const NAME: usize = 256;

/// Remembers the stack that called the function whose run has this number.
pub fn remember(run: u64, stack: u32) {
    CALLERS[slot(run)].store(u64::from(tag(run)) << 32 | u64::from(stack), Relaxed);
}

/// Returns that stack; 0 if it is not known (any more).
pub fn caller_of(run: u64) -> u32 {
    let known = CALLERS[slot(run)].load(Relaxed);
    if run != 0 && (known >> 32) as u32 == tag(run) { known as u32 } else { 0 }
}

fn slot(run: u64) -> usize {
    run as usize % SLOTS
}

/// The upper half of a number that is drawn at random; never 0, which marks a free slot.
fn tag(run: u64) -> u32 {
    (run >> 32) as u32 | 1
}

/// Returns the id of the stack of an operation of that name, in a function that was called from `caller`.
pub fn stack(thread: &ThreadState, name: &[u8], caller: u32) -> u32 {
    if super::takes_nothing() {
        return 0;
    }
    let mut marked = [0u8; OPERATION.len() + NAME + 1];
    let name = name.get(..NAME).unwrap_or(name);
    marked[..OPERATION.len()].copy_from_slice(OPERATION.as_bytes());
    marked[OPERATION.len()..OPERATION.len() + name.len()].copy_from_slice(name);
    let epoch = thread_state::epoch();
    let mut hash = Hash::new(epoch);
    let key = content(&[name]);
    hash.add2(key as u64, (key >> 64) as u64);
    hash.add(u64::from(caller));
    let context = BackwardContext { name: marked.as_ptr().cast(), forward: caller };
    let key = Key { epoch, hash, python: None, backward: Some(context) };
    let hash = hash.finish();
    // The thread may have no cache of stacks yet.
    let known = thread.read_section(|| thread.cached_stack(hash)).unwrap_or(0);
    if known != 0 { known } else { first_seen(thread, &key, hash, &[]) }
}

/// In a forked child, whose recording describes no stack yet.
pub fn after_fork_child() {
    CALLERS.iter().for_each(|caller| caller.store(0, Relaxed));
}
