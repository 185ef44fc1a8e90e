//! The reader: takes what is intact out of a recording and lists what is damaged. It must not trust a length
//! it reads. What it keeps has a bound, whatever the file's length: events beyond it are read again where they
//! lie, and of a checkpoint's parts only those that belong to the newest one are read at all.

mod events;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::entry::TableEntry;
use super::event::RECORD;
use super::file_layout::{
    ENTRY_HEAD, EXITED, MAGIC, PAYLOAD, ROOM, SEGMENT, VERSION, header, segment, usage,
};
use super::tables::Tables;
pub use events::Events;
use events::{EventStore, KEPT, Source};

/// Bytes of table entries that are read: the writer writes half as many.
const MAX_TABLES: usize = 256 << 20;
/// Bytes of a checkpoint that are read: the state of a ledger with sixteen million live blocks.
const MAX_CHECKPOINT: usize = 256 << 20;

/// Numbers that are given out after a segment was begun, and before the next one is: most of them lie in the file.
const MAX_SINCE_SEGMENT: u64 = 1 << 32;

/// How the recorded process ended, as far as the file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited by itself, this many nanoseconds after the recording began.
    Clean(u64),
    /// Another program took its place by `exec`.
    Replaced,
    /// It was killed, crashed, or is still running.
    Open,
}

/// What a recording holds.
#[derive(Debug)]
pub struct Recording {
    pub pid: u32,
    pub began_ns: u64,
    pub ended: Ended,
    /// The status it exited with, if that is known.
    pub exit_status: Option<i32>,
    /// Events that found no room in the file.
    pub dropped_events: u64,
    /// The most events that can have been unfinished when the process ended: a thread that is stopped while it
    /// writes an event, or a pair of them, leaves numbers without events.
    pub unfinished_events: u64,
    /// The newest complete checkpoint: the state of a ledger. `None`: start from an empty one.
    pub checkpoint: Option<Vec<u8>>,
    pub tables: Tables,
    /// The damage found, one line each.
    pub problems: Vec<String>,
    events: EventStore,
    /// The highest number that a segment begins with.
    newest_segment: u64,
}

/// Why a file cannot be read as a recording.
#[derive(Debug)]
pub enum ReadError {
    Io(io::Error),
    /// A folder, a FIFO, a socket, a device: never opened.
    NotAFile(&'static str),
    Empty,
    NotBegun,
    NotARecording,
    Version(u32),
    Truncated {
        have: u64,
        want: u64,
    },
    Checkpoint {
        segment: u64,
    },
    Hollow {
        at: u64,
        segments: u64,
    },
    Memory,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(e) => write!(f, "{e}"),
            ReadError::NotAFile(kind) => write!(f, "is a {kind}, not a recording"),
            ReadError::Empty => {
                write!(f, "is empty: cut off, or its program was killed while it was being created")
            }
            ReadError::NotBegun => {
                write!(f, "holds nothing: its program was killed while it was being created")
            }
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
                let at = segment.saturating_mul(SEGMENT as u64);
                write!(f, "is damaged: its checkpoint at byte {at} does not check")
            }
            ReadError::Hollow { at, segments } => write!(
                f,
                "is damaged: it claims {segments} segments, and from byte {} on there is nothing in them",
                at * SEGMENT as u64
            ),
            ReadError::Memory => write!(f, "is too large for the memory of this machine"),
        }
    }
}

impl std::error::Error for ReadError {}

#[inline]
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
    // Not opened to find out: opening a FIFO waits for a writer.
    plain(fs::metadata(path).map_err(ReadError::Io)?.file_type())?;
    let file = File::open(path).map_err(ReadError::Io)?;
    let meta = file.metadata().map_err(ReadError::Io)?;
    plain(meta.file_type())?;
    take_apart(Source::File(file), meta.len(), KEPT)
}

/// Returns whether a plain file begins as a recording does, or is one that is being created by its name.
pub fn is_recording(path: &Path) -> bool {
    let mut head = [0; MAGIC.len()];
    let is_named_so = path.extension().is_some_and(|e| e == "ltrace");
    let read = File::open(path).and_then(|mut file| file.read(&mut head));
    read.is_ok_and(|n| head == MAGIC || (is_named_so && head[..n].iter().all(|b| *b == 0)))
}

fn plain(kind: FileType) -> Result<(), ReadError> {
    Err(ReadError::NotAFile(match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "directory",
        kind if kind.is_fifo() => "FIFO",
        kind if kind.is_socket() => "socket",
        _ => "device",
    }))
}

/// Checks the header; returns the number of segments in use, the header's included.
fn check_head(head: &[u8], length: u64) -> Result<u64, ReadError> {
    if head.is_empty() {
        return Err(ReadError::Empty);
    }
    if head.starts_with(&[0; MAGIC.len()]) && length >= SEGMENT as u64 {
        return Err(ReadError::NotBegun);
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
pub fn parse(file: &[u8]) -> Result<Recording, ReadError> {
    take_apart(Source::Bytes(file.to_vec()), file.len() as u64, KEPT)
}

/// The segments in a row that nothing may have been written to. A few are seen as such while their process
/// takes them.
const MAX_HOLLOW: u64 = 64;

/// Reads a file of this length to its end, a segment at a time; keeps so many bytes of its events.
fn take_apart(source: Source, length: u64, kept: usize) -> Result<Recording, ReadError> {
    let mut segment = Vec::with_capacity(SEGMENT);
    let read = |source: &Source, index: u64, segment: &mut Vec<u8>| {
        segment.resize(SEGMENT, 0);
        let count = source.read_at(index * SEGMENT as u64, segment).map_err(ReadError::Io)?;
        segment.truncate(count);
        Ok(count)
    };
    read(&source, 0, &mut segment)?;
    let segments = check_head(&segment, length)?;
    let pid = u64_at(&segment, header::PID);
    let (replaced, exit) = (u64_at(&segment, header::REPLACED), u64_at(&segment, header::EXIT));
    let mut recording = Recording {
        pid: pid as u32,
        began_ns: u64_at(&segment, header::BEGAN),
        exit_status: (exit & EXITED != 0).then_some((exit & 0xff) as i32),
        // Also without what is done at a clean end: `_exit`.
        ended: match pid >> 32 & 1 == 1 || exit & EXITED != 0 {
            true => Ended::Clean(u64_at(&segment, header::ENDED)),
            false => Ended::Open,
        },
        dropped_events: u64_at(&segment, header::DROPPED),
        unfinished_events: 0,
        checkpoint: None,
        tables: Tables::default(),
        problems: Vec::new(),
        events: EventStore::new(source, kept),
        newest_segment: 0,
    };
    let newest = u64_at(&segment, header::CHECKPOINT);
    let (mut parts, mut hollow, mut room) = (BTreeMap::new(), 0, MAX_TABLES);
    for index in 1..segments {
        if read(recording.events.source(), index, &mut segment)? < SEGMENT {
            // Cut off while it is read.
            break;
        }
        let kind = u64_at(&segment, segment::USE);
        hollow = if kind == usage::FREE && u64_at(&segment, segment::FIRST) == 0 { hollow + 1 } else { 0 };
        match kind {
            _ if hollow > MAX_HOLLOW => {
                return Err(ReadError::Hollow { at: index - MAX_HOLLOW, segments });
            }
            usage::EVENTS => recording.take_events(index, &segment)?,
            usage::TABLES => recording.take_tables(index, &segment, &mut room),
            usage::CHECKPOINT => drop(parts.insert(index, Part::of(&segment))),
            _ => {}
        }
    }
    recording.checkpoint = checkpoint(recording.events.source(), &parts, newest)?;
    let impossible = recording.events.cut(recording.newest_segment.saturating_add(MAX_SINCE_SEGMENT))?;
    if impossible > 0 {
        recording
            .problems
            .push(format!("{impossible} events are damaged and left out: their numbers are impossible"));
    }
    recording.events.sort();
    // Should the `exec` have failed, the program went on.
    if replaced > 0 && recording.ended == Ended::Open && recording.events.newest() < replaced {
        recording.ended = Ended::Replaced;
    }
    Ok(recording)
}

/// A part of a checkpoint, by the words of its segment.
struct Part {
    generation: u64,
    crc: u64,
    next: u64,
    /// The bytes that it holds; none if the words cannot be true.
    used: usize,
}

impl Part {
    fn of(segment: &[u8]) -> Part {
        Part {
            generation: u64_at(segment, segment::FIRST),
            crc: u64_at(segment, segment::CRC),
            next: u64_at(segment, segment::NEXT),
            used: Some(u64_at(segment, segment::USED) as usize).filter(|used| *used <= ROOM).unwrap_or(0),
        }
    }
}

/// Appends bytes, if there is memory for them.
fn keep(all: &mut Vec<u8>, bytes: &[u8]) -> Result<(), ReadError> {
    all.try_reserve(bytes.len()).map_err(|_| ReadError::Memory)?;
    all.extend_from_slice(bytes);
    Ok(())
}

/// Reads the parts of the newest checkpoint, in their order.
fn checkpoint(
    source: &Source,
    parts: &BTreeMap<u64, Part>,
    first: u64,
) -> Result<Option<Vec<u8>>, ReadError> {
    if first == 0 {
        return Ok(None);
    }
    let (mut state, mut at, mut generation) = (Vec::new(), first, None);
    let mut room = [0; ROOM];
    // A chain of more parts than there are has a loop in it.
    for _ in 0..parts.len() {
        let damaged = ReadError::Checkpoint { segment: at };
        let Some(part) = parts.get(&at) else { return Err(damaged) };
        let used = &mut room[..part.used];
        let read = source.read_at(at * SEGMENT as u64 + PAYLOAD as u64, used).map_err(ReadError::Io)?;
        let whole = *generation.get_or_insert(part.generation) == part.generation
            && read == part.used
            && u64::from(crc32fast::hash(used)) == part.crc;
        if !whole {
            return Err(damaged);
        }
        if state.len() > MAX_CHECKPOINT {
            return Err(ReadError::Memory);
        }
        keep(&mut state, used)?;
        at = part.next;
        if at == 0 {
            return Ok(Some(state));
        }
    }
    Err(ReadError::Checkpoint { segment: first })
}

impl Recording {
    fn take_events(&mut self, index: u64, segment: &[u8]) -> Result<(), ReadError> {
        let payload = &segment[PAYLOAD..];
        let used = u64_at(segment, segment::USED) as usize;
        // Nobody writes to a sealed one.
        self.unfinished_events += if used == 0 { 2 } else { 0 };
        // Sealed: the checksum covers all of it. Open: each record's own sequence number shows that it was
        // committed.
        if used != 0
            && (used > ROOM || u64::from(crc32fast::hash(&payload[..used])) != u64_at(segment, segment::CRC))
        {
            self.problems.push(format!("events at byte {} are damaged and left out", index * SEGMENT as u64));
            return Ok(());
        }
        // Numbers rise, behind the last there is nothing. One that is too high, or too low, for its neighbours is damaged.
        let first = u64_at(segment, segment::FIRST);
        self.newest_segment = self.newest_segment.max(first);
        let number =
            |n: usize| payload.get(n * RECORD..(n + 1) * RECORD).map_or(0, |record| u64_at(record, 0));
        let at = |n: usize| (index * SEGMENT as u64) + (PAYLOAD + n * RECORD) as u64;
        let (mut begin, mut n, mut last, mut damaged) = (0, 0, first.saturating_sub(1), 0);
        while number(n) != 0 {
            let next = number(n + 1);
            let is_good = last < number(n) && (next == 0 || next > number(n) || next <= last);
            if is_good {
                last = number(n);
            } else {
                damaged += 1;
                self.events.add(&payload[begin * RECORD..n * RECORD], at(begin))?;
                begin = n + 1;
            }
            n += 1;
        }
        if damaged > 0 {
            self.problems.push(format!(
                "{damaged} of {n} events from byte {} on are damaged and left out",
                index * SEGMENT as u64
            ));
        }
        self.events.add(&payload[begin * RECORD..n * RECORD], at(begin))
    }

    /// Returns every committed event still in the file, in sequence order, and the backfilled boundaries in
    /// between. Some may be older than the checkpoint.
    pub fn events(&self) -> Events<'_> {
        self.events.stream(self.tables.backfilled.all(), self.tables.corrections())
    }

    /// Takes the entries of a segment, as long as there is room for them.
    fn take_tables(&mut self, index: u64, segment: &[u8], room: &mut usize) {
        let used = (u64_at(segment, segment::USED) as usize).min(ROOM);
        let at = index * SEGMENT as u64 + PAYLOAD as u64;
        let Some(left) = room.checked_sub(used) else {
            if std::mem::take(room) > 0 {
                self.problems
                    .push(format!("table entries from byte {at} on are left out: there are too many"));
            }
            return;
        };
        *room = left;
        if let Err(offset) = entries(&segment[PAYLOAD..PAYLOAD + used], &mut self.tables) {
            let at = at + offset as u64;
            self.problems.push(format!(
                "a table entry at byte {at} is damaged; those after it in its segment are left out"
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
        if let Ok(entry) = postcard::from_bytes::<TableEntry<'_>>(body) {
            tables.add(entry);
        }
        at += (ENTRY_HEAD + length).next_multiple_of(8);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
