//! The reading side: takes what is whole out of a recording, says what is torn. Never trusts a length it reads.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::entry::Entry;
use super::layout::{ENTRY_HEAD, MAGIC, PAYLOAD, ROOM, SEGMENT, VERSION, header, segment, usage};
use super::placed;
use super::record::{Event, RECORD};
use super::tables::Tables;

/// How the recorded process ended, as far as the file tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It said goodbye, this many nanoseconds after the recording began.
    Clean(u64),
    /// It did not: killed, crashed, or still running.
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
    /// The newest whole checkpoint: the state of a ledger. `None`: start from an empty one.
    pub checkpoint: Option<Vec<u8>>,
    /// Every committed event still in the file, in sequence order. Some may be older than the checkpoint.
    pub events: Vec<Event>,
    pub tables: Tables,
    /// Damage met on the way, one clear line each.
    pub problems: Vec<String>,
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
    // A checkpoint that is replaced while we read may tear what we see; then the next look sees the new one.
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
    let mut bytes = Vec::new();
    // The head alone decides whether the rest is worth reading: a huge file of something else is refused at once.
    file.by_ref().take(SEGMENT as u64).read_to_end(&mut bytes).map_err(ReadError::Io)?;
    let segments = check_head(&bytes, meta.len())?;
    let rest = (segments * SEGMENT as u64).saturating_sub(bytes.len() as u64);
    file.take(rest).read_to_end(&mut bytes).map_err(ReadError::Io)?;
    parse(&bytes)
}

/// Number of segments in use, header included.
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
pub fn parse(bytes: &[u8]) -> Result<Recording, ReadError> {
    let segments = check_head(bytes, bytes.len() as u64)?;
    let pid = u64_at(bytes, header::PID);
    let mut recording = Recording {
        pid: pid as u32,
        began_ns: u64_at(bytes, header::BEGAN),
        ended: if pid >> 32 & 1 == 1 { Ended::Clean(u64_at(bytes, header::ENDED)) } else { Ended::Open },
        dropped_events: u64_at(bytes, header::DROPPED),
        checkpoint: None,
        events: Vec::new(),
        tables: Tables::default(),
        problems: Vec::new(),
    };
    recording.checkpoint = checkpoint(bytes, u64_at(bytes, header::CHECKPOINT), segments)?;
    for (index, segment) in bytes.chunks_exact(SEGMENT).enumerate().skip(1) {
        match u64_at(segment, segment::USE) {
            usage::EVENTS => recording.take_events(index, segment),
            usage::TABLES => recording.take_tables(index, segment),
            _ => {}
        }
    }
    recording.events.sort_unstable_by_key(|e| e.seq);
    placed::put(&mut recording.events);
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
        // Sealed: the sum vouches for all of it. Open: each record's own sequence number does.
        if used != 0
            && (used > ROOM || u64::from(crc32fast::hash(&payload[..used])) != u64_at(segment, segment::CRC))
        {
            self.problems.push(format!("events at byte {} are damaged and left out", index * SEGMENT));
            return;
        }
        let mut last = u64_at(segment, segment::FIRST).saturating_sub(1);
        for record in payload.chunks_exact(RECORD) {
            let seq = u64_at(record, 0);
            if seq <= last {
                break;
            }
            last = seq;
            self.events.push(Event::unpack([seq, u64_at(record, 8), u64_at(record, 16), u64_at(record, 24)]));
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
        if let Ok(entry) = postcard::from_bytes::<Entry<'_>>(body) {
            tables.add(entry);
        }
        at += (ENTRY_HEAD + length).next_multiple_of(8);
    }
    Ok(())
}
