//! Pending garbage: blocks that nothing frees but the cyclic garbage collector, those of several steps at a
//! time.

use std::cmp::Reverse;

use super::finding::{Confidence, Finding, Kind, SiteShare};
use super::holders;
use super::statistics::{grouped, interval, median, overlap, sum_intervals};
use super::view::{SiteHolder, SiteView, View};
use crate::format::entry::Retention;
use crate::ledger::cohort::{Cohort, blocks, by_birth, bytes};
use crate::ledger::releases::is_late;
use crate::ledger::sites::{Release, Site};

/// Birth steps whose blocks the collections of a site freed together, in all, at least; with those that wait.
const MIN_COLLECTED_COHORTS: u32 = 5;
/// Blocks of one line whose mean sizes differ by no more than this factor are alike.
const SAME_BLOCKS: f64 = 1.25;
/// Sites whose collections overlap this much hang on the same cycles.
const SAME_COLLECTIONS: f64 = 0.5;
/// … unless one has more than so many times as many birth steps that waited as the other: what comes now and then only (in an
/// evaluation) is a cause of its own, and its bytes are no part of what each step adds.
const SAME_RHYTHM: f64 = 2.0;

#[derive(Clone)]
struct Garbage<'a, 'b> {
    site: &'b SiteView<'a>,
    /// Steps with a collection.
    steps: Vec<u32>,
}

pub fn find(view: &View<'_>) -> Vec<Finding> {
    let waits = |site| {
        let steps = collections(view, site)?;
        // A model in a cycle is garbage when the program has come to its end, and so is all that it keeps.
        let only_late = steps.iter().all(|&step| is_late(step, view.steps));
        if only_late && holders::is_owned(view, site.number) {
            return None;
        }
        // Nothing waits by now but what the last step has in hand, and nothing has for half of the run.
        let is_in_hand = site.cohorts.iter().all(|c| view.steps.saturating_sub(c.birth) <= 1);
        if is_in_hand && steps.last().is_some_and(|&last| last <= view.steps / 2) {
            return None;
        }
        Some(Garbage { site, steps })
    };
    let mut found: Vec<Garbage<'_, '_>> = view.sites.iter().filter_map(waits).collect();
    found.sort_by_key(|g| (Reverse(g.site.site.peak_bytes()), g.site.number));
    let together = |a: &Garbage<'_, '_>, b: &Garbage<'_, '_>| {
        let (rare, often) = (waiting(a.site).min(waiting(b.site)), waiting(a.site).max(waiting(b.site)));
        a.site.site.may_be_one_with(b.site.site)
            && often <= SAME_RHYTHM * rare
            && overlap(&a.steps, &b.steps) >= SAME_COLLECTIONS
    };
    let groups = grouped(found, together);
    // What comes now and then only, from the same line, in blocks of the same size and in the same kind of cycle, is the
    // same mistake: one cause. Its figures are those of what comes most often.
    let line = |group: &[Garbage<'_, '_>]| {
        let site = group.first()?.site.site;
        Some(((view.context.location)(site.stack), site.layer))
    };
    let block = |group: &[Garbage<'_, '_>]| {
        let sites = || group.iter().map(|g| g.site.site);
        let sum = |live: &dyn Fn(&Site) -> u64, freed: &dyn Fn(&Release) -> u64| {
            sites().map(|s| live(s) + s.releases().iter().map(freed).sum::<u64>()).sum::<u64>() as f64
        };
        sum(&|s| s.live_bytes, &|r| r.bytes) / sum(&|s| s.live_blocks, &|r| r.blocks).max(1.0)
    };
    let alike = |a: f64, b: f64| a.max(b) <= SAME_BLOCKS * a.min(b);
    let held = |group: &[Garbage<'_, '_>]| {
        // What is not garbage yet has an owner, and says nothing of the cycle.
        let held = group.iter().flat_map(|g| (view.context.holders)(g.site.number));
        let cycles = held.filter(|h| h.retention == Retention::Unreachable);
        cycles.map(|h| h.holder).collect::<Vec<u64>>()
    };
    let is_same = |a: &[Garbage<'_, '_>], b: &[Garbage<'_, '_>]| {
        a.iter().any(|of| line(std::slice::from_ref(of)) == line(b))
            && alike(block(a), block(b))
            && holders::share(&held(a), &held(b)) != Some(false)
    };
    let mut causes = grouped(groups, |a, b| is_same(a, b));
    // Of what comes so seldom that it shows nothing by itself, too: a collection or a search has met it.
    let told: Vec<u32> = causes.iter().flatten().flatten().map(|g| g.site.number).collect();
    for site in view.sites.iter().filter(|s| !told.contains(&s.number) && is_met(view, s)) {
        let group = vec![Garbage { site, steps: Vec::new() }];
        let of_one = |g: &Garbage<'_, '_>| is_same(std::slice::from_ref(g), &group);
        let same = |cause: &&mut Vec<Vec<Garbage<'_, '_>>>| {
            cause.first().is_some_and(|often| often.iter().any(of_one))
        };
        if let Some(cause) = causes.iter_mut().find(same) {
            cause.push(group);
        }
    }
    let births = |group: &[Garbage<'_, '_>]| group.first().map_or(0, |g| g.site.site.births);
    causes.iter_mut().for_each(|cause| cause.sort_by_key(|group| Reverse(births(group))));
    let finding = |cause: Vec<Vec<Garbage<'_, '_>>>| {
        let most = f64::from(births(cause.first()?));
        let (often, rarer): (Vec<_>, Vec<_>) =
            cause.into_iter().partition(|group| SAME_RHYTHM * f64::from(births(group)) >= most);
        finding(view, &often.concat(), &rarer.concat())
    };
    causes.into_iter().filter_map(finding).collect()
}

/// Returns whether the collector frees what a site frees late, or a search found that nothing refers to what it has.
fn is_met(view: &View<'_>, seen: &SiteView<'_>) -> bool {
    let held = (view.context.holders)(seen.number);
    let unreachable = |h: &SiteHolder| h.retention == Retention::Unreachable;
    seen.site.is_collected() || (!held.is_empty() && held.iter().all(unreachable))
}

/// Returns the steps in which the collector freed the blocks of several steps. What lives and was found to be
/// unreachable counts with them.
fn collections(view: &View<'_>, seen: &SiteView<'_>) -> Option<Vec<u32>> {
    let site = seen.site;
    if !site.is_collected() {
        return None;
    }
    let collected = site.releases().iter().filter(|r| r.collected * 2 >= r.blocks);
    let cohorts: u32 = collected.clone().map(|r| r.cohorts).sum();
    let unreachable = |h: &SiteHolder| h.retention == Retention::Unreachable;
    let waiting =
        if (view.context.holders)(seen.number).iter().any(unreachable) { seen.cohorts.len() } else { 0 };
    let is_enough = cohorts > 0 && cohorts as usize + waiting >= MIN_COLLECTED_COHORTS as usize;
    is_enough.then(|| collected.map(|r| r.step).collect())
}

/// The birth steps of what was collected, as far as that is known, and of what waits.
fn waiting(seen: &SiteView<'_>) -> f64 {
    let collected = seen.site.releases().iter().filter(|r| r.collected * 2 >= r.blocks);
    let cohorts: u32 = collected.map(|r| r.cohorts).sum();
    f64::from(cohorts) + seen.cohorts.len() as f64
}

/// Returns in which share of the steps something comes that waits for the collector. Of a line that allocates far oftener only
/// some does: of a model's gradients those of the last batch, the others go at once.
fn share_of_steps(view: &View<'_>, seen: &SiteView<'_>) -> f64 {
    let since = |step: u32| f64::from(view.steps.saturating_sub(step).saturating_add(1));
    let born = f64::from(seen.site.births) / since(seen.site.first_birth);
    let oldest = seen.site.releases().iter().map(|r| r.oldest).chain(seen.cohorts.first().map(|c| c.birth));
    let waited = waiting(seen) / since(oldest.min().unwrap_or(0));
    if SAME_RHYTHM * waited < born { waited } else { born.min(1.0) }
}

/// The longest life of what a site has freed, with what was collected in the last steps of the run.
fn longest_life(site: &Site) -> u32 {
    let collected = site.releases().iter().map(|r| r.step.saturating_sub(r.oldest));
    site.longest_life().max(collected.max().unwrap_or(0))
}

/// Returns in how many goes the blocks of one birth step are collected, where of each so many are: those of one generation
/// come before those of another.
fn goes(seen: &SiteView<'_>, at_once: f64) -> f64 {
    let waited = seen.site.lasting.saturating_add(blocks(&seen.cohorts)) as f64;
    (waited / f64::from(seen.site.births.max(1)) / at_once.max(1.0)).round().max(1.0)
}

/// `rarer`: what comes from the same line less often, whose bytes are no part of what each step adds.
fn finding(view: &View<'_>, group: &[Garbage<'_, '_>], rarer: &[Garbage<'_, '_>]) -> Option<Finding> {
    let site = group.first()?.site.site;
    let mut f = Finding::new(Kind::PendingGc, Confidence::Confirmed, site.device, site.layer);
    for g in group {
        let site = g.site.site;
        // Each release is weighted by how many birth steps it stands for.
        let per = |of: fn(&Release) -> u64| {
            median(site.releases().iter().flat_map(|r| std::iter::repeat_n(of(r), r.cohorts as usize)))
        };
        let waits = |of: fn(&Cohort) -> u64| median(g.site.cohorts.iter().map(of));
        let (bytes_at_once, blocks_at_once) = match site.releases().is_empty() {
            true => (waits(|c| c.bytes), waits(|c| c.blocks)),
            false => (per(|r| r.cohort_bytes), per(|r| r.cohort_blocks)),
        };
        let goes = goes(g.site, blocks_at_once);
        let bytes_per_step = goes * bytes_at_once;
        f.bytes_per_step += bytes_per_step;
        let interval = interval(site.releases().iter().map(|r| r.cohort_bytes));
        f.bytes_interval =
            sum_intervals(f.bytes_interval, interval.map(|bounds| bounds.map(|bound| goes * bound)));
        f.blocks_per_step += goes * blocks_at_once;
        f.freed = f.freed.wrapping_add(site.frees);
        f.longest_life = f.longest_life.max(longest_life(site));
        f.evidence_step = f.evidence_step.max(g.steps.last().copied().unwrap_or(0));
        f.growth_step_ratio = f.growth_step_ratio.max(share_of_steps(view, g.site));
        let (live_bytes, live_blocks) = (bytes(&g.site.cohorts), blocks(&g.site.cohorts));
        f.sites.push(SiteShare {
            site: g.site.number,
            device: site.device,
            bytes_per_step,
            live_bytes,
            live_blocks,
        });
    }
    for g in rarer {
        let site = g.site.site;
        f.freed = f.freed.wrapping_add(site.frees);
        f.longest_life = f.longest_life.max(longest_life(site));
        let (live_bytes, live_blocks) = (bytes(&g.site.cohorts), blocks(&g.site.cohorts));
        f.sites.push(SiteShare {
            site: g.site.number,
            device: site.device,
            bytes_per_step: 0.0,
            live_bytes,
            live_blocks,
        });
    }
    let alive = by_birth(group.iter().chain(rarer).flat_map(|g| &g.site.cohorts));
    f.cohorts = alive.len() as u32;
    f.oldest_step = alive.first().map_or(0, |c| c.birth);
    f.first_step = group.iter().map(|g| g.site.site.first_birth).min()?;
    f.span = view.steps.saturating_sub(f.oldest_step);
    f.add_up();
    Some(f)
}
