//! The writing side: begins and ends the recording, and appends events (lock-free, per thread). Table entries
//! and checkpoints: `entries`.
//!
//! It does not know what an event means. The hot path is [`append`]: one atomic add and a few stores.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*, compiler_fence};

use crate::lock::is_interrupted;
pub use crate::writer::entries::{append_entry, checkpoint, each_table, table_length};
use crate::writer::segment_pool::{EventSegment, SEGMENTS, SegmentPool, set};
use crate::writer::signals::{FaultsLetIn, Undisturbed};
use crate::writer::{fault, file};
use leaktrace_core::format::event::{Event, RECORD};
use leaktrace_core::format::file_layout::{EXITED, MAGIC, PAYLOAD, ROOM, SEGMENT, VERSION, header, usage};

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
    /// Whether an event is being written by it.
    pub fn is_in_use(&self) -> bool {
        self.recording == IN_USE
    }

    /// Where the next event goes: another place after each.
    pub fn position(&self) -> u64 {
        self.next
    }

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

/// Opens the recording of this process. `Err` is the errno; `EEXIST`: a file has that name.
pub fn open(path: &CStr, pid: u32, began_ns: u64) -> Result<(), i32> {
    let mut pool = SEGMENTS.lock().ok_or(libc::EDEADLK)?;
    let is_lean = file::create(path)?;
    with_callbacks(|callbacks| fault::survive(&callbacks.lost));
    *pool = SegmentPool::new();
    pool.is_lean = is_lean;
    REPORTED_FULL.store(false, Relaxed);
    SEQUENCE.0.store(1, Relaxed);
    if !pool.begin() {
        // What never began is nothing to be found later.
        file::discard();
        return Err(pool.refused);
    }
    set(0, header::VERSION, u64::from(VERSION) | (SEGMENT as u64) << 32);
    set(0, header::PID, u64::from(pid));
    set(0, header::BEGAN, began_ns);
    set(0, header::SEGMENTS, u64::from(pool.fresh));
    // The magic last: a file without it was never begun.
    set(0, 0, u64::from_le_bytes(MAGIC));
    RECORDING.store(OPENED.fetch_add(1, Relaxed) + 1, Release);
    Ok(())
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
    let mark: *mut u32 = &raw mut cursor.recording;
    // SAFETY: a field of the cursor, which is borrowed. Volatile, since only a signal handler can tell.
    unsafe { mark.write_volatile(IN_USE) };
    compiler_fence(SeqCst);
    // Marked before it is asked: a handler that forks in between leaves the child memory to write to.
    let fits = recording == RECORDING.load(Relaxed) && cursor.end - cursor.next >= (records * RECORD) as u64;
    if fits {
        write(cursor.next as *mut u64);
        cursor.next += (records * RECORD) as u64;
    }
    compiler_fence(SeqCst);
    // SAFETY: as above.
    unsafe { mark.write_volatile(recording) };
    fits
}

/// Takes a cursor back from an append that a jump has left. What it had stored counts.
pub fn recover(cursor: &mut Cursor) {
    if !cursor.is_in_use() {
        return;
    }
    // The thread had no segment yet.
    if cursor.end == 0 {
        *cursor = Cursor::NONE;
        return;
    }
    // SAFETY: a record of the cursor's own segment, which is mapped while the recording is open: its number.
    let is_stored = |at: u64| unsafe { (*(at as *const AtomicU64)).load(Relaxed) != 0 };
    cursor.recording = RECORDING.load(Relaxed);
    while cursor.recording != 0 && cursor.next < cursor.end && is_stored(cursor.next) {
        cursor.next += RECORD as u64;
    }
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
    // A handler would fork, or jump, while a segment is taken.
    let _undisturbed = Undisturbed::begin();
    let mut own = Cursor::NONE;
    let in_use = cursor.is_in_use();
    let cursor = if in_use { &mut own } else { cursor };
    fault::survive_still();
    let faults = FaultsLetIn::begin();
    let mut appended = false;
    // A segment that another thread left may be nearly full.
    while !appended && next_segment(cursor, events.len() as u64) {
        appended = match events {
            [first, second] => append_both_in_segment(cursor, first, second),
            [event, ..] => append_in_segment(cursor, event),
            [] => true,
        };
    }
    if faults.were_blocked() {
        // So that it comes here for the next one too.
        cursor.end = cursor.next;
    }
    if in_use || SEGMENTS.lock().is_some_and(|pool| pool.is_crowded()) {
        release(cursor);
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
    if old.recording == recording
        && let Some(more) = more_room(&mut pool, old)
    {
        return Ok(more);
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
    let (records, is_lean) = (pool.records(), pool.is_lean);
    pool.owners += 1;
    drop(pool);
    // Nobody has to wait for it. A segment that was in use before has its pages, or had them taken for good
    // reason.
    if index >= fresh && !is_lean {
        file::populate(index);
    }
    let start = base as u64 + PAYLOAD as u64;
    let (next, end) = (start + (used * RECORD) as u64, start + (records * RECORD) as u64);
    Ok(Cursor { next, end, segment: index, recording })
}

/// Returns the cursor with all the room that its segment has, if that is more; else nobody writes there any
/// more, until there is.
fn more_room(pool: &mut SegmentPool, cursor: &Cursor) -> Option<Cursor> {
    let base = file::base(cursor.segment)? as u64 + PAYLOAD as u64;
    let end = |pool: &SegmentPool| base + (pool.records() * RECORD) as u64;
    if cursor.end < end(pool) || (pool.is_lean && pool.grow()) {
        return Some(Cursor { end: end(pool), ..*cursor });
    }
    // Less than a pair needs is as good as nothing.
    if pool.is_lean && cursor.next == cursor.end {
        leave(pool, cursor)
    } else {
        retire(pool, cursor)
    }
    None
}

impl SegmentPool {
    /// Takes the first segments: where there is no room for a few events and names, nothing is recorded.
    fn begin(&mut self) -> bool {
        let tables = self.take(usage::TABLES, 0);
        self.tables.extend(tables);
        let events = self.take_for_events();
        self.orphans.extend(events);
        tables.is_some() && events.is_some()
    }

    /// Returns a segment for events and how many it holds already.
    fn take_for_events(&mut self) -> Option<(u32, usize)> {
        let records = self.records();
        if let Some(at) = self.orphans.iter().rposition(|(_, used)| *used < records) {
            return Some(self.orphans.swap_remove(at));
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
    /// Somebody else cut the file off, or its disk fails. May do nothing but store words and write.
    pub lost: fn(),
}

static CALLBACKS: AtomicPtr<Callbacks> = AtomicPtr::new(std::ptr::null_mut());
static REPORTED_FULL: AtomicBool = AtomicBool::new(false);

/// Registers what the writer has others do.
pub fn set_callbacks(callbacks: &'static Callbacks) {
    CALLBACKS.store(std::ptr::from_ref(callbacks).cast_mut(), Release);
}

fn with_callbacks(call: impl FnOnce(&'static Callbacks)) {
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
    let Some(used) = used(cursor) else { return };
    pool.owners = pool.owners.saturating_sub(1);
    if let Some(s) = pool.events.iter_mut().find(|s| s.index == cursor.segment) {
        s.sealed = Some(used);
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
    let _faults = FaultsLetIn::begin();
    let Some(mut pool) = SEGMENTS.lock() else { return };
    match used(&old) {
        Some(PER_SEGMENT) => retire(&mut pool, &old),
        _ => leave(&mut pool, &old),
    }
}

/// Returns how many records the cursor's segment holds.
fn used(cursor: &Cursor) -> Option<usize> {
    let base = file::base(cursor.segment)?;
    Some(((cursor.next - base as u64) as usize - PAYLOAD) / RECORD)
}

/// Leaves the cursor's segment to the next thread that needs one.
fn leave(pool: &mut SegmentPool, cursor: &Cursor) {
    pool.owners = pool.owners.saturating_sub(1);
    pool.orphans.extend(used(cursor).map(|used| (cursor.segment, used)));
}

/// Counts events that are not in the recording.
pub fn count_dropped(events: u64) {
    if let Some(word) = file::word(0, header::DROPPED) {
        word.fetch_add(events, Relaxed);
    }
}

/// Returns the next sequence number to be given.
pub fn sequence() -> u64 {
    SEQUENCE.0.load(Acquire)
}

/// Takes a number and stores nothing, as an append that a jump leaves.
#[cfg(test)]
pub fn skip_number() {
    SEQUENCE.0.fetch_add(1, AcqRel);
}

/// Returns how many events found no room.
pub fn dropped() -> u64 {
    file::word(0, header::DROPPED).map_or(0, |w| w.load(Relaxed))
}

/// Marks a clean end, `ended_ns` after the beginning.
pub fn mark_clean(ended_ns: u64) {
    let _faults = FaultsLetIn::begin();
    let begins = file::word(0, 0).map_or(0, |word| word.load(Relaxed));
    if is_open() && (file::is_cut_off() || begins != u64::from_le_bytes(MAGIC)) {
        fault::lost();
        return;
    }
    if let Some(pool) = SEGMENTS.lock().filter(|pool| pool.is_lean) {
        file::shorten(pool.fresh);
    }
    set(0, header::ENDED, ended_ns);
    if let Some(word) = file::word(0, header::PID) {
        word.fetch_or(1 << 32, Release);
    }
}

/// Has nothing more written to the recording, whoever tries.
pub fn close() {
    RECORDING.store(0, Release);
}

/// Ends the recording while the process goes on: nothing more is written to it, and the file is let go. Threads that are
/// in the middle of an event write it to memory of nobody's.
pub fn abandon() {
    close();
    file::forget(true);
    fault::give_up();
}

/// Notes the status that this process exits with, `ended_ns` after the beginning.
pub fn mark_exit(status: i32, ended_ns: u64) {
    if !is_this_process() {
        return;
    }
    let _faults = FaultsLetIn::begin();
    if file::word(0, header::ENDED).is_some_and(|word| word.load(Relaxed) == 0) {
        set(0, header::ENDED, ended_ns);
    }
    // As much of it as the parent gets.
    set(0, header::EXIT, EXITED | u64::from(status as u8));
}

/// Notes that this process is about to run another program by `exec`. Should that fail, later events show it.
pub fn mark_replaced() {
    if is_this_process() {
        let _faults = FaultsLetIn::begin();
        set(0, header::REPLACED, sequence());
    }
}

/// Returns whether a recording is open and is of this very process: the child of a `vfork` has its parent's memory.
fn is_this_process() -> bool {
    let is_ours = |word: &AtomicU64| word.load(Relaxed) as u32 == std::process::id();
    is_open() && file::word(0, header::PID).is_some_and(is_ours)
}

/// Forgets the recording, which is the parent's, in a forked child. `in_use`: an event is being written, below
/// the signal handler that forked, and will be written to the end.
pub fn after_fork_child(in_use: bool) {
    RECORDING.store(0, Release);
    file::forget(in_use);
}
