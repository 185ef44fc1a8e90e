//! What a loop gathered and gave back when it was over, while the program went on: the outputs of a prediction, say. Whoever
//! frees his leaks at the end of the program leaks all the same, and so does a training that gathers while it trains.

use super::finding::{Confidence, Finding, Kind};
use super::view::View;

/// The share of what is held that must have been given back.
const RELEASED: f64 = 0.9;
/// The program went on if it made so many allocations behind that: more than the end of a program does.
const WENT_ON: u64 = 8;

/// Takes those findings out and returns them: they are no leaks.
pub fn take(view: &View<'_>, findings: &mut Vec<Finding>) -> Vec<Finding> {
    if view.is_training() || view.ledger.allocated_after_releases() < WENT_ON {
        return Vec::new();
    }
    let is_given_back = |f: &mut Finding| {
        let released = f.sites.iter().map(|s| view.ledger.released_after_last_step(s.site));
        let released = released.fold(0u64, u64::saturating_add);
        matches!(f.kind, Kind::Leak | Kind::Growing)
            && f.live_bytes > 0
            && released as f64 >= RELEASED * f.live_bytes as f64
    };
    let told = |f: Finding| Finding {
        kind: Kind::Spike,
        confidence: Confidence::Confirmed,
        evidence_step: view.steps,
        ..f
    };
    findings.extract_if(.., is_given_back).map(told).collect()
}
