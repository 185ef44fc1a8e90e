//! Rule: an arena that doubles. Where a library cuts up what the driver gives it, and nobody sees the parts, its use shows
//! only when the arena grows: by ever larger pieces, at ever longer intervals. If each piece lasted as long as its size
//! says, something is taken from it in every step, and nothing comes back. A pause means nothing until the last piece must
//! have been used up.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Confidence, Finding, Kind, SiteShare};
use super::view::{SiteView, View};
use crate::ledger::cohort::{Cohort, blocks, by_birth, bytes};
use crate::ledger::sites::Layer;

/// Pieces that must have been used up, one after the other.
const MIN_USED: usize = 3;
/// The last piece is at least so many times as large as the first of these: those of one size come at regular intervals,
/// which another rule sees.
const GROWTH: u64 = 4;
/// The intervals may differ from what the sizes say by this share, and by a step.
const TOLERANCE: f64 = 0.25;

pub fn find(view: &View<'_>, explained: &BTreeSet<u32>) -> Vec<Finding> {
    let candidates = view.sites.iter().filter(|s| {
        s.site.layer == Layer::Driver && s.site.frees == 0 && s.late == 0 && !explained.contains(&s.number)
    });
    // A line may come to the arena by several ways, the first time by another one than later.
    let mut lines: BTreeMap<(u64, u8), Vec<&SiteView<'_>>> = BTreeMap::new();
    for s in candidates {
        lines.entry(((view.context.location)(s.site.stack), s.site.device)).or_default().push(s);
    }
    lines.values().filter_map(|sites| finding(view, sites)).collect()
}

fn finding(view: &View<'_>, sites: &[&SiteView<'_>]) -> Option<Finding> {
    let cohorts = by_birth(sites.iter().flat_map(|s| &s.cohorts));
    // The newest piece is being used up.
    let from = cohorts.len().checked_sub(MIN_USED + 1)?;
    let pieces = &cohorts[from..];
    let [first, .., last] = pieces else { return None };
    if last.birth <= view.burn_in || last.bytes < first.bytes.saturating_mul(GROWTH) {
        return None;
    }
    let lasted = |w: &[Cohort]| f64::from(w[1].birth.saturating_sub(w[0].birth));
    let used: u64 = bytes(&pieces[..MIN_USED]);
    let rate = used as f64 / f64::from(last.birth.saturating_sub(first.birth)).max(1.0);
    let says = |bytes: u64| bytes as f64 / rate;
    let fits = |w: &[Cohort]| (lasted(w) - says(w[0].bytes)).abs() <= (TOLERANCE * says(w[0].bytes)).max(1.0);
    let is_overdue = f64::from(view.steps.saturating_sub(last.birth)) > (1.0 + TOLERANCE) * says(last.bytes);
    if is_overdue || !pieces.windows(2).all(fits) {
        return None;
    }
    let all = bytes(&cohorts).max(1) as f64;
    let mut f = Finding {
        bytes_per_step: rate,
        growth_step_ratio: 1.0,
        growth_bytes_per_step: rate,
        cohorts: cohorts.len() as u32,
        oldest_step: cohorts.first()?.birth,
        first_step: first.birth,
        span: view.steps,
        evidence_step: last.birth,
        doubling: true,
        ..Finding::new(Kind::Growing, Confidence::Likely, sites.first()?.site.device, Layer::Driver)
    };
    let share = |s: &&SiteView<'_>| {
        let (live_bytes, live_blocks) = (bytes(&s.cohorts), blocks(&s.cohorts));
        let bytes_per_step = rate * live_bytes as f64 / all;
        SiteShare { site: s.number, device: s.site.device, bytes_per_step, live_bytes, live_blocks }
    };
    f.sites = sites.iter().map(share).collect();
    f.add_up();
    Some(f)
}
