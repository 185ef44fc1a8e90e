//! The sentences about a failed allocation: who asked for how much, and where the memory was.

use super::{exact, grouped, location, size};
use crate::ledger;
use crate::report::Location;

/// Explains a failure: what was asked for, what of the memory in use was carry-over, and what of the reserved memory was
/// free but in blocks too small.
pub fn explanation(o: &ledger::OutOfMemory, at: Option<&Location>, cwd: &str) -> String {
    let mut text = format!(
        "{} asked for {} on device {} in step {}; {} were allocated.",
        location(at, cwd),
        exact(o.requested_bytes as f64),
        o.device,
        grouped(u64::from(o.step)),
        exact(o.allocated_bytes as f64),
    );
    let percent = |bytes: u64, of: u64| 100.0 * bytes as f64 / of.max(1) as f64;
    let carried = percent(o.carry_over_bytes, o.allocated_bytes);
    if carried >= 1.0 {
        text.push_str(&format!(
            " {} of that ({carried:.0} %) were allocated in the step before and not freed yet (carry-over).",
            size(o.carry_over_bytes as f64)
        ));
    }
    let free = percent(o.free_in_segments_bytes, o.reserved_bytes);
    if free >= 1.0 {
        let fragmented =
            o.free_in_segments_bytes >= o.requested_bytes && o.largest_free_block_bytes < o.requested_bytes;
        text.push_str(&format!(
            " {} of the {} reserved ({free:.0} %) were free in segments, in blocks of at most {}{}.",
            size(o.free_in_segments_bytes as f64),
            size(o.reserved_bytes as f64),
            size(o.largest_free_block_bytes as f64),
            if fragmented { ": enough in total, so this is fragmentation" } else { "" },
        ));
    }
    text
}
