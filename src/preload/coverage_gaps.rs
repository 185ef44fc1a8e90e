//! What could not be seen, by name, until there is a recording to tell it in. Knows nothing of doors.
//!
//! A hole is there before the first event as a rule (a library was opened past us), and a forked child has it too: so
//! they are kept for good, a few of them, and told in each recording once.

use std::sync::atomic::{AtomicU32, Ordering::*};

use once_cell::race::OnceBox;

use crate::lifecycle;
use crate::writer::recording;
use leaktrace_core::format::entry::TableEntry;

const MOST: usize = 16;
static HOLES: [OnceBox<String>; MOST] = [const { OnceBox::new() }; MOST];
/// The process in whose recording each was told.
static TOLD: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];

/// A hole was found. Allocates only where there is one.
pub fn name(what: &str) {
    for (i, hole) in HOLES.iter().enumerate() {
        let text = if i + 1 < MOST { what } else { "more than can be named" };
        let mine = hole.set(Box::new(format!("coverage hole: {text}"))).is_ok();
        if mine || hole.get().is_some_and(|known| known.strip_prefix("coverage hole: ") == Some(text)) {
            if lifecycle::is_live() {
                tell_one(i);
            }
            return;
        }
    }
}

/// A recording was opened.
pub fn tell() {
    (0..MOST).for_each(tell_one);
}

fn tell_one(i: usize) {
    let Some(text) = HOLES[i].get() else { return };
    if TOLD[i].swap(std::process::id(), AcqRel) != std::process::id() {
        recording::append_entry(&TableEntry::Note { text });
    }
}
