//! Rule: an arena that doubles. Where a library cuts up what the driver gives it, and nobody sees the parts, its use shows
//! only when the arena grows: by ever larger pieces, at ever longer intervals. If each piece lasted as long as its size
//! says, something is taken from it in every step, and nothing comes back. A pause means nothing until the last piece must
//! have been used up.

use std::collections::BTreeSet;

use super::finding::{Confidence, Finding, Kind, SiteShare};
use super::view::{SiteView, View};
use crate::ledger::cohort::{Cohort, blocks, bytes};
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
    candidates.filter_map(|site| finding(view, site)).collect()
}

fn finding(view: &View<'_>, site: &SiteView<'_>) -> Option<Finding> {
    // The newest piece is being used up.
    let from = site.cohorts.len().checked_sub(MIN_USED + 1)?;
    let pieces = &site.cohorts[from..];
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
    let (live_bytes, live_blocks) = (bytes(&site.cohorts), blocks(&site.cohorts));
    let mut f = Finding {
        bytes_per_step: rate,
        growth_step_ratio: 1.0,
        growth_bytes_per_step: rate,
        cohorts: site.cohorts.len() as u32,
        oldest_step: site.cohorts.first()?.birth,
        first_step: first.birth,
        span: view.steps,
        evidence_step: last.birth,
        doubling: true,
        ..Finding::new(Kind::Growing, Confidence::Likely, site.site.device, site.site.layer)
    };
    f.sites = vec![SiteShare {
        site: site.number,
        device: site.site.device,
        bytes_per_step: rate,
        live_bytes,
        live_blocks,
    }];
    f.add_up();
    Some(f)
}
