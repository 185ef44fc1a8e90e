//! Backfilled boundaries: found out about later, each lies before an event that was recorded long before.
//! They are kept in the tables, 16 bytes each, and the reader merges them into the events, so that the ledger
//! gets everything in order.
//!
//! ```text
//!        63      57 56 55                     0
//! word 0 │ depth   │ e │ sequence number      │   e: it ends a step
//! word 1 │ nanoseconds since the beginning    │
//! ```

use super::event::{Event, EventKind, MAX_SIZE, StepSource};

/// Bytes of one boundary.
pub const BYTES: usize = 16;
/// Boundaries in one entry, at most.
pub const MAX_PER_ENTRY: usize = 4096;

/// The end of an iteration of a loop of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackfilledBoundary {
    /// The event that it lies before.
    pub seq: u64,
    pub ns: u64,
    /// The depth of the loop, from 1.
    pub depth: u8,
    /// True if it ends a step; else it is an alternative boundary.
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

    /// Returns the event that it stands for: it has no sequence number of its own, and `size` is that of the
    /// event behind.
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

/// Packs boundaries into the bytes of an entry.
pub fn pack(all: &[BackfilledBoundary]) -> Vec<u8> {
    all.iter().flat_map(BackfilledBoundary::pack).collect()
}

/// The boundaries of the tables: those of the last round that was written to its end.
#[derive(Clone, Debug, Default)]
pub struct BackfillRounds {
    complete: (u32, Vec<BackfilledBoundary>),
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
            if self.complete.0 != round {
                self.complete = (round, Vec::new());
            }
            let all = &mut self.complete.1;
            let behind = all.len().saturating_sub(1);
            all.append(&mut self.begun.1);
            // There may be thousands of entries, nearly always in order.
            if !all[behind..].is_sorted_by_key(|p| p.seq) {
                all.sort_by_key(|p| p.seq);
            }
        }
    }

    /// Returns the boundaries of the last complete round, by sequence number.
    pub fn all(&self) -> &[BackfilledBoundary] {
        &self.complete.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let boundary = |seq, ends_step| BackfilledBoundary { seq, ns: seq * 7, depth: 3, ends_step };
        let all = [boundary(5, true), boundary(MAX_SIZE, false)];
        let mut rounds = BackfillRounds::default();
        rounds.add(1, false, &pack(&all[1..]));
        rounds.add(1, true, &pack(&all[..1]));
        assert_eq!(rounds.all(), all);
        assert_eq!((all[1].event().kind, all[1].event().size), (EventKind::AltBoundary as u8, MAX_SIZE));
    }

    #[test]
    fn a_round_counts_once_it_is_complete() {
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
