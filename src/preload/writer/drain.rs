//! From the threads' segments to one stream in sequence order, for a reader in the same process.

use std::sync::atomic::{AtomicU64, Ordering::Acquire};
use std::time::{Duration, Instant};

use crate::writer::file;
use crate::writer::recording;
use crate::writer::recording::PER_SEGMENT;
use crate::writer::segment_pool::EventSegment;
use crate::writer::segment_pool::SPACE;
use leaktrace_core::format::event::{Event, RECORD};
use leaktrace_core::format::file_layout::PAYLOAD;

/// Events taken up at once: 1 MiB of them.
const BITE: u64 = (1 << 20) / RECORD as u64;
/// Events that may wait behind one that is being written, however long that takes.
const MANY: u64 = 2 * BITE;
/// How long more than that may wait.
const PATIENCE: Duration = Duration::from_millis(50);

/// Collects the events of all threads in sequence order. One per process, used under the ledger's lock.
#[derive(Debug, Default)]
pub struct Drain {
    /// What was taken up, by number: nothing has to be sorted. A place counts if the number in it is the one looked for.
    window: Vec<[u64; 4]>,
    /// The number that stands in the window's first place: moved on whenever nothing waits, so that small bites stay in
    /// the processor's cache.
    base: u64,
    waiting: usize,
    /// What was stepped over and came after all.
    late: Vec<[u64; 4]>,
    /// Since when it stands still, much waiting behind one event.
    still: Option<Instant>,
}

impl Drain {
    /// Hands every event from `next` on to `apply`, as far as no event in between is still being written.
    pub fn run(&mut self, mut next: u64, mut apply: impl FnMut(&Event)) {
        if self.waiting == 0 && self.still.is_none() {
            // A segment whose first number lies further on is a source by the time that number is reached.
            loop {
                let before = next;
                next = in_turn(next, &mut apply);
                if next == before {
                    break;
                }
            }
        }
        if self.window.is_empty() {
            self.window = vec![[0; 4]; BITE as usize];
        }
        let mut step_over = self.still.is_some_and(|since| since.elapsed() > PATIENCE);
        let mut stood_still = true;
        loop {
            if self.waiting == 0 {
                self.base = next;
            }
            let limit = next.saturating_add(BITE);
            self.collect(next, limit);
            let mut moved = !self.late.is_empty();
            self.late.sort_unstable_by_key(|r| r[0]);
            self.late.drain(..).for_each(|record| apply(&Event::unpack(record)));
            while self.waiting > 0 && next < limit {
                let record = self.window[place(self.base, next)];
                if record[0] == next {
                    apply(&Event::unpack(record));
                    self.waiting -= 1;
                    moved = true;
                } else if !step_over {
                    break;
                }
                next += 1;
            }
            step_over = false;
            if !moved {
                break;
            }
            stood_still = false;
        }
        // A thread that waits for its turn, or died, between taking its number and storing it leaves a hole that would
        // stop us: after a while of standing still with much waiting, it is stepped over. Its event is taken in late.
        let still = stood_still && self.waiting > 0 && recording::sequence() - next > MANY;
        self.still = still.then(|| self.still.unwrap_or_else(Instant::now));
    }

    /// Takes up what was written with a number below `limit`.
    fn collect(&mut self, next: u64, limit: u64) {
        let mut space = SPACE.lock();
        let crowded = space.is_crowded();
        for s in &mut space.events {
            // Not even looked at: that would bring its pages back.
            if s.ahead >= limit || s.is_done() {
                continue;
            }
            let Some(base) = file::base(s.index) else { continue };
            while s.drained < PER_SEGMENT {
                // SAFETY: inside the segment's payload; word 0 with acquire, then the rest, as `append` stored them.
                let record = unsafe {
                    let at = base.add(PAYLOAD + s.drained * RECORD).cast::<u64>();
                    let seq = (*at.cast::<AtomicU64>()).load(Acquire);
                    if seq <= s.last || seq >= limit {
                        s.ahead = s.ahead.max(seq);
                        break;
                    }
                    [seq, at.add(1).read(), at.add(2).read(), at.add(3).read()]
                };
                s.last = record[0];
                s.drained += 1;
                if record[0] < next {
                    self.late.push(record);
                } else {
                    self.window[place(self.base, record[0])] = record;
                    self.waiting += 1;
                }
            }
            s.conclude();
            if crowded && s.is_done() {
                file::let_go(s.index);
            }
        }
    }
}

fn place(base: u64, seq: u64) -> usize {
    (seq.wrapping_sub(base) % BITE) as usize
}

/// A segment of which something is to be read.
#[derive(Clone, Copy)]
struct Source {
    index: u32,
    base: *const u8,
    drained: usize,
    last: u64,
}

/// So many segments may be written to at once for this: more than threads that allocate.
const SOURCES: usize = 32;

/// Hands events on where they lie, as long as the next one is there: no copy and no sorting. Returns the number of the one that
/// was not there.
fn in_turn(mut next: u64, apply: &mut impl FnMut(&Event)) -> u64 {
    let mut sources = [const { None::<Source> }; SOURCES];
    let mut count = 0;
    // Not even looked at, where its next one comes later: that would bring its pages back.
    let wanted = |s: &&EventSegment| s.drained < s.sealed.unwrap_or(PER_SEGMENT) && s.ahead <= next;
    for s in SPACE.lock().events.iter().filter(wanted) {
        let (Some(base), Some(place)) = (file::base(s.index), sources.get_mut(count)) else { continue };
        *place = Some(Source { index: s.index, base, drained: s.drained, last: s.last });
        count += 1;
    }
    // A segment that is new since then comes when its turn is missed.
    let sources = &mut sources[..count];
    let mut found = true;
    while std::mem::take(&mut found) {
        for source in sources.iter_mut().flatten() {
            let before = next;
            while source.drained < PER_SEGMENT
                && let Some(record) = source.head(next)
            {
                apply(&Event::unpack(record));
                (source.last, next) = (next, next + 1);
                source.drained += 1;
            }
            found |= next != before;
        }
    }
    let mut space = SPACE.lock();
    let crowded = space.is_crowded();
    for source in sources.iter().flatten() {
        // Nobody else moves these on, nor gives a segment back that is not drained to its end.
        if let Some(s) = space.events.iter_mut().find(|s| s.index == source.index) {
            (s.drained, s.last) = (source.drained, source.last);
            s.conclude();
            if crowded && s.is_done() {
                file::let_go(s.index);
            }
        }
    }
    next
}

impl Source {
    /// The next record, if it is the one of this number.
    #[inline(always)]
    fn head(&self, number: u64) -> Option<[u64; 4]> {
        // SAFETY: inside the segment's payload: `drained` is less than what it has room for. Word 0 with acquire, then the rest, as
        // `append` stored them.
        unsafe {
            let at = self.base.add(PAYLOAD + self.drained * RECORD).cast::<u64>();
            let seq = (*at.cast::<AtomicU64>()).load(Acquire);
            (seq == number && seq > self.last)
                .then(|| [seq, at.add(1).read(), at.add(2).read(), at.add(3).read()])
        }
    }
}
