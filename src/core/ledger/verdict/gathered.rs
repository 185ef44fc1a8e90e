//! What a loop gathered for what comes behind it, and the program went on: the outputs of a prediction, say, which are then
//! one tensor or are given back. Whoever frees his leaks at the end of the program leaks all the same, and so does a training
//! that gathers while it trains.

use super::finding::{Confidence, Finding, Kind};
use super::view::View;
use crate::ledger::books::SCALAR;

/// The share of what is held that must have been given back, or have come to be one block.
const SHARE: f64 = 0.9;
/// The program went on if it made so many allocations behind that: more than what prints a last result does.
const WENT_ON: u64 = 3;

/// Takes those findings out and returns them: they are no leaks.
pub fn take(view: &View<'_>, findings: &mut Vec<Finding>) -> Vec<Finding> {
    let went_on = !view.is_training() && view.ledger.allocated_after_releases() >= WENT_ON;
    let is_given_back = |f: &Finding| {
        let released = f.sites.iter().map(|s| view.ledger.released_after_last_step(s.site));
        went_on && released.fold(0u64, u64::saturating_add) as f64 >= SHARE * f.live_bytes as f64
    };
    // Allocators that round up do so for each: all parts in one are smaller by less than that for each, and larger by less than
    // that for one. Others give as much as was asked for.
    let is_joined = |f: &Finding| {
        let parts = f.live_bytes;
        let unit = if parts.is_multiple_of(SCALAR) { SCALAR } else { 0 };
        let rounded = parts.saturating_sub(unit.saturating_mul(f.live_blocks)) as f64;
        let least = rounded.max(SHARE * parts as f64);
        let is_sum = |&whole: &u64| whole as f64 >= least && whole <= parts.saturating_add(unit);
        let of_few_numbers = !view.is_training() && parts == SCALAR.saturating_mul(f.live_blocks);
        let is_whole = |whole: &u64| is_sum(whole) || of_few_numbers && has_each(*whole, f.live_blocks);
        view.ledger.exited() && view.ledger.largest_after_last_step().iter().any(is_whole)
    };
    let is_gathered = |f: &mut Finding| {
        matches!(f.kind, Kind::Leak | Kind::Growing | Kind::LastLoop)
            // Compiled programs may take no memory that is known.
            && f.live_bytes > 0
            && f.live_blocks > 1
            && (is_given_back(f) || is_joined(f))
    };
    let told = |f: Finding| Finding {
        kind: Kind::Gathered,
        confidence: Confidence::Confirmed,
        evidence_step: view.steps,
        ..f
    };
    findings.extract_if(.., is_gathered).map(told).collect()
}

/// Returns whether a block is as large as so many parts of a few numbers each, such as one token for each sequence of a batch, or
/// one part more, such as what the first token was made from. Allocators give each part as much as a scalar. One block as large as
/// a scalar may be anything.
fn has_each(whole: u64, parts: u64) -> bool {
    let rounded = |bytes: u64| bytes.next_multiple_of(SCALAR);
    let is_of = |each: u64| [parts, parts + 1].iter().any(|n| rounded(n.saturating_mul(each)) == whole);
    whole > SCALAR && (0..SCALAR.ilog2()).any(|n| is_of(1 << n))
}
