//! Pending garbage: blocks that nothing frees but the cyclic collector, in bursts, whole steps' worth at a time.

use super::*;

/// Birth steps that a site's collections freed together, in all.
const MIN_WAITED: u32 = 5;
/// Of what the site frees after the step that bore it, the collector frees at least this share.
const BY_COLLECTOR: f64 = 0.5;
/// Sites whose collections overlap this much hang on the same cycles.
const SAME_COLLECTIONS: f64 = 0.5;
/// … if they gather at one rhythm: what only comes now and then (an evaluation's) is a cause of its own, and its bytes are
/// no part of what each step adds. So many times as often, one as the other, at most.
const SAME_RHYTHM: f64 = 2.0;

struct Garbage<'a, 'b> {
    suspect: &'b Suspect<'a>,
    steps: Vec<u32>,
}

pub(super) fn find(view: &View<'_>) -> Vec<Finding> {
    let waits = |suspect| {
        let steps = collections(suspect)?;
        Some(Garbage { suspect, steps })
    };
    let mut found: Vec<Garbage<'_, '_>> = view.suspects.iter().filter_map(waits).collect();
    found.sort_by_key(|g| (std::cmp::Reverse(g.suspect.site.peak_bytes()), g.suspect.number));
    let together = |a: &Garbage<'_, '_>, b: &Garbage<'_, '_>| {
        let key = |g: &Garbage<'_, '_>| (g.suspect.site.device, g.suspect.site.layer);
        let births = |g: &Garbage<'_, '_>| f64::from(g.suspect.site.births);
        let (rare, often) = (births(a).min(births(b)), births(a).max(births(b)));
        key(a) == key(b) && often <= SAME_RHYTHM * rare && overlap(&a.steps, &b.steps) >= SAME_COLLECTIONS
    };
    grouped(found, together).iter().filter_map(|g| finding(view, g)).collect()
}

/// The steps in which the collector freed several steps' worth.
fn collections(suspect: &Suspect<'_>) -> Option<Vec<u32>> {
    let site = suspect.site;
    if (site.collected as f64) < BY_COLLECTOR * site.aged as f64 || site.collected == 0 {
        return None;
    }
    let collected = site.releases().iter().filter(|r| r.collected * 2 >= r.blocks);
    let waited: u32 = collected.clone().map(|r| r.cohorts).sum();
    (waited >= MIN_WAITED).then(|| collected.map(|r| r.step).collect())
}

fn finding(view: &View<'_>, group: &[Garbage<'_, '_>]) -> Option<Finding> {
    let site = group.first()?.suspect.site;
    let mut f = Finding::new(Kind::PendingGc, Confidence::Confirmed, site.device, site.layer);
    for g in group {
        let site = g.suspect.site;
        // Each release by how many steps it stands for.
        let per = |of: fn(&crate::ledger::releases::Release) -> u64| {
            median(site.releases().iter().flat_map(|r| std::iter::repeat_n(of(r), r.cohorts as usize)))
        };
        let bytes_per_step = per(|r| r.cohort_bytes);
        f.bytes_per_step += bytes_per_step;
        f.bytes_interval = wider(f.bytes_interval, interval(site.releases().iter().map(|r| r.cohort_bytes)));
        f.blocks_per_step += per(|r| r.cohort_blocks);
        f.freed = f.freed.wrapping_add(site.frees);
        f.longest_life = f.longest_life.max(site.longest_life());
        f.evidence_step = f.evidence_step.max(*g.steps.last()?);
        let since = view.steps.saturating_sub(site.first_birth).saturating_add(1);
        f.growth_step_ratio = f.growth_step_ratio.max(f64::from(site.births) / f64::from(since)).min(1.0);
        let (live_bytes, live_blocks) = (bytes(&g.suspect.cohorts), blocks(&g.suspect.cohorts));
        f.sites.push(SiteShare { site: g.suspect.number, bytes_per_step, live_bytes, live_blocks });
    }
    let alive = by_birth(group.iter().flat_map(|g| &g.suspect.cohorts));
    f.cohorts = alive.len() as u32;
    f.oldest_step = alive.first().map_or(0, |c| c.birth);
    f.first_step = group.iter().map(|g| g.suspect.site.first_birth).min()?;
    f.span = view.steps.saturating_sub(f.oldest_step);
    f.period_steps = None;
    f.add_up();
    Some(f)
}
