//! Native frames, from the unwind tables. Knows addresses only.
//!
//! Two unwinders with one answer. The fast one ([`replay`]) follows what compilers emit on x86-64, and reads the tables
//! once per return address. Where a rule cannot say what they say, on a stack that is not the thread's own, and on every
//! other machine, the platform's own goes over the whole stack ([`portable`]). Both end a stack where no table tells of a
//! caller, with a mark; only the fast one also does so at an address that no module has, where the other would look at
//! what may not be mapped.

mod check;
pub mod modules;
mod portable;

#[cfg(target_arch = "x86_64")]
mod extent;
#[cfg(target_arch = "x86_64")]
mod incremental;
#[cfg(target_arch = "x86_64")]
mod rules;
#[cfg(target_arch = "x86_64")]
mod tables;

#[cfg(not(target_arch = "x86_64"))]
mod absent;
#[cfg(not(target_arch = "x86_64"))]
use absent as incremental;

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::stacks::hash::Hash;
use crate::stacks::hash::chain;
pub(crate) use crate::unwind::incremental::Previous;
pub(crate) use crate::unwind::incremental::modules_changed;

/// The most native frames a stack holds.
const LIMIT: usize = 256;

/// Stands in a trace for what lies beyond the limit, or could not be followed.
pub(crate) const TRUNCATED: u64 = 0;

/// Our own library, whose frames are nobody's business.
static OWN_START: AtomicU64 = AtomicU64::new(0);
static OWN_END: AtomicU64 = AtomicU64::new(0);

/// The first unwinding loads and sets up things; it shall not be in a hook.
pub(crate) fn arm() {
    modules::arm();
    if let Some((start, end)) = modules::range_of(arm as *const () as u64) {
        OWN_START.store(start, Ordering::Relaxed);
        OWN_END.store(end, Ordering::Relaxed);
    }
    #[cfg(target_arch = "x86_64")]
    extent::arm();
    incremental::arm();
    check::arm();
    portable::walk(&mut Frames::new());
}

/// In a forked child.
pub(crate) fn after_fork_child() {
    check::after_fork_child();
}

fn is_own(pc: u64) -> bool {
    let start = OWN_START.load(Ordering::Relaxed);
    pc.wrapping_sub(start) < OWN_END.load(Ordering::Relaxed).wrapping_sub(start)
}

/// Return addresses, innermost first; the last may be [`TRUNCATED`].
pub struct Frames {
    list: [MaybeUninit<u64>; LIMIT + 1],
    len: usize,
}

impl Frames {
    const fn new() -> Frames {
        Frames { list: [MaybeUninit::uninit(); LIMIT + 1], len: 0 }
    }

    fn as_slice(&self) -> &[u64] {
        // SAFETY: the first `len` were written by `push`.
        unsafe { std::slice::from_raw_parts(self.list.as_ptr().cast(), self.len) }
    }

    /// Adds the next frame out. `false`: no more are wanted.
    fn push(&mut self, pc: u64) -> bool {
        if self.len < LIMIT {
            self.list[self.len].write(pc);
            self.len += 1;
            return true;
        }
        self.truncate();
        false
    }

    /// Says that the stack goes on.
    fn truncate(&mut self) {
        if let Some(place) = self.list.get_mut(self.len) {
            place.write(TRUNCATED);
            self.len += 1;
        }
    }

    /// The same for the same frames, whoever found them.
    fn hash(&self) -> u64 {
        let frames = self.as_slice();
        match frames.split_last() {
            Some((&TRUNCATED, frames)) => chained(SEED_TRUNCATED, frames.iter().rev().copied()),
            _ => chained(SEED, frames.iter().rev().copied()),
        }
    }
}

/// Where the hash of a stack begins: at its outer end, so that inner frames can be added to what is known.
const SEED: u64 = 0x2d35_8dcc_aa6c_78a5;
const SEED_TRUNCATED: u64 = 0x8bb8_4b93_962e_acc9;

fn chained(seed: u64, outermost_first: impl Iterator<Item = u64>) -> u64 {
    outermost_first.fold(seed, chain)
}

/// The native frames of the calling thread at one moment.
pub(crate) struct Trace {
    frames: Frames,
    /// The capture that knows the frames while they are not spelled out; null once they are.
    replayed: *mut Previous,
}

impl Trace {
    pub const fn new() -> Trace {
        Trace { frames: Frames::new(), replayed: std::ptr::null_mut() }
    }

    /// Unwinds the calling thread's stack and mixes it into a hash. `previous` is null or this thread's own.
    #[inline(always)]
    pub fn take(&mut self, previous: *mut Previous, hash: &mut Hash) {
        // SAFETY: null, or this thread's own, which lives until the thread ends.
        match unsafe { Previous::take(previous) } {
            Some(word) => {
                self.replayed = previous;
                hash.add(word);
                check::compare(self);
            }
            None => {
                portable::walk(&mut self.frames);
                hash.add(self.frames.hash());
                check::replaced();
            }
        }
    }

    /// Innermost first.
    pub fn frames(&mut self) -> &[u64] {
        self.spell_out();
        self.frames.as_slice()
    }

    fn spell_out(&mut self) {
        let previous = std::mem::replace(&mut self.replayed, std::ptr::null_mut());
        if !previous.is_null() {
            // SAFETY: set by `take`; until released it stays as it was then.
            unsafe {
                (*previous).spell_out(&mut self.frames);
                Previous::release(previous);
            }
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if !self.replayed.is_null() {
            // SAFETY: as in `spell_out`.
            unsafe { Previous::release(self.replayed) };
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::hint::black_box;

    use super::*;
    use crate::allocator::ALLOCATIONS;
    use crate::stacks::thread_state;

    #[inline(never)]
    fn below(depth: usize, trace: &mut Trace, previous: *mut Previous) -> u64 {
        if depth > 0 {
            return black_box(below(depth - 1, trace, previous)) + 1;
        }
        let mut hash = Hash::new(1);
        trace.take(previous, &mut hash);
        hash.finish()
    }

    #[test]
    fn the_first_sight_of_a_stack_takes_no_memory_of_the_heap() {
        thread_state::arm();
        arm();
        // Here the frames that are looked at are our own.
        OWN_END.store(OWN_START.load(Ordering::Relaxed), Ordering::Relaxed);
        // SAFETY: this thread's own block, referred to nowhere else.
        let previous = unsafe { (*thread_state::thread()).native() };
        assert!(!previous.is_null());
        let mut trace = Trace::new();
        let before = ALLOCATIONS.get();
        let hash = below(20, &mut trace, previous);
        let frames = trace.frames().len();
        let asked = ALLOCATIONS.get() - before;
        assert!(hash != 0 && frames > 20, "{frames} frames");
        assert_eq!(asked, 0);
        // The count counts.
        black_box(vec![hash]);
        assert!(ALLOCATIONS.get() > before);
    }
}
