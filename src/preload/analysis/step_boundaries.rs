//! Boundaries: what ends a step, told by many sources, and what is done there: accounts asked for, reports dumped, holders
//! searched for.
//!
//! Runs on the thread that ended a step, outside the allocator's lock; where a loop's iteration is the step, in a hook.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use crate::analysis::analyzer::COVERED;
use crate::analysis::analyzer::HOST;
use crate::analysis::analyzer::Host;
use crate::analysis::annotations;
use crate::analysis::holders::Occasion;
use crate::analysis::loop_steps;
use crate::hooks::{devices, driver_queries, events};
use crate::lifecycle;
use crate::python;
use crate::shield;
use crate::stacks;
use crate::writer::lock;
use crate::writer::lock::Mutex;
use crate::writer::recording;
use leaktrace_core::format::entry::TableEntry;
use leaktrace_core::format::event::{Event, EventKind, StepSource};
use leaktrace_core::report;
use leaktrace_core::steps::{Boundary, Setting, Steps};

/// Steps between reports, if nothing was said.
const DUMP_EVERY: u32 = 100;

static STEPS: Mutex<Steps> = Mutex::new(Steps::new(Setting::Auto));
static EXITED: AtomicBool = AtomicBool::new(false);
/// Memory ran out, and who held it is still to be asked. For the first few times only.
static RAN_OUT: AtomicBool = AtomicBool::new(false);
const OOM_SEARCHES: u32 = 2;

/// What the caching allocator of a device last said of itself.
struct Totals {
    seq: AtomicU64,
    allocated: AtomicU64,
    reserved: AtomicU64,
}

#[unsafe(link_section = ".data.leaktrace")]
static TOTALS: [Totals; 64] =
    [const { Totals { seq: AtomicU64::new(0), allocated: AtomicU64::new(0), reserved: AtomicU64::new(0) } };
        64];

/// True while steps end by the clock.
#[unsafe(link_section = ".data.leaktrace")]
static TICKING: AtomicBool = AtomicBool::new(false);

/// Takes the setting over.
pub fn arm(setting: Setting) {
    TICKING.store(matches!(setting, Setting::Every(_)), Release);
    let steps = Steps::new(setting);
    loop_steps::look(steps.wants_loop());
    *STEPS.lock() = steps;
}

/// A recording was opened.
pub fn begin() {
    EXITED.store(false, Release);
    COVERED.store(1, Release);
    *HOST.lock() = Some(Box::default());
}

/// After a block event, under the allocator's lock of that device.
#[inline]
pub fn allocator_says(device: u8, allocated: u64, reserved: u64) {
    let Some(totals) = TOTALS.get(device as usize) else { return };
    totals.seq.store(0, Relaxed);
    totals.allocated.store(allocated, Release);
    totals.reserved.store(reserved, Release);
    totals.seq.store(recording::sequence() - 1, Release);
}

/// An optimizer stepped.
pub fn optimizer(id: Option<usize>) {
    if lifecycle::is_live() && loop_steps::is_looking() {
        shield::fenced(loop_steps::optimizer);
    }
    tell(|steps| steps.optimizer(id), None);
}

/// A backward pass begins.
pub fn backward() {
    if lifecycle::is_live() && loop_steps::is_curious() {
        shield::fenced(|| {
            loop_steps::event(false);
            // Now or never: from here on backward passes end the steps of a program without an optimizer, if its loop does not.
            if STEPS.lock().falls_back_next() {
                loop_is_ripe();
            }
        });
    }
    tell(Steps::backward, None);
}

/// A range that the program named is over.
pub fn range(name: &[u8]) {
    if !lifecycle::is_live() {
        return;
    }
    match lifecycle::settings().range.as_deref() {
        Some(wanted) if wanted.as_bytes() == name => tell(Steps::range, None),
        _ => annotations::range(name),
    }
}

/// The program says so itself.
pub fn call(label: Option<&str>) {
    tell(Steps::call, label);
}

/// The program's loop came round, or (`main` is false) one around it. From a hook.
pub fn looped(level: u8, main: bool) {
    tell(|steps| steps.looped(level, main), None);
}

/// It shows by now which loop it is.
#[cold]
pub fn loop_is_ripe() {
    if let Some(host) = HOST.lock().as_mut() {
        host.choose_loop(false);
    }
}

/// The program is ending: the iterations under way are over, and the interpreter's own end is none.
fn end_loop(host: &mut Host) {
    host.choose_loop(true);
    let unreadable = loop_steps::unreadable();
    if unreadable > 0 {
        let text = format!("the bytecode of {unreadable} functions is not known: loops in them end no step");
        recording::append_entry(&TableEntry::Note { text: &text });
    }
    if loop_steps::is_open() {
        loop_steps::stop();
    }
    if loop_steps::goes_on() {
        host.end_iterations();
    }
}

/// Whether the program's loop may end steps.
pub(crate) fn wants_loop() -> bool {
    STEPS.lock().wants_loop()
}

/// It does.
pub(crate) fn loop_was_chosen() {
    STEPS.lock().looped(0, true);
}

/// True while steps end by the clock.
#[inline(always)]
pub fn ticks() -> bool {
    TICKING.load(Relaxed)
}

/// Looks at the clock where it ends steps. From hooks: memory is what has to be there to end a step of it.
#[inline(always)]
pub fn tick() {
    if ticks() {
        tell(|steps| steps.tick(Duration::from_nanos(lifecycle::elapsed())), None);
    }
}

fn tell(ask: impl FnOnce(&mut Steps) -> Option<Boundary>, label: Option<&str>) {
    let (boundary, wants_loop) = {
        let mut steps = STEPS.lock();
        (ask(&mut steps), steps.wants_loop())
    };
    if !wants_loop && loop_steps::is_looking() {
        loop_steps::stop();
    }
    if let Some(boundary) = boundary
        && lifecycle::is_live()
    {
        shield::fenced(|| {
            if boundary.main { end_step(boundary, label) } else { events::append_shielded(&event(boundary)) }
        });
    }
}

fn event(boundary: Boundary) -> Event {
    let kind = if boundary.main { EventKind::StepEnd } else { EventKind::AltBoundary };
    let none = Event::new(kind);
    Event {
        address: lifecycle::elapsed(),
        class: boundary.source as u8,
        context: u8::from(boundary.replaces),
        device: if boundary.source == StepSource::Loop { boundary.level } else { none.device },
        ..none
    }
}

fn end_step(boundary: Boundary, label: Option<&str>) {
    if let Some(text) = label.filter(|l| !l.is_empty()) {
        annotations::mark(text);
    }
    accounts();
    events::append_shielded(&event(boundary));
    let mut guard = HOST.lock();
    let Some(host) = guard.as_mut() else { return };
    let every = lifecycle::settings().dump_every;
    let due = |step: u32| step == 10 || step == 30 || step.is_multiple_of(every.unwrap_or(DUMP_EVERY));
    host.waiting = host.waiting.saturating_add(u32::from(!boundary.replaces));
    if (host.few_wait() && !due(host.ledger.step_count().saturating_add(host.waiting))) || !host.catch_up() {
        return;
    }
    if boundary.replaces || !due(host.ledger.step_count()) || (every.is_none() && host.dumps_too_much()) {
        return;
    }
    let mut guard = if matches!(boundary.source, StepSource::Time | StepSource::Loop) {
        // Inside a hook, where nothing may take long and nobody may be asked for anything but a moment.
        python::search::ask();
        guard
    } else {
        if stacks::takes_suspicions() {
            let began = Instant::now();
            stacks::suspect(&crate::analysis::holders::suspicious(&host.ledger));
            host.dumping += began.elapsed();
        }
        search(guard, Occasion::Step)
    };
    if let Some(host) = guard.as_mut() {
        host.dump();
    }
}

type Guard = lock::MutexGuard<'static, Option<Box<Host>>>;

/// Looks for who holds what leaks, if that can be done here and now. The lock is let go meanwhile: a search may take long, and
/// others have events to take in.
fn search(mut guard: Guard, occasion: Occasion) -> Guard {
    let may_run = lifecycle::settings().holders && python::search::may_run();
    // At the end there is no other time: that nothing can be searched is said then.
    if !lifecycle::settings().holders || !(may_run || occasion == Occasion::End) {
        return guard;
    }
    let Some(host) = guard.as_mut() else { return guard };
    let question = host.owners.question(&host.ledger, occasion);
    if question.is_empty() || host.owners.obstacle(may_run) || !may_run {
        return guard;
    }
    drop(guard);
    let answer = crate::analysis::holders::look(&question);
    let mut guard = HOST.lock();
    // Without memory to catch up the answer stands as it was found.
    if let Some(host) = guard.as_mut() {
        host.catch_up();
        host.owners.answered(&host.ledger, &question, &answer);
    }
    guard
}

/// The interpreter calls back, GIL in hand, because a search was due.
pub fn holders() {
    if lifecycle::is_live() {
        shield::fenced(|| {
            let mut guard = HOST.lock();
            if lifecycle::settings().holders && guard.as_mut().is_some_and(|host| host.catch_up()) {
                let ran_out = RAN_OUT.swap(false, AcqRel);
                let guard = search(guard, if ran_out { Occasion::Memory } else { Occasion::Step });
                if let Some(host) = guard.as_ref().filter(|_| ran_out) {
                    host.write("oom.txt", report::text::out_of_memory);
                }
            }
        });
    }
}

/// Appends what allocator, pools and driver say of each device. What is in use beyond what was seen shows here, and only
/// if it is asked for at every step.
fn accounts() {
    let ask = driver_queries::may_ask();
    for (device, totals) in (0u8..).zip(&TOTALS) {
        let seq = totals.seq.load(Acquire);
        let (allocated, reserved) = (totals.allocated.load(Acquire), totals.reserved.load(Acquire));
        // Unchanged, so the three belong together.
        if seq != 0 && totals.seq.load(Acquire) == seq {
            events::append_shielded(&Event {
                address: allocated,
                size: reserved,
                device,
                stack: seq as u32,
                ..Event::new(EventKind::AllocatorTotals)
            });
        }
        if ask
            && events::has_pools(device)
            && let Some((reserved, used)) = events::reentrant(|| driver_queries::pool_totals(device))
        {
            events::append_shielded(&Event {
                address: used,
                size: reserved,
                device,
                ..Event::new(EventKind::PoolTotals)
            });
        }
    }
    let devices = if ask { devices::all_seen() } else { 0 };
    for device in (0u8..64).filter(|device| devices >> device & 1 == 1) {
        if let Some((free, total)) = events::reentrant(|| driver_queries::memory_info(device)) {
            events::append_shielded(&Event {
                address: free,
                size: total,
                device,
                ..Event::new(EventKind::MemInfo)
            });
        }
    }
}

/// Writes the report so far.
pub fn dump() {
    if lifecycle::is_live() {
        shield::fenced(|| {
            accounts();
            let mut guard = HOST.lock();
            if guard.as_mut().is_some_and(|host| host.catch_up())
                && let Some(host) = search(guard, Occasion::Asked).as_mut()
            {
                host.dump();
            }
        });
    }
}

/// Memory ran out on a device: ranks what is alive at this moment. Under the allocator's lock.
pub fn out_of_memory() {
    let mut host = HOST.lock();
    let Some(host) = host.as_mut() else { return };
    if !host.catch_up() {
        return;
    }
    host.out_of_memory_dumps += 1;
    // A program that searches for its batch size runs out again and again; the first dumps and every later power of two.
    let n = host.out_of_memory_dumps;
    if n <= 4 || n.is_power_of_two() {
        host.write("oom.txt", report::text::out_of_memory);
    }
    // Who held it all: as soon as the interpreter comes to it, which is before the program has handled its error.
    if n <= OOM_SEARCHES && lifecycle::settings().holders {
        RAN_OUT.store(true, Release);
        python::search::ask();
    }
}

/// The program is ending: last boundary, last dump, and a word on stderr.
pub fn exit() {
    if !lifecycle::is_live() || EXITED.swap(true, AcqRel) {
        return;
    }
    // Another thread may be at it, and will be done soon; a program's end waits for nothing longer than that.
    const LONGEST: Duration = Duration::from_secs(5);
    if loop_steps::is_looking()
        && let Some(mut guard) = HOST.try_lock_for(LONGEST)
        && let Some(host) = guard.as_mut()
    {
        end_loop(host);
    }
    accounts();
    events::append_shielded(&Event { address: lifecycle::elapsed(), ..Event::new(EventKind::Exit) });
    let Some(mut guard) = HOST.try_lock_for(LONGEST) else { return };
    let Some(host) = guard.as_mut() else { return };
    if !host.catch_up() {
        // Where events are lost, that was said.
        if recording::dropped() == 0 {
            shield::say("too little memory to sum up; the recording is whole");
        }
        return;
    }
    let mut guard = search(guard, Occasion::End);
    let Some(host) = guard.as_mut() else { return };
    if let Some(range) = lifecycle::settings().range.as_ref().filter(|_| host.ledger.step_count() == 0) {
        let text = format!(
            "no range named {range:?} was seen: those of torch.profiler.record_function are, those of torch.cuda.nvtx are not"
        );
        recording::append_entry(&TableEntry::Note { text: &text });
    }
    host.dump();
    if !lifecycle::settings().quiet
        && let Some(path) = lifecycle::path()
        && let Some(report) = host.report()
    {
        shield::write(&report::text::summary(&report, &shown(&path)));
    }
}

/// The path as a person would type it: relative where the recording lies below the working directory.
fn shown(path: &Path) -> String {
    let below = std::env::current_dir().ok().and_then(|d| path.strip_prefix(d).ok().map(PathBuf::from));
    below.as_deref().unwrap_or(path).display().to_string()
}

/// Before fork: nobody may hold these while the process is copied.
pub fn before_fork() {
    lock::hold(&HOST);
    lock::hold(&STEPS);
    annotations::before_fork();
    loop_steps::before_fork();
}

/// After fork, in the parent.
pub fn after_fork_parent() {
    loop_steps::after_fork_parent();
    annotations::after_fork_parent();
    // SAFETY: `before_fork` took both on this very thread.
    unsafe {
        lock::release(&STEPS);
        lock::release(&HOST);
    }
}

/// After fork, in the child: it has its own steps and its own ledger.
pub fn after_fork_child() {
    // SAFETY: a child begins with one thread, and this function holds no reference into the locks.
    unsafe {
        lock::renew(&HOST);
        lock::renew(&STEPS);
    }
    loop_steps::after_fork_child();
    annotations::after_fork_child();
    // The parent's ledger is left where it lies: freeing it would copy its pages.
    std::mem::forget(HOST.lock().take());
    for totals in &TOTALS {
        totals.seq.store(0, Relaxed);
    }
    EXITED.store(false, Release);
    RAN_OUT.store(false, Release);
    arm(lifecycle::settings().step);
}
