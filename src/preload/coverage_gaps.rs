//! What could not be seen, by name, until there is a recording to write it in. It knows nothing of how calls
//! are seen.
//!
//! A gap is there before the first event as a rule (a library was opened past us), and a forked child has it
//! too: so gaps are kept for good, a few of them, and written to each recording once.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

use once_cell::race::OnceBox;

use crate::state;
use crate::writer::recording;
use leaktrace_core::format::entry::TableEntry;

const MAX_GAPS: usize = 16;
static GAPS: [OnceBox<String>; MAX_GAPS] = [const { OnceBox::new() }; MAX_GAPS];
/// The process in whose recording each was written.
static WRITTEN_BY: [AtomicU32; MAX_GAPS] = [const { AtomicU32::new(0) }; MAX_GAPS];

/// Reports that something could not be seen. Allocates only where there is something.
pub fn report(what: &str) {
    for (i, gap) in GAPS.iter().enumerate() {
        let text = if i + 1 < MAX_GAPS { what } else { "more than can be named" };
        let is_new = gap.set(Box::new(text.to_owned())).is_ok();
        if is_new || gap.get().is_some_and(|known| known == text) {
            if state::is_recording() {
                flush_one(i);
            }
            return;
        }
    }
}

/// Calls were left, and that was not reported yet.
static LEFT: AtomicBool = AtomicBool::new(false);

/// Notes that a call was left before it returned, by an unwinding or a jump. From anywhere: it is reported
/// later.
#[cold]
pub fn call_was_left() {
    LEFT.store(true, Release);
}

/// There were too many threads at one time, and that was not reported yet.
static MANY_THREADS: AtomicBool = AtomicBool::new(false);

/// Notes that a thread takes no Python stacks, since there are so many. From anywhere: it is reported later.
#[cold]
pub fn many_threads() {
    MANY_THREADS.store(true, Release);
}

/// Reports what was noted where nothing could be reported.
pub fn report_noted() {
    if MANY_THREADS.load(Relaxed) && MANY_THREADS.swap(false, AcqRel) {
        report("Python's stacks of threads beyond the 1,024 that allocate at one time");
    }
    if LEFT.load(Relaxed) && LEFT.swap(false, AcqRel) {
        report(
            "calls into CUDA that a jump, an exception or the end of their thread left in the middle: what they did is not known",
        );
    }
}

/// Has all gaps written to the next recording of this process too.
pub fn begin_anew() {
    WRITTEN_BY.iter().for_each(|by| by.store(0, Release));
}

/// Writes all gaps to a recording that was just opened.
pub fn flush() {
    (0..MAX_GAPS).for_each(flush_one);
}

fn flush_one(i: usize) {
    let Some(text) = GAPS[i].get() else { return };
    let pid = std::process::id();
    if WRITTEN_BY[i].swap(pid, AcqRel) != pid && !recording::append_entry(&TableEntry::Note { text }) {
        WRITTEN_BY[i].store(0, Release);
    }
}
