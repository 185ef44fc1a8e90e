//! Step boundaries: takes what may end a step from its many sources, and does what is due there: counters are
//! sampled, events drained, reports dumped, holders searched for.
//!
//! It runs on the thread that ended a step, outside the allocator's lock; where a loop's iteration is the
//! step, in a hook. It knows neither Python nor the driver: who asks them is registered (see [`Services`]).

mod searching;

use searching::{ask_for_search, search};
pub use searching::{loop_was_drafted, search_when_asked};

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};
use std::time::{Duration, Instant};

use crate::analysis::analyzer::{self, ANALYZER, Analyzer, as_typed};
use crate::analysis::captured::{self, Captured};
use crate::analysis::holders::{self, Occasion};
use crate::analysis::{annotations, counters, loop_steps, step_schedule};
use crate::coverage_gaps;
use crate::lock::{Mutex, MutexGuard, Rank};
use crate::settings;
use crate::shield::shield;
use crate::stacks;
use crate::state;
use crate::stderr;
use crate::thread_state;
use crate::writer::recording;
use crate::writer::signals::Undisturbed;
use leaktrace_core::format::entry::TableEntry;
use leaktrace_core::format::event::{Event, EventKind, StepSource};
use leaktrace_core::holders::{Found, Wanted};
use leaktrace_core::ledger::verdict::MIN_STEPS;
use leaktrace_core::report::{self, End};
use leaktrace_core::steps::loops::{OF_A_TRAINING, Stepped};
use leaktrace_core::steps::{Boundary, StepSetting, Steps};

/// The stream of steps of this process.
pub static STEPS: Mutex<Steps> = Mutex::new(Rank::Steps, Steps::new(StepSetting::Auto));
/// Whether loops end steps: then nobody has to be asked.
#[unsafe(link_section = ".data.leaktrace")]
static LOOPS_END_STEPS: AtomicBool = AtomicBool::new(false);
/// Whether the end of the process was dealt with.
static EXITED: AtomicBool = AtomicBool::new(false);
/// Whether that is so because the tracing ends, and the program goes on.
static LEAVING: AtomicBool = AtomicBool::new(false);
/// Whether memory ran out, and who holds it is still to be searched for: the first few times only.
static RAN_OUT: AtomicBool = AtomicBool::new(false);
const OOM_SEARCHES: u32 = 2;
/// Whether the interpreter was asked to call back since a report was written, and not only for a look.
static REPORTED: AtomicBool = AtomicBool::new(false);

/// What others do for steps: they stand above, since they know the driver and Python.
#[derive(Debug)]
pub struct Services {
    /// Appends what the driver says of its devices.
    pub sample_driver: fn(),
    /// Returns whether a search for holders may run here and now.
    pub may_search: fn() -> bool,
    /// Has the interpreter call [`search_when_asked`].
    pub ask_for_search: fn(),
    /// Returns why nothing can be searched.
    pub search_obstacle: fn() -> Option<String>,
    /// Searches for the holders of blocks, for so much processor time at most.
    pub search: fn(&[Wanted], Duration) -> Found,
}

/// The services; null before [`arm`].
static SERVICES: AtomicPtr<Services> = AtomicPtr::new(std::ptr::null_mut());
/// Whether steps end by the clock.
#[unsafe(link_section = ".data.leaktrace")]
static TICKING: AtomicBool = AtomicBool::new(false);

/// Prepares for steps of the setting.
pub fn arm(setting: StepSetting, services: &'static Services) {
    TICKING.store(matches!(setting, StepSetting::Every(_)), Release);
    let steps = Steps::new(setting);
    loop_steps::enable(steps.wants_loop());
    SERVICES.store(std::ptr::from_ref(services).cast_mut(), Release);
    set_steps(steps);
}

fn set_steps(new: Steps) {
    with_steps(|steps| *steps = new);
}

/// Asks or tells the stream of steps. `None`: this is a signal handler, and must not wait for it.
fn with_steps<R>(call: impl FnOnce(&mut Steps) -> R) -> Option<R> {
    let mut steps = STEPS.lock()?;
    let result = call(&mut steps);
    LOOPS_END_STEPS.store(steps.is_looped(), Release);
    Some(result)
}

/// Begins the ledger of a recording that was opened.
pub fn begin() {
    EXITED.store(false, Release);
    LEAVING.store(false, Release);
    analyzer::restart();
    step_schedule::begin();
    if let Some(mut slot) = ANALYZER.lock() {
        *slot = Some(Box::default());
    }
}

/// Takes in that an optimizer stepped.
pub fn optimizer(id: Option<usize>) {
    captured::optimizer(id);
    let mut stepped = Stepped::default();
    if state::is_recording() && loop_steps::is_enabled() {
        shield(|| stepped = loop_steps::optimizer());
    }
    if stepped.earlier_turns.is_some()
        && let Some(turns) = with_steps(|steps| steps.joined_turns(stepped)).flatten()
    {
        shield(|| with_analyzer(|analyzer| analyzer.join_turns(turns)));
    }
    let thread = thread_state::current().address();
    emit(|steps| steps.optimizer(thread, id, stepped), None);
}

/// Takes in that there is an optimizer no more that stepped before.
pub fn optimizer_gone(id: usize) {
    with_steps(|steps| steps.optimizer_gone(id));
}

/// Takes in that a thread has ended, which was at this address.
pub fn thread_ended(address: usize) {
    with_steps(|steps| steps.thread_ended(address));
    loop_steps::thread_ended(address);
}

/// Takes in that a backward pass begins.
pub fn backward() {
    captured::backward();
    if state::is_recording() && loop_steps::samples_all_events() {
        shield(|| {
            loop_steps::backward();
            // Now or never: from here on backward passes end the steps of a program without an optimizer, if
            // its loop does not.
            let falls_back = || with_steps(|steps| steps.falls_back_at_next_backward()) == Some(true);
            if falls_back() {
                loop_is_ready();
            }
            if falls_back() {
                with_analyzer(|analyzer| {
                    analyzer.end_steps_at_backward_passes();
                    analyzer.drain();
                });
            }
        });
    }
    let thread = thread_state::current().address();
    emit(|steps| steps.backward(thread), None);
}

/// Takes in that a CUDA graph was launched, which repeats what was captured. From a hook.
pub fn launched(what: Captured) {
    if what.went_backward() {
        backward();
    }
    if let Some(id) = what.optimizer() {
        optimizer(id);
    }
}

/// Takes in that a range which the program named ended.
pub fn range(name: &[u8]) {
    if !state::is_recording() {
        return;
    }
    match settings::get().range.as_deref() {
        Some(wanted) if wanted.as_bytes() == name => emit(Steps::range, None),
        _ => annotations::range(name),
    }
}

/// Takes in that the program called `leaktrace_step`.
pub fn call(label: Option<&str>) {
    emit(Steps::call, label);
}

/// Takes in that a cell of a notebook ended.
pub fn cell(label: Option<&str>) {
    emit(Steps::cell, label);
}

/// Takes in that an iteration of the program's loop ended, or (`ends_step` is false) of one around it. From a
/// hook.
#[inline(never)]
#[unsafe(link_section = ".text.leaktrace")]
pub fn looped(level: u8, ends_step: bool) {
    if !LOOPS_END_STEPS.load(Acquire) {
        looped_first(level, ends_step);
    } else if state::is_recording() {
        append_now(Boundary::of_loop(level, ends_step), None);
    }
}

#[inline(never)]
fn looped_first(level: u8, ends_step: bool) {
    emit(|steps| steps.looped(level, ends_step), None);
}

/// Has the program's loop chosen, since it shows by now which one it is.
#[cold]
pub fn loop_is_ready() {
    with_analyzer(|analyzer| analyzer.choose_loop(false));
}

/// Ends the iterations under way, since the program is ending. The interpreter's own end is no iteration.
fn end_loop(analyzer: &mut Analyzer) {
    analyzer.choose_loop(true);
    let unreadable = loop_steps::unreadable();
    if unreadable > 0 {
        let text =
            format!("CPython bytecode of {unreadable} functions is not known: loops in them end no step");
        recording::append_entry(&TableEntry::Note { text: &text });
    }
    // Steps that the ledger has already stay as they are.
    if analyzer.ledger.step_count() == 0 && with_steps(|steps| steps.are_backward_passes_best()) == Some(true)
    {
        analyzer.end_steps_at_backward_passes();
    }
    if loop_steps::is_searching() {
        loop_steps::write_unused();
        loop_steps::stop();
    }
    if loop_steps::is_under_way() {
        analyzer.end_iterations();
    }
}

/// Returns whether the program's loop may end steps.
pub fn wants_loop() -> bool {
    with_steps(|steps| steps.wants_loop()) == Some(true)
}

/// Notes that the program's loop ends steps from now on.
pub fn loop_was_chosen() {
    with_steps(|steps| steps.looped(0, true));
}

/// Returns whether steps end by the clock.
#[inline(always)]
pub fn ticks() -> bool {
    TICKING.load(Relaxed)
}

/// Ends a step if the clock does so and it is time. From hooks: a step without memory events needs no end.
#[inline(always)]
pub fn tick() {
    if ticks() {
        emit(|steps| steps.tick(Duration::from_nanos(state::elapsed())), None);
    }
}

/// Asks the stream of steps what follows from an observation, and appends the boundary if there is one.
fn emit(ask: impl FnOnce(&mut Steps) -> Option<Boundary>, label: Option<&str>) {
    let Some((boundary, wants_loop)) = with_steps(|steps| (ask(steps), steps.wants_loop())) else { return };
    if !wants_loop && loop_steps::is_enabled() {
        loop_steps::stop();
    }
    if let Some(boundary) = boundary {
        append(boundary, label);
    }
}

fn append(boundary: Boundary, label: Option<&str>) {
    if state::is_recording() {
        shield(|| append_now(boundary, label));
    }
}

#[inline(always)]
fn append_now(boundary: Boundary, label: Option<&str>) {
    if boundary.ends_step {
        end_step(boundary, label)
    } else {
        thread_state::append(&event(boundary, state::elapsed()));
    }
}

fn event(boundary: Boundary, now: u64) -> Event {
    let kind = if boundary.ends_step { EventKind::StepEnd } else { EventKind::AltBoundary };
    let none = Event::new(kind);
    Event {
        address: now,
        class: boundary.source as u8,
        context: u8::from(boundary.supersedes),
        device: if boundary.source == StepSource::Loop { boundary.level } else { none.device },
        ..none
    }
}

/// A loop may come round every microsecond: where nothing is due, no lock is taken and no system call made.
#[inline(always)]
fn end_step(boundary: Boundary, label: Option<&str>) {
    let now = state::elapsed();
    let label = label.filter(|l| !l.is_empty());
    if label.is_some() || step_schedule::is_sample_due(now) {
        return sample_and_end(boundary, label, now);
    }
    end_at(boundary, now);
}

#[inline(never)]
fn sample_and_end(boundary: Boundary, label: Option<&str>, now: u64) {
    let _undisturbed = Undisturbed::begin();
    coverage_gaps::report_noted();
    label.into_iter().for_each(annotations::mark);
    sample_counters();
    end_at(boundary, now);
}

#[inline(always)]
fn end_at(boundary: Boundary, now: u64) {
    thread_state::append(&event(boundary, now));
    let step = step_schedule::step_ended(boundary.supersedes);
    let is_due = !step_schedule::backlog_is_small()
        || step_schedule::is_report_due(step)
        || step_schedule::is_look_due(step);
    if is_due && !awaits_more(step) {
        act_at(boundary, step);
    }
}

/// Returns whether events are left to wait: the first optimizer steps may turn out to be turns of one step
/// ([`Steps::joined_turns`]), or backward passes to be the steps ([`Steps::are_backward_passes_best`]).
fn awaits_more(step: u32) -> bool {
    step < MIN_STEPS
        && settings::get().dump_every.is_none()
        && analyzer::may_wait()
        && (step < OF_A_TRAINING || with_steps(|steps| steps.accumulates()) == Some(true))
}

/// Drains the events up to the end of a step, writes a report if one is due, and has holders searched for.
#[inline(never)]
fn act_at(boundary: Boundary, step: u32) {
    let _undisturbed = Undisturbed::begin();
    // Asked again: a handler may have forked, and this be the child.
    if !state::is_recording() {
        return;
    }
    let Some(mut guard) = ANALYZER.lock() else { return };
    let Some(analyzer) = guard.as_mut() else { return };
    let is_asked_for = settings::get().dump_every.is_some();
    // Where all that is due is a report that is not worth its time, what waits is drained with what comes later.
    let only_dumps = step_schedule::backlog_is_small() && !step_schedule::is_look_due(step);
    if only_dumps && !boundary.supersedes && !is_asked_for && analyzer.dumps_too_much() {
        return;
    }
    if !analyzer.drain() || boundary.supersedes {
        return;
    }
    let step = analyzer.ledger.step_count();
    let dumps = step_schedule::is_report_due(step) && (is_asked_for || !analyzer.dumps_too_much());
    let looks = analyzer.searches.is_look_due(step);
    if looks {
        // Where nobody comes to look, since the main thread waits for something, not every step asks for it.
        step_schedule::postpone_look(step);
    }
    if !(dumps || looks) {
        return;
    }
    let guard = if matches!(boundary.source, StepSource::Time | StepSource::Loop) {
        // Inside a hook, where nothing may take long: the interpreter calls back.
        REPORTED.fetch_or(dumps, AcqRel);
        ask_for_search();
        guard
    } else {
        if dumps && stacks::takes_suspicions() {
            let began = Instant::now();
            stacks::suspect(&holders::suspicious(&analyzer.ledger));
            analyzer.dumping += began.elapsed();
        }
        // An optimizer has the GIL; the launch of a graph that repeats it has not.
        let may_search = || with_services(|services| (services.may_search)()) == Some(true);
        if boundary.source == StepSource::Optimizer && !may_search() {
            REPORTED.fetch_or(dumps, AcqRel);
        }
        match search(guard, if dumps { Occasion::Step } else { Occasion::Look }, None) {
            Some(guard) => guard,
            None => return,
        }
    };
    if dumps {
        dump_now(guard);
    }
}

type Guard = MutexGuard<'static, Option<Box<Analyzer>>>;

/// Appends what allocator, pools and driver say of each device at this moment.
fn sample_counters() {
    counters::sample();
    with_services(|services| (services.sample_driver)());
}

fn with_services<R>(call: impl FnOnce(&Services) -> R) -> Option<R> {
    // SAFETY: null, or what `arm` was given, which lives for ever.
    unsafe { SERVICES.load(Acquire).as_ref() }.map(call)
}

/// Writes the report so far.
pub fn dump() {
    if state::is_recording() {
        let _undisturbed = Undisturbed::begin();
        coverage_gaps::report_noted();
        shield(|| {
            sample_counters();
            let Some(mut guard) = ANALYZER.lock() else { return };
            if guard.as_mut().is_some_and(|analyzer| analyzer.drain())
                && let Some(guard) = search(guard, Occasion::Asked, None)
            {
                dump_now(guard);
            }
        });
    }
}

fn dump_now(mut guard: Guard) {
    if let Some(analyzer) = guard.as_mut() {
        analyzer.dump();
    }
}

fn with_analyzer(call: impl FnOnce(&mut Analyzer)) {
    if let Some(mut guard) = ANALYZER.lock()
        && let Some(analyzer) = guard.as_mut()
    {
        call(analyzer);
    }
}

/// Writes what is alive at this moment, since memory ran out on a device. Under the allocator's lock.
pub fn out_of_memory() {
    // The totals as last reported, which the report compares with: nobody is asked.
    counters::sample();
    let Some(mut guard) = ANALYZER.lock() else { return };
    let Some(analyzer) = guard.as_mut() else { return };
    if !analyzer.drain() {
        return;
    }
    analyzer.out_of_memory_dumps += 1;
    // A program that searches for its batch size runs out again and again; the first dumps and every later
    // power of two.
    let n = analyzer.out_of_memory_dumps;
    if n <= 4 || n.is_power_of_two() {
        analyzer.write_out_of_memory();
    }
    // Who held it all: as soon as the interpreter comes to it, which is before the program has handled its
    // error.
    if n <= OOM_SEARCHES && settings::get().holders {
        RAN_OUT.store(true, Release);
        ask_for_search();
    }
}

/// Ends the last step, writes the last report and a summary on stderr, since the program is ending.
pub fn exit() {
    finish(End::Clean);
}

/// Ends the last step and writes the last report, since the tracing ends and the program goes on.
pub fn leave() {
    LEAVING.store(true, Release);
    finish(End::Detached);
}

fn finish(end: End) {
    if !state::is_recording() || EXITED.swap(true, AcqRel) {
        return;
    }
    let _undisturbed = Undisturbed::begin();
    coverage_gaps::report_noted();
    // Another thread may be at it, and will be done soon; a program's end waits for nothing longer than that.
    const LONGEST: Duration = Duration::from_secs(5);
    if loop_steps::is_enabled()
        && let Some(mut guard) = ANALYZER.try_lock_for(LONGEST)
        && let Some(analyzer) = guard.as_mut()
    {
        end_loop(analyzer);
    }
    sample_counters();
    if end == End::Clean {
        thread_state::append(&Event { address: state::elapsed(), ..Event::new(EventKind::Exit) });
    }
    let Some(mut guard) = ANALYZER.try_lock_for(LONGEST) else { return };
    let Some(analyzer) = guard.as_mut() else { return };
    if !analyzer.drain() {
        // Where events are lost, that was said.
        if recording::dropped() == 0 {
            stderr::say("too little memory to sum up; the recording is whole");
        }
        return;
    }
    let Some(mut guard) = search(guard, Occasion::End, None) else { return };
    let Some(analyzer) = guard.as_mut() else { return };
    if let Some(range) = settings::get().range.as_ref().filter(|_| analyzer.ledger.step_count() == 0) {
        let text = format!(
            "no range named {range:?} was seen: those of torch.profiler.record_function are, those of torch.cuda.nvtx are not"
        );
        recording::append_entry(&TableEntry::Note { text: &text });
    }
    let report = analyzer.report();
    analyzer.write("txt", &report, report::text::render);
    if settings::get().quiet || end == End::Detached {
        return;
    }
    match (report, state::path()) {
        (Ok(report), Some(path)) => stderr::write(&report::text::summary(&report, &as_typed(&path))),
        (Err(why), _) => stderr::say(&why),
        (Ok(_), None) => {}
    }
}

/// Returns how the program's recording is ending, if it is.
pub fn end() -> End {
    match (EXITED.load(Acquire), LEAVING.load(Acquire)) {
        (false, _) => End::Running,
        (true, true) => End::Detached,
        (true, false) => End::Clean,
    }
}

/// Frees the ledger and what the detector of loops knows, since the recording has ended and the program goes on.
pub fn forget_ledger() {
    loop_steps::stop();
    drop(ANALYZER.lock().and_then(|mut analyzer| analyzer.take()));
}

/// Forgets the steps and the ledger of the parent, in a forked child.
pub fn after_fork_child() {
    loop_steps::after_fork_child();
    annotations::after_fork_child();
    // The parent's ledger is left where it lies: freeing it would copy its pages.
    std::mem::forget(ANALYZER.lock().and_then(|mut analyzer| analyzer.take()));
    counters::after_fork_child();
    EXITED.store(false, Release);
    RAN_OUT.store(false, Release);
    REPORTED.store(false, Release);
    let steps = Steps::new(settings::get().step);
    loop_steps::enable(steps.wants_loop());
    set_steps(steps);
}
