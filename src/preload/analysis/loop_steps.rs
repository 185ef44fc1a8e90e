//! The loop of the program, as far as it needs the process: which events show it, and when it is asked.
//!
//! Looked at from hooks, under the allocator's lock, on the thread whose event it is. The detector is behind a lock of its own,
//! which that thread alone takes once a loop was chosen. Until then what would be chosen is written down now and then, for the
//! reader of a process that is killed.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::time::Duration;

use crate::allocator;
use crate::analysis::step_boundaries;
use crate::lifecycle;
use crate::python::frames::{self, Reader};
use crate::python::walk::Walk;
use crate::stacks;
use crate::thread_state;
use crate::thread_state::ThreadState;
use crate::writer::lock;
use crate::writer::lock::Mutex;
use crate::writer::recording;
use leaktrace_core::format::backfilled::{self, BackfilledBoundary};
use leaktrace_core::format::entry::TableEntry;
use leaktrace_core::steps::Setting;
use leaktrace_core::steps::loops::{
    CodeText, Heard, Loops, Moment, Place, STEPS_BETWEEN, Seen, Settled, Surroundings,
};

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
#[unsafe(link_section = ".data.leaktrace")]
static LOOKING: AtomicBool = AtomicBool::new(false);
/// The thread whose loop was chosen; 0 before.
#[unsafe(link_section = ".data.leaktrace")]
static THREAD: AtomicUsize = AtomicUsize::new(0);
/// Optimizers end the steps, on that thread, and its loops do so only in between.
#[unsafe(link_section = ".data.leaktrace")]
static PHASED: AtomicBool = AtomicBool::new(false);
/// The number of the last event of the chosen thread that was looked at.
static LAST: AtomicU64 = AtomicU64::new(0);
/// Events by which that thread gave memory back since. It alone counts.
#[unsafe(link_section = ".data.leaktrace")]
static FREED: AtomicU64 = AtomicU64::new(0);
/// Optimizers end the steps, and no phase between them was chosen yet: blocks of stacks that come within every few of the
/// optimizer's steps are not looked at, since none of them can be a phase's. It would have them more seldom.
#[unsafe(link_section = ".data.leaktrace")]
static SPARING: AtomicBool = AtomicBool::new(false);
/// Optimizer steps so far.
#[unsafe(link_section = ".data.leaktrace")]
static STEP: AtomicU32 = AtomicU32::new(0);
#[unsafe(link_section = ".data.leaktrace")]
static USUAL: [Usual; PLACES] = [const { Usual(AtomicU32::new(0)) }; PLACES];
const PLACES: usize = 2048;
/// Times that a stack has to come soon enough, one after the other.
const TIMES: u32 = 8;
/// The last event that was looked at had such a stack.
#[unsafe(link_section = ".data.leaktrace")]
static SETTLED: AtomicBool = AtomicBool::new(false);
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
    SPARING.store(false, Release);
    let watch = WATCH.try_lock_for(PATIENCE).and_then(|mut watch| {
        if THREAD.load(Acquire) == 0 && ROUND.load(Acquire) != 0 {
            write(&Settled::default());
        }
        watch.take()
    });
    drop(watch);
}

/// True while every event counts.
pub fn is_curious() -> bool {
    is_looking() && !SPARING.load(Acquire)
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
    let me = thread_state::current().address();
    let chosen = THREAD.load(Relaxed);
    // Which loop it is was found with all that could be seen; to see it come round, allocations will do.
    if chosen != 0 && (chosen != me || freed) {
        if freed {
            self::freed();
        }
        return None;
    }
    look_at_frames(me, freed)
}

/// The stack of a block about to be noted, and a look at the loop unless the stack is one of the training's usual ones.
#[inline(always)]
pub fn block_stack() -> u32 {
    let thread = thread_state::current();
    if !SPARING.load(Relaxed) || THREAD.load(Relaxed) != thread.address() {
        let walk = event(false);
        return stacks::stack_after(thread, walk);
    }
    let stack = stacks::stack(thread);
    let usual = USUAL[stack as usize % PLACES].is_usual(stack, STEP.load(Relaxed));
    // The first one behind a phase shows that it is over.
    if !(usual && SETTLED.load(Relaxed)) {
        look_again(thread.address(), usual);
    }
    stack
}

/// The same where there is nothing to look at and the stack is known.
#[inline(always)]
pub fn known_stack(thread: &ThreadState) -> Option<u32> {
    if LOOKING.load(Relaxed) {
        let chosen = THREAD.load(Relaxed);
        if chosen == 0 {
            return None;
        }
        if chosen == thread.address() {
            if !SPARING.load(Relaxed) {
                return None;
            }
            let stack = stacks::cached_stack(thread)?;
            let usual = USUAL[stack as usize % PLACES].is_usual(stack, STEP.load(Relaxed));
            return (usual && SETTLED.load(Relaxed)).then_some(stack);
        }
    }
    stacks::cached_stack(thread)
}

/// True if there is nothing to look at when memory is given back.
#[inline(always)]
pub fn leaves_frees_alone() -> bool {
    !LOOKING.load(Relaxed) || THREAD.load(Relaxed) != 0
}

/// Memory was given back, and not looked at.
#[inline(always)]
pub fn freed() {
    if PHASED.load(Relaxed) && THREAD.load(Relaxed) == thread_state::current().address() {
        FREED.store(FREED.load(Relaxed) + 1, Relaxed);
    }
}

#[inline(never)]
fn look_again(me: usize, usual: bool) {
    look_at_frames(me, false);
    if usual && let Some(mut watch) = WATCH.try_lock_for(PATIENCE) {
        watch.as_deref_mut().into_iter().for_each(Loops::spared);
    }
    SETTLED.store(usual, Relaxed);
}

/// How usual a stack is, in one word: which it is (8 bits), how often it came soon enough again (4), and after which optimizer step
/// it was seen last (20).
struct Usual(AtomicU32);

impl Usual {
    const STEPS: u32 = (1 << 20) - 1;

    /// Takes notice of a stack; true if it comes within every few optimizer steps. On the chosen thread alone.
    #[inline(always)]
    fn is_usual(&self, stack: u32, step: u32) -> bool {
        let (known, step) = (self.0.load(Relaxed), step & Usual::STEPS);
        let tag = stack / PLACES as u32 + 1;
        let is_known = known >> 24 == tag && known & Usual::STEPS == step;
        if is_known { Usual::times(known) >= TIMES } else { self.again(known, stack, tag, step) }
    }

    #[inline(never)]
    #[unsafe(link_section = ".text.leaktrace")]
    fn again(&self, known: u32, stack: u32, tag: u32, step: u32) -> bool {
        // No stack; or any of several, since the tag cannot tell.
        if stack == 0 || tag > 255 {
            return false;
        }
        let soon = known >> 24 == tag && step.wrapping_sub(known) & Usual::STEPS < STEPS_BETWEEN;
        let times = if soon { Usual::times(known).min(14) + 1 } else { 0 };
        self.0.store(tag << 24 | times << 20 | step, Relaxed);
        times >= TIMES
    }

    fn times(known: u32) -> u32 {
        known >> 20 & 15
    }
}

#[inline(never)]
fn look_at_frames(me: usize, freed: bool) -> Option<Walk> {
    let mut watch = WATCH.try_lock_for(PATIENCE)?;
    if watch.is_none() {
        // Another thread may have ended it meanwhile.
        if !is_looking() || !allocator::enough_for(ROOM) {
            return None;
        }
        let unasked = lifecycle::settings().step != Setting::Loop;
        *watch = Some(Box::new(Loops::new(!frames::knows_entries(), unasked)));
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
    let mut list = loops.frames(seat);
    let heard = frames::frames(thread_state::current(), &mut list, !freed, |now| {
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
            copy[..count].iter().for_each(|&(level, main)| step_boundaries::looped(level, main));
        }
        Heard::Ripe => {
            drop(watch);
            step_boundaries::loop_is_ripe();
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
    let me = thread_state::current().address();
    let Some(mut watch) = WATCH.try_lock_for(PATIENCE) else { return };
    let Some(loops) = watch.as_deref_mut() else { return };
    if !loops.optimizer(me) {
        drop(watch);
        return stop();
    }
    STEP.fetch_add(1, Relaxed);
    if loops.is_phased() && !PHASED.load(Acquire) {
        begin_phases(me);
    }
}

/// Optimizers end the steps from now on. With the detector's lock held.
#[cold]
fn begin_phases(me: usize) {
    // Nothing of before is soon enough.
    STEP.fetch_add(STEPS_BETWEEN, Relaxed);
    SPARING.store(stacks::takes_python(), Release);
    PHASED.store(true, Release);
    if THREAD.swap(me, AcqRel) == 0 {
        // What was drafted is none.
        if ROUND.load(Acquire) != 0 {
            write(&Settled::default());
        }
    }
}

/// The event at hand, and the frames it has.
struct Here(Option<Reader>);

impl Surroundings for Here {
    fn moment(&mut self) -> Moment {
        Moment { seq: recording::sequence(), ns: lifecycle::elapsed_coarse() }
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
pub fn settle(first: u64, over: bool) -> Option<Vec<BackfilledBoundary>> {
    if !may_settle() {
        return None;
    }
    let asked = lifecycle::settings().step == Setting::Loop;
    let mut watch = WATCH.try_lock_for(PATIENCE)?;
    let loops = watch.as_deref_mut()?;
    let phased = loops.is_phased();
    let mut settled = match phased {
        true => Some(loops.phases()).filter(|s| !s.places.is_empty())?,
        false => loops.settle(if asked && over { LEAST_ASKED } else { LEAST })?,
    };
    THREAD.store(loops.thread().unwrap_or(0), Release);
    let missed = settled.past.iter().filter(|p| p.ends_step && p.seq < first).count();
    settled.past.retain(|p| p.seq >= first);
    if missed > 0 {
        recording::append_entry(&TableEntry::Meta { key: "loop_missed", value: &missed.to_string() });
    }
    if phased {
        // The iterations of the training are told of beside those of the phases.
        SPARING.store(false, Release);
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
fn add(ends: &[BackfilledBoundary]) {
    let round = ROUND.load(Acquire);
    let parts = ends.len().div_ceil(backfilled::MAX_PER_ENTRY).max(1);
    for part in 0..parts {
        let from = part * backfilled::MAX_PER_ENTRY;
        let ends = backfilled::pack(&ends[from..ends.len().min(from + backfilled::MAX_PER_ENTRY)]);
        recording::append_entry(&TableEntry::Backfilled { round, last: part + 1 == parts, ends: &ends });
    }
}

/// `loop`: those whose iterations are steps; `loop:1`: the outermost recorded …; each `code header last`, in bytes.
fn write_places(places: &[(u8, bool, Place)]) {
    let list = |wanted: &dyn Fn(u8, bool) -> bool| {
        let of = places.iter().filter(|(level, main, _)| wanted(*level, *main));
        let names = of.map(|(_, _, p)| format!("{} {} {}", p.code, p.header, p.last));
        names.collect::<Vec<_>>().join(",")
    };
    recording::append_entry(&TableEntry::Meta { key: "loop", value: &list(&|_, main| main) });
    for depth in 1..=places.iter().map(|p| p.0).max().unwrap_or(0) {
        let value = list(&|level, _| level == depth);
        recording::append_entry(&TableEntry::Meta { key: &format!("loop:{depth}"), value: &value });
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
pub fn finish(seq: u64) -> Vec<BackfilledBoundary> {
    if !goes_on() {
        return Vec::new();
    }
    let Some(mut watch) = WATCH.try_lock_for(PATIENCE) else { return Vec::new() };
    let Some(loops) = watch.as_deref_mut() else { return Vec::new() };
    loops.finish(&mut Here(None));
    let ns = lifecycle::elapsed();
    let ends: Vec<BackfilledBoundary> = loops
        .ended()
        .iter()
        .map(|&(depth, ends_step)| BackfilledBoundary { seq, ns, depth, ends_step })
        .collect();
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
    SPARING.store(false, Release);
    // Freeing it would copy its pages.
    std::mem::forget(WATCH.lock().take());
}
