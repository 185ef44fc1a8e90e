//! The sentences about a failed allocation: who asked for how much, and where the memory was.

use super::{grouped, location, size};
use crate::report::OutOfMemory;

/// The share of the reserved memory in percent that has to be free for fragmentation to be the cause.
const FRAGMENTED: f64 = 25.0;

/// Explains a failure: what was asked for, what of the memory in use was carry-over, and what of the reserved memory was
/// free but in blocks too small.
pub fn explanation(o: &OutOfMemory, cwd: &str) -> String {
    let request = format!(
        "{} asked for {} on device {} in step {}; {} were in use.",
        location(o.allocated_at.as_ref(), cwd),
        size(o.requested_bytes as f64),
        o.device,
        grouped(u64::from(o.step)),
        size(o.allocated_bytes as f64),
    );
    let all: Vec<String> = std::iter::once(request).chain(details(o)).collect();
    all.join(" ")
}

/// Returns what else there is to say of the memory at a failure, a sentence each.
pub fn details(o: &OutOfMemory) -> Vec<String> {
    let percent = |bytes: u64, of: u64| 100.0 * bytes as f64 / of.max(1) as f64;
    let bytes = |n: u64| size(n as f64);
    let mut all = Vec::new();
    let carried = percent(o.carry_over_bytes, o.allocated_bytes);
    if carried >= 1.0 {
        all.push(format!(
            "{} of the memory in use ({carried:.0} %) was allocated in the step before and not freed yet (carry-over).",
            bytes(o.carry_over_bytes)
        ));
    }
    let free = percent(o.free_in_segments_bytes, o.reserved_bytes);
    if free >= 1.0 {
        let too_small = o.largest_free_block_bytes < o.requested_bytes;
        let enough = o.free_in_segments_bytes >= o.requested_bytes && free >= FRAGMENTED;
        all.push(format!(
            "{} of the {} reserved ({free:.0} %) was free, in blocks of at most {}{}.",
            bytes(o.free_in_segments_bytes),
            bytes(o.reserved_bytes),
            bytes(o.largest_free_block_bytes),
            match enough {
                true if too_small => ": enough in total, but each too small for this request (fragmentation)",
                _ if too_small => ": too small for this request",
                _ => "",
            },
        ));
    }
    all
}
