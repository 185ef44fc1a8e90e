//! The bytes of a recording, to be composed and taken apart: where its segments, entries and sums stand.

use leaktrace_core::format::event::RECORD;
use leaktrace_core::format::file_layout::{
    ENTRY_HEAD, MAGIC, PAYLOAD, ROOM, SEGMENT, VERSION, header, segment, usage,
};

pub struct RecordingBytes {
    pub bytes: Vec<u8>,
}

impl RecordingBytes {
    /// A header and nothing else.
    pub fn new() -> RecordingBytes {
        let mut recording = RecordingBytes { bytes: vec![0; SEGMENT] };
        recording.bytes[..8].copy_from_slice(&MAGIC);
        recording.set(header::VERSION, u64::from(VERSION) | (SEGMENT as u64) << 32);
        recording.set(header::PID, 42);
        recording.set(header::SEGMENTS, 1);
        recording
    }

    pub fn word(&self, at: usize) -> u64 {
        self.bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
    }

    pub fn set(&mut self, at: usize, word: u64) {
        if let Some(place) = self.bytes.get_mut(at..at + 8) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Segments there are, the header included.
    pub fn segments(&self) -> usize {
        self.bytes.len() / SEGMENT
    }

    pub fn usage(&self, index: usize) -> u64 {
        self.word(index * SEGMENT + segment::USE)
    }

    /// Segments of one use.
    pub fn all(&self, usage: u64) -> Vec<usize> {
        (1..self.segments()).filter(|&i| self.usage(i) == usage).collect()
    }

    /// The payload's bytes that are used.
    pub fn used(&self, index: usize) -> usize {
        let used = self.word(index * SEGMENT + segment::USED) as usize;
        if used != 0 || self.usage(index) != usage::EVENTS {
            return used.min(ROOM);
        }
        let start = index * SEGMENT + PAYLOAD;
        (0..ROOM / RECORD).find(|n| self.word(start + n * RECORD) == 0).unwrap_or(ROOM / RECORD) * RECORD
    }

    /// Makes the sum right again.
    pub fn reseal(&mut self, index: usize) {
        let start = index * SEGMENT;
        let used = (self.word(start + segment::USED) as usize).min(ROOM);
        let sum = crc32fast::hash(&self.bytes[start + PAYLOAD..start + PAYLOAD + used]);
        self.set(start + segment::CRC, u64::from(sum));
    }

    /// Adds a segment; returns its number.
    pub fn segment(&mut self, usage: u64, payload: &[u8]) -> usize {
        let index = self.segments();
        let start = index * SEGMENT;
        self.bytes.resize(start + SEGMENT, 0);
        self.bytes[start + PAYLOAD..start + PAYLOAD + payload.len()].copy_from_slice(payload);
        self.set(start + segment::USE, usage);
        self.set(header::SEGMENTS, index as u64 + 1);
        index
    }

    /// Adds records, sealed or still open.
    pub fn events(&mut self, payload: &[u8], sealed: bool) {
        for part in payload.chunks(ROOM / RECORD * RECORD) {
            let index = self.segment(usage::EVENTS, part);
            let start = index * SEGMENT;
            self.set(start + segment::FIRST, self.word(start + PAYLOAD));
            if sealed {
                self.set(start + segment::USED, part.len() as u64);
                self.reseal(index);
            }
        }
    }

    /// Appends an entry with its head to a payload of tables.
    pub fn entry(payload: &mut Vec<u8>, body: &[u8]) {
        payload.extend((body.len() as u32).to_le_bytes());
        payload.extend(crc32fast::hash(body).to_le_bytes());
        payload.extend(body);
        payload.resize(payload.len().next_multiple_of(8), 0);
    }

    /// Adds a segment of entries.
    pub fn tables(&mut self, payload: &[u8]) {
        let index = self.segment(usage::TABLES, payload);
        self.set(index * SEGMENT + segment::USED, payload.len() as u64);
    }

    /// The entries of a segment: where their heads stand, and how long they are.
    pub fn entries(&self, index: usize) -> Vec<(usize, usize)> {
        let (mut at, end) = (index * SEGMENT + PAYLOAD, index * SEGMENT + PAYLOAD + self.used(index));
        let mut all = Vec::new();
        while at + ENTRY_HEAD < end {
            let length = self.word(at) as u32 as usize;
            if length == 0 || at + ENTRY_HEAD + length > end {
                break;
            }
            all.push((at, length));
            at += (ENTRY_HEAD + length).next_multiple_of(8);
        }
        all
    }

    /// Makes this state the checkpoint.
    pub fn checkpoint(&mut self, state: &[u8]) {
        let mut last = 0;
        for part in state.chunks(ROOM) {
            let index = self.segment(usage::CHECKPOINT, part);
            let start = index * SEGMENT;
            self.set(start + segment::FIRST, 1);
            self.set(start + segment::USED, part.len() as u64);
            self.reseal(index);
            match last {
                0 => self.set(header::CHECKPOINT, index as u64),
                last => self.set(last * SEGMENT + segment::NEXT, index as u64),
            }
            last = index;
        }
        self.set(header::GENERATION, 1);
    }

    /// The checkpoint's bytes, and the first segment after which they stand.
    pub fn state(&self) -> Vec<u8> {
        let (mut at, mut state) = (self.word(header::CHECKPOINT) as usize, Vec::new());
        for _ in 0..self.segments() {
            if at == 0 || at >= self.segments() {
                break;
            }
            let start = at * SEGMENT + PAYLOAD;
            state.extend_from_slice(&self.bytes[start..start + self.used(at)]);
            at = self.word(at * SEGMENT + segment::NEXT) as usize;
        }
        state
    }
}
