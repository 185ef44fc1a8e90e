//! The events of a recording as one stream in the order of their numbers, whatever the size of the file: those
//! of a usual recording are kept, of a longer one the rest is read again where it lies.
//!
//! A file that is still being written recycles its segments, and is no longer than what is kept. One that is
//! longer keeps every event where it is.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::{ReadError, keep, u64_at};
use crate::format::backfilled::BackfilledBoundary;
use crate::format::corrections::Corrections;
use crate::format::event::{Event, RECORD};

/// The bytes of events that are kept.
pub(super) const KEPT: usize = 256 << 20;
/// Segments that are read again at one time: more than threads write to at one time.
const MAX_LOADED: usize = 1024;

/// Where a recording is read from.
#[derive(Debug)]
pub(super) enum Source {
    File(File),
    Bytes(Vec<u8>),
}

impl Source {
    /// Reads what there is at an offset; fewer bytes at the end.
    pub fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let read = match self {
                Source::File(file) => match file.read_at(rest, at + done as u64) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read?,
                },
                Source::Bytes(bytes) => {
                    let there = usize::try_from(at).ok().and_then(|at| bytes.get(at + done..)).unwrap_or(&[]);
                    let count = there.len().min(rest.len());
                    rest[..count].copy_from_slice(&there[..count]);
                    count
                }
            };
            if read == 0 {
                break;
            }
            done += read;
        }
        Ok(done)
    }
}

/// The events of a recording.
#[derive(Debug)]
pub(super) struct EventStore {
    source: Source,
    limit: usize,
    /// The records of the first segments, one after the other.
    kept: Vec<u8>,
    /// Runs of events of one thread, by the first sequence number.
    runs: Vec<Run>,
}

/// A range of bytes with records of rising sequence numbers: of those that are kept, or of the file.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u64,
    last: u64,
    at: u64,
    length: u32,
    is_kept: bool,
}

impl EventStore {
    /// Returns an empty one, which keeps `limit` bytes of what it is given.
    pub fn new(source: Source, limit: usize) -> EventStore {
        EventStore { source, limit, kept: Vec::new(), runs: Vec::new() }
    }

    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Adds records of rising numbers, which lie at this offset of the file.
    pub fn add(&mut self, records: &[u8], at: u64) -> Result<(), ReadError> {
        let Some(newest) = records.len().checked_sub(RECORD) else { return Ok(()) };
        let is_kept = self.kept.len() + records.len() <= self.limit;
        let at = if is_kept { self.kept.len() as u64 } else { at };
        if is_kept {
            keep(&mut self.kept, records)?;
        }
        let (first, last) = (u64_at(records, 0), u64_at(records, newest));
        self.runs.try_reserve(1).map_err(|_| ReadError::Memory)?;
        self.runs.push(Run { first, last, at, length: records.len() as u32, is_kept });
        Ok(())
    }

    /// Takes events out whose numbers are beyond `highest`; returns how many.
    pub fn cut(&mut self, highest: u64) -> Result<usize, ReadError> {
        let mut count = 0;
        for run in self.runs.iter_mut().filter(|run| run.last > highest) {
            let number = |at: u64| {
                let mut word = [0; 8];
                if run.is_kept {
                    return Ok(u64_at(&self.kept, at as usize));
                }
                self.source.read_at(at, &mut word).map_err(ReadError::Io)?;
                Ok(u64::from_le_bytes(word))
            };
            while run.length > 0 && number(run.at + u64::from(run.length) - RECORD as u64)? > highest {
                run.length -= RECORD as u32;
                count += 1;
            }
            run.last = match run.length {
                0 => 0,
                length => number(run.at + u64::from(length) - RECORD as u64)?,
            };
        }
        self.runs.retain(|run| run.length > 0);
        Ok(count)
    }

    /// Puts the runs in order. Once, when all were added.
    pub fn sort(&mut self) {
        self.runs.sort_by_key(|run| run.first);
    }

    /// The highest number; 0 without events.
    pub fn newest(&self) -> u64 {
        self.runs.iter().map(|run| run.last).max().unwrap_or(0)
    }

    /// Returns every event in sequence order, and the backfilled boundaries in between.
    pub fn stream<'a>(
        &'a self,
        backfilled: &'a [BackfilledBoundary],
        corrections: Corrections,
    ) -> Events<'a> {
        Events {
            store: self,
            waiting: &self.runs,
            begun: BinaryHeap::new(),
            now: None,
            loaded: Vec::new(),
            free: Vec::new(),
            backfilled,
            corrections,
        }
    }
}

/// The events of all threads as one stream, merged without a copy: a long recording fills the memory once.
pub struct Events<'a> {
    store: &'a EventStore,
    /// Runs that have not begun.
    waiting: &'a [Run],
    /// Runs that have begun, by their next number.
    begun: BinaryHeap<Reverse<(u64, Place)>>,
    /// The run being read, and the number up to which no other run comes in between.
    now: Option<(Place, u64)>,
    /// The records of runs that were read again, and those of these that are read to their end.
    loaded: Vec<Vec<u8>>,
    free: Vec<u32>,
    /// Boundaries that lie before an event still to come.
    backfilled: &'a [BackfilledBoundary],
    corrections: Corrections,
}

/// Where a run goes on and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    at: usize,
    end: usize,
    /// Among those that were read again; [`IS_KEPT`]: among those that are kept.
    loaded: u32,
}

const IS_KEPT: u32 = u32::MAX;

impl Events<'_> {
    #[inline(always)]
    fn record(&self, place: Place) -> Option<[u64; 4]> {
        let bytes = match place.loaded {
            IS_KEPT => &self.store.kept,
            loaded => self.loaded.get(loaded as usize)?,
        };
        let record = bytes.get(place.at..place.at + RECORD)?;
        Some([0, 8, 16, 24].map(|word| u64_at(record, word)))
    }

    /// Begins a run; what cannot be read again is left out.
    fn begin(&mut self, run: Run) {
        let length = run.length as usize;
        let place = if run.is_kept {
            Place { at: run.at as usize, end: run.at as usize + length, loaded: IS_KEPT }
        } else {
            let Some(loaded) = self.load(run.at, length) else { return };
            // As far as it still is what was found there.
            let (bytes, mut last) = (&self.loaded[loaded as usize], run.first.saturating_sub(1));
            let rises = |record: &&[u8]| {
                let before = std::mem::replace(&mut last, u64_at(record, 0));
                before < last && last <= run.last
            };
            let end = bytes.chunks_exact(RECORD).take_while(rises).count() * RECORD;
            Place { at: 0, end, loaded }
        };
        self.go_on(place);
    }

    /// Leaves a run until its next event is the first of all.
    fn go_on(&mut self, place: Place) {
        match self.record(place).filter(|_| place.at < place.end) {
            Some([seq, ..]) => self.begun.push(Reverse((seq, place))),
            None if place.loaded != IS_KEPT => self.free.push(place.loaded),
            None => {}
        }
    }

    fn load(&mut self, at: u64, length: usize) -> Option<u32> {
        let loaded = match self.free.pop() {
            Some(loaded) => loaded,
            None if self.loaded.len() < MAX_LOADED => {
                self.loaded.push(Vec::new());
                self.loaded.len() as u32 - 1
            }
            None => return None,
        };
        let bytes = &mut self.loaded[loaded as usize];
        bytes.resize(length, 0);
        let read = self.store.source.read_at(at, bytes).unwrap_or(0);
        bytes.truncate(read);
        Some(loaded)
    }
}

impl Iterator for Events<'_> {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((place, limit)) = self.now {
                if place.at < place.end
                    && let Some(record) = self.record(place)
                    && record[0] <= limit
                {
                    self.now = Some((Place { at: place.at + RECORD, ..place }, limit));
                    return Some(self.corrections.apply(Event::unpack(record)));
                }
                self.now = None;
                self.go_on(place);
            }
            let next = |begun: &BinaryHeap<Reverse<(u64, Place)>>| begun.peek().map(|top| top.0.0);
            while let [run, rest @ ..] = self.waiting
                && next(&self.begun).is_none_or(|seq| run.first <= seq)
            {
                self.waiting = rest;
                self.begin(*run);
            }
            if let [backfilled, rest @ ..] = self.backfilled
                && next(&self.begun).is_none_or(|seq| backfilled.seq <= seq)
            {
                self.backfilled = rest;
                return Some(backfilled.event());
            }
            let Reverse((_, place)) = self.begun.pop()?;
            let others = next(&self.begun).into_iter().chain(self.waiting.first().map(|run| run.first));
            let others =
                others.chain(self.backfilled.first().map(|backfilled| backfilled.seq.saturating_sub(1)));
            self.now = Some((place, others.min().unwrap_or(u64::MAX)));
        }
    }
}
