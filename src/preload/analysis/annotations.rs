//! Marks: moments that go by a name and are to be found again in the report. The program sets them, or they show by
//! themselves: a range that it named, PyTorch's cache emptied.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::hooks::events;
use crate::lifecycle;
use crate::python::frames;
use crate::shield;
use crate::thread_state;
use crate::writer::lock;
use crate::writer::lock::Mutex;
use crate::writer::recording;
use leaktrace_core::format::entry::TableEntry;
use leaktrace_core::format::event::{AnnotationKind, Event, EventKind};

/// Names that are told by one label each. A label per step of a long run has more.
const NAMES: usize = 4096;
/// Labels written. What comes after them goes without.
const LABELS: u32 = 100_000;

struct Labels {
    known: BTreeMap<String, u32>,
    last: u32,
}

static NAMED: Mutex<Labels> = Mutex::new(Labels { known: BTreeMap::new(), last: 0 });
/// The event behind the latest free of memory that PyTorch let go of because it was told to.
static EMPTIED: AtomicU64 = AtomicU64::new(0);

/// The program set a mark.
pub fn mark(text: &str) {
    if lifecycle::is_live()
        && let Some(label) = label(text, LABELS)
    {
        say(AnnotationKind::User, label);
    }
}

/// A range is over that ends no step.
pub fn range(name: &[u8]) {
    // What PyTorch names of its own accord at every step.
    if name.starts_with(b"Optimizer.") {
        return;
    }
    shield::fenced(|| {
        if let Some(label) = label(&String::from_utf8_lossy(name), NAMES as u32) {
            say(AnnotationKind::Range, label);
        }
    });
}

/// The driver got memory back. If `empty_cache` is the function that asked for it, the first of the pieces makes a mark;
/// the others follow with nothing in between. Where the allocator gives memory back on its own, another function runs.
pub fn given_back() {
    if !crate::frameworks::torch::has_blocks() {
        return;
    }
    let now = recording::sequence();
    let asked = |file: &str, name: &str| {
        name == "empty_cache" && file.ends_with("/memory.py") && file.contains("/torch/")
    };
    if !frames::runs(thread_state::current(), asked) {
        return;
    }
    if EMPTIED.swap(now, Relaxed) + 1 != now {
        say(AnnotationKind::EmptyCache, 0);
        EMPTIED.store(recording::sequence(), Relaxed);
    }
}

fn say(kind: AnnotationKind, label: u32) {
    events::append_shielded(&Event {
        address: lifecycle::elapsed(),
        stack: label,
        class: kind as u8,
        ..Event::new(EventKind::Annotation)
    });
}

/// The label that stands for `text`; `None`: there is no room for more than `most`.
fn label(text: &str, most: u32) -> Option<u32> {
    let mut labels = NAMED.lock();
    if let Some(&id) = labels.known.get(text) {
        return Some(id);
    }
    let id = labels.last + 1;
    if id > most || !recording::append_entry(&TableEntry::Label { id, text }) {
        return None;
    }
    labels.last = id;
    if labels.known.len() < NAMES {
        labels.known.insert(text.to_owned(), id);
    }
    Some(id)
}

/// Before fork: nobody may hold it while the process is copied.
pub fn before_fork() {
    lock::hold(&NAMED);
}

/// After fork, in the parent.
pub fn after_fork_parent() {
    // SAFETY: `before_fork` took it on this very thread.
    unsafe { lock::release(&NAMED) };
}

/// After fork, in the child: its recording has no label yet.
pub fn after_fork_child() {
    // SAFETY: a child begins with one thread, and this function holds no reference into the lock.
    unsafe { lock::renew(&NAMED) };
    let mut labels = NAMED.lock();
    labels.last = 0;
    // Freeing it would copy its pages.
    std::mem::forget(std::mem::take(&mut labels.known));
}
