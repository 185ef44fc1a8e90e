//! Native call stacks, from the unwind tables. Knows addresses and the objects they lie in, nothing of Python
//! and of ids of stacks.
//!
//! Two unwinders give one answer. The fast one ([`incremental`]) follows what compilers emit on x86-64, and
//! reads the tables once per return address. Where one of its rules cannot express what the tables say, on a
//! stack that is not the thread's own, and on every other machine, the platform's unwinder goes over the
//! whole stack ([`portable`]). Both mark a stack as truncated where no table tells of a caller; the fast one
//! also does so at an address that no module has, where the platform's would read memory that may not be
//! mapped.

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

use crate::hash::{Hash, chain};
use crate::loader::{address, link_map};
pub use crate::unwind::incremental::LastWalk;

/// The most native frames a stack holds.
const LIMIT: usize = 256;

/// Stands in a trace for the frames beyond the limit, or beyond what could be followed.
pub const TRUNCATED: u64 = 0;

/// Where our own library lies, whose frames are left out.
static OWN_START: AtomicU64 = AtomicU64::new(0);
static OWN_END: AtomicU64 = AtomicU64::new(0);

/// Gets ready to unwind. Outside hooks: the platform's first unwinding loads and sets up things.
pub fn arm() {
    link_map::init();
    if let Some(own) = address::locate(arm as *const () as u64) {
        OWN_START.store(own.start, Ordering::Relaxed);
        OWN_END.store(own.end, Ordering::Relaxed);
    }
    #[cfg(target_arch = "x86_64")]
    extent::arm();
    incremental::arm();
    check::arm();
    portable::walk(&mut Frames::new());
}

/// Forgets the unwind rules of addresses. To be called when an object was unloaded.
pub fn forget_addresses() {
    incremental::forget_rules();
}

/// In a forked child, which counts anew.
pub fn after_fork_child() {
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
    #[inline(always)]
    fn new() -> Frames {
        // As a constant the whole would be cleared, the list with the rest.
        let list = MaybeUninit::<[MaybeUninit<u64>; LIMIT + 1]>::uninit();
        // SAFETY: words that may be uninitialised are.
        Frames { list: unsafe { list.assume_init() }, len: 0 }
    }

    fn as_slice(&self) -> &[u64] {
        // SAFETY: the first `len` were written by `push`.
        unsafe { std::slice::from_raw_parts(self.list.as_ptr().cast(), self.len) }
    }

    /// Adds the next frame outwards. Returns false when no more are wanted.
    fn push(&mut self, pc: u64) -> bool {
        if self.len < LIMIT {
            self.list[self.len].write(pc);
            self.len += 1;
            return true;
        }
        self.truncate();
        false
    }

    /// Marks that the stack goes on.
    fn truncate(&mut self) {
        if let Some(slot) = self.list.get_mut(self.len) {
            slot.write(TRUNCATED);
            self.len += 1;
        }
    }

    /// Returns the hash of the frames: the same one whichever unwinder found them.
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
pub struct Trace {
    frames: Frames,
    /// The walk that holds the frames until they are copied here; null once they are.
    walk: *mut LastWalk,
}

impl Trace {
    #[inline(always)]
    pub fn new() -> Trace {
        Trace { frames: Frames::new(), walk: std::ptr::null_mut() }
    }

    /// Unwinds the calling thread's stack and mixes it into a hash. `last` is null or this thread's own.
    #[inline(always)]
    pub fn capture(&mut self, last: *mut LastWalk, hash: &mut Hash) {
        // SAFETY: null, or this thread's own, which lives until the thread ends.
        match unsafe { LastWalk::capture(last) } {
            Some(word) => {
                self.walk = last;
                hash.add(word);
                check::compare(self);
            }
            None => {
                portable::walk(&mut self.frames);
                hash.add(self.frames.hash());
                check::count_replaced();
            }
        }
    }

    /// Returns the return addresses, innermost first.
    pub fn frames(&mut self) -> &[u64] {
        let walk = std::mem::replace(&mut self.walk, std::ptr::null_mut());
        if !walk.is_null() {
            // SAFETY: set by `capture`; until released the walk stays as it was then.
            unsafe {
                (*walk).copy_frames(&mut self.frames);
                LastWalk::release(walk);
            }
        }
        self.frames.as_slice()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if !self.walk.is_null() {
            // SAFETY: as in `frames`.
            unsafe { LastWalk::release(self.walk) };
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::hint::black_box;

    use super::*;
    use crate::allocator::ALLOCATIONS;
    use crate::thread_state;

    #[inline(never)]
    fn below(depth: usize, trace: &mut Trace, last: *mut LastWalk) -> u64 {
        if depth > 0 {
            return black_box(below(depth - 1, trace, last)) + 1;
        }
        let mut hash = Hash::new(1);
        trace.capture(last, &mut hash);
        hash.finish()
    }

    #[test]
    fn the_first_sight_of_a_stack_takes_no_memory_of_the_heap() {
        thread_state::arm();
        arm();
        // Here the frames that are looked at are our own.
        OWN_END.store(OWN_START.load(Ordering::Relaxed), Ordering::Relaxed);
        let last = thread_state::current().last_walk();
        assert!(!last.is_null());
        let mut trace = Trace::new();
        let before = ALLOCATIONS.get();
        let hash = below(20, &mut trace, last);
        let frames = trace.frames().len();
        let asked = ALLOCATIONS.get() - before;
        assert!(hash != 0 && frames > 20, "{frames} frames");
        assert_eq!(asked, 0);
        // The count counts.
        black_box(vec![hash]);
        assert!(ALLOCATIONS.get() > before);
    }
}
