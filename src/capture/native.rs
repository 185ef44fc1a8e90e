//! Native frames, from the unwind tables, by the platform's own unwinder. Knows addresses only.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use super::hash::Hash;
use super::modules;

/// The most native frames a stack holds.
const LIMIT: usize = 256;

/// Stands in a trace for what lies beyond the limit.
pub(super) const TRUNCATED: u64 = 0;

/// Our own library, whose frames are nobody's business.
static OWN_START: AtomicU64 = AtomicU64::new(0);
static OWN_END: AtomicU64 = AtomicU64::new(0);

/// The first unwinding loads and sets up things; it shall not be in a hook.
pub(super) fn arm() {
    modules::arm();
    if let Some((start, end)) = modules::range_of(arm as *const () as u64) {
        OWN_START.store(start, Ordering::Relaxed);
        OWN_END.store(end, Ordering::Relaxed);
    }
    Trace::new().take(&mut Hash::new(0));
}

pub(super) struct Trace {
    frames: [MaybeUninit<u64>; LIMIT + 1],
    len: usize,
}

impl Trace {
    pub fn new() -> Trace {
        Trace { frames: [MaybeUninit::uninit(); LIMIT + 1], len: 0 }
    }

    /// Return addresses, innermost first.
    pub fn frames(&self) -> &[u64] {
        // SAFETY: the first `len` were written by `push`.
        unsafe { std::slice::from_raw_parts(self.frames.as_ptr().cast(), self.len) }
    }

    fn push(&mut self, pc: u64, hash: &mut Hash) {
        if let Some(place) = self.frames.get_mut(self.len) {
            place.write(pc);
            self.len += 1;
            hash.add(pc);
        }
    }

    /// Unwinds the calling thread's stack.
    pub fn take(&mut self, hash: &mut Hash) {
        let own = OWN_START.load(Ordering::Relaxed)..OWN_END.load(Ordering::Relaxed);
        let step = |frame: &backtrace::Frame| {
            let pc = frame.ip().addr() as u64;
            if pc == 0 {
                return false;
            }
            if own.contains(&pc) {
                return true;
            }
            if self.len == LIMIT {
                self.push(TRUNCATED, hash);
                return false;
            }
            self.push(pc, hash);
            true
        };
        // SAFETY: unsynchronised matters only where symbols are resolved or the backend keeps state; the system's unwinder
        // keeps none, and nothing is resolved here.
        unsafe { backtrace::trace_unsynchronized(step) };
    }
}
