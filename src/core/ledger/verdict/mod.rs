//! Is it a leak? One rule per file over one view of the ledger, each resting on the identity of blocks: in
//! which step they were born, what they outlived, what was freed together. Never on a rising curve, but for unattributed memory.

mod after_last;
mod bursts;
mod carry_over;
mod doubling;
mod finding;
mod fragmentation;
mod gathered;
mod holders;
mod larger_inputs;
mod non_leaks;
mod pending_gc;
mod periodic;
mod phase_clock;
mod renewal;
mod renewed_at_intervals;
mod reserved_growth;
mod residue;
mod rhythm;
mod statistics;
mod survivors;
mod unattributed;
mod view;

use std::collections::BTreeSet;

pub use finding::{Confidence, CountedSteps, Finding, Kind, SiteShare};
pub use holders::may_hold;
pub use non_leaks::is_much;
pub use unattributed::is_shared;
pub use view::{BURN_IN_STEPS, Context, MIN_COHORTS, MIN_STEPS, SiteHolder, old_age};

use super::replay::Ledger;
use view::View;

/// The verdict on a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    pub findings: Vec<Finding>,
    /// What looks like a leak and is none.
    pub non_leaks: Vec<Finding>,
    /// What is a finding or nothing, as its holder decides, which is not known.
    pub undecided: Vec<Finding>,
}

/// Judges everything alive at the last boundary, without a context: every stack is a line of its own, no
/// holder is known.
pub fn judge(ledger: &Ledger) -> Verdict {
    let own = |stack| u64::from(stack);
    judge_by(
        ledger,
        Context {
            location: &own,
            way: &own,
            lines: &own,
            holders: &|_| Vec::new(),
            is_optimizer: &|_| false,
        },
    )
}

/// Judges everything alive at the last boundary.
pub fn judge_by(ledger: &Ledger, context: Context<'_>) -> Verdict {
    if ledger.step_count() < MIN_STEPS {
        return Verdict::default();
    }
    let view = View::new(ledger, context);
    let mut findings = pending_gc::find(&view);
    let grown = survivors::find(&view, &sites_of(&findings));
    findings.extend(grown.findings);
    let rules = [
        renewed_at_intervals::find,
        renewal::find,
        bursts::find,
        doubling::find,
        periodic::find,
        residue::find,
        after_last::find,
    ];
    let mut undecided = Vec::new();
    for rule in rules {
        let explained = sites_of(&findings);
        let is_open = |f: &Finding| f.if_remade && !holders::are_remade(&view, f);
        let (open, found): (Vec<Finding>, Vec<Finding>) =
            rule(&view, &explained).into_iter().partition(is_open);
        findings.extend(found);
        undecided.extend(open);
    }
    let mut explained = sites_of(&findings);
    // What is reallocated each step lives on into the next, until its copy is there, and what is released every few steps
    // lives on till then: that is said already.
    let is_told = |f: &&Finding| f.renewed || f.kind == Kind::Periodic;
    let told: BTreeSet<u32> =
        findings.iter().filter(is_told).flat_map(|f| f.sites.iter().map(|s| s.site)).collect();
    let mostly_told = |f: &Finding| {
        let of_told = f.sites.iter().filter(|s| told.contains(&s.site));
        2.0 * of_told.map(|s| s.bytes_per_step).sum::<f64>() > f.bytes_per_step
    };
    // A site may have a share in these and in another cause too: they explain no site.
    findings.extend(carry_over::find(&view).into_iter().filter(|f| !mostly_told(f)));
    let growing = findings.iter().filter(|f| matches!(f.kind, Kind::Leak | Kind::Growing));
    let growing = growing.flat_map(|f| f.sites.iter().map(|s| s.site)).collect();
    findings.extend(fragmentation::find(&view, &growing));
    findings.extend(unattributed::find(&view));
    reserved_growth::compare(&view, &mut findings);
    let bounded = holders::weigh(&view, &mut findings);
    let larger = larger_inputs::take(&view, &mut findings);
    let gathered = gathered::take(&view, &mut findings);
    let weight = |f: &Finding| match f.kind {
        kind if kind.grows() => f.growth_bytes_per_step,
        Kind::CarryOver => f.peak_reduction_bytes as f64,
        _ => f.live_bytes as f64,
    };
    findings.sort_by(|a, b| a.kind.cmp(&b.kind).then(weight(b).total_cmp(&weight(a))));
    let doubling = doubling::buffers(&view, &explained);
    explained.extend(sites_of(&doubling));
    holders::take_in_earlier(&view, &mut findings, &mut explained);
    let mut non_leaks = non_leaks::find(&view, &findings, &explained, &grown.saturating);
    non_leaks.extend(bounded.into_iter().chain(larger).chain(doubling).chain(gathered));
    Verdict { findings, non_leaks, undecided }
}

fn sites_of(findings: &[Finding]) -> BTreeSet<u32> {
    findings.iter().flat_map(|f| f.sites.iter().map(|s| s.site)).collect()
}
