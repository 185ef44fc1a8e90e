//! The writing side: appends events (lock-free, per thread), table entries and checkpoints to the mapped
//! file.
//!
//! It does not know what an event means. The hot path is [`append`]: one atomic add and a few stores.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*, compiler_fence, fence};

use crate::lock::is_interrupted;
use crate::writer::file;
use crate::writer::segment_pool::{EventSegment, SEGMENTS, SegmentPool, set};
use leaktrace_core::format::entry::TableEntry;
use leaktrace_core::format::event::{Event, RECORD};
use leaktrace_core::format::file_layout::{
    ENTRY_HEAD, MAGIC, PAYLOAD, ROOM, SEGMENT, VERSION, header, segment, usage,
};

/// Events that fit in a segment.
pub const PER_SEGMENT: usize = ROOM / RECORD;

/// Where in its event segment a thread writes next. All zero: it has no segment yet. Plain words, because
/// they lie in thread-local storage without a destructor.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Cursor {
    next: u64,
    end: u64,
    segment: u32,
    /// The recording it belongs to (another one's cursor is void), or [`IN_USE`].
    recording: u32,
}

impl Cursor {
    /// The cursor of a thread that has written nothing yet.
    pub const NONE: Cursor = Cursor { next: 0, end: 0, segment: 0, recording: 0 };
}

/// In place of a cursor's recording while an event is written by it: a signal handler that interrupts that
/// must not use it.
const IN_USE: u32 = u32::MAX;

/// The number of the open recording among those of this process image; 0: none is open.
#[unsafe(link_section = ".data.leaktrace")]
static RECORDING: AtomicU32 = AtomicU32::new(0);
static OPENED: AtomicU32 = AtomicU32::new(0);
/// The next sequence number. Alone on its cache line: every thread adds to it.
#[repr(align(128))]
struct Sequence(AtomicU64);
#[unsafe(link_section = ".data.leaktrace")]
static SEQUENCE: Sequence = Sequence(AtomicU64::new(1));

/// Opens the recording of this process, which began at `since_ns` (0: not known). `Err` is the errno;
/// `EWOULDBLOCK`: another process writes it; `EEXIST`: it is of this very process, from before an `exec`;
/// `EMEDIUMTYPE`: a file that is no recording stands there.
pub fn open(path: &CStr, pid: u32, began_ns: u64, since_ns: u64) -> Result<(), i32> {
    let mut pool = SEGMENTS.lock().ok_or(libc::EDEADLK)?;
    file::create(path, |head| may_overwrite(head, pid, since_ns))?;
    *pool = SegmentPool::new();
    REPORTED_FULL.store(false, Relaxed);
    SEQUENCE.0.store(1, Relaxed);
    set(0, header::VERSION, u64::from(VERSION) | (SEGMENT as u64) << 32);
    set(0, header::PID, u64::from(pid));
    set(0, header::BEGAN, began_ns);
    set(0, header::SEGMENTS, u64::from(pool.fresh));
    // The magic last: a file without it was never begun.
    set(0, 0, u64::from_le_bytes(MAGIC));
    RECORDING.store(OPENED.fetch_add(1, Relaxed) + 1, Release);
    Ok(())
}

/// Returns whether a file that begins so may be overwritten; `Err` is the errno that says why not.
fn may_overwrite(head: &[u8], pid: u32, since_ns: u64) -> Result<(), i32> {
    let word = |at: usize| head.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    match word(0) {
        // Never begun.
        0 => Ok(()),
        magic if magic != u64::from_le_bytes(MAGIC) => Err(libc::EMEDIUMTYPE),
        _ if word(header::PID) as u32 == pid && word(header::BEGAN) >= since_ns => Err(libc::EEXIST),
        _ => Ok(()),
    }
}

/// Returns whether a recording is open.
pub fn is_open() -> bool {
    RECORDING.load(Acquire) != 0
}

/// Appends an event; its `seq` is given here. `false`: there is no room, and it was counted as dropped.
#[inline(always)]
pub fn append(cursor: &mut Cursor, event: &Event) -> bool {
    append_in_segment(cursor, event) || append_in_next_segment(cursor, &[*event])
}

/// Appends an event where there is room in the cursor's own segment, which takes neither a lock nor a call.
/// `false`: there is none, and nothing was done.
#[inline(always)]
pub fn append_in_segment(cursor: &mut Cursor, event: &Event) -> bool {
    with_room(cursor, 1, |record| {
        let seq = SEQUENCE.0.fetch_add(1, AcqRel);
        // SAFETY: room for one record, as `with_room` says.
        unsafe { store(record, seq, event) };
    })
}

/// Appends two events with neighbouring sequence numbers (the second explains the first). Both in one
/// segment, so that no other event of this thread and no failure can come between.
pub fn append_pair(cursor: &mut Cursor, first: &Event, second: &Event) -> bool {
    append_both_in_segment(cursor, first, second) || append_in_next_segment(cursor, &[*first, *second])
}

fn append_both_in_segment(cursor: &mut Cursor, first: &Event, second: &Event) -> bool {
    with_room(cursor, 2, |record| {
        let seq = SEQUENCE.0.fetch_add(2, AcqRel);
        // SAFETY: room for two records, as `with_room` says.
        unsafe {
            store(record, seq, first);
            store(record.add(RECORD / 8), seq + 1, second);
        }
    })
}

/// Has `write` store `records` records, for which there is room where it is pointed to; then moves the cursor
/// on. `false`: there is no room. While it writes, the cursor is marked: the event of a signal handler would
/// get a later number and an earlier place, or the same place.
#[inline(always)]
fn with_room(cursor: &mut Cursor, records: usize, write: impl FnOnce(*mut u64)) -> bool {
    let recording = cursor.recording;
    if recording != RECORDING.load(Relaxed) {
        return false;
    }
    let mark: *mut u32 = &raw mut cursor.recording;
    // SAFETY: a field of the cursor, which is borrowed. Volatile, since only a signal handler can tell.
    unsafe { mark.write_volatile(IN_USE) };
    compiler_fence(SeqCst);
    let fits = cursor.end - cursor.next >= (records * RECORD) as u64;
    if fits {
        write(cursor.next as *mut u64);
        cursor.next += (records * RECORD) as u64;
    }
    compiler_fence(SeqCst);
    // SAFETY: as above.
    unsafe { mark.write_volatile(recording) };
    fits
}

/// Stores one record. The sequence number goes last, with release: a reader that sees it sees the rest.
///
/// # Safety
/// `record` is aligned room for one record in a mapped segment that only this thread writes.
#[inline(always)]
unsafe fn store(record: *mut u64, seq: u64, event: &Event) {
    let [_, address, sized, named] = event.pack();
    // SAFETY: the caller's promise.
    unsafe {
        record.add(1).write(address);
        record.add(2).write(sized);
        record.add(3).write(named);
        (*record.cast::<AtomicU64>()).store(seq, Release);
    }
}

/// Appends one or two events in a fresh segment. A signal handler that interrupted an append of the same
/// thread gets a segment of its own, since numbers ascend in each.
#[cold]
#[inline(never)]
fn append_in_next_segment(cursor: &mut Cursor, events: &[Event]) -> bool {
    let mut own = Cursor::NONE;
    let in_use = cursor.recording == IN_USE;
    let cursor = if in_use { &mut own } else { cursor };
    let mut appended = false;
    // A segment that another thread left may be nearly full.
    while !appended && next_segment(cursor, events.len() as u64) {
        appended = match events {
            [first, second] => append_both_in_segment(cursor, first, second),
            [event, ..] => append_in_segment(cursor, event),
            [] => true,
        };
    }
    if in_use {
        release(&mut own);
    }
    appended
}

/// Seals the cursor's segment and takes another. `false`: there is none, or this is a signal handler on top
/// of code of ours that a segment cannot be taken in; `events` events were counted as dropped.
fn next_segment(cursor: &mut Cursor, events: u64) -> bool {
    let recording = RECORDING.load(Acquire);
    if recording == 0 {
        return false;
    }
    if is_interrupted() {
        count_dropped(events);
        return false;
    }
    let old = std::mem::replace(cursor, Cursor { recording: IN_USE, ..Cursor::NONE });
    compiler_fence(SeqCst);
    let taken = take_segment(&old, recording);
    compiler_fence(SeqCst);
    match taken {
        Ok(new) => {
            *cursor = new;
            with_callbacks(|callbacks| (callbacks.segment_filled)());
            true
        }
        Err(refused) => {
            *cursor = Cursor::NONE;
            count_dropped(events);
            report_full(refused);
            false
        }
    }
}

/// Takes a segment for events in place of that of `old`. `Err`: the errno with which the file cannot grow.
fn take_segment(old: &Cursor, recording: u32) -> Result<Cursor, i32> {
    let mut pool = SEGMENTS.lock().ok_or(libc::EDEADLK)?;
    if old.recording == recording {
        retire(&mut pool, old);
    }
    let fresh = pool.fresh;
    let mut taken = pool.take_for_events();
    if taken.is_none() && pool.may_ask_for_room() {
        drop(pool);
        with_callbacks(|callbacks| (callbacks.make_room)());
        pool = SEGMENTS.lock().ok_or(libc::EDEADLK)?;
        taken = pool.take_for_events();
        if taken.is_none() {
            pool.room_was_refused();
        }
    }
    let (index, used, base) =
        taken.and_then(|(i, used)| Some((i, used, file::base(i)?))).ok_or(pool.refused)?;
    drop(pool);
    // Nobody has to wait for it. A segment that was in use before has its pages, or had them taken for good
    // reason.
    if index >= fresh {
        file::populate(index);
    }
    let start = base as u64 + PAYLOAD as u64;
    let (next, end) = (start + (used * RECORD) as u64, start + (PER_SEGMENT * RECORD) as u64);
    Ok(Cursor { next, end, segment: index, recording })
}

impl SegmentPool {
    /// Returns a segment for events and how many it holds already.
    fn take_for_events(&mut self) -> Option<(u32, usize)> {
        if let Some(orphan) = self.orphans.pop() {
            return Some(orphan);
        }
        let first = SEQUENCE.0.load(Acquire);
        let index = self.take(usage::EVENTS, first)?;
        self.events.push(EventSegment { index, drained: 0, sealed: None, last: 0, ahead: first });
        Some((index, 0))
    }
}

/// What the writer has others do.
#[derive(Debug)]
pub struct Callbacks {
    /// A thread has filled a segment: a good moment to see whether the ledger should catch up.
    pub segment_filled: fn(),
    /// The file cannot grow: a checkpoint would give segments back.
    pub make_room: fn(),
    /// Events are lost, since the file cannot grow (the errno says why) and no old ones could make room.
    pub full: fn(i32),
}

static CALLBACKS: AtomicPtr<Callbacks> = AtomicPtr::new(std::ptr::null_mut());
static REPORTED_FULL: AtomicBool = AtomicBool::new(false);

/// Registers what the writer has others do.
pub fn set_callbacks(callbacks: &'static Callbacks) {
    CALLBACKS.store(std::ptr::from_ref(callbacks).cast_mut(), Release);
}

fn with_callbacks(call: impl FnOnce(&Callbacks)) {
    // SAFETY: null, or what `set_callbacks` was given, which lives for ever.
    if let Some(callbacks) = unsafe { CALLBACKS.load(Acquire).as_ref() } {
        call(callbacks);
    }
}

fn report_full(errno: i32) {
    if errno != 0 && !REPORTED_FULL.swap(true, AcqRel) {
        with_callbacks(|callbacks| (callbacks.full)(errno));
    }
}

/// Notes that no thread writes to the cursor's segment any more.
fn retire(pool: &mut SegmentPool, cursor: &Cursor) {
    let Some(base) = file::base(cursor.segment) else { return };
    let used = (cursor.next - base as u64) as usize - PAYLOAD;
    if let Some(s) = pool.events.iter_mut().find(|s| s.index == cursor.segment) {
        s.sealed = Some(used / RECORD);
        s.seal();
    }
    if pool.over_resident_limit() {
        file::evict_pages(cursor.segment);
    }
}

/// Leaves the segment of a thread that ends to the next thread that needs one.
pub fn release(cursor: &mut Cursor) {
    let old = std::mem::replace(cursor, Cursor::NONE);
    if old.recording == 0 || old.recording != RECORDING.load(Acquire) {
        return;
    }
    let Some(mut pool) = SEGMENTS.lock() else { return };
    match file::base(old.segment).filter(|_| old.next < old.end) {
        Some(base) => {
            let used = (old.next - base as u64) as usize - PAYLOAD;
            pool.orphans.push((old.segment, used / RECORD));
        }
        None => retire(&mut pool, &old),
    }
}

/// Counts events that are not in the recording.
pub fn count_dropped(events: u64) {
    if let Some(word) = file::word(0, header::DROPPED) {
        word.fetch_add(events, Relaxed);
    }
}

/// Writes a table entry. `false`: no recording, no room, a signal handler on top of who writes one, or the
/// entry is larger than a segment.
pub fn append_entry(entry: &TableEntry<'_>) -> bool {
    if !is_open() {
        return false;
    }
    let Some(mut pool) = SEGMENTS.lock() else { return false };
    for _ in 0..2 {
        if pool.write_entry(entry) {
            return true;
        }
        // Full (or none yet). A fresh segment that is still too small is no use.
        if !pool.tables.is_empty() && pool.tables_used == 0 {
            return false;
        }
        let Some(index) = pool.take(usage::TABLES, 0) else { return false };
        pool.tables.push(index);
        pool.tables_used = 0;
    }
    false
}

impl SegmentPool {
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

/// Returns the committed bytes of every table segment, in the order of writing. For a reader in the same
/// process.
pub fn table_bytes() -> Vec<Vec<u8>> {
    let Some(pool) = SEGMENTS.lock() else { return Vec::new() };
    let mut all = Vec::new();
    // The memory of others is not read: that would bring their pages back.
    for &index in &pool.tables {
        let Some(base) = file::base(index) else { continue };
        let used = file::word(index, segment::USED).map_or(0, |w| w.load(Acquire) as usize).min(ROOM);
        // SAFETY: committed table bytes never change.
        all.push(unsafe { std::slice::from_raw_parts(base.add(PAYLOAD), used) }.to_vec());
    }
    all
}

/// Writes `state`, the ledger after every event before `next`, as the newest checkpoint, and recycles the
/// event segments it covers unless `keep_events`. `false`: no room; the older checkpoint stays and no segment
/// is recycled.
pub fn checkpoint(state: &[u8], next: u64, keep_events: bool) -> bool {
    let Some(mut pool) = SEGMENTS.lock() else { return false };
    if RECORDING.load(Acquire) == 0 {
        return false;
    }
    let generation = pool.generation + 1;
    let parts: Vec<&[u8]> = state.chunks(ROOM).collect();
    let mut taken = Vec::with_capacity(parts.len());
    for _ in &parts {
        match pool.take(usage::CHECKPOINT, generation) {
            Some(index) => taken.push(index),
            None => {
                taken.into_iter().for_each(|i| pool.give_back(i));
                return false;
            }
        }
    }
    for (i, (index, part)) in taken.iter().zip(&parts).enumerate() {
        let Some(base) = file::base(*index) else { return false };
        // SAFETY: a segment just taken: ROOM payload bytes that only we write, and `part` is no longer than
        // that.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), base.add(PAYLOAD), part.len()) };
        set(*index, segment::CRC, u64::from(crc32fast::hash(part)));
        set(*index, segment::NEXT, u64::from(taken.get(i + 1).copied().unwrap_or(0)));
        set(*index, segment::USED, part.len() as u64);
    }
    fence(SeqCst);
    set(0, header::CHECKPOINT, u64::from(taken.first().copied().unwrap_or(0)));
    set(0, header::GENERATION, generation);
    pool.generation = generation;
    let old = std::mem::replace(&mut pool.checkpoint, taken);
    old.into_iter().for_each(|i| pool.give_back(i));
    // Kept or not, what is drained to its end need not be read again.
    let (gone, rest): (Vec<_>, Vec<_>) =
        std::mem::take(&mut pool.events).into_iter().partition(|s| s.is_done() && s.last < next);
    pool.events = rest;
    for s in gone {
        match keep_events {
            true => file::evict_pages(s.index),
            false => pool.give_back(s.index),
        }
    }
    true
}

/// Returns the next sequence number to be given.
pub fn sequence() -> u64 {
    SEQUENCE.0.load(Acquire)
}

/// Returns how many events found no room.
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

/// Forgets the recording, which is the parent's, in a forked child.
pub fn after_fork_child() {
    RECORDING.store(0, Release);
    file::forget();
}
