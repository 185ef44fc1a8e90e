//! The segments of the file and who has which: hands them out, takes them back, grows the file. It knows no
//! event and no entry.

use std::sync::atomic::Ordering::Release;

use crate::lock::{Mutex, Rank};
use crate::writer::file;
use leaktrace_core::format::event::RECORD;
use leaktrace_core::format::file_layout::{PAYLOAD, SEGMENT, header, segment, usage};

/// A segment of events that the drain is not done with.
#[derive(Debug)]
pub struct EventSegment {
    pub index: u32,
    /// Records already handed to the drain.
    pub drained: usize,
    /// How many records it will ever hold, once no thread writes here any more.
    pub sealed: Option<usize>,
    /// Sequence number of the last record handed to the drain.
    pub last: u64,
    /// The next one has no lower number than this.
    pub ahead: u64,
}

impl EventSegment {
    /// Returns whether nothing is left to be drained, nor will be.
    pub fn is_done(&self) -> bool {
        self.sealed == Some(self.drained)
    }

    /// Marks the segment as whole in the file, if nothing is left to be drained. Not earlier: to sum it up it
    /// has to be read, and when it has just been drained it is in the processor's cache.
    pub fn seal(&self) {
        let Some(base) = file::base(self.index).filter(|_| self.is_done()) else { return };
        let used = self.drained * RECORD;
        // SAFETY: the payload's first `used` bytes were written, and nobody writes them any more.
        let bytes = unsafe { std::slice::from_raw_parts(base.add(PAYLOAD), used) };
        set(self.index, segment::CRC, u64::from(crc32fast::hash(bytes)));
        set(self.index, segment::USED, used as u64);
    }
}

/// The segments of one recording.
#[derive(Debug)]
pub struct SegmentPool {
    pub free: Vec<u32>,
    /// Free ones whose pages were evicted.
    pub evicted: Vec<u32>,
    /// Segments whose thread ended, with the next free record.
    pub orphans: Vec<(u32, usize)>,
    pub events: Vec<EventSegment>,
    /// How many threads have a segment of their own.
    pub owners: usize,
    /// Segments of table entries; the last one is written to.
    pub tables: Vec<u32>,
    pub tables_used: usize,
    pub checkpoint: Vec<u32>,
    pub generation: u64,
    /// First segment that was never handed out.
    pub fresh: u32,
    /// Whether segments have disk space for their first bytes only. Ends when one of them needs more, or there
    /// are some of them.
    pub is_lean: bool,
    /// The errno with which the file could not grow when last tried; 0 if it could.
    pub refused: i32,
    /// Requests to refuse before the file is grown again: on a full disk a try is slow, and every event would
    /// be one.
    growth_backoff: u32,
    /// Requests to refuse before room is asked for again.
    reclaim_backoff: u32,
}

const BACKOFF: u32 = 4096;
/// Segments (24 MiB) that may stay in this process's memory, be they free or hold events. The pages of more
/// are evicted as soon as nobody writes there: the file has them, and who reads them gets them back.
const RESIDENT_LIMIT: usize = (24 << 20) / SEGMENT;
/// Threads that have a segment of their own (32 MiB in all); more of them share what there is, event by event.
const MAX_OWNERS: usize = 256;
/// Segments that only a checkpoint takes: when the file can grow no more, one gives the others back.
const RESERVE: usize = 8;
/// The segments of a file that is lean.
const MAX_LEAN: u32 = 16;

pub static SEGMENTS: Mutex<SegmentPool> = Mutex::new(Rank::Segments, SegmentPool::new());

/// Stores a word of a segment.
pub fn set(segment: u32, offset: usize, value: u64) {
    if let Some(word) = file::word(segment, offset) {
        word.store(value, Release);
    }
}

impl SegmentPool {
    pub const fn new() -> SegmentPool {
        SegmentPool {
            free: Vec::new(),
            evicted: Vec::new(),
            orphans: Vec::new(),
            events: Vec::new(),
            owners: 0,
            tables: Vec::new(),
            tables_used: 0,
            checkpoint: Vec::new(),
            generation: 0,
            fresh: 1,
            is_lean: false,
            refused: 0,
            growth_backoff: 0,
            reclaim_backoff: 0,
        }
    }

    /// Returns a segment for `usage`, zeroed where old bytes could be taken for new ones; grows the file when
    /// it must.
    pub fn take(&mut self, usage: u64, first: u64) -> Option<u32> {
        if self.is_lean {
            let few = usage != usage::CHECKPOINT && self.fresh < MAX_LEAN;
            if few && file::reserve_first_bytes(self.fresh).is_ok() {
                return Some(self.take_fresh(usage, first));
            }
            if !self.grow() {
                return None;
            }
        }
        let left = self.free.len() + self.evicted.len() + (file::segments() - self.fresh) as usize;
        let reserve = if usage == usage::CHECKPOINT { 0 } else { RESERVE };
        if left <= reserve && !self.grow() {
            return None;
        }
        let index = match self.free.pop().or_else(|| self.evicted.pop()) {
            Some(index) => {
                let base = file::base(index)?;
                // SAFETY: a free segment: mapped, and nobody else writes it.
                unsafe { std::ptr::write_bytes(base, 0, SEGMENT) };
                index
            }
            None => return Some(self.take_fresh(usage, first)),
        };
        set(index, segment::FIRST, first);
        set(index, segment::USE, usage);
        Some(index)
    }

    fn take_fresh(&mut self, usage: u64, first: u64) -> u32 {
        let index = self.fresh;
        self.fresh += 1;
        set(index, segment::FIRST, first);
        set(index, segment::USE, usage);
        set(0, header::SEGMENTS, u64::from(self.fresh));
        index
    }

    /// Returns the bytes of a segment that have disk space.
    pub fn space(&self) -> usize {
        if self.is_lean { file::FIRST_SPACE } else { SEGMENT }
    }

    /// Returns how many events have room in a segment.
    pub fn records(&self) -> usize {
        (self.space() - PAYLOAD) / RECORD
    }

    /// Returns whether there are so many segments that the pages of those at rest are not kept.
    pub fn over_resident_limit(&self) -> bool {
        self.events.len() + self.free.len() > RESIDENT_LIMIT
    }

    /// Returns whether so many threads have a segment that a thread gives its own back after each event.
    pub fn is_crowded(&self) -> bool {
        self.owners > MAX_OWNERS
    }

    /// Allocates the space of the first chunk where the file is lean, else of one chunk more.
    pub fn grow(&mut self) -> bool {
        if self.growth_backoff > 0 {
            self.growth_backoff -= 1;
            return false;
        }
        let grown = if self.is_lean { file::reserve_first_chunk() } else { file::grow() };
        self.is_lean &= grown.is_err();
        self.refused = grown.err().unwrap_or(0);
        if self.refused != 0 {
            self.growth_backoff = BACKOFF;
        }
        self.refused == 0
    }

    /// Returns whether room is worth asking for: the file cannot grow, and asking did not just prove useless.
    pub fn may_ask_for_room(&mut self) -> bool {
        let useless = self.reclaim_backoff > 0;
        self.reclaim_backoff = self.reclaim_backoff.saturating_sub(1);
        self.refused != 0 && !useless
    }

    /// Notes that asking for room gave none.
    pub fn room_was_refused(&mut self) {
        self.reclaim_backoff = BACKOFF;
    }

    /// Takes a segment back that nobody needs any more.
    pub fn give_back(&mut self, index: u32) {
        set(index, segment::USE, usage::FREE);
        if self.over_resident_limit() {
            file::evict_pages(index);
            self.evicted.push(index);
        } else {
            self.free.push(index);
        }
    }
}
