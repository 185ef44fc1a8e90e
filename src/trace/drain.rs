//! From the threads' segments to one stream in sequence order, for a reader in the same process.

use std::sync::atomic::{AtomicU64, Ordering::Acquire};

use super::file;
use super::layout::PAYLOAD;
use super::placed;
use super::record::{Event, RECORD};
use super::recording::PER_SEGMENT;
use super::space::SPACE;

/// Collects the events of all threads in sequence order. One per process, used under the ledger's lock.
#[derive(Debug, Default)]
pub struct Drain {
    pending: Vec<[u64; 4]>,
    /// Among them are boundaries that lie elsewhere.
    placed: bool,
    stalled: bool,
}

impl Drain {
    /// Hands every event from `next` on to `apply`, as far as no event in between is still being written.
    /// Returns the next sequence number.
    pub fn run(&mut self, mut next: u64, mut apply: impl FnMut(&Event)) -> u64 {
        self.collect();
        if !self.pending.is_sorted_by_key(|r| r[0]) {
            self.pending.sort_unstable_by_key(|r| r[0]);
        }
        let mut done = 0;
        for record in &self.pending {
            if record[0] > next && !self.stalled {
                break;
            }
            next = next.max(record[0] + 1);
            done += 1;
        }
        if self.placed {
            done = self.before_waiting(done);
            let mut ready: Vec<Event> = self.pending[..done].iter().map(|r| Event::unpack(*r)).collect();
            placed::put(&mut ready);
            ready.iter().for_each(&mut apply);
            self.placed = self.pending[done..].iter().any(placed::is_placed);
        } else {
            self.pending[..done].iter().for_each(|record| apply(&Event::unpack(*record)));
        }
        let next = done.checked_sub(1).map_or(next, |last| self.pending[last][0] + 1);
        self.pending.drain(..done);
        // A thread that died between taking its number and storing it leaves a hole that would stop us for good: after
        // a whole drain of standing still with much waiting, step over it once.
        self.stalled = done == 0 && self.pending.len() > PER_SEGMENT;
        next
    }

    /// What lies before a boundary that has to wait, waits too.
    fn before_waiting(&self, done: usize) -> usize {
        let waiting = self.pending[done..].iter().filter_map(|record| placed::place(&Event::unpack(*record)));
        waiting.min().map_or(done, |first| self.pending[..done].partition_point(|record| record[0] < first))
    }

    fn collect(&mut self) {
        let mut space = SPACE.lock();
        for s in &mut space.events {
            let Some(base) = file::base(s.index) else { continue };
            while s.drained < PER_SEGMENT {
                // SAFETY: inside the segment's payload; word 0 with acquire, then the rest, as `append` stored them.
                let record = unsafe {
                    let at = base.add(PAYLOAD + s.drained * RECORD).cast::<u64>();
                    let seq = (*at.cast::<AtomicU64>()).load(Acquire);
                    if seq <= s.last {
                        break;
                    }
                    [seq, at.add(1).read(), at.add(2).read(), at.add(3).read()]
                };
                s.last = record[0];
                s.drained += 1;
                self.placed |= placed::is_placed(&record);
                self.pending.push(record);
            }
        }
    }
}
