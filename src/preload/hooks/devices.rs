//! The devices that appear in events, and their description in the recording.

use std::sync::atomic::{AtomicU64, Ordering::*};

use leaktrace_core::format::entry::TableEntry;

use crate::hooks::{driver_queries, events};
use crate::writer::recording;

/// Devices that appeared in an event, a bit each.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// A device appears in an event: describes it in the recording on first sight.
pub fn seen(device: u8) {
    if device >= 64 || SEEN.fetch_or(1 << device, AcqRel) >> device & 1 == 1 {
        return;
    }
    if driver_queries::may_ask()
        && let Some((name, total_bytes)) = events::reentrant(|| driver_queries::describe(device))
    {
        recording::append_entry(&TableEntry::Device { index: device, name: &name, total_bytes });
    }
}

/// The devices that appeared in events, a bit each.
pub fn all_seen() -> u64 {
    SEEN.load(Acquire)
}

/// Forgets all, in a forked child: its recording is another one.
pub fn forget() {
    SEEN.store(0, Release);
}
