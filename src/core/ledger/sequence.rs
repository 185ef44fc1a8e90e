//! Which events are taken in: each once, in the order of their sequence numbers, and those that come late
//! too. It must not know what an event is about.

use serde::{Deserialize, Serialize};

/// Gaps in the sequence numbers of which a late event is still taken in.
const MAX_MISSING: usize = 1024;
/// Events after which one that is missing is not awaited any more.
const LATE: u64 = 1 << 20;

/// The sequence numbers seen so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sequence {
    last: u64,
    /// Numbers that were not there in their turn: first and last of each gap.
    missing: Vec<(u64, u64)>,
    lost: u64,
}

impl Sequence {
    /// Returns whether the event of this number is to be taken in: its number is new, or it was missing until
    /// now. A thread may have been descheduled with its event in hand, so that nothing can rest on that event
    /// yet.
    #[inline(always)]
    pub fn admits(&mut self, seq: u64) -> bool {
        if seq <= self.last {
            return !self.missing.is_empty() && self.was_missing(seq);
        }
        if seq - self.last > 1 {
            self.skip(self.last + 1, seq - 1);
        }
        self.last = seq;
        true
    }

    /// The highest number seen.
    #[inline]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Counts the numbers that are missing still.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns whether an event shortly before this number may still come.
    pub fn awaits_before(&self, seq: u64) -> bool {
        self.missing.last().is_some_and(|&(_, last)| seq.saturating_sub(last) < LATE)
    }

    #[cold]
    fn skip(&mut self, first: u64, last: u64) {
        self.lost = self.lost.wrapping_add(last - first).wrapping_add(1);
        if self.missing.len() >= MAX_MISSING {
            self.missing.remove(0);
        }
        self.missing.push((first, last));
    }

    /// Takes a number off the missing ones; false if it is none of them.
    #[cold]
    fn was_missing(&mut self, seq: u64) -> bool {
        let Some(at) = self.missing.iter().position(|&(first, last)| first <= seq && seq <= last) else {
            return false;
        };
        let (first, last) = self.missing.remove(at);
        if seq < last {
            self.missing.insert(at, (seq + 1, last));
        }
        if first < seq {
            self.missing.insert(at, (first, seq - 1));
        }
        self.lost = self.lost.saturating_sub(1);
        true
    }
}
