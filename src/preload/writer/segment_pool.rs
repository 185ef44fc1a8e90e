//! Who has which segment: hands them out, takes them back, grows the file. Knows no event and no entry.

use std::sync::atomic::Ordering::Release;

use crate::writer::lock::Mutex;

use crate::writer::file;
use leaktrace_core::format::event::RECORD;
use leaktrace_core::format::file_layout::{PAYLOAD, SEGMENT, header, segment, usage};

pub(crate) struct EventSegment {
    pub(crate) index: u32,
    /// Records already handed to the drain.
    pub(crate) drained: usize,
    /// How many records it will ever hold, once no thread writes here any more.
    pub(crate) sealed: Option<usize>,
    /// Sequence number of the last record handed to the drain.
    pub(crate) last: u64,
    /// The next one has no lower number than this.
    pub(crate) ahead: u64,
}

impl EventSegment {
    /// Nothing is left to be drained, nor will be.
    pub(crate) fn is_done(&self) -> bool {
        self.sealed == Some(self.drained)
    }

    /// Says in the file that the segment is whole, if it is and nothing is left to be drained.
    pub(crate) fn conclude(&self) {
        let Some(base) = file::base(self.index).filter(|_| self.is_done()) else { return };
        let used = self.drained * RECORD;
        // SAFETY: the payload's first `used` bytes were written, and nobody writes them any more.
        let bytes = unsafe { std::slice::from_raw_parts(base.add(PAYLOAD), used) };
        set(self.index, segment::CRC, u64::from(crc32fast::hash(bytes)));
        set(self.index, segment::USED, used as u64);
    }
}

pub(crate) struct Space {
    pub(crate) free: Vec<u32>,
    /// Free ones whose pages were let go.
    pub(crate) empty: Vec<u32>,
    /// Segments whose thread ended, with the next free record.
    pub(crate) orphans: Vec<(u32, usize)>,
    pub(crate) events: Vec<EventSegment>,
    /// Segments of table entries; the last one is written to.
    pub(crate) tables: Vec<u32>,
    pub(crate) tables_used: usize,
    pub(crate) checkpoint: Vec<u32>,
    pub(crate) generation: u64,
    /// First segment that was never handed out.
    pub(crate) fresh: u32,
    /// Why the file could not grow when last tried; 0 if it could.
    pub(crate) refused: i32,
    /// How often to do without before it is tried again: on a full disk a try is slow, and every event would be one.
    pub(crate) patience: u32,
    /// The same for asking for relief.
    pub(crate) helpless: u32,
}

const PATIENCE: u32 = 4096;
/// Segments (24 MiB) that may stay in this process's memory, be they free or hold events. The pages of more are let go as
/// soon as nobody writes there: the file has them, and who reads them gets them back.
const RESIDENT: usize = (24 << 20) / SEGMENT;
/// Segments that only a checkpoint takes: when the file can grow no more, one gives the others back.
const RESERVE: usize = 8;

pub(crate) static SPACE: Mutex<Space> = Mutex::new(Space {
    free: Vec::new(),
    empty: Vec::new(),
    orphans: Vec::new(),
    events: Vec::new(),
    tables: Vec::new(),
    tables_used: 0,
    checkpoint: Vec::new(),
    generation: 0,
    fresh: 1,
    refused: 0,
    patience: 0,
    helpless: 0,
});

/// Stores a word of a segment.
pub(crate) fn set(segment: u32, offset: usize, value: u64) {
    if let Some(word) = file::word(segment, offset) {
        word.store(value, Release);
    }
}

impl Space {
    /// A segment for `usage`, zeroed where old bytes could be taken for new ones; grows the file when it must.
    pub(crate) fn take(&mut self, usage: u64, first: u64) -> Option<u32> {
        let left = self.free.len() + self.empty.len() + (file::segments() - self.fresh) as usize;
        let reserve = if usage == usage::CHECKPOINT { 0 } else { RESERVE };
        if left <= reserve && !self.grow() {
            return None;
        }
        let index = match self.free.pop().or_else(|| self.empty.pop()) {
            Some(index) => {
                let base = file::base(index)?;
                // SAFETY: a free segment: mapped, and nobody else writes it.
                unsafe { std::ptr::write_bytes(base, 0, SEGMENT) };
                index
            }
            None => {
                let index = self.fresh;
                self.fresh += 1;
                index
            }
        };
        set(index, segment::FIRST, first);
        set(index, segment::USE, usage);
        set(0, header::SEGMENTS, u64::from(self.fresh));
        Some(index)
    }

    /// True while there are so many that their pages are not kept.
    pub(crate) fn is_crowded(&self) -> bool {
        self.events.len() + self.free.len() > RESIDENT
    }

    fn grow(&mut self) -> bool {
        if self.patience > 0 {
            self.patience -= 1;
            return false;
        }
        self.refused = file::grow().err().unwrap_or(0);
        if self.refused != 0 {
            self.patience = PATIENCE;
        }
        self.refused == 0
    }

    /// Whether relief is worth asking for: the file cannot grow, and asking did not just prove useless.
    pub(crate) fn may_ask_for_relief(&mut self) -> bool {
        let useless = self.helpless > 0;
        self.helpless = self.helpless.saturating_sub(1);
        self.refused != 0 && !useless
    }

    pub(crate) fn relief_was_useless(&mut self) {
        self.helpless = PATIENCE;
    }

    pub(crate) fn give_back(&mut self, index: u32) {
        set(index, segment::USE, usage::FREE);
        if self.is_crowded() {
            file::let_go(index);
            self.empty.push(index);
        } else {
            self.free.push(index);
        }
    }
}
