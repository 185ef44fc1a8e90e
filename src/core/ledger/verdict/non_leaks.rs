//! What looks like a leak on a curve, and is none: named, with the reason.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Confidence, Finding, Kind, SiteShare};
use super::holders;
use super::statistics::median;
use super::view::{MIN_AGE, MIN_COHORTS, SiteView, View, outlives};
use crate::ledger::cohort::{blocks, bytes};
use crate::ledger::sites::Layer;
use crate::ledger::steps::StepRecord;

/// Sites listed in one entry.
const MAX_SITES: usize = 8;
/// A site that frees old blocks, and has cohorts of so many birth steps alive, is a cache.
const CACHE_COHORTS: usize = 3;
/// A spike leaves the floor by at least this share of it, and comes back to within the other.
const SPIKE_SHARE: f64 = 0.2;
const BACK_SHARE: f64 = 0.05;
/// Reserved memory counts as grown from this share, and so many bytes, on.
const RESERVED_SHARE: f64 = 0.1;
const MIN_RESERVED: i64 = 4 << 20;

/// What takes this share of all that is live is much of it.
const MUCH: f64 = 0.25;

/// Returns whether what is no leak came over several steps and takes much of what is live: somebody may not need it.
pub fn is_much(kind: Kind, cohorts: u32, bytes: u64, live: u64) -> bool {
    let gathers = matches!(kind, Kind::Plateau | Kind::Cache) && cohorts as usize >= MIN_COHORTS;
    gathers && bytes as f64 >= MUCH * live as f64
}

pub fn find(view: &View<'_>, explained: &BTreeSet<u32>, saturating: &[u32]) -> Vec<Finding> {
    let mut groups: BTreeMap<(Kind, u8, Layer), Vec<&SiteView<'_>>> = BTreeMap::new();
    // That programs are compiled at first looks like no leak.
    let open =
        |s: &&SiteView<'_>| !explained.contains(&s.number) && s.late == 0 && s.site.layer != Layer::Code;
    for s in view.sites.iter().filter(open) {
        let Some(kind) = kind(view, s, saturating.contains(&s.number)) else { continue };
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

fn kind(view: &View<'_>, s: &SiteView<'_>, is_saturating: bool) -> Option<Kind> {
    let newest = s.cohorts.last()?.birth;
    if newest <= view.burn_in {
        return Some(Kind::WarmUp);
    }
    // A container without a bound that takes in no more is no cache.
    let stays = || births_to_stay(view, s).next().is_some();
    let recycles = s.cohorts.len() >= CACHE_COHORTS
        && s.site.aged > 0
        && !(holders::is_unbounded(view, s.number) && stays());
    if is_saturating || recycles {
        return Some(Kind::Cache);
    }
    // What the last steps left may be freed yet.
    let newest = births_to_stay(view, s).next_back()?;
    (view.steps.saturating_sub(newest) > MIN_AGE).then_some(Kind::Plateau)
}

/// Returns the birth steps of what a site has alive, but of what is no older than its blocks usually become.
fn births_to_stay<'a>(view: &'a View<'_>, s: &'a SiteView<'_>) -> impl DoubleEndedIterator<Item = u32> + 'a {
    let stays = move |&birth: &u32| outlives(view.steps.saturating_sub(birth), s.site.usual_life());
    s.cohorts.iter().map(|c| c.birth).filter(stays)
}

fn entry(view: &View<'_>, kind: Kind, device: u8, layer: Layer, sites: &[&SiteView<'_>]) -> Finding {
    let mut f = Finding::new(kind, Confidence::Confirmed, device, layer);
    let part = |s: &&SiteView<'_>| {
        let (live_bytes, live_blocks) = (bytes(&s.cohorts), blocks(&s.cohorts));
        SiteShare { site: s.number, device, bytes_per_step: 0.0, live_bytes, live_blocks }
    };
    f.sites = sites.iter().map(part).collect();
    f.add_up();
    f.sites.truncate(MAX_SITES);
    let births: BTreeSet<u32> = sites.iter().flat_map(|s| births_to_stay(view, s)).collect();
    f.cohorts = match kind {
        Kind::Cache => {
            sites.iter().flat_map(|s| &s.cohorts).map(|c| c.birth).collect::<BTreeSet<u32>>().len()
        }
        _ => births.len(),
    } as u32;
    f.oldest_step = births.first().copied().unwrap_or(0);
    f.first_step = f.oldest_step;
    f.evidence_step = births.last().copied().unwrap_or(0);
    f.span = view.steps;
    f.longest_life = sites.iter().map(|s| s.site.longest_life()).max().unwrap_or(0);
    f
}

/// Finds a spike: the live bytes of a device left their floor and came back to it.
fn spike(view: &View<'_>, device: u8) -> Option<Finding> {
    let live = |r: &StepRecord| {
        let d = r.devices.iter().find(|d| d.device == device)?;
        Some((r.step, d.live_bytes()))
    };
    let after: Vec<(u32, u64)> =
        view.ledger.steps().iter().filter(|r| r.step > view.burn_in).filter_map(live).collect();
    let floor = median(after.iter().map(|a| a.1));
    let (at, top) = after.iter().copied().max_by_key(|a| a.1)?;
    let back = after.iter().any(|a| a.0 > at && (a.1 as f64) <= floor * (1.0 + BACK_SHARE));
    if !back || (top as f64) < floor * (1.0 + SPIKE_SHARE) {
        return None;
    }
    Some(Finding {
        evidence_step: at,
        live_bytes: (top as f64 - floor) as u64,
        ..Finding::new(Kind::Spike, Confidence::Confirmed, device, Layer::Block)
    })
}

/// Finds reserved memory that grew far more than live bytes.
fn reserved(view: &View<'_>, device: u8) -> Option<Finding> {
    let at = |r: &StepRecord| {
        let d = r.devices.iter().find(|d| d.device == device)?;
        Some((i64::try_from(d.reserved_bytes).ok()?, i64::try_from(d.live_bytes()).ok()?))
    };
    let records = view.ledger.steps();
    let before = records.iter().find(|r| r.step > view.burn_in).and_then(at)?;
    let after = records.last().and_then(at)?;
    let growth = after.0.saturating_sub(before.0);
    let live = after.1.saturating_sub(before.1);
    let much = growth >= MIN_RESERVED && growth as f64 >= RESERVED_SHARE * before.0 as f64;
    (much && live < growth / 2).then(|| Finding {
        reserved_growth_bytes: Some(growth),
        live_bytes: u64::try_from(growth.saturating_sub(live.max(0))).unwrap_or(0),
        oldest_step: view.burn_in,
        ..Finding::new(Kind::ReservedGrowth, Confidence::Confirmed, device, Layer::Block)
    })
}
