//! What looks like a leak on a curve, and is none: named, with the reason.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::finding::{Confidence, Finding, Kind, SiteShare};
use super::holders;
use super::statistics::{grouped, median};
use super::view::{MIN_AGE, MIN_COHORTS, SiteView, View, outlives};
use crate::ledger::cohort::{Cohort, blocks, bytes};
use crate::ledger::sites::Layer;
use crate::ledger::steps::StepRecord;

/// Sites listed in one entry.
const MAX_SITES: usize = 8;
/// A site that frees old blocks, and has cohorts of so many birth steps alive, is a cache.
const CACHE_COHORTS: usize = 3;
/// A spike leaves the floor by at least this share of it, and comes back to within the other.
const SPIKE_SHARE: f64 = 0.2;
const BACK_SHARE: f64 = 0.05;
/// What rises from the floor more often than this is how the program works.
const MAX_SPIKES: usize = 10;
/// Reserved memory counts as grown from this share, and so many bytes, on.
const RESERVED_SHARE: f64 = 0.1;
const MIN_RESERVED: i64 = 4 << 20;

/// What takes this share of all that is live is much of it.
const MUCH: f64 = 0.25;

/// Returns whether what is no leak came over several steps and takes much of what is live: somebody may not need it. What
/// may yet grow is always much.
pub fn is_much(kind: Kind, cohorts: u32, bytes: u64, live: u64) -> bool {
    if kind == Kind::Doubling {
        return true;
    }
    let gathers =
        matches!(kind, Kind::Plateau | Kind::Cache | Kind::Gathered) && cohorts as usize >= MIN_COHORTS;
    gathers && bytes as f64 >= MUCH * live as f64
}

/// Returns what looks like a leak and is none. `explained`: the sites that findings are about.
pub fn find(
    view: &View<'_>,
    findings: &[Finding],
    explained: &BTreeSet<u32>,
    saturating: &[u32],
) -> Vec<Finding> {
    // That programs are compiled at first looks like no leak.
    let open = |s: &&SiteView<'_>| !explained.contains(&s.number) && s.site.layer != Layer::Code;
    let part = |site| {
        let kind = kind(view, site, saturating.contains(&site.number))?;
        // All warm-up is one.
        let (holders, line) = match kind {
            Kind::WarmUp => (Vec::new(), 0),
            _ => (holders::of_site(view, site.number), (view.context.location)(site.site.stack)),
        };
        Some(Part { kind, site, holders, line, fills: saturating.contains(&site.number) })
    };
    let mut parts: Vec<Part<'_, '_>> = view.sites.iter().filter(open).filter_map(part).collect();
    parts.sort_by_key(|p| (p.kind, p.site.site.device, Reverse(bytes(p.site.alive())), p.site.number));
    let mut all: Vec<Finding> =
        grouped(parts, together).iter().filter_map(|group| entry(view, group)).collect();
    all.sort_by_key(|f| (f.kind, f.device, f.layer));
    let is_sawtooth = |device: u8| findings.iter().any(|f| f.kind == Kind::Periodic && f.device == device);
    let is_reserved_for =
        |device: u8| findings.iter().any(|f| f.reserved_bytes_per_step.is_some() && f.part_on(device) > 0.0);
    for d in view.ledger.devices() {
        // The top of a sawtooth was told.
        all.extend(spike(view, d.device).filter(|_| !is_sawtooth(d.device)));
        // That blocks that are kept have segments of their own belongs to their finding.
        all.extend(reserved(view, d.device).filter(|_| !is_reserved_for(d.device)));
    }
    all
}

/// A site that is no leak, who holds it, and its line.
struct Part<'a, 'b> {
    kind: Kind,
    site: &'b SiteView<'a>,
    holders: Vec<u64>,
    line: u64,
    /// Whether it takes in ever less: what its line frees is something else.
    fills: bool,
}

/// Returns whether two sites make one entry: one holder has both, or, where holders are not known, they are one line.
fn together(a: &Part<'_, '_>, b: &Part<'_, '_>) -> bool {
    let of = |p: &Part<'_, '_>| (p.kind, p.site.site.device, p.site.site.layer);
    of(a) == of(b) && holders::share(&a.holders, &b.holders).unwrap_or(a.line == b.line)
}

fn kind(view: &View<'_>, s: &SiteView<'_>, is_saturating: bool) -> Option<Kind> {
    let alive = s.alive();
    if alive.last()?.birth <= view.burn_in {
        return Some(Kind::WarmUp);
    }
    // A container without a bound that takes in no more is no cache. One whose entries are replaced is, though some of the
    // first ones are there yet.
    let staying = births_to_stay(view, s).count();
    let takes_in = || staying == 0 || alive.len() - staying >= CACHE_COHORTS.max(staying);
    let recycles = alive.len() >= CACHE_COHORTS
        && s.site.aged > 0
        && (takes_in() || !holders::is_unbounded(view, s.number));
    if is_saturating || recycles {
        return Some(Kind::Cache);
    }
    // What the last steps left may be freed yet, and what came after the last one is not judged.
    let newest = births_to_stay(view, s).next_back()?;
    let is_over = view.steps.saturating_sub(newest) > MIN_AGE && s.site.last_birth <= view.steps;
    is_over.then_some(Kind::Plateau)
}

/// Returns whether what was born in a step is older by now than a site's blocks usually become.
fn stays(view: &View<'_>, s: &SiteView<'_>, birth: u32) -> bool {
    outlives(view.steps.saturating_sub(birth), s.site.usual_life())
}

/// Returns the birth steps of what a site has alive, but of what is no older than its blocks usually become.
fn births_to_stay<'a>(view: &'a View<'_>, s: &'a SiteView<'_>) -> impl DoubleEndedIterator<Item = u32> + 'a {
    s.alive().iter().map(|c| c.birth).filter(|&birth| stays(view, s, birth))
}

fn entry(view: &View<'_>, group: &[Part<'_, '_>]) -> Option<Finding> {
    let &Part { kind, site, .. } = group.first()?;
    let sites = || group.iter().map(|p| p.site);
    let mut f = Finding::new(kind, Confidence::Confirmed, site.site.device, site.site.layer);
    let part = |s: &SiteView<'_>| {
        let counts = |c: &&Cohort| kind != Kind::Plateau || stays(view, s, c.birth);
        let counted: Vec<Cohort> = s.alive().iter().filter(counts).copied().collect();
        let (live_bytes, live_blocks) = (bytes(&counted), blocks(&counted));
        SiteShare { site: s.number, device: f.device, bytes_per_step: 0.0, live_bytes, live_blocks }
    };
    f.sites = sites().map(part).collect();
    f.add_up();
    f.sites.truncate(MAX_SITES);
    let births: BTreeSet<u32> = sites().flat_map(|s| births_to_stay(view, s)).collect();
    f.cohorts = match kind {
        Kind::Cache => sites().flat_map(SiteView::alive).map(|c| c.birth).collect::<BTreeSet<u32>>().len(),
        _ => births.len(),
    } as u32;
    f.oldest_step = births.first().copied().unwrap_or(0);
    f.first_step = f.oldest_step;
    f.evidence_step = match kind {
        Kind::Cache if group.iter().all(|p| p.fills) => 0,
        Kind::Cache => sites().map(|s| s.site.last_release).max().unwrap_or(0),
        // Where so many younger ones are there too, it takes in more yet.
        _ => {
            let newest =
                |s: &SiteView<'_>| match s.alive().len() >= births_to_stay(view, s).count() + CACHE_COHORTS {
                    true => s.alive().last().map(|c| c.birth),
                    false => births_to_stay(view, s).next_back(),
                };
            sites().filter_map(newest).max().unwrap_or(0)
        }
    };
    f.span = view.steps;
    f.longest_life = sites().map(|s| s.site.longest_life()).max().unwrap_or(0);
    Some(f)
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
    let is_high = |live: u64| live as f64 >= floor * (1.0 + SPIKE_SHARE);
    let rises = after.windows(2).filter(|w| !is_high(w[0].1) && is_high(w[1].1)).count();
    if !back || !is_high(top) || rises > MAX_SPIKES {
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
