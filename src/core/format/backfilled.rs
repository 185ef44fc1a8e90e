//! Boundaries that were found out about later: each lies before an event that was noted long before it. They stand in the
//! tables, 16 bytes each, and whoever replays the events puts them in between, so that the ledger takes everything in in
//! the order it happened.
//!
//! ```text
//!        63      57 56 55                     0
//! word 0 │ depth   │ m │ sequence number      │   m: it ends a step
//! word 1 │ nanoseconds since the beginning    │
//! ```

use super::event::{Event, EventKind, MAX_SIZE, StepSource};

/// Bytes of one.
pub const BYTES: usize = 16;
/// The most that one entry holds.
pub const MOST: usize = 4096;

/// The end of an iteration of a loop of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackfilledBoundary {
    /// The event that it lies before.
    pub seq: u64,
    pub ns: u64,
    /// The depth of the loop, from 1.
    pub depth: u8,
    /// It ends a step; else one of another depth.
    pub ends_step: bool,
}

impl BackfilledBoundary {
    fn pack(&self) -> [u8; BYTES] {
        let head =
            u64::from(self.depth & 127) << 57 | u64::from(self.ends_step) << 56 | (self.seq & MAX_SIZE);
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&head.to_le_bytes());
        bytes[8..].copy_from_slice(&self.ns.to_le_bytes());
        bytes
    }

    fn unpack(bytes: &[u8]) -> Option<BackfilledBoundary> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let head = word(0)?;
        Some(BackfilledBoundary {
            seq: head & MAX_SIZE,
            ns: word(8)?,
            depth: (head >> 57) as u8,
            ends_step: head >> 56 & 1 == 1,
        })
    }

    /// The event that it is where it lies: it has no number of its own, and `size` is that of the event behind it.
    pub fn event(&self) -> Event {
        let kind = if self.ends_step { EventKind::StepEnd } else { EventKind::AltBoundary };
        Event {
            address: self.ns,
            size: self.seq,
            class: StepSource::Loop as u8,
            device: self.depth,
            ..Event::new(kind)
        }
    }
}

/// As they stand in an entry.
pub fn pack(all: &[BackfilledBoundary]) -> Vec<u8> {
    all.iter().flat_map(BackfilledBoundary::pack).collect()
}

/// Those of the tables: of the last round that was written to its end.
#[derive(Clone, Debug, Default)]
pub struct BackfillRounds {
    whole: (u32, Vec<BackfilledBoundary>),
    begun: (u32, Vec<BackfilledBoundary>),
}

impl BackfillRounds {
    /// Takes in an entry.
    pub fn add(&mut self, round: u32, last: bool, ends: &[u8]) {
        // A round is written to its end before another begins.
        if self.begun.0 != round {
            self.begun = (round, Vec::new());
        }
        self.begun.1.extend(ends.chunks_exact(BYTES).filter_map(BackfilledBoundary::unpack));
        if last {
            if self.whole.0 != round {
                self.whole = (round, Vec::new());
            }
            self.whole.1.append(&mut self.begun.1);
            self.whole.1.sort_by_key(|p| p.seq);
        }
    }

    /// In the order of their places.
    pub fn all(&self) -> &[BackfilledBoundary] {
        &self.whole.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let placed = |seq, ends_step| BackfilledBoundary { seq, ns: seq * 7, depth: 3, ends_step };
        let all = [placed(5, true), placed(MAX_SIZE, false)];
        let mut rounds = BackfillRounds::default();
        rounds.add(1, false, &pack(&all[1..]));
        rounds.add(1, true, &pack(&all[..1]));
        assert_eq!(rounds.all(), all);
        assert_eq!((all[1].event().kind, all[1].event().size), (EventKind::AltBoundary as u8, MAX_SIZE));
    }

    #[test]
    fn a_round_counts_once_it_is_whole() {
        let one = |seq| pack(&[BackfilledBoundary { seq, ns: 0, depth: 1, ends_step: true }]);
        let seqs = |rounds: &BackfillRounds| rounds.all().iter().map(|p| p.seq).collect::<Vec<_>>();
        let mut rounds = BackfillRounds::default();
        rounds.add(1, true, &one(3));
        rounds.add(2, false, &one(4));
        assert_eq!(seqs(&rounds), [3]);
        rounds.add(2, true, &one(6));
        assert_eq!(seqs(&rounds), [4, 6]);
        // More of the same.
        rounds.add(2, true, &one(9));
        assert_eq!(seqs(&rounds), [4, 6, 9]);
        rounds.add(3, true, &[]);
        assert!(rounds.all().is_empty());
    }
}
