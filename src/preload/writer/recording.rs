//! The writing side: appends events (lock-free, per thread), table entries and checkpoints to the mapped file.
//!
//! It does not know what an event means. The hot path is [`append`]: one atomic add and four stores.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*, fence};

use crate::writer::file;
use crate::writer::lock;
use crate::writer::segment_pool::EventSegment;
use crate::writer::segment_pool::SPACE;
use crate::writer::segment_pool::Space;
use crate::writer::segment_pool::set;
use leaktrace_core::format::entry::TableEntry;
use leaktrace_core::format::event::{Event, RECORD};
use leaktrace_core::format::file_layout::{
    ENTRY_HEAD, MAGIC, PAYLOAD, ROOM, SEGMENT, VERSION, header, segment, usage,
};

/// Events that fit in a segment.
pub(crate) const PER_SEGMENT: usize = ROOM / RECORD;

/// A thread's place in its event segment. All zero = none yet; plain words, because it lives in thread-local storage
/// without a destructor.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Cursor {
    next: u64,
    end: u64,
    segment: u32,
    /// The recording it belongs to; another one's cursor is void.
    recording: u32,
}

impl Cursor {
    /// No place yet.
    pub const NONE: Cursor = Cursor { next: 0, end: 0, segment: 0, recording: 0 };
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    Yes,
    /// Yes, in a fresh segment: a good moment to see whether the ledger should catch up.
    Rolled,
    /// No room: counted as dropped in the header.
    No,
}

/// Counts recordings of this process image; 0 = none open.
#[unsafe(link_section = ".data.leaktrace")]
static RECORDING: AtomicU32 = AtomicU32::new(0);
static OPENED: AtomicU32 = AtomicU32::new(0);
/// Next sequence number. Alone on its line: every thread adds to it.
#[repr(align(128))]
struct Sequence(AtomicU64);
#[unsafe(link_section = ".data.leaktrace")]
static SEQUENCE: Sequence = Sequence(AtomicU64::new(1));

/// Opens the recording of this process, which began at `since_ns` (0: not known). `Err` is the errno; `EWOULDBLOCK`:
/// another process writes it; `EEXIST`: it is of this very process, from before an `exec`; `EMEDIUMTYPE`: a file that is
/// no recording stands there.
pub fn open(path: &std::ffi::CStr, pid: u32, began_ns: u64, since_ns: u64) -> Result<(), i32> {
    let mut space = SPACE.lock();
    file::create(path, |head| may_go(head, pid, since_ns))?;
    *space = Space {
        free: Vec::new(),
        empty: Vec::new(),
        orphans: Vec::new(),
        events: Vec::new(),
        checkpoint: Vec::new(),
        tables: Vec::new(),
        tables_used: 0,
        generation: 0,
        fresh: 1,
        refused: 0,
        patience: 0,
        helpless: 0,
    };
    SAID_FULL.store(false, Relaxed);
    SEQUENCE.0.store(1, Relaxed);
    set(0, header::VERSION, u64::from(VERSION) | (SEGMENT as u64) << 32);
    set(0, header::PID, u64::from(pid));
    set(0, header::BEGAN, began_ns);
    set(0, header::SEGMENTS, u64::from(space.fresh));
    // The magic last: a file without it was never begun.
    set(0, 0, u64::from_le_bytes(MAGIC));
    RECORDING.store(OPENED.fetch_add(1, Relaxed) + 1, Release);
    Ok(())
}

/// Whether a file that begins so may be written over.
fn may_go(head: &[u8], pid: u32, since_ns: u64) -> Result<(), i32> {
    let word = |at: usize| head.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    match word(0) {
        // Never begun.
        0 => Ok(()),
        magic if magic != u64::from_le_bytes(MAGIC) => Err(libc::EMEDIUMTYPE),
        _ if word(header::PID) as u32 == pid && word(header::BEGAN) >= since_ns => Err(libc::EEXIST),
        _ => Ok(()),
    }
}

/// True while a recording is open.
pub fn is_open() -> bool {
    RECORDING.load(Acquire) != 0
}

/// Appends an event; its `seq` is given here. The caller's own cursor, no lock, no allocation on the usual way.
#[inline(always)]
pub(crate) fn append(cursor: &mut Cursor, event: &Event) -> Appended {
    let mut result = Appended::Yes;
    if cursor.next == cursor.end || cursor.recording != RECORDING.load(Relaxed) {
        if !roll(cursor) {
            return Appended::No;
        }
        result = Appended::Rolled;
    }
    // SAFETY: there is room in the cursor's segment.
    unsafe { append_within(cursor, event) };
    result
}

/// The same where nothing else has to be done for it; `false`: something has, and nothing was.
#[inline(always)]
pub(crate) fn append_at_once(cursor: &mut Cursor, event: &Event) -> bool {
    let fits = cursor.next != cursor.end && cursor.recording == RECORDING.load(Relaxed);
    if fits {
        // SAFETY: as just seen.
        unsafe { append_within(cursor, event) };
    }
    fits
}

/// # Safety
/// The cursor is one of this recording, and not at its segment's end.
#[inline(always)]
unsafe fn append_within(cursor: &mut Cursor, event: &Event) {
    let [_, address, sized, named] = event.pack();
    let seq = SEQUENCE.0.fetch_add(1, AcqRel);
    let record = cursor.next as *mut u64;
    // SAFETY: `next` lies RECORD bytes or more before `end` of a mapped segment that only this thread writes; the words
    // are aligned. The sequence number goes last, with release: a reader that sees it sees the rest.
    unsafe {
        record.add(1).write(address);
        record.add(2).write(sized);
        record.add(3).write(named);
        (*record.cast::<AtomicU64>()).store(seq, Release);
    }
    cursor.next += RECORD as u64;
}

/// Appends two events with neighbouring sequence numbers (the second explains the first).
pub(crate) fn append_pair(cursor: &mut Cursor, first: &Event, second: &Event) -> Appended {
    // Both in one segment, so that no other event of this thread and no failure can come between.
    let fits = |c: &Cursor| c.recording == RECORDING.load(Relaxed) && c.end - c.next >= 2 * RECORD as u64;
    while !fits(cursor) {
        if !roll(cursor) {
            return Appended::No;
        }
    }
    let seq = SEQUENCE.0.fetch_add(2, AcqRel);
    for (event, seq) in [(first, seq), (second, seq + 1)] {
        let [_, address, sized, named] = event.pack();
        let record = cursor.next as *mut u64;
        // SAFETY: as in `append`; two records were checked to fit.
        unsafe {
            record.add(1).write(address);
            record.add(2).write(sized);
            record.add(3).write(named);
            (*record.cast::<AtomicU64>()).store(seq, Release);
        }
        cursor.next += RECORD as u64;
    }
    Appended::Yes
}

/// Seals the cursor's segment and takes another.
#[cold]
#[inline(never)]
fn roll(cursor: &mut Cursor) -> bool {
    let recording = RECORDING.load(Acquire);
    if recording == 0 {
        return false;
    }
    let mut space = SPACE.lock();
    if cursor.recording == recording {
        seal(&mut space, cursor);
    }
    *cursor = Cursor::NONE;
    let fresh = space.fresh;
    let mut place = space.place();
    if place.is_none() && space.may_ask_for_relief() {
        drop(space);
        relieved();
        space = SPACE.lock();
        place = space.place();
        if place.is_none() {
            space.relief_was_useless();
        }
    }
    let Some((index, used, base)) = place.and_then(|(i, used)| Some((i, used, file::base(i)?))) else {
        let refused = space.refused;
        drop(space);
        count_dropped();
        say_full(refused);
        return false;
    };
    drop(space);
    // Nobody has to wait for it. A segment that was in use before has its pages, or had them taken for good reason.
    if index >= fresh {
        file::populate(index);
    }
    let start = base as u64 + PAYLOAD as u64;
    *cursor = Cursor {
        next: start + (used * RECORD) as u64,
        end: start + (PER_SEGMENT * RECORD) as u64,
        segment: index,
        recording,
    };
    true
}

impl Space {
    /// A segment for events and how many it holds already.
    fn place(&mut self) -> Option<(u32, usize)> {
        if let Some(orphan) = self.orphans.pop() {
            return Some(orphan);
        }
        let first = SEQUENCE.0.load(Acquire);
        let index = self.take(usage::EVENTS, first)?;
        self.events.push(EventSegment { index, drained: 0, sealed: None, last: 0, ahead: first });
        Some((index, 0))
    }
}

/// Who helps when the file cannot grow: `relieve` may write a checkpoint, which gives segments back; `full` says that
/// events are lost, and the errno why.
pub struct Help {
    pub relieve: fn(),
    pub full: fn(i32),
}

static HELP: AtomicPtr<Help> = AtomicPtr::new(std::ptr::null_mut());
static SAID_FULL: AtomicBool = AtomicBool::new(false);

/// Takes the help on.
pub fn help(help: &'static Help) {
    HELP.store(std::ptr::from_ref(help).cast_mut(), Release);
}

fn helped(with: impl FnOnce(&Help)) {
    // SAFETY: null, or what `help` was given, which lives for ever.
    if let Some(help) = unsafe { HELP.load(Acquire).as_ref() } {
        with(help);
    }
}

#[cold]
fn relieved() {
    helped(|help| (help.relieve)());
}

fn say_full(errno: i32) {
    if errno != 0 && !SAID_FULL.swap(true, AcqRel) {
        helped(|help| (help.full)(errno));
    }
}

fn seal(space: &mut Space, cursor: &Cursor) {
    let Some(base) = file::base(cursor.segment) else { return };
    let used = (cursor.next - base as u64) as usize - PAYLOAD;
    if let Some(s) = space.events.iter_mut().find(|s| s.index == cursor.segment) {
        s.sealed = Some(used / RECORD);
        // Mostly later, when it was taken in: to sum it up it has to be read, and then it is at hand.
        s.conclude();
    }
    if space.is_crowded() {
        file::let_go(cursor.segment);
    }
}

/// At a thread's end: its segment goes to the next thread that needs one.
pub fn release(cursor: &mut Cursor) {
    if cursor.recording != 0 && cursor.recording == RECORDING.load(Acquire) {
        let mut space = SPACE.lock();
        if let Some(base) = file::base(cursor.segment)
            && cursor.next < cursor.end
        {
            let used = (cursor.next - base as u64) as usize - PAYLOAD;
            space.orphans.push((cursor.segment, used / RECORD));
        } else {
            seal(&mut space, cursor);
        }
    }
    *cursor = Cursor::NONE;
}

fn count_dropped() {
    lost(1);
}

/// Counts events that are not in the recording.
pub fn lost(events: u64) {
    if let Some(word) = file::word(0, header::DROPPED) {
        word.fetch_add(events, Relaxed);
    }
}

/// Writes a table entry. `false`: no recording, no room, or the entry is larger than a segment.
pub fn append_entry(entry: &TableEntry<'_>) -> bool {
    if !is_open() {
        return false;
    }
    let mut space = SPACE.lock();
    for _ in 0..2 {
        if space.write_entry(entry) {
            return true;
        }
        // Full (or none yet). A fresh segment that is still too small is no use.
        if !space.tables.is_empty() && space.tables_used == 0 {
            return false;
        }
        let Some(index) = space.take(usage::TABLES, 0) else { return false };
        space.tables.push(index);
        space.tables_used = 0;
    }
    false
}

impl Space {
    fn write_entry(&mut self, entry: &TableEntry<'_>) -> bool {
        let Some(&table) = self.tables.last() else { return false };
        let Some(base) = file::base(table) else { return false };
        let Some(room) = (ROOM - self.tables_used).checked_sub(ENTRY_HEAD) else { return false };
        // SAFETY: the rest of the payload of a segment that only the holder of this lock writes.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(base.add(PAYLOAD + self.tables_used), room + ENTRY_HEAD)
        };
        let (head, body) = bytes.split_at_mut(ENTRY_HEAD);
        let Ok(written) = postcard::to_slice(entry, body) else { return false };
        let (length, crc) = (written.len(), crc32fast::hash(written));
        head[..4].copy_from_slice(&(length as u32).to_le_bytes());
        head[4..].copy_from_slice(&crc.to_le_bytes());
        self.tables_used += (ENTRY_HEAD + length).next_multiple_of(8);
        self.tables_used = self.tables_used.min(ROOM);
        // The commit word: what lies before it is whole.
        set(table, segment::USED, self.tables_used as u64);
        true
    }
}

/// The committed bytes of every table segment, in the order of writing. For a reader in the same process.
pub fn table_bytes() -> Vec<Vec<u8>> {
    let space = SPACE.lock();
    let mut all = Vec::new();
    // The others are not even looked at: that would bring their pages back.
    for &index in &space.tables {
        let Some(base) = file::base(index) else { continue };
        let used = file::word(index, segment::USED).map_or(0, |w| w.load(Acquire) as usize).min(ROOM);
        // SAFETY: committed table bytes never change.
        all.push(unsafe { std::slice::from_raw_parts(base.add(PAYLOAD), used) }.to_vec());
    }
    all
}

/// Writes `state`, the ledger after every event before `next`, as the newest checkpoint, and recycles the event
/// segments it covers unless `keep_events`. `false`: no room; the older checkpoint stays and no segment is recycled.
pub fn checkpoint(state: &[u8], next: u64, keep_events: bool) -> bool {
    let mut space = SPACE.lock();
    if RECORDING.load(Acquire) == 0 {
        return false;
    }
    let generation = space.generation + 1;
    let parts: Vec<&[u8]> = state.chunks(ROOM).collect();
    let mut taken = Vec::with_capacity(parts.len());
    for _ in &parts {
        match space.take(usage::CHECKPOINT, generation) {
            Some(index) => taken.push(index),
            None => {
                taken.into_iter().for_each(|i| space.give_back(i));
                return false;
            }
        }
    }
    for (i, (index, part)) in taken.iter().zip(&parts).enumerate() {
        let Some(base) = file::base(*index) else { return false };
        // SAFETY: a segment just taken: ROOM payload bytes that only we write, and `part` is no longer than that.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), base.add(PAYLOAD), part.len()) };
        set(*index, segment::CRC, u64::from(crc32fast::hash(part)));
        set(*index, segment::NEXT, u64::from(taken.get(i + 1).copied().unwrap_or(0)));
        set(*index, segment::USED, part.len() as u64);
    }
    fence(SeqCst);
    set(0, header::CHECKPOINT, u64::from(taken.first().copied().unwrap_or(0)));
    set(0, header::GENERATION, generation);
    space.generation = generation;
    let old = std::mem::replace(&mut space.checkpoint, taken);
    old.into_iter().for_each(|i| space.give_back(i));
    // Kept or not, what is drained to its end need not be looked at again.
    let (gone, rest): (Vec<_>, Vec<_>) =
        std::mem::take(&mut space.events).into_iter().partition(|s| s.is_done() && s.last < next);
    space.events = rest;
    for s in gone {
        match keep_events {
            true => file::let_go(s.index),
            false => space.give_back(s.index),
        }
    }
    true
}

/// The next sequence number to be given.
pub(crate) fn sequence() -> u64 {
    SEQUENCE.0.load(Acquire)
}

/// Events that found no room.
pub fn dropped() -> u64 {
    file::word(0, header::DROPPED).map_or(0, |w| w.load(Relaxed))
}

/// Marks a clean end, `ended_ns` after the beginning.
pub fn mark_clean(ended_ns: u64) {
    set(0, header::ENDED, ended_ns);
    if let Some(word) = file::word(0, header::PID) {
        word.fetch_or(1 << 32, Release);
    }
}

/// Before fork: nobody may hold the lock while the process is copied.
pub fn before_fork() {
    lock::hold(&SPACE);
}

/// After fork, in the parent.
pub fn after_fork_parent() {
    // SAFETY: `before_fork` took it on this very thread.
    unsafe { lock::release(&SPACE) };
}

/// After fork, in the child: the recording is the parent's. Forget it.
pub fn after_fork_child() {
    // SAFETY: a child begins with one thread, and this function holds no reference into the lock.
    unsafe { lock::renew(&SPACE) };
    RECORDING.store(0, Release);
    file::forget();
}
