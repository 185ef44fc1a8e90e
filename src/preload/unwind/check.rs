//! A check for tests: every stack of the fast unwinder is compared with the platform's own, and the recording
//! says how that went. Switched on by `LEAKTRACE_CHECK_STACKS=1`, which is no setting for users: it costs
//! more than the fast one saves.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::unwind::{Frames, Trace, portable};
use crate::writer::recording::append_entry;
use leaktrace_core::format::entry::TableEntry;

static ON: AtomicBool = AtomicBool::new(false);
static COMPARED: AtomicU64 = AtomicU64::new(0);
static DIFFERENT: AtomicU64 = AtomicU64::new(0);
/// Stacks that the fast unwinder left to the platform's.
static REPLACED: AtomicU64 = AtomicU64::new(0);

pub fn arm() {
    if std::env::var_os("LEAKTRACE_CHECK_STACKS").is_some_and(|v| v == "1") && !ON.swap(true, Relaxed) {
        // SAFETY: a function of this library, which is never unloaded.
        unsafe { libc::atexit(report) };
    }
}

pub fn after_fork_child() {
    for count in [&COMPARED, &DIFFERENT, &REPLACED] {
        count.store(0, Relaxed);
    }
}

extern "C" fn report() {
    note(&format!(
        "stack check: {} captures, {} differences, {} by the platform's unwinder",
        COMPARED.load(Relaxed),
        DIFFERENT.load(Relaxed),
        REPLACED.load(Relaxed)
    ));
}

fn note(text: &str) {
    append_entry(&TableEntry::Note { text });
}

/// Counts a stack that the platform's unwinder took.
#[inline(always)]
pub fn count_replaced() {
    if ON.load(Relaxed) {
        REPLACED.fetch_add(1, Relaxed);
    }
}

/// Compares a stack that the fast unwinder took.
#[inline(always)]
pub fn compare(trace: &mut Trace) {
    if ON.load(Relaxed) {
        with_portable(trace);
    }
}

#[cold]
#[inline(never)]
fn with_portable(trace: &mut Trace) {
    let mut expected = Frames::new();
    portable::walk(&mut expected);
    let (got, expected) = (trace.frames(), expected.as_slice());
    COMPARED.fetch_add(1, Relaxed);
    if got == expected {
        return;
    }
    // A few differences in full say enough.
    if DIFFERENT.fetch_add(1, Relaxed) < 3 {
        let mut text = String::from("stack check: a difference (ours, the platform's):");
        let at = |list: &[u64], i: usize| list.get(i).copied().unwrap_or_default();
        for i in 0..got.len().max(expected.len()) {
            let _ = write!(text, " {:x},{:x}", at(got, i), at(expected, i));
        }
        note(&text);
    }
}
