//! When something is due at the end of a step, known without a lock: a loop may end one every microsecond. It does not
//! know what is done then.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use crate::settings;
use crate::writer::recording;
use leaktrace_core::ledger::verdict::MIN_STEPS;

/// The steps between reports, unless set otherwise.
const DUMP_EVERY: u32 = 100;
/// The events that are drained together, however many steps they are: each time the ledger pushes the
/// program's own data out of the processor's caches.
const BATCH: u64 = 8192;
/// The part of the steps so far, 1 in so many, for which a look is postponed.
const POSTPONED: u32 = 64;
/// The steps at whose end counters are always sampled …
const ALL_SAMPLED: u32 = 512;
/// … and the nanoseconds between two samples later: asking the driver takes longer than the shortest steps do.
const SAMPLE_NS: u64 = 500_000;

/// The steps that ended; after a drain, as the ledger counts them.
#[unsafe(link_section = ".data.leaktrace")]
static STEP: AtomicU32 = AtomicU32::new(0);
/// The first event that is not drained.
#[unsafe(link_section = ".data.leaktrace")]
static UNDRAINED: AtomicU64 = AtomicU64::new(1);
/// The step from which on new findings are looked for again.
#[unsafe(link_section = ".data.leaktrace")]
static NEXT_LOOK: AtomicU32 = AtomicU32::new(0);
/// When counters were sampled last, in nanoseconds since the recording began.
#[unsafe(link_section = ".data.leaktrace")]
static SAMPLED: AtomicU64 = AtomicU64::new(0);

/// Begins with a recording that was opened.
pub fn begin() {
    STEP.store(0, Release);
    UNDRAINED.store(1, Release);
    NEXT_LOOK.store(0, Release);
    SAMPLED.store(0, Release);
}

/// Counts a boundary. Returns the number of the step that it ended.
#[inline]
pub fn step_ended(supersedes: bool) -> u32 {
    let more = u32::from(!supersedes);
    STEP.fetch_add(more, AcqRel).saturating_add(more)
}

/// Takes in that every event before `next` was drained, and how many steps there were.
pub fn drained(next: u64, steps: u32) {
    UNDRAINED.store(next, Release);
    STEP.store(steps, Release);
}

/// Returns whether so few events wait that they can be drained together with later ones.
#[inline]
pub fn backlog_is_small() -> bool {
    recording::sequence().saturating_sub(UNDRAINED.load(Acquire)) < BATCH
}

/// Returns whether a report is due at the end of this step.
#[inline]
pub fn is_report_due(step: u32) -> bool {
    step == 10 || step == 30 || step.is_multiple_of(settings::get().dump_every.unwrap_or(DUMP_EVERY))
}

/// Returns whether new findings are to be looked for at the end of this step.
#[inline]
pub fn is_look_due(step: u32) -> bool {
    settings::get().holders && step >= NEXT_LOOK.load(Acquire).max(MIN_STEPS)
}

/// Has new findings looked for again from this step on.
pub fn look_from(step: u32) {
    NEXT_LOOK.store(step, Release);
}

/// Has nobody look for new findings for some more steps.
pub fn postpone_look(step: u32) {
    look_from(step.saturating_add(step / POSTPONED + 1));
}

/// Returns whether counters are to be sampled at the end of a step at this moment, in nanoseconds since the recording began.
#[inline]
pub fn is_sample_due(now: u64) -> bool {
    let due = STEP.load(Relaxed) < ALL_SAMPLED || now.saturating_sub(SAMPLED.load(Relaxed)) >= SAMPLE_NS;
    if due {
        SAMPLED.store(now, Relaxed);
    }
    due
}
