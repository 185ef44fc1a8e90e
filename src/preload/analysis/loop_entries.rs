//! What the recording says of the program's loop: where it is, and when its iterations ended. Drafts of it are written
//! until it is chosen; a later one replaces all before.

use std::sync::atomic::{AtomicU32, Ordering::*};

use crate::writer::recording;
use leaktrace_core::format::backfilled::{self, BackfilledBoundary};
use leaktrace_core::format::entry::TableEntry;
use leaktrace_core::steps::loops::{Choice, LoopLocation};

/// The number of the drafts written to the recording; 0: none.
static ROUND: AtomicU32 = AtomicU32::new(0);

/// Begins anew, with no draft.
pub fn forget() {
    ROUND.store(0, Release);
}

/// Withdraws what was drafted, if anything was.
pub fn withdraw() {
    if ROUND.load(Acquire) != 0 {
        write(&Choice::default());
    }
}

/// Writes what the loop is and when its iterations ended. With the detector's lock held, so that one is
/// written after the other.
pub fn write(choice: &Choice) {
    begin(&choice.locations);
    add(&choice.past);
}

/// Writes that the ends of iterations that are added from now on are those of these loops, and replace all before.
pub fn begin(locations: &[(u8, bool, LoopLocation)]) {
    ROUND.fetch_add(1, AcqRel);
    write_locations(locations);
}

/// Writes more ends of iterations of the loop that was written last.
pub fn add(ends: &[BackfilledBoundary]) {
    let round = ROUND.load(Acquire);
    let parts = ends.len().div_ceil(backfilled::MAX_PER_ENTRY).max(1);
    for part in 0..parts {
        let from = part * backfilled::MAX_PER_ENTRY;
        let ends = backfilled::pack(&ends[from..ends.len().min(from + backfilled::MAX_PER_ENTRY)]);
        recording::append_entry(&TableEntry::Backfilled { round, last: part + 1 == parts, ends: &ends });
    }
}

/// Writes where the loops are: `loop` has those whose iterations are steps, `loop:1` the outermost recorded,
/// and so on; each as `code header last`, in bytes.
pub fn write_locations(locations: &[(u8, bool, LoopLocation)]) {
    let list = |wanted: &dyn Fn(u8, bool) -> bool| {
        let of = locations.iter().filter(|(level, main, _)| wanted(*level, *main));
        let names = of.map(|(_, _, p)| format!("{} {} {}", p.code, p.header, p.last));
        names.collect::<Vec<_>>().join(",")
    };
    recording::append_entry(&TableEntry::Meta { key: "loop", value: &list(&|_, main| main) });
    for depth in 1..=locations.iter().map(|p| p.0).max().unwrap_or(0) {
        let value = list(&|level, _| level == depth);
        recording::append_entry(&TableEntry::Meta { key: &format!("loop:{depth}"), value: &value });
    }
}
