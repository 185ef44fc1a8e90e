//! Changes to a recording that know where its parts stand, so that what lies behind the lengths and sums is reached.

use crate::recording_bytes::RecordingBytes;
use leaktrace_core::format::event::{Event, RECORD};
use leaktrace_core::format::file_layout::{ENTRY_HEAD, PAYLOAD, ROOM, SEGMENT, header, segment, usage};

/// Segments a recording may grow to.
const MOST: usize = 16;

/// A deterministic random number generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        (self.word() >> 16) % bound.max(1)
    }

    fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.index(from.len())])
    }

    /// A word that somebody may not have thought of.
    fn odd(&mut self) -> u64 {
        let shift = self.below(64);
        match self.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => (1 << shift) - 1,
            3 => 1 << shift,
            4 => u64::MAX << shift,
            5 => self.below(64),
            6 => self.below(64) << 12,
            _ => self.word() >> shift,
        }
    }
}

/// Changes `seed` in a few places; parts may come from `other`.
pub fn mutate(seed: &[u8], other: &[u8], r: &mut Random) -> Vec<u8> {
    let mut recording = RecordingBytes { bytes: seed.to_vec() };
    for _ in 0..1 + r.below(4).pow(2) {
        match r.below(16) {
            0 => raw_bytes(&mut recording, r),
            1 => header_word(&mut recording, r),
            2 => segment_word(&mut recording, r),
            3..=5 => event_fields(&mut recording, r),
            6 => event_order(&mut recording, r),
            7 => burst(&mut recording, r),
            8 | 9 => entry_bytes(&mut recording, r),
            10 => entry_again(&mut recording, r),
            11..=13 => state(&mut recording, r),
            14 => splice(&mut recording, &RecordingBytes { bytes: other.to_vec() }, r),
            _ => cut(&mut recording, r),
        }
        if recording.bytes.len() < SEGMENT {
            break;
        }
    }
    recording.bytes
}

/// Bytes where something stands, sums left wrong.
fn raw_bytes(recording: &mut RecordingBytes, r: &mut Random) {
    for _ in 0..1 + r.below(8) {
        let start = r.index(recording.segments()) * SEGMENT;
        let reach = [80, 4096, SEGMENT as u64][r.index(3)];
        let at = start + r.below(reach) as usize;
        if let Some(byte) = recording.bytes.get_mut(at) {
            *byte = r.word() as u8;
        }
    }
}

fn header_word(recording: &mut RecordingBytes, r: &mut Random) {
    let words = [
        header::VERSION,
        header::PID,
        header::BEGAN,
        header::SEGMENTS,
        header::GENERATION,
        header::CHECKPOINT,
        header::DROPPED,
        header::ENDED,
    ];
    let at = words[r.index(words.len())];
    let word = if r.below(3) == 0 { recording.word(at) ^ 1 << r.below(64) } else { r.odd() };
    recording.set(at, word);
}

fn segment_word(recording: &mut RecordingBytes, r: &mut Random) {
    let index = r.index(recording.segments());
    let words = [segment::USE, segment::FIRST, segment::USED, segment::CRC, segment::NEXT];
    let at = index * SEGMENT + words[r.index(words.len())];
    let word = if r.below(2) == 0 { r.below(recording.segments() as u64 + 1) } else { r.odd() };
    recording.set(at, word);
    if r.below(2) == 0 {
        recording.reseal(index);
    }
}

/// A segment of events, and how many stand in it.
fn events_of(recording: &RecordingBytes, r: &mut Random) -> Option<(usize, usize)> {
    let index = r.pick(&recording.all(usage::EVENTS))?;
    let count = recording.used(index) / RECORD;
    (count > 0).then_some((index, count))
}

fn record(recording: &RecordingBytes, at: usize) -> Event {
    Event::unpack([0, 8, 16, 24].map(|word| recording.word(at + word)))
}

fn write(recording: &mut RecordingBytes, at: usize, e: &Event) {
    for (place, word) in [0, 8, 16, 24].into_iter().zip(e.pack()) {
        recording.set(at + place, word);
    }
}

fn event_fields(recording: &mut RecordingBytes, r: &mut Random) {
    let Some((index, count)) = events_of(recording, r) else { return };
    for _ in 0..1 + r.below(6) {
        let at = index * SEGMENT + PAYLOAD + r.index(count) * RECORD;
        let mut e = record(recording, at);
        match r.below(9) {
            0 => e.kind = r.below(30) as u8,
            1 => e.class = r.below(16) as u8,
            2 => e.device = r.odd() as u8,
            3 => e.address = r.odd(),
            4 => e.size = r.odd(),
            5 => e.stack = r.odd() as u32,
            6 => e.context = r.odd() as u8,
            7 => e.entry_point = r.odd() as u16,
            _ => {
                // What another event speaks of.
                let other = record(recording, index * SEGMENT + PAYLOAD + r.index(count) * RECORD);
                (e.address, e.size, e.class) = (other.address, other.size, other.class);
            }
        }
        write(recording, at, &e);
    }
    recording.reseal(index);
}

fn event_order(recording: &mut RecordingBytes, r: &mut Random) {
    let Some((index, count)) = events_of(recording, r) else { return };
    let start = index * SEGMENT + PAYLOAD;
    let (a, b) = (start + r.index(count) * RECORD, start + r.index(count) * RECORD);
    match r.below(4) {
        0 => recording.set(a, r.odd()),
        1 => recording.bytes.copy_within(a..a + RECORD, b),
        2 => {
            // Another event in this one's turn.
            let (x, y) = (record(recording, a), record(recording, b));
            write(recording, a, &Event { seq: x.seq, ..y });
            write(recording, b, &Event { seq: y.seq, ..x });
        }
        _ => {
            let used = recording.used(index).saturating_sub(RECORD * r.index(count));
            recording.set(index * SEGMENT + segment::USED, used as u64);
        }
    }
    recording.reseal(index);
}

/// Many events of one or two kinds, one after the other.
fn burst(recording: &mut RecordingBytes, r: &mut Random) {
    if recording.segments() >= MOST {
        return;
    }
    let last = recording.all(usage::EVENTS).into_iter().map(|i| {
        let used = recording.used(i).saturating_sub(RECORD);
        recording.word(i * SEGMENT + PAYLOAD + used)
    });
    let mut seq = last.max().unwrap_or(0);
    let kinds = [r.below(28) as u8, r.below(28) as u8, r.below(28) as u8];
    let (spread, step) = (1 + r.below(4000), r.odd() % (1 << 40));
    let class = r.below(13) as u8;
    let mut payload = Vec::new();
    let most = if r.below(8) == 0 { 4000 } else { 300 };
    for n in 0..1 + r.below(most) {
        seq = seq.wrapping_add(1);
        let e = Event {
            seq,
            kind: kinds[r.index(3)],
            class,
            address: (n % spread).wrapping_mul(step),
            size: step,
            device: if r.below(4) == 0 { n as u8 } else { 0 },
            stack: (n % spread) as u32,
            context: r.below(3) as u8,
            entry_point: (n % spread) as u16,
        };
        payload.extend(e.pack().into_iter().flat_map(u64::to_le_bytes));
    }
    recording.events(&payload, r.below(2) == 0);
}

fn entry_bytes(recording: &mut RecordingBytes, r: &mut Random) {
    let Some(index) = r.pick(&recording.all(usage::TABLES)) else { return };
    let Some((at, length)) = r.pick(&recording.entries(index)) else { return };
    let body = at + ENTRY_HEAD;
    for _ in 0..1 + r.below(4) {
        // The kind, the ids and the lengths stand in front.
        let place = if r.below(2) == 0 { r.index(length.min(6)) } else { r.index(length) };
        recording.bytes[body + place] = match r.below(3) {
            0 => r.odd() as u8,
            1 => r.below(8) as u8,
            _ => r.word() as u8,
        };
    }
    if r.below(10) == 0 {
        recording.set(at, r.odd());
        return;
    }
    let sum = crc32fast::hash(&recording.bytes[body..body + length]);
    recording.bytes[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
}

/// An entry of its own making at the end: repeated, joined with itself, or larger than it should be.
fn entry_again(recording: &mut RecordingBytes, r: &mut Random) {
    let Some(index) = r.pick(&recording.all(usage::TABLES)) else { return };
    let Some((at, length)) = r.pick(&recording.entries(index)) else { return };
    let body = recording.bytes[at + ENTRY_HEAD..at + ENTRY_HEAD + length].to_vec();
    let mut payload = Vec::new();
    match r.below(3) {
        0 => (0..1 + r.below(300)).for_each(|_| RecordingBytes::entry(&mut payload, &body)),
        1 => RecordingBytes::entry(&mut payload, &body.repeat(1 + r.index(40))),
        _ => {
            let mut longer = body;
            let place = r.index(longer.len());
            let filler = vec![r.word() as u8; r.index(20_000)];
            longer.splice(place..place, filler);
            RecordingBytes::entry(&mut payload, &longer);
        }
    }
    payload.truncate(ROOM);
    if recording.segments() < MOST {
        recording.tables(&payload);
    }
}

/// The checkpoint's own bytes, its sum made right again.
fn state(recording: &mut RecordingBytes, r: &mut Random) {
    let mut state = recording.state();
    if state.is_empty() || recording.segments() >= MOST {
        return;
    }
    for _ in 0..1 + r.below(4) {
        let at = r.index(state.len());
        match r.below(7) {
            0 => state[at] = r.odd() as u8,
            1 => state[at] ^= 1 << r.below(8),
            2 => drop(state.drain(at..(at + 1 + r.index(8)).min(state.len()))),
            3 => {
                // A number as postcard writes it.
                let mut number = r.odd();
                let mut bytes = Vec::new();
                while number >= 128 {
                    bytes.push(number as u8 | 128);
                    number >>= 7;
                }
                bytes.push(number as u8);
                let end = (at + if r.below(2) == 0 { 1 } else { bytes.len() }).min(state.len());
                state.splice(at..end, bytes);
            }
            4 => {
                let from = r.index(state.len());
                let part = state[from..(from + r.index(64)).min(state.len())].to_vec();
                state.splice(at..at, part);
            }
            5 => state.truncate(at.max(1)),
            _ => state.extend((0..r.below(64)).map(|_| r.word() as u8)),
        }
        if state.is_empty() {
            return;
        }
    }
    recording.checkpoint(&state);
}

/// A segment of another recording, in place of one of this or behind it.
fn splice(recording: &mut RecordingBytes, other: &RecordingBytes, r: &mut Random) {
    if other.segments() < 2 {
        return;
    }
    let from = (1 + r.index(other.segments() - 1)) * SEGMENT;
    let part = &other.bytes[from..from + SEGMENT];
    let to = 1 + r.index(recording.segments());
    if to >= recording.segments() {
        if recording.segments() < MOST {
            let index = recording.segment(usage::FREE, &[]);
            recording.bytes[index * SEGMENT..(index + 1) * SEGMENT].copy_from_slice(part);
        }
    } else {
        recording.bytes[to * SEGMENT..(to + 1) * SEGMENT].copy_from_slice(part);
    }
}

/// The end missing, with or without the header knowing.
fn cut(recording: &mut RecordingBytes, r: &mut Random) {
    let length = match r.below(3) {
        0 => r.index(recording.bytes.len()),
        _ => (1 + r.index(recording.segments())) * SEGMENT,
    };
    recording.bytes.truncate(length);
    if r.below(8) != 0 {
        recording.set(header::SEGMENTS, (length / SEGMENT).max(1) as u64);
    }
}
