//! What looks like a leak to anyone who watches a curve, and is none: named, with the reason.

use std::collections::BTreeSet;

use super::*;

/// Sites named in one entry.
const NAMED: usize = 8;
/// A stock of so many birth steps that neither grows nor shrinks is a cache.
const CACHE: usize = 3;
/// The floor is left by at least this share of it for a spike, and come back to.
const SPIKE: f64 = 0.2;
const BACK: f64 = 0.05;
/// Reserved memory that grew by this share, and so many bytes, after the warm-up.
const RESERVED_SHARE: f64 = 0.1;
const RESERVED: i64 = 4 << 20;

pub(super) fn find(view: &View<'_>, claimed: &BTreeSet<u32>, slowing: Vec<u32>) -> Vec<Finding> {
    let mut groups: BTreeMap<(Kind, u8, Layer), Vec<&Suspect<'_>>> = BTreeMap::new();
    for s in view.suspects.iter().filter(|s| !claimed.contains(&s.number) && s.late == 0) {
        let Some(kind) = kind(view, s, slowing.contains(&s.number)) else { continue };
        groups.entry((kind, s.site.device, s.site.layer)).or_default().push(s);
    }
    let mut all: Vec<Finding> = groups
        .into_iter()
        .map(|((kind, device, layer), sites)| entry(view, kind, device, layer, &sites))
        .collect();
    for d in view.ledger.devices() {
        all.extend(spike(view, d.device));
        all.extend(reserved(view, d.device));
    }
    all
}

fn kind(view: &View<'_>, s: &Suspect<'_>, slowing: bool) -> Option<Kind> {
    let newest = s.cohorts.last()?.birth;
    if newest <= view.burn_in {
        return Some(Kind::WarmUp);
    }
    if slowing || (s.cohorts.len() >= CACHE && s.site.aged > 0) {
        return Some(Kind::Cache);
    }
    // What the last steps left is on its way.
    (view.steps.saturating_sub(newest) > MIN_AGE).then_some(Kind::Plateau)
}

fn entry(view: &View<'_>, kind: Kind, device: u8, layer: Layer, sites: &[&Suspect<'_>]) -> Finding {
    let mut f = Finding::new(kind, Confidence::Confirmed, device, layer);
    let part = |s: &&Suspect<'_>| {
        let (live_bytes, live_blocks) = (bytes(&s.cohorts), blocks(&s.cohorts));
        SiteShare { site: s.number, bytes_per_step: 0.0, live_bytes, live_blocks }
    };
    f.sites = sites.iter().map(part).collect();
    f.add_up();
    f.sites.truncate(NAMED);
    let births: BTreeSet<u32> = sites.iter().flat_map(|s| s.cohorts.iter().map(|c| c.birth)).collect();
    f.cohorts = births.len() as u32;
    f.oldest_step = births.first().copied().unwrap_or(0);
    f.first_step = f.oldest_step;
    f.evidence_step = births.last().copied().unwrap_or(0);
    f.span = view.steps;
    f.longest_life = sites.iter().map(|s| s.site.longest_life()).max().unwrap_or(0);
    f
}

/// The live bytes of a device left their floor and came back to it.
fn spike(view: &View<'_>, device: u8) -> Option<Finding> {
    let live = |r: &crate::ledger::StepRecord| {
        let d = r.devices.iter().find(|d| d.device == device)?;
        Some((r.step, d.live_bytes()))
    };
    let after: Vec<(u32, u64)> =
        view.ledger.steps().iter().filter(|r| r.step > view.burn_in).filter_map(live).collect();
    let floor = median(after.iter().map(|a| a.1));
    let (at, top) = after.iter().copied().max_by_key(|a| a.1)?;
    let back = after.iter().any(|a| a.0 > at && (a.1 as f64) <= floor * (1.0 + BACK));
    if !back || (top as f64) < floor * (1.0 + SPIKE) {
        return None;
    }
    Some(Finding {
        evidence_step: at,
        live_bytes: (top as f64 - floor) as u64,
        ..Finding::new(Kind::Spike, Confidence::Confirmed, device, Layer::Block)
    })
}

/// More was reserved though no more was live.
fn reserved(view: &View<'_>, device: u8) -> Option<Finding> {
    let at = |r: &crate::ledger::StepRecord| {
        let d = r.devices.iter().find(|d| d.device == device)?;
        Some((i64::try_from(d.reserved_bytes).ok()?, i64::try_from(d.live_bytes()).ok()?))
    };
    let records = view.ledger.steps();
    let before = records.iter().find(|r| r.step > view.burn_in).and_then(at)?;
    let after = records.last().and_then(at)?;
    let growth = after.0.saturating_sub(before.0);
    let live = after.1.saturating_sub(before.1);
    let much = growth >= RESERVED && growth as f64 >= RESERVED_SHARE * before.0 as f64;
    (much && live < growth / 2).then(|| Finding {
        reserved_growth_bytes: Some(growth),
        live_bytes: u64::try_from(growth).unwrap_or(0),
        oldest_step: view.burn_in,
        ..Finding::new(Kind::ReservedGrowth, Confidence::Confirmed, device, Layer::Block)
    })
}
