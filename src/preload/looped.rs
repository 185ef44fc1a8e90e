//! The loop of the program, as far as it needs the process: which events show it, and when it is asked.
//!
//! Looked at from hooks, under the allocator's lock, on the thread whose event it is. The detector is behind a lock of its own,
//! which that thread alone takes once a loop was chosen. Until then what would be chosen is written down now and then, for the
//! reader of a process that is killed.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::time::Duration;

use super::{boundary, life, memory};
use crate::capture::{self, Walk, thread};
use crate::steps::Setting;
use crate::steps::loops::{CodeText, Heard, Loops, Moment, Place, Seen, Settled, Surroundings};
use crate::trace::entry::Entry;
use crate::trace::lock::{self, Mutex};
use crate::trace::placed::{self, Placed};
use crate::trace::recording;

/// Iterations that a loop must have come round before it is taken for steps.
const LEAST: u64 = 8;
/// The same where the program's steps were said to be its loop's and it is over.
const LEAST_ASKED: u64 = 2;
/// Bytes that the detector may take.
const ROOM: usize = 12 << 20;
/// Held for a microsecond. Longer: this is a signal handler in the middle of it.
const PATIENCE: Duration = Duration::from_millis(2);

static WATCH: Mutex<Option<Box<Loops>>> = Mutex::new(None);
type Guard = lock::MutexGuard<'static, Option<Box<Loops>>>;
/// True while the program's loop is looked for, or ends its steps.
static LOOKING: AtomicBool = AtomicBool::new(false);
/// The thread whose loop was chosen; 0 before.
static THREAD: AtomicUsize = AtomicUsize::new(0);
/// Optimizers end the steps, on that thread, and its loops do so only in between.
static PHASED: AtomicBool = AtomicBool::new(false);
/// The number of the last event of the chosen thread that was looked at.
static LAST: AtomicU64 = AtomicU64::new(0);
/// Events by which that thread gave memory back since. It alone counts.
static FREED: AtomicU64 = AtomicU64::new(0);
/// What was written of the loop up to now.
static ROUND: AtomicU32 = AtomicU32::new(0);

/// Begins or ends looking.
pub fn look(yes: bool) {
    ROUND.store(0, Release);
    LOOKING.store(yes, Release);
}

/// The same, for good: what was found is let go of, and what was drafted is none.
#[cold]
pub fn stop() {
    if !LOOKING.swap(false, AcqRel) {
        return;
    }
    PHASED.store(false, Release);
    let watch = WATCH.try_lock_for(PATIENCE).and_then(|mut watch| {
        if THREAD.load(Acquire) == 0 && ROUND.load(Acquire) != 0 {
            write(&Settled::default());
        }
        watch.take()
    });
    drop(watch);
}

pub fn is_looking() -> bool {
    LOOKING.load(Acquire)
}

/// True while a loop is looked for and none was chosen.
pub fn is_open() -> bool {
    is_looking() && THREAD.load(Acquire) == 0
}

/// True while there may be loops to choose that were not.
pub fn may_settle() -> bool {
    is_looking() && (THREAD.load(Acquire) == 0 || PHASED.load(Acquire))
}

/// An event is about to be noted; it gives memory back if it is `freed`. Returns the walk over the frames of one that does not, if
/// there was one.
#[inline(always)]
pub fn event(freed: bool) -> Option<Walk> {
    if !LOOKING.load(Relaxed) {
        return None;
    }
    let me = thread::thread().addr();
    let chosen = THREAD.load(Relaxed);
    // Which loop it is was found with all that could be seen; to see it come round, allocations will do.
    if chosen != 0 && (chosen != me || freed) {
        if chosen == me && PHASED.load(Relaxed) {
            FREED.store(FREED.load(Relaxed) + 1, Relaxed);
        }
        return None;
    }
    look_at_frames(me, freed)
}

#[inline(never)]
fn look_at_frames(me: usize, freed: bool) -> Option<Walk> {
    let mut watch = WATCH.try_lock_for(PATIENCE)?;
    if watch.is_none() {
        // Another thread may have ended it meanwhile.
        if !is_looking() || !memory::enough_for(ROOM) {
            return None;
        }
        let unasked = life::settings().step != Setting::Loop;
        *watch = Some(Box::new(Loops::new(!capture::knows_entries(), unasked)));
    }
    let loops = watch.as_deref_mut()?;
    let seat = loops.seat(me)?;
    if THREAD.load(Relaxed) != 0 {
        LAST.store(recording::sequence(), Relaxed);
        let freed = FREED.load(Relaxed);
        if freed > 0 {
            FREED.store(0, Relaxed);
            loops.freed(seat, freed);
        }
    }
    // SAFETY: this thread's own block; nothing else refers to it meanwhile.
    let block = unsafe { &mut *thread::thread() };
    let mut list = loops.frames(seat);
    let heard = capture::frames(block, &mut list, !freed, |now| {
        loops.event(seat, now.list, now.same, now.epoch, freed, &mut Here(Some(now.code)))
    });
    loops.keep(seat, list);
    let (heard, walk) = heard?;
    if heard != Heard::Nothing {
        tell(heard, watch);
    }
    walk
}

/// Hands on what came of an event.
#[inline(never)]
fn tell(heard: Heard, mut watch: Guard) {
    let Some(loops) = watch.as_deref_mut() else { return };
    match heard {
        Heard::Ended => {
            let ended = loops.ended();
            let (mut copy, count) = ([(0, false); 32], ended.len().min(32));
            copy[..count].copy_from_slice(&ended[..count]);
            drop(watch);
            copy[..count].iter().for_each(|&(level, main)| boundary::looped(level, main));
        }
        Heard::Ripe => {
            drop(watch);
            boundary::loop_is_ripe();
        }
        Heard::Looked => {
            if let Some(draft) = loops.draft(LEAST) {
                write(&draft);
            }
        }
        Heard::InVain => {
            drop(watch);
            stop();
        }
        Heard::Joined => write_places(&loops.whereabouts()),
        Heard::Nothing => {}
    }
}

/// An optimizer stepped on this thread: one more thing to know a loop by, or what ends the steps from now on.
pub fn optimizer() {
    if !is_looking() {
        return;
    }
    event(false);
    let me = thread::thread().addr();
    let Some(mut watch) = WATCH.try_lock_for(PATIENCE) else { return };
    let Some(loops) = watch.as_deref_mut() else { return };
    if !loops.optimizer(me) {
        drop(watch);
        return stop();
    }
    if loops.is_phased() && !PHASED.swap(true, AcqRel) && THREAD.swap(me, AcqRel) == 0 {
        // What was drafted is none.
        if ROUND.load(Acquire) != 0 {
            write(&Settled::default());
        }
    }
}

/// The event at hand, and the frames it has.
struct Here(Option<capture::Reader>);

impl Surroundings for Here {
    fn moment(&mut self) -> Moment {
        Moment { seq: recording::sequence(), ns: life::elapsed_coarse() }
    }
    fn id(&mut self, seen: &Seen) -> u32 {
        self.0.as_ref().map_or(0, |reader| reader.id(seen))
    }
    fn read(&mut self, seen: &Seen) -> CodeText {
        self.0.as_ref().map_or_else(CodeText::default, |reader| reader.text(seen))
    }
}

/// Chooses the loop now, from what was seen so far: it cannot wait any longer. Returns the boundaries that lie behind, as far
/// as there is a place for them: before event `first` there is none. `over`: so is the program.
#[cold]
pub fn settle(first: u64, over: bool) -> Option<Vec<Placed>> {
    if !may_settle() {
        return None;
    }
    let asked = life::settings().step == Setting::Loop;
    let mut watch = WATCH.try_lock_for(PATIENCE)?;
    let loops = watch.as_deref_mut()?;
    let phased = loops.is_phased();
    let mut settled = match phased {
        true => Some(loops.phases()).filter(|s| !s.places.is_empty())?,
        false => loops.settle(if asked && over { LEAST_ASKED } else { LEAST })?,
    };
    THREAD.store(loops.thread().unwrap_or(0), Release);
    let missed = settled.past.iter().filter(|p| p.main && p.seq < first).count();
    settled.past.retain(|p| p.seq >= first);
    if missed > 0 {
        recording::append_entry(&Entry::Meta { key: "loop_missed", value: &missed.to_string() });
    }
    if phased {
        write_places(&settled.places);
        add(&settled.past);
    } else {
        write(&settled);
    }
    Some(settled.past)
}

/// Writes what the loop is and when it came round. With the detector's lock held, so that one is written after the other.
fn write(settled: &Settled) {
    ROUND.fetch_add(1, AcqRel);
    write_places(&settled.places);
    add(&settled.past);
}

/// Writes more of the same.
fn add(ends: &[Placed]) {
    let round = ROUND.load(Acquire);
    let parts = ends.len().div_ceil(placed::MOST).max(1);
    for part in 0..parts {
        let from = part * placed::MOST;
        let ends = placed::pack(&ends[from..ends.len().min(from + placed::MOST)]);
        recording::append_entry(&Entry::Placed { round, last: part + 1 == parts, ends: &ends });
    }
}

/// `loop`: those whose iterations are steps; `loop:1`: the outermost recorded …; each `code header last`, in bytes.
fn write_places(places: &[(u8, bool, Place)]) {
    let list = |wanted: &dyn Fn(u8, bool) -> bool| {
        let of = places.iter().filter(|(level, main, _)| wanted(*level, *main));
        let names = of.map(|(_, _, p)| format!("{} {} {}", p.code, p.header, p.last));
        names.collect::<Vec<_>>().join(",")
    };
    recording::append_entry(&Entry::Meta { key: "loop", value: &list(&|_, main| main) });
    for depth in 1..=places.iter().map(|p| p.0).max().unwrap_or(0) {
        let value = list(&|level, _| level == depth);
        recording::append_entry(&Entry::Meta { key: &format!("loop:{depth}"), value: &value });
    }
}

/// Functions whose loops cannot be seen, if no loop was found.
pub fn unreadable() -> usize {
    if !is_open() {
        return 0;
    }
    let Some(mut watch) = WATCH.try_lock_for(PATIENCE) else { return 0 };
    watch.as_deref_mut().map_or(0, |loops| loops.opaque())
}

/// True while iterations may be under way that end with the program.
pub fn goes_on() -> bool {
    is_looking() && THREAD.load(Acquire) != 0
}

/// The first event that may be behind the last iteration.
pub fn after_last() -> u64 {
    LAST.load(Relaxed) + 1
}

/// The program is ending, and so are the iterations under way. They end before event `seq`.
pub fn finish(seq: u64) -> Vec<Placed> {
    if !goes_on() {
        return Vec::new();
    }
    let Some(mut watch) = WATCH.try_lock_for(PATIENCE) else { return Vec::new() };
    let Some(loops) = watch.as_deref_mut() else { return Vec::new() };
    loops.finish(&mut Here(None));
    let ns = life::elapsed();
    let ends: Vec<Placed> =
        loops.ended().iter().map(|&(level, main)| Placed { seq, ns, level, main }).collect();
    if !ends.is_empty() {
        add(&ends);
    }
    ends
}

/// Before fork: nobody may hold it while the process is copied.
pub fn before_fork() {
    lock::hold(&WATCH);
}

/// After fork, in the parent.
pub fn after_fork_parent() {
    // SAFETY: `before_fork` took it on this very thread.
    unsafe { lock::release(&WATCH) };
}

/// After fork, in the child: its steps are its own.
pub fn after_fork_child() {
    // SAFETY: a child begins with one thread, and this function holds no reference into the lock.
    unsafe { lock::renew(&WATCH) };
    THREAD.store(0, Release);
    PHASED.store(false, Release);
    // Freeing it would copy its pages.
    std::mem::forget(WATCH.lock().take());
}
