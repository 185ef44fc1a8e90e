//! The devices that appear in events, and their description in the recording.

use std::sync::atomic::{AtomicU64, Ordering::*};

use leaktrace_core::format::entry::TableEntry;
use leaktrace_core::format::event::{Event, EventKind};

use crate::analysis::counters;
use crate::hooks::{driver_queries, events};
use crate::thread_state;
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

/// A device appears that the driver was not asked about: describes it by what its framework says, name and bytes.
pub fn seen_by_framework(device: u8, ask: impl FnOnce() -> Option<(String, u64)>) {
    if device < 64
        && DESCRIBED.fetch_or(1 << device, AcqRel) >> device & 1 == 0
        && let Some((name, total_bytes)) = ask()
    {
        recording::append_entry(&TableEntry::Device { index: device, name: &name, total_bytes });
    }
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

/// Appends the totals of the pools and of the driver for each device. Unattributed memory is computed from
/// them, so it is as fine as they are.
pub fn sample() {
    if !driver_queries::may_ask() {
        return;
    }
    for device in counters::devices(events::devices_with_pools()) {
        if let Some((reserved, used)) = events::reentrant(|| driver_queries::pool_totals(device)) {
            let totals = Event { address: used, size: reserved, device, ..Event::new(EventKind::PoolTotals) };
            thread_state::append(&totals);
        }
    }
    for device in counters::devices(SEEN.load(Acquire)) {
        if let Some((free, total)) = events::reentrant(|| driver_queries::memory_info(device)) {
            let info = Event { address: free, size: total, device, ..Event::new(EventKind::MemInfo) };
            thread_state::append(&info);
        }
    }
}

/// Forgets all, in a forked child: its recording is another one.
pub fn forget() {
    SEEN.store(0, Release);
    DESCRIBED.store(0, Release);
}
