//! The reader: takes what is intact out of a recording and lists what is damaged. It must not trust a length
//! it reads.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::backfilled::BackfilledBoundary;
use super::entry::TableEntry;
use super::event::{Event, RECORD};
use super::file_layout::{ENTRY_HEAD, MAGIC, PAYLOAD, ROOM, SEGMENT, VERSION, header, segment, usage};
use super::tables::Tables;

/// How the recorded process ended, as far as the file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited cleanly, this many nanoseconds after the recording began.
    Clean(u64),
    /// It was killed, crashed, or is still running.
    Open,
}

/// What a recording holds.
#[derive(Debug)]
pub struct Recording {
    pub pid: u32,
    pub began_ns: u64,
    pub ended: Ended,
    /// Events that found no room in the file.
    pub dropped_events: u64,
    /// The newest complete checkpoint: the state of a ledger. `None`: start from an empty one.
    pub checkpoint: Option<Vec<u8>>,
    pub tables: Tables,
    /// The damage found, one line each.
    pub problems: Vec<String>,
    bytes: Vec<u8>,
    /// Runs of events of one thread, by the first sequence number.
    runs: Vec<Run>,
}

/// A range of the file with records of rising sequence numbers.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u64,
    at: usize,
    end: usize,
}

/// Why a file cannot be read as a recording.
#[derive(Debug)]
pub enum ReadError {
    Io(io::Error),
    Directory,
    Empty,
    NotARecording,
    Version(u32),
    Truncated { have: u64, want: u64 },
    Checkpoint { segment: u64 },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(e) => write!(f, "{e}"),
            ReadError::Directory => write!(f, "is a directory, not a recording"),
            ReadError::Empty => write!(f, "is empty"),
            ReadError::NotARecording => {
                write!(f, "is not a leaktrace recording (no LTRACE header at byte 0)")
            }
            ReadError::Version(v) => {
                write!(f, "was written in format {v}; this leaktrace reads format {VERSION}")
            }
            ReadError::Truncated { have, want } => {
                write!(f, "is cut off at byte {have} of {want}; copy the whole file")
            }
            ReadError::Checkpoint { segment } => {
                write!(f, "is damaged: its checkpoint at byte {} does not check", segment * SEGMENT as u64)
            }
        }
    }
}

impl std::error::Error for ReadError {}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Reads a recording; also one that its process is still writing.
pub fn read(path: &Path) -> Result<Recording, ReadError> {
    // A checkpoint that is replaced while it is read looks damaged; the next reading sees the new one.
    let mut last = read_once(path);
    for _ in 0..4 {
        match &last {
            Err(ReadError::Checkpoint { .. }) => last = read_once(path),
            _ => break,
        }
    }
    last
}

fn read_once(path: &Path) -> Result<Recording, ReadError> {
    let mut file = File::open(path).map_err(ReadError::Io)?;
    let meta = file.metadata().map_err(ReadError::Io)?;
    if meta.is_dir() {
        return Err(ReadError::Directory);
    }
    let mut bytes = Vec::with_capacity(SEGMENT);
    // The head alone decides whether the rest is worth reading: a huge file of something else is refused at
    // once.
    file.by_ref().take(SEGMENT as u64).read_to_end(&mut bytes).map_err(ReadError::Io)?;
    let segments = check_head(&bytes, meta.len())?;
    let rest = (segments * SEGMENT as u64).saturating_sub(bytes.len() as u64);
    bytes.reserve_exact(rest as usize);
    file.take(rest).read_to_end(&mut bytes).map_err(ReadError::Io)?;
    parse(bytes)
}

/// Checks the header; returns the number of segments in use, the header's included.
fn check_head(head: &[u8], length: u64) -> Result<u64, ReadError> {
    if head.is_empty() {
        return Err(ReadError::Empty);
    }
    if !head.starts_with(&MAGIC) {
        return Err(ReadError::NotARecording);
    }
    let version = u64_at(head, header::VERSION);
    if version as u32 != VERSION || (version >> 32) as usize != SEGMENT {
        return Err(ReadError::Version(version as u32));
    }
    let segments = u64_at(head, header::SEGMENTS);
    let want = segments.max(1).saturating_mul(SEGMENT as u64);
    if length < want {
        return Err(ReadError::Truncated { have: length, want });
    }
    Ok(segments.max(1))
}

/// Takes a recording out of the bytes of a file.
pub fn parse(file: Vec<u8>) -> Result<Recording, ReadError> {
    let bytes = &file[..];
    let segments = check_head(bytes, bytes.len() as u64)?;
    let pid = u64_at(bytes, header::PID);
    let mut recording = Recording {
        pid: pid as u32,
        began_ns: u64_at(bytes, header::BEGAN),
        ended: if pid >> 32 & 1 == 1 { Ended::Clean(u64_at(bytes, header::ENDED)) } else { Ended::Open },
        dropped_events: u64_at(bytes, header::DROPPED),
        checkpoint: None,
        tables: Tables::default(),
        problems: Vec::new(),
        bytes: Vec::new(),
        runs: Vec::new(),
    };
    recording.checkpoint = checkpoint(bytes, u64_at(bytes, header::CHECKPOINT), segments)?;
    for (index, segment) in bytes.chunks_exact(SEGMENT).enumerate().skip(1) {
        match u64_at(segment, segment::USE) {
            usage::EVENTS => recording.take_events(index, segment),
            usage::TABLES => recording.take_tables(index, segment),
            _ => {}
        }
    }
    recording.runs.sort_by_key(|run| run.first);
    recording.bytes = file;
    Ok(recording)
}

fn checkpoint(bytes: &[u8], first: u64, segments: u64) -> Result<Option<Vec<u8>>, ReadError> {
    if first == 0 {
        return Ok(None);
    }
    let (mut state, mut at, mut generation) = (Vec::new(), first, None);
    // A chain longer than the file has a loop in it.
    for _ in 0..segments {
        let damaged = ReadError::Checkpoint { segment: at };
        let start = (at as usize).saturating_mul(SEGMENT);
        let Some(part) = bytes.get(start..start.saturating_add(SEGMENT)) else { return Err(damaged) };
        let used = u64_at(part, segment::USED) as usize;
        let whole = u64_at(part, segment::USE) == usage::CHECKPOINT
            && *generation.get_or_insert(u64_at(part, segment::FIRST)) == u64_at(part, segment::FIRST)
            && used <= ROOM
            && u64::from(crc32fast::hash(&part[PAYLOAD..PAYLOAD + used])) == u64_at(part, segment::CRC);
        if !whole {
            return Err(damaged);
        }
        state.extend_from_slice(&part[PAYLOAD..PAYLOAD + used]);
        at = u64_at(part, segment::NEXT);
        if at == 0 {
            return Ok(Some(state));
        }
    }
    Err(ReadError::Checkpoint { segment: first })
}

impl Recording {
    fn take_events(&mut self, index: usize, segment: &[u8]) {
        let payload = &segment[PAYLOAD..];
        let used = u64_at(segment, segment::USED) as usize;
        // Sealed: the checksum covers all of it. Open: each record's own sequence number shows that it was
        // committed.
        if used != 0
            && (used > ROOM || u64::from(crc32fast::hash(&payload[..used])) != u64_at(segment, segment::CRC))
        {
            self.problems.push(format!("events at byte {} are damaged and left out", index * SEGMENT));
            return;
        }
        let mut last = u64_at(segment, segment::FIRST).saturating_sub(1);
        let rises = |record: &&[u8]| {
            let before = std::mem::replace(&mut last, u64_at(record, 0));
            before < last
        };
        let count = payload.chunks_exact(RECORD).take_while(rises).count();
        if count > 0 {
            let at = index * SEGMENT + PAYLOAD;
            self.runs.push(Run { first: u64_at(payload, 0), at, end: at + count * RECORD });
        }
    }

    /// Returns every committed event still in the file, in sequence order, and the backfilled boundaries in
    /// between. Some may be older than the checkpoint.
    pub fn events(&self) -> Events<'_> {
        Events {
            bytes: &self.bytes,
            waiting: &self.runs,
            begun: BinaryHeap::new(),
            now: None,
            backfilled: self.tables.backfilled.all(),
        }
    }

    fn take_tables(&mut self, index: usize, segment: &[u8]) {
        let used = (u64_at(segment, segment::USED) as usize).min(ROOM);
        if let Err(at) = entries(&segment[PAYLOAD..PAYLOAD + used], &mut self.tables) {
            self.problems.push(format!(
                "a table entry at byte {} is damaged; those after it in its segment are left out",
                index * SEGMENT + PAYLOAD + at
            ));
        }
    }
}

/// The events of all threads as one stream, merged without a copy: a long recording fills the memory once.
pub struct Events<'a> {
    bytes: &'a [u8],
    /// Runs that have not begun.
    waiting: &'a [Run],
    /// Runs that have begun, by their next number: that, and where they go on and end.
    begun: BinaryHeap<Reverse<(u64, usize, usize)>>,
    /// The run being read: where it goes on and ends, and the number up to which no other run comes in
    /// between.
    now: Option<(usize, usize, u64)>,
    /// Boundaries that lie before an event still to come.
    backfilled: &'a [BackfilledBoundary],
}

impl Events<'_> {
    fn seq(&self, at: usize) -> u64 {
        u64_at(self.bytes, at)
    }
}

impl Iterator for Events<'_> {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((at, end, limit)) = self.now.take_if(|(at, end, _)| at < end) {
                let seq = self.seq(at);
                if seq <= limit {
                    self.now = Some((at + RECORD, end, limit));
                    let [a, b, c] = [8, 16, 24].map(|word| self.seq(at + word));
                    return Some(Event::unpack([seq, a, b, c]));
                }
                self.begun.push(Reverse((seq, at, end)));
            }
            self.now = None;
            let next = |begun: &BinaryHeap<Reverse<(u64, usize, usize)>>| begun.peek().map(|top| top.0.0);
            while let [run, rest @ ..] = self.waiting
                && next(&self.begun).is_none_or(|seq| run.first <= seq)
            {
                self.begun.push(Reverse((run.first, run.at, run.end)));
                self.waiting = rest;
            }
            if let [backfilled, rest @ ..] = self.backfilled
                && next(&self.begun).is_none_or(|seq| backfilled.seq <= seq)
            {
                self.backfilled = rest;
                return Some(backfilled.event());
            }
            let Reverse((_, at, end)) = self.begun.pop()?;
            let others = next(&self.begun).into_iter().chain(self.waiting.first().map(|run| run.first));
            let others =
                others.chain(self.backfilled.first().map(|backfilled| backfilled.seq.saturating_sub(1)));
            self.now = Some((at, end, others.min().unwrap_or(u64::MAX)));
        }
    }
}

/// Takes committed table entries into `tables`. `Err`: the offset of the first damaged one.
pub fn entries(bytes: &[u8], tables: &mut Tables) -> Result<(), usize> {
    let mut at = 0;
    while at + ENTRY_HEAD <= bytes.len() {
        let head = u64_at(bytes, at);
        let (length, crc) = (head as u32 as usize, (head >> 32) as u32);
        let body = bytes.get(at + ENTRY_HEAD..(at + ENTRY_HEAD).saturating_add(length)).ok_or(at)?;
        if length == 0 || crc32fast::hash(body) != crc {
            return Err(at);
        }
        // An entry of a kind that this version does not know is passed over.
        if let Ok(entry) = postcard::from_bytes::<TableEntry<'_>>(body) {
            tables.add(entry);
        }
        at += (ENTRY_HEAD + length).next_multiple_of(8);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::event::EventKind;

    /// A recording whose segments hold events of these numbers.
    fn recording(segments: &[Vec<u64>]) -> Recording {
        let mut bytes = vec![0; SEGMENT * (segments.len() + 1)];
        let mut set = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        set(0, u64::from_le_bytes(MAGIC));
        set(header::VERSION, u64::from(VERSION) | (SEGMENT as u64) << 32);
        set(header::SEGMENTS, segments.len() as u64 + 1);
        for (i, numbers) in segments.iter().enumerate() {
            let start = (i + 1) * SEGMENT;
            set(start + segment::USE, usage::EVENTS);
            set(start + segment::FIRST, 1);
            for (n, &seq) in numbers.iter().enumerate() {
                let e = Event { seq, address: seq * 7, ..Event::new(EventKind::BlockFree) };
                for (word, value) in e.pack().into_iter().enumerate() {
                    set(start + PAYLOAD + n * RECORD + word * 8, value);
                }
            }
        }
        parse(bytes).expect("is a recording")
    }

    #[test]
    fn the_events_of_all_threads_come_in_the_order_of_their_numbers() {
        let mut seed = 9u64;
        for segments in 1..12 {
            let mut all = vec![Vec::new(); segments as usize];
            for seq in 1..3000 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Threads take turns; some numbers are missing, and now and then one is there twice.
                let turn = if seed >> 60 == 0 { seed >> 33 } else { seq / 100 };
                if seed >> 40 & 63 != 0 {
                    all[(turn % segments) as usize].push(seq);
                }
                if seed >> 40 & 63 == 1 {
                    let other = &mut all[((turn + 1) % segments) as usize];
                    if other.last() != Some(&seq) {
                        other.push(seq);
                    }
                }
            }
            let mut wanted: Vec<u64> = all.iter().flatten().copied().collect();
            wanted.sort_unstable();
            let read = recording(&all);
            let events: Vec<Event> = read.events().collect();
            assert!(events.iter().map(|e| e.seq).eq(wanted), "{segments} segments");
            assert!(events.iter().all(|e| e.address == e.seq * 7 && e.kind == EventKind::BlockFree as u8));
        }
        assert_eq!(recording(&[vec![], vec![5]]).events().count(), 1);
        // A backfilled boundary lies before its event, or the first that is left behind it, or the end.
        let mut backfilled = recording(&[vec![2, 3, 7], vec![4, 5, 8]]);
        let places =
            [1, 2, 4, 4, 6, 9].map(|seq| BackfilledBoundary { seq, ns: 0, depth: 1, ends_step: true });
        backfilled.tables.backfilled.add(1, true, &super::super::backfilled::pack(&places));
        let order: Vec<(u64, u64)> = backfilled.events().map(|e| (e.seq, e.size)).collect();
        let (event, boundary) = (|seq| (seq, 0), |place| (0, place));
        let wanted = [
            [boundary(1), boundary(2), event(2), event(3)],
            [boundary(4), boundary(4), event(4), event(5)],
            [boundary(6), event(7), event(8), boundary(9)],
        ];
        assert_eq!(order, wanted.concat());
        // What stands behind a number that does not rise was never committed.
        assert_eq!(recording(&[vec![4, 5, 2, 6]]).events().map(|e| e.seq).collect::<Vec<_>>(), [4, 5]);
    }
}
