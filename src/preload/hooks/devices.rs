//! The devices that appear in events, and their description in the recording.

use std::sync::atomic::{AtomicU64, Ordering::*};

use leaktrace_core::format::entry::TableEntry;

use crate::hooks::{driver_queries, events};
use crate::writer::recording;

/// Devices that appeared in an event, a bit each.
static SEEN: AtomicU64 = AtomicU64::new(0);
/// Devices that the recording describes, a bit each.
static DESCRIBED: AtomicU64 = AtomicU64::new(0);

/// A device appears in an event: describes it in the recording, if the driver may be asked and that was not
/// done yet.
pub fn seen(device: u8) {
    if device >= 64 || DESCRIBED.load(Relaxed) >> device & 1 == 1 {
        return;
    }
    SEEN.fetch_or(1 << device, AcqRel);
    describe_seen();
}

/// Describes the devices that appeared while a stream was being captured, when the driver must not be asked.
pub fn describe_seen() {
    while driver_queries::may_ask() {
        let missing = SEEN.load(Acquire) & !DESCRIBED.load(Acquire);
        if missing == 0 {
            return;
        }
        let device = missing.trailing_zeros() as u8;
        if DESCRIBED.fetch_or(1 << device, AcqRel) >> device & 1 == 0
            && let Some((name, total_bytes)) = events::reentrant(|| driver_queries::describe(device))
        {
            recording::append_entry(&TableEntry::Device { index: device, name: &name, total_bytes });
        }
    }
}

/// The devices that appeared in events, a bit each.
pub fn all_seen() -> u64 {
    SEEN.load(Acquire)
}

/// Forgets all, in a forked child: its recording is another one.
pub fn forget() {
    SEEN.store(0, Release);
    DESCRIBED.store(0, Release);
}
