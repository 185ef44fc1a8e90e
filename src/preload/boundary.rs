//! Boundaries: what ends a step, told by many sources, and what is done there: accounts asked for, reports dumped, holders
//! searched for.
//!
//! Runs on the thread that ended a step, outside the allocator's lock; where a loop's iteration is the step, in a hook.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use super::host::{COVERED, HOST, Host};
use super::owners::Occasion;
use super::{driver, guard, life, looped, marks, note, python};
use crate::capture;
use crate::report;
use crate::steps::{Boundary, Setting, Steps};
use crate::trace::entry::Entry;
use crate::trace::lock::{self, Mutex};
use crate::trace::record::{Event, Kind, Source};
use crate::trace::recording;

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
    looped::look(steps.wants_loop());
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
    if life::is_live() && looped::is_looking() {
        guard::fenced(looped::optimizer);
    }
    tell(|steps| steps.optimizer(id), None);
}

/// A backward pass begins.
pub fn backward() {
    if life::is_live() && looped::is_curious() {
        guard::fenced(|| {
            looped::event(false);
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
    if !life::is_live() {
        return;
    }
    match life::settings().range.as_deref() {
        Some(wanted) if wanted.as_bytes() == name => tell(Steps::range, None),
        _ => marks::range(name),
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
    let unreadable = looped::unreadable();
    if unreadable > 0 {
        let text = format!("the bytecode of {unreadable} functions is not known: loops in them end no step");
        recording::append_entry(&Entry::Note { text: &text });
    }
    if looped::is_open() {
        looped::stop();
    }
    if looped::goes_on() {
        host.end_iterations();
    }
}

/// Whether the program's loop may end steps.
pub(super) fn wants_loop() -> bool {
    STEPS.lock().wants_loop()
}

/// It does.
pub(super) fn loop_was_chosen() {
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
        tell(|steps| steps.tick(Duration::from_nanos(life::elapsed())), None);
    }
}

fn tell(ask: impl FnOnce(&mut Steps) -> Option<Boundary>, label: Option<&str>) {
    let (boundary, wants_loop) = {
        let mut steps = STEPS.lock();
        (ask(&mut steps), steps.wants_loop())
    };
    if !wants_loop && looped::is_looking() {
        looped::stop();
    }
    if let Some(boundary) = boundary
        && life::is_live()
    {
        guard::fenced(
            || if boundary.main { end_step(boundary, label) } else { note::mark(&event(boundary)) },
        );
    }
}

fn event(boundary: Boundary) -> Event {
    let kind = if boundary.main { Kind::Boundary } else { Kind::Level };
    let none = Event::new(kind);
    Event {
        address: life::elapsed(),
        class: boundary.source as u8,
        context: u8::from(boundary.replaces),
        device: if boundary.source == Source::Loop { boundary.level } else { none.device },
        ..none
    }
}

fn end_step(boundary: Boundary, label: Option<&str>) {
    if let Some(text) = label.filter(|l| !l.is_empty()) {
        marks::mark(text);
    }
    accounts();
    note::mark(&event(boundary));
    let mut guard = HOST.lock();
    let Some(host) = guard.as_mut() else { return };
    let every = life::settings().dump_every;
    let due = |step: u32| step == 10 || step == 30 || step.is_multiple_of(every.unwrap_or(DUMP_EVERY));
    host.waiting = host.waiting.saturating_add(u32::from(!boundary.replaces));
    if (host.few_wait() && !due(host.ledger.step_count().saturating_add(host.waiting))) || !host.catch_up() {
        return;
    }
    if boundary.replaces || !due(host.ledger.step_count()) || (every.is_none() && host.dumps_too_much()) {
        return;
    }
    let mut guard = if matches!(boundary.source, Source::Time | Source::Loop) {
        // Inside a hook, where nothing may take long and nobody may be asked for anything but a moment.
        python::search::ask();
        guard
    } else {
        if capture::takes_suspicions() {
            let began = Instant::now();
            capture::suspect(&super::owners::suspicious(&host.ledger));
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
    if !life::settings().holders || !python::search::may_run() {
        return guard;
    }
    let Some(host) = guard.as_mut() else { return guard };
    let question = host.owners.question(&host.ledger, occasion);
    if question.is_empty() || host.owners.obstacle() {
        return guard;
    }
    drop(guard);
    let answer = super::owners::look(&question);
    let mut guard = HOST.lock();
    if let Some(host) = guard.as_mut() {
        host.owners.answered(&host.ledger, &question, &answer);
    }
    guard
}

/// The interpreter calls back, GIL in hand, because a search was due.
pub fn holders() {
    if life::is_live() {
        guard::fenced(|| {
            let mut guard = HOST.lock();
            if life::settings().holders && guard.as_mut().is_some_and(|host| host.catch_up()) {
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
    let ask = driver::may_ask();
    for (device, totals) in (0u8..).zip(&TOTALS) {
        let seq = totals.seq.load(Acquire);
        let (allocated, reserved) = (totals.allocated.load(Acquire), totals.reserved.load(Acquire));
        // Unchanged, so the three belong together.
        if seq != 0 && totals.seq.load(Acquire) == seq {
            note::mark(&Event {
                address: allocated,
                size: reserved,
                device,
                stack: seq as u32,
                ..Event::new(Kind::AllocatorTotals)
            });
        }
        if ask
            && note::pools_seen(device)
            && let Some((reserved, used)) = note::deeper(|| driver::pool_totals(device))
        {
            note::mark(&Event { address: used, size: reserved, device, ..Event::new(Kind::PoolTotals) });
        }
    }
    let devices = if ask { life::devices_sighted() } else { 0 };
    for device in (0u8..64).filter(|device| devices >> device & 1 == 1) {
        if let Some((free, total)) = note::deeper(|| driver::memory_info(device)) {
            note::mark(&Event { address: free, size: total, device, ..Event::new(Kind::MemInfo) });
        }
    }
}

/// Writes the report so far.
pub fn dump() {
    if life::is_live() {
        guard::fenced(|| {
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
    if n <= OOM_SEARCHES && life::settings().holders {
        RAN_OUT.store(true, Release);
        python::search::ask();
    }
}

/// The program is ending: last boundary, last dump, and a word on stderr.
pub fn exit() {
    if !life::is_live() || EXITED.swap(true, AcqRel) {
        return;
    }
    // Another thread may be at it, and will be done soon; a program's end waits for nothing longer than that.
    const LONGEST: Duration = Duration::from_secs(5);
    if looped::is_looking()
        && let Some(mut guard) = HOST.try_lock_for(LONGEST)
        && let Some(host) = guard.as_mut()
    {
        end_loop(host);
    }
    accounts();
    note::mark(&Event { address: life::elapsed(), ..Event::new(Kind::Exit) });
    let Some(mut guard) = HOST.try_lock_for(LONGEST) else { return };
    let Some(host) = guard.as_mut() else { return };
    if !host.catch_up() {
        // Where events are lost, that was said.
        if recording::dropped() == 0 {
            guard::say("too little memory to sum up; the recording is whole");
        }
        return;
    }
    let mut guard = search(guard, Occasion::End);
    let Some(host) = guard.as_mut() else { return };
    if let Some(range) = life::settings().range.as_ref().filter(|_| host.ledger.step_count() == 0) {
        let text = format!(
            "no range named {range:?} was seen: those of torch.profiler.record_function are, those of torch.cuda.nvtx are not"
        );
        recording::append_entry(&Entry::Note { text: &text });
    }
    host.dump();
    if !life::settings().quiet
        && let Some(path) = life::path()
        && let Some(report) = host.report()
    {
        guard::write(&report::summary::render(&report, &shown(&path)));
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
    marks::before_fork();
    looped::before_fork();
}

/// After fork, in the parent.
pub fn after_fork_parent() {
    looped::after_fork_parent();
    marks::after_fork_parent();
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
    looped::after_fork_child();
    marks::after_fork_child();
    // The parent's ledger is left where it lies: freeing it would copy its pages.
    std::mem::forget(HOST.lock().take());
    for totals in &TOTALS {
        totals.seq.store(0, Relaxed);
    }
    EXITED.store(false, Release);
    RAN_OUT.store(false, Release);
    arm(life::settings().step);
}
