//! The drain: merges the threads' segments to one stream in sequence order, for a reader in the same process.
//! It does not know what an event means.

use std::sync::atomic::{AtomicU64, Ordering::Acquire};
use std::time::{Duration, Instant};

use crate::writer::recording::{self, PER_SEGMENT};
use crate::writer::segment_pool::{EventSegment, SEGMENTS};
use crate::writer::signals::FaultsLetIn;
use crate::writer::{fault, file};
use leaktrace_core::format::event::{Event, RECORD};
use leaktrace_core::format::file_layout::PAYLOAD;

/// The events that are buffered at once: 1 MiB of them.
const WINDOW: u64 = (1 << 20) / RECORD as u64;
/// The events that may wait behind one that is being written, however long that takes.
const MAX_WAITING: u64 = 2 * WINDOW;
/// The longest that more events than that may wait.
const PATIENCE: Duration = Duration::from_millis(50);

/// Collects the events of all threads in sequence order. One per process, used under the ledger's lock.
#[derive(Debug, Default)]
pub struct Drain {
    /// Buffered records, each in the slot of its number: nothing has to be sorted. A slot counts if it has
    /// the number that is looked for.
    window: Vec<[u64; 4]>,
    /// The number of the window's first slot: moved on whenever nothing waits, so that few records stay in
    /// the processor's cache.
    base: u64,
    waiting: usize,
    /// Records that were skipped and came after all.
    late: Vec<[u64; 4]>,
    /// Since when nothing moves and much waits behind one event.
    stalled: Option<Instant>,
}

impl Drain {
    /// Hands every event from `next` on to `apply`, as far as no event in between is still being written.
    pub fn run(&mut self, mut next: u64, mut apply: impl FnMut(&Event)) {
        fault::survive_still();
        let _faults = FaultsLetIn::begin();
        if self.waiting == 0 && self.stalled.is_none() {
            // A segment whose first number lies further on becomes a source once that number is reached.
            loop {
                let before = next;
                next = in_turn(next, &mut apply);
                if next == before {
                    break;
                }
            }
        }
        if self.window.is_empty() {
            self.window = vec![[0; 4]; WINDOW as usize];
        }
        let mut skip = self.stalled.is_some_and(|since| since.elapsed() > PATIENCE);
        let mut is_stalled = true;
        loop {
            if self.waiting == 0 {
                self.base = next;
            }
            let limit = next.saturating_add(WINDOW);
            self.collect(next, limit);
            let mut moved = !self.late.is_empty();
            self.late.sort_unstable_by_key(|r| r[0]);
            self.late.drain(..).for_each(|record| apply(&Event::unpack(record)));
            while self.waiting > 0 && next < limit {
                let record = self.window[slot(self.base, next)];
                if record[0] == next {
                    apply(&Event::unpack(record));
                    self.waiting -= 1;
                    moved = true;
                } else if !skip {
                    break;
                }
                next += 1;
            }
            skip = false;
            if !moved && self.waiting > 0 && is_abandoned(next) {
                next += 1;
                moved = true;
            }
            if !moved {
                break;
            }
            is_stalled = false;
        }
        // A thread that is not scheduled, or died, between taking a number and storing it leaves a hole that
        // would stop us: after a while of no progress with much waiting, the hole is skipped. Its event is
        // applied late.
        let stalled = is_stalled && self.waiting > 0 && recording::sequence() - next > MAX_WAITING;
        self.stalled = stalled.then(|| self.stalled.unwrap_or_else(Instant::now));
    }

    /// Buffers what was written with a number below `limit`.
    fn collect(&mut self, next: u64, limit: u64) {
        let Some(mut pool) = SEGMENTS.lock() else { return };
        let (evict, records) = (pool.over_resident_limit(), pool.records());
        for s in &mut pool.events {
            // Its memory is not read: that would bring its pages back.
            if s.ahead >= limit || s.is_done() {
                continue;
            }
            let Some(base) = file::base(s.index) else { continue };
            while s.drained < records {
                // SAFETY: inside the segment's payload; word 0 with acquire, then the rest, as `append`
                // stored them.
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
                    self.window[slot(self.base, record[0])] = record;
                    self.waiting += 1;
                }
            }
            s.seal();
            if evict && s.is_done() {
                file::evict_pages(s.index);
            }
        }
    }
}

/// Hands every event from `next` on to `apply`, as far as they lie in a row, and leaves them to be drained.
pub fn peek(next: u64, mut apply: impl FnMut(&Event)) {
    let _faults = FaultsLetIn::begin();
    // Of all segments at once: how far each is read is noted here alone, and cannot be asked for again.
    let Some(count) = SEGMENTS.lock().map(|pool| pool.events.len()) else { return };
    let mut sources = Vec::with_capacity(count);
    if let Some(pool) = SEGMENTS.lock() {
        let waiting = pool.events.iter().filter(|s| s.drained < s.sealed.unwrap_or(PER_SEGMENT));
        let room = pool.records();
        sources.extend(waiting.filter_map(|s| source(s, room)).take(count).map(Some));
    }
    apply_in_turn(next, &mut sources, &mut apply);
}

/// Returns whether nobody will store the event with this number, which was given out: a jump left the call that had taken
/// it. Numbers rise in each segment, and all that are written to are beyond it.
fn is_abandoned(number: u64) -> bool {
    let is_beyond = |s: &EventSegment| s.is_done() || s.last.max(s.ahead) > number;
    SEGMENTS.lock().is_some_and(|pool| pool.events.iter().all(is_beyond))
}

fn slot(base: u64, seq: u64) -> usize {
    (seq.wrapping_sub(base) % WINDOW) as usize
}

/// A segment that is read from.
#[derive(Clone, Copy)]
struct Source {
    index: u32,
    base: *const u8,
    drained: usize,
    /// The records that it has room for by now: behind them there may be no disk space, so that reading would
    /// fail on a full disk.
    room: usize,
    last: u64,
}

/// The segments that can be read from at once: more than there are threads that allocate.
const MAX_SOURCES: usize = 32;

/// Applies events from where they lie, as long as the next one is there: no copy and no sorting. Returns the
/// number of the first that was not there.
fn in_turn(next: u64, apply: &mut impl FnMut(&Event)) -> u64 {
    let (mut sources, count) = sources(next);
    let sources = &mut sources[..count];
    let next = apply_in_turn(next, sources, apply);
    let Some(mut pool) = SEGMENTS.lock() else { return next };
    let evict = pool.over_resident_limit();
    for source in sources.iter().flatten() {
        // Nobody else advances these, nor gives a segment back that is not drained to its end.
        if let Some(s) = pool.events.iter_mut().find(|s| s.index == source.index) {
            (s.drained, s.last) = (source.drained, source.last);
            s.seal();
            if evict && s.is_done() {
                file::evict_pages(s.index);
            }
        }
    }
    next
}

fn source(s: &EventSegment, room: usize) -> Option<Source> {
    Some(Source { index: s.index, base: file::base(s.index)?, drained: s.drained, room, last: s.last })
}

/// Returns the segments that may have event `next` or later ones, and how many they are.
fn sources(next: u64) -> ([Option<Source>; MAX_SOURCES], usize) {
    let mut sources = [const { None::<Source> }; MAX_SOURCES];
    let mut count = 0;
    // The memory of a segment whose next event comes later is not read: that would bring its pages back.
    let wanted = |s: &&EventSegment| s.drained < s.sealed.unwrap_or(PER_SEGMENT) && s.ahead <= next;
    let Some(pool) = SEGMENTS.lock() else { return (sources, 0) };
    let room = pool.records();
    for s in pool.events.iter().filter(wanted) {
        let (Some(found), Some(place)) = (source(s, room), sources.get_mut(count)) else { continue };
        *place = Some(found);
        count += 1;
    }
    (sources, count)
}

/// Applies the events of these segments from `next` on. Returns the number of the first that was not there.
fn apply_in_turn(next: u64, sources: &mut [Option<Source>], apply: &mut impl FnMut(&Event)) -> u64 {
    match sources.iter().flatten().all(|source| source.room == PER_SEGMENT) {
        true => apply_up_to(next, sources, |_| PER_SEGMENT, apply),
        false => apply_up_to(next, sources, |source| source.room, apply),
    }
}

/// The same for segments with so much room: nearly always a constant, which costs less.
#[inline(always)]
fn apply_up_to(
    mut next: u64,
    sources: &mut [Option<Source>],
    room: impl Fn(&Source) -> usize,
    apply: &mut impl FnMut(&Event),
) -> u64 {
    // A segment that is new since then is found when its event is missed.
    let mut found = true;
    while std::mem::take(&mut found) {
        for source in sources.iter_mut().flatten() {
            let before = next;
            while source.drained < room(source)
                && let Some(record) = source.head(next)
            {
                apply(&Event::unpack(record));
                (source.last, next) = (next, next + 1);
                source.drained += 1;
            }
            found |= next != before;
        }
    }
    next
}

impl Source {
    /// Returns the next record, if it has this number.
    #[inline(always)]
    fn head(&self, number: u64) -> Option<[u64; 4]> {
        // SAFETY: inside the segment's payload: `drained` is less than `room`. Word 0 with
        // acquire, then the rest, as `append` stored them.
        unsafe {
            let at = self.base.add(PAYLOAD + self.drained * RECORD).cast::<u64>();
            let seq = (*at.cast::<AtomicU64>()).load(Acquire);
            (seq == number && seq > self.last)
                .then(|| [seq, at.add(1).read(), at.add(2).read(), at.add(3).read()])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::recording::{Cursor, append, skip_number};
    use leaktrace_core::format::event::EventKind;

    #[test]
    fn a_number_that_a_jump_abandoned_is_skipped_and_one_that_is_waited_for_is_not() {
        let _alone = crate::writer::ALONE.write();
        let path = std::env::temp_dir().join(format!("drain-{}.ltrace", std::process::id()));
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        recording::open(&name, std::process::id(), 0).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (mut drain, mut applied) = (Drain::default(), Vec::new());
        let mut drained = |next: u64| {
            drain.run(next, |event| applied.push(event.seq));
            applied.clone()
        };
        let (mut ours, mut theirs) = (Cursor::NONE, Cursor::NONE);
        assert!(append(&mut ours, &Event::new(EventKind::Alloc)));
        skip_number();
        assert!(append(&mut ours, &Event::new(EventKind::Alloc)));
        assert_eq!(drained(1), [1, 3], "one thread: what it left out it will not store");
        // Another thread has taken number 5 and not stored it yet, as far as anyone can tell.
        assert!(append(&mut theirs, &Event::new(EventKind::Alloc)));
        skip_number();
        assert!(append(&mut ours, &Event::new(EventKind::Alloc)));
        assert_eq!(drained(4), [1, 3, 4]);
        assert!(append(&mut theirs, &Event::new(EventKind::Alloc)));
        assert_eq!(drained(5), [1, 3, 4, 6, 7], "its next one is beyond");
    }
}
