//! The loop detector at work in a process: which events it is shown, and when it has to decide. What a loop
//! is, and which one the steps are, is for `leaktrace_core::steps::loops` to know; this file knows no more of
//! it than its interface.
//!
//! It is shown events from hooks, under the allocator's lock, on the thread whose event it is. It stands
//! behind a lock of its own, which that thread alone takes once a loop was chosen. Until then what would be
//! chosen is written to the recording now and then, for the reader of a process that is killed.
//!
//! Where optimizers end the steps, it is shown samples only, to find the phases between them that have loops
//! of their own.

mod block_stack;

pub use block_stack::{block_stack, known_stack};

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::time::Duration;

use crate::allocator;
use crate::analysis::{loop_entries, step_boundaries, step_schedule};
use crate::coverage_gaps;
use crate::lock::{FrequentGuard, Mutex, Rank};
use crate::python::frames::{self, Reader};
use crate::python::walk::Walk;
use crate::settings;
use crate::stacks;
use crate::state;
use crate::thread_state;
use crate::writer::recording;
use leaktrace_core::format::backfilled::BackfilledBoundary;
use leaktrace_core::format::entry::TableEntry;
use leaktrace_core::ledger::verdict::MIN_COHORTS;
use leaktrace_core::steps::StepSetting;
use leaktrace_core::steps::loops::{
    ANY_THREAD, CodeText, EventContext, Loops, Moment, Progress, STEPS_BETWEEN, Seen, Shown, Stepped, What,
};

/// The iterations that a loop must have had before they are taken for steps.
const MIN_ITERATIONS: u64 = 8;
/// The iterations that suffice at the program's end: there will not be more.
const MIN_ITERATIONS_OVER: u64 = 4;
/// The iterations that suffice at the program's end where the user has said that its steps are a loop's.
const MIN_ITERATIONS_ASKED: u64 = 2;
/// The bytes that the detector may take.
const MEMORY: usize = 12 << 20;
/// The longest wait for the detector, which is held for microseconds: a hook goes on without it.
const PATIENCE: Duration = Duration::from_millis(2);

/// The detector; empty before the first event, and again once it is not needed any more.
pub static DETECTOR: Mutex<Option<Box<Loops>>> = Mutex::new(Rank::LoopDetector, None);
type Guard = FrequentGuard<'static, Option<Box<Loops>>>;
/// Whether the program's loop is searched for, or ends its steps.
#[unsafe(link_section = ".data.leaktrace")]
static ENABLED: AtomicBool = AtomicBool::new(false);

/// Takes the detector, unless that takes long.
#[inline(always)]
fn detector() -> Option<Guard> {
    DETECTOR.try_lock_frequent(PATIENCE, forget_torn)
}

#[cold]
#[inline(never)]
fn forget_torn(detector: &mut Option<Box<Loops>>) {
    std::mem::forget(detector.take());
    if THREAD.load(Acquire) != 0 {
        ENABLED.store(false, Release);
        coverage_gaps::report("iterations of the program's loop after a jump out of a signal handler");
    }
}

/// The thread whose loop was chosen; 0 before, [`ANY_THREAD`] where several have it in common.
#[unsafe(link_section = ".data.leaktrace")]
static THREAD: AtomicUsize = AtomicUsize::new(0);
/// Whether every copy is shown: until a framework hands out blocks.
#[unsafe(link_section = ".data.leaktrace")]
static COPIES: AtomicBool = AtomicBool::new(true);
/// Whether work for the device is shown, which takes no memory: not where a framework gives out blocks with all of it.
#[unsafe(link_section = ".data.leaktrace")]
static WORK: AtomicBool = AtomicBool::new(true);
/// A framework makes objects of Python's within one call that allocates several times.
#[unsafe(link_section = ".data.leaktrace")]
static RESTLESS: AtomicBool = AtomicBool::new(false);
/// Whether optimizers end the steps, on that thread, and its loops do so only in the phases between them.
#[unsafe(link_section = ".data.leaktrace")]
static PHASED: AtomicBool = AtomicBool::new(false);
/// The sequence number of the last event of the chosen thread that the detector was shown.
#[unsafe(link_section = ".data.leaktrace")]
static LAST: AtomicU64 = AtomicU64::new(0);
/// The frees of that thread since. It alone counts them.
#[unsafe(link_section = ".data.leaktrace")]
static FREED: AtomicU64 = AtomicU64::new(0);
/// Whether only a sample of the blocks is shown: optimizers end the steps, and no phase between them was
/// chosen yet. Stacks that recur within every few optimizer steps are left out, since a phase's recur more
/// seldom.
#[unsafe(link_section = ".data.leaktrace")]
static SAMPLING: AtomicBool = AtomicBool::new(false);
/// The optimizer steps so far.
#[unsafe(link_section = ".data.leaktrace")]
static STEP: AtomicU32 = AtomicU32::new(0);
/// Whether the last event that was shown had a frequent stack.
#[unsafe(link_section = ".data.leaktrace")]
static LAST_WAS_FREQUENT: AtomicBool = AtomicBool::new(false);

/// The number of the level of loops that was drafted or chosen last: what was answered for the steps of another is void.
static LEVEL: AtomicU32 = AtomicU32::new(0);

/// Returns that number.
pub fn level() -> u32 {
    LEVEL.load(Acquire)
}

/// Enables the detector, or leaves it out from the start.
pub fn enable(yes: bool) {
    loop_entries::forget();
    block_stack::forget();
    ENABLED.store(yes, Release);
}

/// Disables the detector for good, frees what it knows and withdraws what was drafted.
#[cold]
pub fn stop() {
    if !ENABLED.swap(false, AcqRel) {
        return;
    }
    PHASED.store(false, Release);
    SAMPLING.store(false, Release);
    let detector = detector().and_then(|mut detector| {
        if THREAD.load(Acquire) == 0 {
            loop_entries::withdraw();
        }
        detector.take()
    });
    drop(detector);
}

/// Returns whether every event is shown, and not a sample.
pub fn samples_all_events() -> bool {
    is_enabled() && !SAMPLING.load(Acquire)
}

/// Returns whether a loop may end steps, or is searched for.
pub fn is_enabled() -> bool {
    ENABLED.load(Acquire)
}

/// Returns whether a loop is searched for and none was chosen.
pub fn is_searching() -> bool {
    is_enabled() && THREAD.load(Acquire) == 0
}

/// Shows the detector an event that is about to be recorded, a free or an allocation. Returns the walk over
/// the frames of an allocation, if there was one, and the number of the event.
#[inline(always)]
pub fn event(freed: bool) -> Option<(Walk, u64)> {
    if !ENABLED.load(Relaxed) {
        return None;
    }
    let me = thread_state::current().address();
    let chosen = THREAD.load(Relaxed);
    // Which loop it is was found with all that could be seen; to see it come round, allocations will do.
    if chosen != 0 && ((chosen != me && chosen != ANY_THREAD) || freed) {
        if freed {
            self::freed();
        }
        return None;
    }
    show(me, if freed { Shown::Free } else { Shown::Allocation })
}

/// Takes in that a framework hands out blocks: they show where its loops come round, and copies need not.
#[inline(always)]
pub fn block_seen() {
    if COPIES.load(Relaxed) {
        COPIES.store(false, Relaxed);
    }
}

/// Takes in that a framework makes objects of Python's within one call that allocates several times.
#[inline]
pub fn makes_objects_within_calls() {
    if !RESTLESS.load(Relaxed) {
        RESTLESS.store(true, Relaxed);
    }
}

/// Takes in that whatever a framework computes gives out blocks: they suffice to show its loops.
pub fn all_work_allocates() {
    WORK.store(false, Relaxed);
}

/// Returns whether work for the device is shown too: until optimizers end the steps.
#[inline(always)]
pub fn wants_work() -> bool {
    ENABLED.load(Relaxed) && WORK.load(Relaxed) && !PHASED.load(Relaxed)
}

/// Shows the detector that this thread is about to give the device work, unless what it allocated for it showed the same.
#[cold]
pub fn gives_work(shown: Shown) {
    let thread = thread_state::current();
    if !is_watched(thread.address()) {
        return;
    }
    let shown = match shown {
        Shown::Copy if COPIES.load(Relaxed) => Some(Shown::Copy),
        _ => (!thread.has_allocated_here(|| frames::place(thread))).then_some(Shown::Work),
    };
    if let Some(shown) = shown {
        show(thread.address(), shown);
    }
    thread.note_work();
}

/// Shows the detector the call of what allocates on other threads.
pub fn called() {
    let me = thread_state::current().address();
    if is_enabled() && is_watched(me) {
        show(me, Shown::Work);
    }
}

/// Whether the events of a thread are shown: of every one before a loop was chosen.
fn is_watched(thread: usize) -> bool {
    let chosen = THREAD.load(Relaxed);
    chosen == 0 || chosen == thread || chosen == ANY_THREAD
}

/// Shows the detector what this thread allocated or freed for another one, which is known by its address.
pub fn elsewhere(thread: usize, freed: bool) {
    if is_searching()
        && let Some(mut detector) = detector()
        && let Some(loops) = detector.as_deref_mut()
    {
        loops.count(freed);
        loops.elsewhere(thread, freed, recording::sequence());
    }
}

/// Returns whether the detector need not be shown frees.
#[inline(always)]
pub fn ignores_frees() -> bool {
    !ENABLED.load(Relaxed) || THREAD.load(Relaxed) != 0
}

/// Counts a free that the detector was not shown.
#[inline(always)]
pub fn freed() {
    if PHASED.load(Relaxed) && THREAD.load(Relaxed) == thread_state::current().address() {
        FREED.store(FREED.load(Relaxed) + 1, Relaxed);
    }
}

#[inline(never)]
fn show_again(me: usize, frequent: bool) {
    show(me, Shown::Allocation);
    if frequent && let Some(mut detector) = detector() {
        detector.as_deref_mut().into_iter().for_each(Loops::sampling_begins);
    }
    LAST_WAS_FREQUENT.store(frequent, Relaxed);
}

/// Reads the frames of the calling thread and shows them to the detector.
#[inline(never)]
fn show(me: usize, event: Shown) -> Option<(Walk, u64)> {
    let mut detector = detector()?;
    if detector.is_none() {
        // Another thread may have ended it meanwhile.
        if !is_enabled() || !allocator::can_allocate(MEMORY) {
            return None;
        }
        let unasked = settings::get().step != StepSetting::Loop;
        *detector = Some(Box::new(Loops::new(!frames::knows_entries(), unasked)));
    }
    let loops = detector.as_deref_mut()?;
    let freed = event == Shown::Free;
    if matches!(event, Shown::Allocation | Shown::Free) {
        loops.count(freed);
    }
    let slot = loops.slot(me, &mut Here(None));
    // Work alone may be what takes down all that the loop has made.
    let allocates = matches!(event, Shown::Allocation | Shown::Copy);
    if THREAD.load(Relaxed) != 0 {
        if allocates {
            LAST.store(recording::sequence(), Relaxed);
        }
        let unseen = FREED.load(Relaxed);
        if unseen > 0 {
            FREED.store(0, Relaxed);
            loops.freed(slot, unseen);
        }
    } else if allocates {
        loops.seen_at(slot, recording::sequence());
    }
    let mut list = loops.frames(slot);
    let thread = thread_state::current();
    let progress = frames::frames(thread, &mut list, event == Shown::Allocation, |now| {
        if allocates {
            thread.note_allocation(frames::place_of(now.list));
        }
        let (framework, restless) = (!COPIES.load(Relaxed), RESTLESS.load(Relaxed));
        let what = What { shown: event, framework, objects: now.objects, restless };
        loops.event(slot, now.list, now.same, now.epoch, what, &mut Here(Some(now.code)))
    });
    loops.keep(slot, list);
    let (progress, walk) = progress?;
    let walk = walk.map(|walk| (walk, loops.number()));
    if progress != Progress::Nothing {
        act_on(progress, detector);
    }
    walk
}

/// Does what the progress of the detector calls for.
#[inline(never)]
fn act_on(progress: Progress, mut detector: Guard) {
    let Some(loops) = detector.as_deref_mut() else { return };
    match progress {
        Progress::Ended => {
            let ended = loops.ended();
            let (mut copy, count) = ([(0, false); 32], ended.len().min(32));
            copy[..count].copy_from_slice(&ended[..count]);
            drop(detector);
            copy[..count].iter().for_each(|&(level, main)| step_boundaries::looped(level, main));
        }
        Progress::Ready => {
            drop(detector);
            step_boundaries::loop_is_ready();
        }
        Progress::Sought => {
            if let Some(draft) = loops.redraft(MIN_ITERATIONS) {
                loop_entries::write(&draft);
                LEVEL.store(loops.level_number(), Release);
            }
            let (steps, grows) = (loops.drafted_steps(), may_grow(loops));
            drop(detector);
            if grows {
                step_boundaries::loop_was_drafted(steps);
            }
        }
        Progress::Lengthened if loops.is_phased() => {
            let ends = loops.ends_between_steps();
            drop(detector);
            step_boundaries::loop_was_drafted(ends);
        }
        Progress::Lengthened => {
            let ends = loops.since_draft();
            if !ends.is_empty() {
                loop_entries::add(&ends);
            }
            let (steps, grows) = (loops.drafted_steps(), may_grow(loops));
            drop(detector);
            if grows && step_schedule::is_look_due(steps) {
                step_boundaries::loop_was_drafted(steps);
            }
        }
        Progress::GaveUp => {
            drop(detector);
            stop();
        }
        Progress::Nothing => {}
    }
}

/// Where fewer blocks are left than a finding has steps, there is nothing to look for.
fn may_grow(loops: &Loops) -> bool {
    loops.kept() >= MIN_COHORTS as i64
}

/// Tells the detector that an optimizer stepped on this thread: it is one more thing to know a loop by, or
/// ends the steps from now on. Returns what is new with it.
pub fn optimizer() -> Stepped {
    if !is_enabled() {
        return Stepped::default();
    }
    event(false);
    let me = thread_state::current().address();
    let Some(mut detector) = detector() else { return Stepped::default() };
    let Some(loops) = detector.as_deref_mut() else { return Stepped::default() };
    let Some(stepped) = loops.optimizer(me) else {
        drop(detector);
        stop();
        return Stepped::default();
    };
    STEP.fetch_add(1, Relaxed);
    LAST_WAS_FREQUENT.store(false, Relaxed);
    if loops.is_phased() && !PHASED.load(Acquire) {
        begin_phases(me);
    }
    stepped
}

/// Tells the detector that a backward pass begins on this thread.
pub fn backward() {
    event(false);
    tell(Loops::backward);
}

/// Tells the detector that this thread's last event was of a compiled function that trains. Once the loop is chosen, nobody asks.
pub fn updated() {
    if is_searching() {
        tell(Loops::update);
    }
}

fn tell(what: fn(&mut Loops, usize)) {
    if let Some(mut detector) = detector()
        && let Some(loops) = detector.as_deref_mut()
    {
        what(loops, thread_state::current().address());
    }
}

/// Leaves the ends of steps to optimizers from now on. With the detector's lock held.
#[cold]
fn begin_phases(me: usize) {
    // Nothing of before is soon enough.
    STEP.fetch_add(STEPS_BETWEEN, Relaxed);
    SAMPLING.store(stacks::takes_python(), Release);
    PHASED.store(true, Release);
    if THREAD.swap(me, AcqRel) == 0 {
        // No draft holds any more.
        loop_entries::withdraw();
    }
}

/// The event that the detector is shown, and its frames.
struct Here(Option<Reader>);

impl EventContext for Here {
    fn moment(&mut self) -> Moment {
        Moment { seq: recording::sequence(), ns: state::elapsed() }
    }
    fn id(&mut self, seen: &Seen) -> u32 {
        self.0.as_ref().map_or(0, |reader| reader.id(seen))
    }
    fn read(&mut self, seen: &Seen) -> CodeText {
        self.0.as_ref().map_or_else(CodeText::default, |reader| reader.text(seen))
    }
    fn variable(&mut self, seen: &Seen, variable: u16) -> u64 {
        self.0.as_ref().map_or(0, |reader| reader.variable(seen, variable))
    }
    fn iterator(&mut self, seen: &Seen, stack: u16, depth: u16) -> u64 {
        self.0.as_ref().map_or(0, |reader| reader.iterator(seen, stack, depth))
    }
    fn locals_closely(&mut self, seen: &Seen, count: u16) -> u64 {
        self.0.as_ref().map_or(0, |reader| reader.locals_closely(seen, count))
    }
    fn goes_down(&mut self, seen: &Seen, stack: u16, depth: u16) -> bool {
        self.0.as_ref().is_some_and(|reader| reader.goes_down(seen, stack, depth))
    }
    fn locals(&mut self, seen: &Seen, count: u16) -> u64 {
        self.0.as_ref().map_or(0, |reader| reader.locals(seen, count))
    }
}

/// Has the loop chosen now, from what was seen so far, since it cannot wait any longer, or others join it. Returns
/// the boundaries that lie behind, as far as the ledger can still take them: from event `first` on. `over`: the
/// program is ending.
#[cold]
pub fn decide(first: u64, over: bool) -> Option<Vec<BackfilledBoundary>> {
    if !is_enabled() {
        return None;
    }
    let asked = settings::get().step == StepSetting::Loop;
    let mut detector = detector()?;
    let loops = detector.as_deref_mut()?;
    let joins = loops.may_be_joined();
    let mut choice = match joins {
        true => loops.joined()?,
        false => loops.choose(match (over, asked) {
            (false, _) => MIN_ITERATIONS,
            (true, false) => MIN_ITERATIONS_OVER,
            (true, true) => MIN_ITERATIONS_ASKED,
        })?,
    };
    if !joins {
        LAST.store(loops.last_seen(), Relaxed);
    }
    THREAD.store(loops.thread().unwrap_or(0), Release);
    LEVEL.store(loops.level_number(), Release);
    let missed = choice.past.iter().filter(|p| p.ends_step && p.seq < first).count();
    choice.past.retain(|p| p.seq >= first);
    if missed > 0 {
        recording::append_entry(&TableEntry::Meta { key: "loop_missed", value: &missed.to_string() });
    }
    if joins {
        // Beside those of phases the iterations of the training are recorded.
        SAMPLING.store(false, Release);
        loop_entries::write_locations(&choice.locations);
    } else {
        loop_entries::begin(&choice.locations);
    }
    Some(choice.past)
}

/// Takes out the end of the last iteration, and of those around it, if it lies behind the last allocation: the loop was left
/// where something was given back, which may be what takes down all that the loop had made.
pub fn without_late(ends: &mut Vec<BackfilledBoundary>) -> Vec<BackfilledBoundary> {
    let late = ends.partition_point(|end| end.seq < after_last());
    match ends[late..].iter().filter(|end| end.ends_step).count() {
        1 => ends.split_off(late),
        _ => Vec::new(),
    }
}

/// Returns the boundaries that there would be if the loop were chosen now, while none was, or if those that came round since the
/// latest step of an optimizer joined these.
pub fn drafted() -> Option<Vec<BackfilledBoundary>> {
    if !is_searching() && !PHASED.load(Acquire) {
        return None;
    }
    let mut detector = detector()?;
    Some(detector.as_deref_mut()?.draft(MIN_ITERATIONS)?.past)
}

/// Writes which loops were seen, if none of them is the steps: each as `code header last rounds why`.
pub fn write_unused() {
    if !is_searching() {
        return;
    }
    let Some(detector) = detector() else { return };
    let Some(loops) = detector.as_deref() else { return };
    let all = loops.unused().into_iter();
    let described =
        all.map(|(at, rounds, why)| format!("{} {} {} {rounds} {}", at.code, at.header, at.last, why.name()));
    let value = described.collect::<Vec<_>>().join(",");
    if !value.is_empty() {
        recording::append_entry(&TableEntry::Meta { key: "loops_unused", value: &value });
    }
}

/// Returns the number of functions whose loops cannot be seen, if no loop was found.
pub fn unreadable() -> usize {
    if !is_searching() {
        return 0;
    }
    let Some(mut detector) = detector() else { return 0 };
    detector.as_deref_mut().map_or(0, |loops| loops.opaque())
}

/// Returns whether iterations may be under way that end with the program.
pub fn is_under_way() -> bool {
    is_enabled() && THREAD.load(Acquire) != 0
}

/// Returns whether the variables of the functions that the loops are in are still there, now that the program is ending.
pub fn are_in_modules() -> bool {
    is_under_way() && detector().is_some_and(|loops| loops.as_deref().is_some_and(Loops::are_in_modules))
}

/// Returns the number of the first event that may lie behind the last iteration.
pub fn after_last() -> u64 {
    LAST.load(Relaxed) + 1
}

/// Ends the iterations under way before event `seq`, since the program is ending, and those that ended `late`. Returns their
/// ends.
pub fn finish(late: &[BackfilledBoundary], seq: u64) -> Vec<BackfilledBoundary> {
    if !is_under_way() {
        return Vec::new();
    }
    let Some(mut detector) = detector() else { return Vec::new() };
    let Some(loops) = detector.as_deref_mut() else { return Vec::new() };
    loops.finish(&mut Here(None));
    let ns = state::elapsed();
    let late = late.iter().map(|end| BackfilledBoundary { seq, ..*end });
    let ended = loops.ended().iter();
    let ended = ended.map(|&(depth, ends_step)| BackfilledBoundary { seq, ns, depth, ends_step });
    let ends: Vec<BackfilledBoundary> = late.chain(ended).collect();
    if !ends.is_empty() {
        loop_entries::add(&ends);
    }
    ends
}

/// Takes in that the thread at this address has ended.
pub fn thread_ended(address: usize) {
    if is_enabled()
        && let Some(mut detector) = detector()
        && let Some(loops) = detector.as_deref_mut()
    {
        loops.thread_ended(address);
    }
}

/// Forgets the loop of the parent, in a forked child: its steps are its own.
pub fn after_fork_child() {
    THREAD.store(0, Release);
    PHASED.store(false, Release);
    SAMPLING.store(false, Release);
    block_stack::forget();
    // Freeing it would copy its pages.
    std::mem::forget(DETECTOR.lock().and_then(|mut detector| detector.take()));
}
