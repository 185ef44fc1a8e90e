//! Rule: an arena that doubles. Where a library cuts up what the driver gives it, and nobody sees the parts, its use shows
//! only when the arena grows: by ever larger pieces, at ever longer intervals. If each piece lasted as long as its size
//! says, something is taken from it in every step, and nothing comes back. A pause means nothing until the last piece must
//! have been used up.
//!
//! So it is with a buffer that is replaced by a larger one whenever it is full: what it is larger by is such a piece. Only
//! that one is no finding. Buffers have a bound more often than arenas, and one that reaches it after it was last enlarged
//! looks the same until it should have been full.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Confidence, Finding, Kind};
use super::view::{SiteView, View};
use crate::int_map::IntMap;
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
    lines.values().filter_map(|sites| arena(view, sites)).collect()
}

fn arena(view: &View<'_>, sites: &[&SiteView<'_>]) -> Option<Finding> {
    let cohorts = by_birth(sites.iter().flat_map(|s| &s.cohorts));
    let f = used_up(view, &cohorts)?;
    let rate = f.bytes_per_step;
    let all = bytes(&cohorts).max(1) as f64;
    let mut f = Finding {
        oldest_step: cohorts.first()?.birth,
        ..Finding { device: sites.first()?.site.device, layer: Layer::Driver, ..f }
    };
    f.sites = sites.iter().map(|s| s.share(rate * bytes(&s.cohorts) as f64 / all)).collect();
    f.add_up();
    Some(f)
}

/// What a site holds after each step in which it came to hold more.
#[derive(Default)]
struct Levels {
    bytes: i64,
    grown: Vec<Cohort>,
    /// It came to hold less.
    falls: bool,
}

/// Returns single blocks that are replaced by larger ones whenever they are full, and may be replaced again.
pub fn buffers(view: &View<'_>, explained: &BTreeSet<u32>) -> Vec<Finding> {
    let is_one = |s: &&SiteView<'_>| {
        let replaced = s.site.frees > 0 && s.late == 0 && blocks(&s.cohorts) == 1;
        replaced && s.site.layer == Layer::Block && !explained.contains(&s.number)
    };
    let mut levels: IntMap<u32, Levels> =
        view.sites.iter().filter(is_one).map(|s| (s.number, Levels::default())).collect();
    if levels.is_empty() {
        return Vec::new();
    }
    for record in view.ledger.steps() {
        for delta in &record.deltas {
            let Some(of) = levels.get_mut(&delta.site) else { continue };
            of.bytes = of.bytes.wrapping_add(delta.bytes);
            of.falls |= delta.bytes < 0;
            if delta.bytes > 0 {
                of.grown.push(Cohort { birth: record.step, blocks: 1, bytes: delta.bytes.unsigned_abs() });
            }
        }
    }
    let mut found: Vec<Finding> = levels
        .iter()
        .filter(|(_, of)| !of.falls)
        .filter_map(|(&number, of)| buffer(view, view.site(number)?, &of.grown))
        .collect();
    found.sort_by_key(|f| f.sites.first().map(|s| s.site));
    found
}

fn buffer(view: &View<'_>, of: &SiteView<'_>, grown: &[Cohort]) -> Option<Finding> {
    // The first one was as large as it was made, and is no piece.
    let f = used_up(view, grown.get(1..)?)?;
    // The new one is made of the old one, which is there beside it for a moment.
    if of.site.peak_bytes() <= bytes(&of.cohorts) {
        return None;
    }
    let mut f = Finding {
        kind: Kind::Doubling,
        device: of.site.device,
        layer: of.site.layer,
        oldest_step: of.cohorts.first()?.birth,
        first_step: of.site.first_birth,
        freed: of.site.frees,
        longest_life: of.site.longest_life(),
        doubling: false,
        ..f
    };
    f.sites.push(of.share(f.bytes_per_step));
    f.add_up();
    Some(f)
}

/// Returns what is used in a step, if each of the latest pieces lasted as long as its size says: the newest is being used up.
fn used_up(view: &View<'_>, all: &[Cohort]) -> Option<Finding> {
    let pieces = &all[all.len().checked_sub(MIN_USED + 1)?..];
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
    Some(Finding {
        bytes_per_step: rate,
        growth_step_ratio: 1.0,
        growth_bytes_per_step: rate,
        cohorts: all.len() as u32,
        first_step: first.birth,
        span: view.steps,
        evidence_step: last.birth,
        doubling: true,
        ..Finding::new(Kind::Growing, Confidence::Likely, 0, Layer::Driver)
    })
}
