//! Annotations: named moments that are to be found again in the report. The program sets them, or they show
//! by themselves: a range that it named, a cache emptied.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::analysis::counters;
use crate::lock::{Mutex, Rank};
use crate::python::frames;
use crate::shield::shield;
use crate::state;
use crate::thread_state;
use crate::writer::entries::shortened;
use crate::writer::recording;
use leaktrace_core::format::entry::TableEntry;
use leaktrace_core::format::event::{AnnotationKind, Event, EventKind};
use leaktrace_core::frameworks;

/// Names that keep one label each. A program that has a label per step has more in a long run.
const MAX_NAMES: usize = 4096;
/// Labels that are recorded. Annotations after them go without.
const MAX_LABELS: u32 = 100_000;

/// The labels of this recording, by text.
pub struct Labels {
    known: BTreeMap<String, u32>,
    last: u32,
}

/// The labels that are known.
pub static LABELS: Mutex<Labels> = Mutex::new(Rank::Labels, Labels { known: BTreeMap::new(), last: 0 });
/// The event after the latest free by which a framework emptied its cache.
static LAST_EMPTIED: AtomicU64 = AtomicU64::new(0);

/// Annotates this moment, as the program asks.
pub fn mark(text: &str) {
    if state::is_recording()
        && let Some(label) = label(text, MAX_LABELS)
    {
        append(AnnotationKind::User, label);
    }
}

/// Annotates the end of a range that ends no step.
pub fn range(name: &[u8]) {
    // PyTorch names these itself, at every step.
    if name.starts_with(b"Optimizer.") {
        return;
    }
    shield(|| {
        if let Some(label) = label(&String::from_utf8_lossy(name), MAX_NAMES as u32) {
            append(AnnotationKind::Range, label);
        }
    });
}

/// Annotates that a framework empties its cache, if that is why memory was freed: the first of the pieces is
/// annotated; the others follow with nothing in between. Where the allocator frees memory on its own, another
/// function runs.
pub fn memory_freed() {
    if counters::has_blocks() {
        cache_emptied();
    }
}

/// Annotates that a framework empties its cache, if that is why a pool was trimmed.
pub fn pool_trimmed() {
    cache_emptied();
}

fn cache_emptied() {
    let now = recording::sequence();
    if !frames::runs(thread_state::current(), frameworks::releases_cache) {
        return;
    }
    if LAST_EMPTIED.swap(now, Relaxed) + 1 != now {
        append(AnnotationKind::EmptyCache, 0);
        LAST_EMPTIED.store(recording::sequence(), Relaxed);
    }
}

fn append(kind: AnnotationKind, label: u32) {
    thread_state::append(&Event {
        address: state::elapsed(),
        stack: label,
        class: kind as u8,
        ..Event::new(EventKind::Annotation)
    });
}

/// Returns the label that stands for `text`; `None`: there is no room for more than `most`.
fn label(text: &str, most: u32) -> Option<u32> {
    let text = shortened(text);
    let mut labels = LABELS.lock()?;
    if let Some(&id) = labels.known.get(text) {
        return Some(id);
    }
    let id = labels.last + 1;
    if id > most || !recording::append_entry(&TableEntry::Label { id, text }) {
        return None;
    }
    labels.last = id;
    if labels.known.len() < MAX_NAMES {
        labels.known.insert(text.to_owned(), id);
    }
    Some(id)
}

/// Forgets the labels, in a forked child: its recording has none yet.
pub fn after_fork_child() {
    let Some(mut labels) = LABELS.lock() else { return };
    labels.last = 0;
    // Freeing it would copy its pages.
    std::mem::forget(std::mem::take(&mut labels.known));
}
