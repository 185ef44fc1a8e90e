//! Sawtooth: accumulates step by step, and is freed down to the same floor at regular intervals. And programs that are compiled
//! again and again, each of which is released soon: that takes time, and no memory in the end.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::finding::{Confidence, Finding, Kind, SiteShare};
use super::phase_clock::PhaseClock;
use super::statistics::{gaps, grouped, interval, is_regular, median, overlap, sum_intervals};
use super::view::{CERTAIN_COHORTS, View};
use crate::ledger::cohort::{blocks, bytes};
use crate::ledger::sites::{Layer, Release, Site};

/// Anything shorter is the ordinary churn of a loop.
const MIN_PERIOD: f64 = 3.0;
/// What stays after each release may differ by this share of what is freed.
const SAME_FLOOR: f64 = 0.1;
/// A floor that is higher after each of so many releases rises.
const RISES: usize = 4;
/// Programs are compiled again and again if that is in this share of the steps.
const RECOMPILES: f64 = 0.25;
/// The steps of a period do not gather as much as most of them if the mean differs by more than this share.
const UNEVEN: f64 = 0.1;
/// After so many periods without a release the sawtooth is over.
const OVER: f64 = 1.5;

struct Tooth<'a, 'b> {
    number: u32,
    site: &'a Site,
    releases: &'b [Release],
    period: f64,
}

pub fn find(view: &View<'_>, explained: &BTreeSet<u32>) -> Vec<Finding> {
    let sites = view.ledger.sites().filter(|(number, _)| !explained.contains(number));
    let mut found: Vec<Tooth<'_, '_>> = sites.filter_map(|(n, site)| tooth(view, n, site)).collect();
    found.sort_by_key(|t| (Reverse(t.site.peak_bytes()), t.number));
    let steps = |t: &Tooth<'_, '_>| t.releases.iter().map(|r| r.step).collect::<Vec<u32>>();
    let together = |a: &Tooth<'_, '_>, b: &Tooth<'_, '_>| {
        a.site.may_be_one_with(b.site) && overlap(&steps(a), &steps(b)) >= 0.9
    };
    let mut findings: Vec<Finding> =
        grouped(found, together).iter().filter_map(|g| finding(view, g)).collect();
    let known =
        |n: u32| explained.contains(&n) || findings.iter().any(|f| f.sites.iter().any(|s| s.site == n));
    let others = view.ledger.sites().filter(|(n, _)| !known(*n));
    let recompiled: Vec<Finding> = others.filter_map(|(n, site)| recompiled(view, n, site)).collect();
    findings.extend(recompiled);
    findings
}

/// Finds a line that has programs compiled step after step, and releases them.
fn recompiled(view: &View<'_>, number: u32, site: &Site) -> Option<Finding> {
    let span = site.last_birth.saturating_sub(site.first_birth).saturating_add(1);
    let share = f64::from(site.births) / f64::from(span);
    let over = f64::from(view.steps.saturating_sub(site.last_birth)) > OVER / share + 1.0;
    let again = site.layer == Layer::Code && site.births as usize >= CERTAIN_COHORTS && share >= RECOMPILES;
    if !again || over || site.last_birth <= view.burn_in {
        return None;
    }
    let alive = SiteShare {
        site: number,
        device: site.device,
        bytes_per_step: 0.0,
        live_bytes: site.live_bytes,
        live_blocks: site.live_blocks,
    };
    let mut f = Finding {
        sites: vec![alive],
        blocks_per_step: site.allocs as f64 / f64::from(site.births),
        growth_step_ratio: share,
        first_step: site.first_birth,
        evidence_step: site.last_birth,
        freed: site.frees,
        longest_life: site.longest_life(),
        ..Finding::new(Kind::Periodic, Confidence::Confirmed, site.device, site.layer)
    };
    f.add_up();
    Some(f)
}

fn tooth<'a>(view: &View<'_>, number: u32, site: &'a Site) -> Option<Tooth<'a, 'a>> {
    let releases = site.releases();
    let last = releases.last()?.step;
    let steps: Vec<u32> = releases.iter().map(|r| r.step).collect();
    let between = gaps(&steps);
    if !is_regular(&between) {
        return None;
    }
    let period = median(between.iter().copied());
    let freed = median(releases.iter().map(|r| r.bytes));
    let floor = releases.iter().map(|r| r.left_bytes);
    let (low, high) = (floor.clone().min()?, floor.max()?);
    // One more each time is no floor, however little it is.
    let rises = releases.len() >= RISES && releases.windows(2).all(|w| w[0].left_blocks < w[1].left_blocks);
    let same = !rises && (high - low) as f64 <= SAME_FLOOR * freed + releases.last()?.cohort_bytes as f64;
    let collected = releases.iter().any(|r| r.collected * 2 >= r.blocks);
    // What is freed in training is not over because an evaluation has its turn.
    let own = PhaseClock::of(view, &steps);
    let over = f64::from(own.at(view.steps).saturating_sub(own.at(last))) > OVER * period;
    // The blocks of nearly a whole period are there when it ends, by the steps in which they are made: a list, and not a
    // few blocks that die in pairs.
    let newest: Vec<u32> = releases.iter().map(|r| r.newest).collect();
    let born = PhaseClock::of(view, &newest);
    let turns: Vec<u32> = newest.iter().map(|&step| born.at(step)).collect();
    let turn = median(gaps(&turns).iter().copied()) as u32;
    let gathers = releases.iter().all(|r| born.at(r.newest).saturating_sub(born.at(r.oldest)) * 2 >= turn);
    (period >= MIN_PERIOD && same && !collected && !over && gathers).then_some(Tooth {
        number,
        site,
        releases,
        period,
    })
}

/// Returns the bytes and the blocks that a step gathers: those of most, or the mean over the period where not every step
/// gathers as much.
fn per_step(t: &Tooth<'_, '_>) -> (f64, f64) {
    let usual = |of: fn(&Release) -> u64| median(t.releases.iter().map(of));
    let (bytes, blocks) = (usual(|r| r.cohort_bytes), usual(|r| r.cohort_blocks));
    let mean = |of: fn(&Release) -> u64| {
        t.releases.iter().map(|r| of(r) as f64).sum::<f64>() / (t.period * t.releases.len() as f64)
    };
    let mean_bytes = mean(|r| r.bytes);
    // What the last step of a period makes may be gone before it ends.
    let without_last = mean_bytes * t.period / (t.period - 1.0);
    let is_uneven = |mean: f64| (mean - bytes).abs() > UNEVEN * bytes;
    match is_uneven(mean_bytes) && is_uneven(without_last) {
        true => (mean_bytes.round(), mean(|r| r.blocks)),
        false => (bytes, blocks),
    }
}

fn finding(view: &View<'_>, group: &[Tooth<'_, '_>]) -> Option<Finding> {
    let first = group.first()?;
    let mut f = Finding::new(Kind::Periodic, Confidence::Confirmed, first.site.device, first.site.layer);
    f.period_steps = Some(first.period);
    f.evidence_step = first.releases.last()?.step;
    let cohorts = median(first.releases.iter().map(|r| u64::from(r.cohorts)));
    f.growth_step_ratio = (cohorts / first.period).min(1.0);
    for t in group {
        let (bytes_per_step, blocks_per_step) = per_step(t);
        f.bytes_per_step += bytes_per_step;
        f.bytes_interval =
            sum_intervals(f.bytes_interval, interval(t.releases.iter().map(|r| r.cohort_bytes)));
        f.blocks_per_step += blocks_per_step;
        f.freed = f.freed.wrapping_add(t.site.frees);
        f.longest_life = f.longest_life.max(t.site.longest_life());
        // What was there before the last release is the floor: it came once, and stays.
        let last = t.releases.last().map_or(0, |r| r.newest);
        let alive = view.site(t.number).map_or(&[][..], |s| &s.cohorts);
        let alive = &alive[alive.partition_point(|c| c.birth <= last)..];
        let (live_bytes, live_blocks) = (bytes(alive), blocks(alive));
        f.cohorts = f.cohorts.max(alive.len() as u32);
        if let Some(oldest) = alive.first() {
            f.oldest_step = if f.oldest_step == 0 { oldest.birth } else { f.oldest_step.min(oldest.birth) };
        }
        f.sites.push(SiteShare {
            site: t.number,
            device: t.site.device,
            bytes_per_step,
            live_bytes,
            live_blocks,
        });
    }
    f.first_step = group.iter().map(|t| t.site.first_birth).min()?;
    f.span = view.steps.saturating_sub(f.evidence_step);
    f.add_up();
    Some(f)
}
