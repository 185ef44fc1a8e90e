//! Blocks that are older than anything their site usually frees, that were allocated in many steps, and of which there are more all
//! the time. A site that never freed anything and does not grow steadily may yet have a bound. What was freed only at the very end
//! counts as live: the view says so.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::finding::{Confidence, Finding, Kind, SiteShare};
use super::holders;
use super::phase_clock::{PhaseClock, UnderWay};
use super::rhythm::{MIN_INTERVAL, is_saturating, late_bytes, period, rate, rhythm, slowed};
use super::statistics::{gaps, grouped, interval, median, overlap};
use super::view::{CERTAIN_COHORTS, MIN_COHORTS, SiteView, View, old_age};
use crate::ledger::cohort::{Cohort, blocks, by_birth, bytes};
use crate::ledger::sites::{Layer, mostly_collected};

/// A site still grows if its newest survivor came within this many mean gaps, and so many steps, of the
/// latest it could.
const GROWS_GAPS: f64 = 4.0;
const GROWS_SLACK: f64 = 2.0;
/// … or so many times the longest gap that there was, of enough of them …
const LONGEST_GAPS: f64 = 1.5;
const KNOWN_GAPS: usize = 12;
/// … or this many intervals, where it grows at regular ones.
const DUE_GAPS: f64 = 2.0;
/// A site that grows in bursts still grows within this many times their spacing.
pub const BURST_WAIT: f64 = 1.5;
/// What was kept of nearly every step, and of so many, goes on though none came in the last steps, up to this share of all: there
/// the program does something else. It may have come to an end if that is more than the other share.
const QUIET_END: f64 = 0.1;
const SHORT_END: f64 = 0.05;
/// The share of surviving birth steps that must lie in the later half of those in which one could be over age by now:
/// growth that stopped is no leak.
const LATER_SHARE: f64 = 0.25;
/// Sites whose surviving birth steps overlap this much (Jaccard) live and die together: one cause.
const SAME_STEPS: f64 = 0.9;
/// What comes so many steps apart has parts that come one after the other.
const APART: f64 = 3.0;
/// Where what is kept comes at regular intervals, the next is due so many steps before.
const DUE: f64 = 0.5;
/// Births are steady in this share of the steps, from so many on.
pub const STEADY_SHARE: f64 = 0.9;
pub const STEADY_COHORTS: usize = 20;
/// Bursts that must be seen for the growth to be steady.
const CERTAIN_BURSTS: usize = 3;
/// Single births at regular intervals need be fewer, if the interval is at least [`MIN_INTERVAL`] steps.
const MIN_REGULAR: usize = 4;
/// Programs that are compiled so many steps apart are those of stages, if they are fewer than this.
const STAGE: f64 = 4.0;
const MIN_PROGRAMS: usize = 8;

/// A cohort of as many blocks as the others belongs to them up to so many times the bytes of the largest.
const LARGER: u64 = 2;
/// A cohort is an outlier if it has so many times the bytes of the median one, and such cohorts are at most this share.
const OUTLIER: f64 = 16.0;
const OUTLIER_SHARE: f64 = 0.1;

/// What comes in less than one of so many steps is counted by how often it came.
const RARE: f64 = 3.0;

/// The over-age survivors of one site.
struct Survivors<'a, 'b> {
    site: &'b SiteView<'a>,
    holders: Vec<u64>,
    /// The cohorts that prove it: older than `age` and born after the burn-in.
    proof: Vec<Cohort>,
    /// The cohorts that belong to the cause.
    held: Vec<Cohort>,
    age: u32,
    /// The steps from one birth, or burst, to the next, where they are regular.
    period: Option<f64>,
    is_certain: bool,
    may_end: bool,
    /// Counts the steps of the phases that it grows in.
    clock: PhaseClock<'a>,
}

/// What the rule found, and the sites that fill up ever more slowly.
pub struct Grown {
    pub findings: Vec<Finding>,
    pub saturating: Vec<u32>,
}

enum Outcome<'a, 'b> {
    Grows(Survivors<'a, 'b>),
    Saturates,
    Nothing,
}

pub fn find(view: &View<'_>, explained: &BTreeSet<u32>) -> Grown {
    let mut saturating = Vec::new();
    let mut found = Vec::new();
    for site in view.sites.iter().filter(|s| !explained.contains(&s.number)) {
        match over_age(view, site) {
            Outcome::Grows(survivors) => found.push(survivors),
            Outcome::Saturates => saturating.push(site.number),
            Outcome::Nothing => {}
        }
    }
    found.sort_by_key(|s| (Reverse(bytes(&s.proof)), s.site.number));
    let findings =
        grouped(found, |a, b| together(view, a, b)).iter().filter_map(|g| finding(view, g)).collect();
    Grown { findings, saturating }
}

fn over_age<'a, 'b>(view: &View<'a>, site: &'b SiteView<'a>) -> Outcome<'a, 'b> {
    let steps = view.steps;
    if site.cohorts.len() < MIN_REGULAR {
        return Outcome::Nothing;
    }
    // What lies in cycles waits for a collection, however soon the line's other blocks go.
    let life = match holders::is_garbage(view, site.number) {
        true => site.site.usual_life(),
        false => view.usual_life(site),
    };
    let age = old_age(life);
    let until = last_turn(site, steps);
    let old = |c: &&Cohort| until.saturating_sub(c.birth) > age;
    let mut proof: Vec<Cohort> =
        site.cohorts.iter().filter(old).filter(|c| c.birth > view.burn_in).copied().collect();
    without_outliers(&mut proof);
    let among_all: Vec<u32> = proof.iter().map(|c| c.birth).collect();
    let own = PhaseClock::of(view, &among_all);
    // It was over, and so is what it gathered.
    if own.under_way == UnderWay::Short && site.late > 0 {
        return Outcome::Nothing;
    }
    // While another phase has its turn nothing here grows old.
    proof.retain(|c| own.at(steps).saturating_sub(own.at(c.birth)) > age);
    let among_all: Vec<u32> = proof.iter().map(|c| c.birth).collect();
    let mut births: Vec<u32> = among_all.iter().map(|&birth| own.at(birth)).collect();
    births.dedup();
    // What came more often before does not show that it comes to an end.
    let slower = slowed(&births, latest_of_age(view, &own, age));
    if let Some(from) = slower {
        births.retain(|&birth| birth >= from);
        proof.retain(|c| own.at(c.birth) >= from);
    }
    let (Some(&first), Some(&last)) = (births.first(), births.last()) else { return Outcome::Nothing };
    let before: Vec<u32> = site.cohorts.iter().map(|c| own.at(c.birth)).take_while(|&b| b < first).collect();
    let rhythm = rhythm(&births, if slower.is_some() { &[] } else { &before });
    let at_intervals = rhythm.regular && !rhythm.in_bursts && rhythm.spacing >= MIN_INTERVAL;
    if proof.len() < if at_intervals { MIN_REGULAR } else { MIN_COHORTS } {
        return Outcome::Nothing;
    }
    // Whoever trains in stages compiles a few programs for each.
    let is_stages = || f64::from(last - first) >= STAGE * (births.len() - 1) as f64;
    if site.site.layer == Layer::Code && births.len() < MIN_PROGRAMS && is_stages() {
        return Outcome::Nothing;
    }
    // A bound of few entries drops few in a whole run: what has twice lived longer than all that is alive is no leak. Once
    // is enough where so few are alive that nothing is certain.
    let oldest =
        site.cohorts.iter().find(|c| c.birth > view.burn_in).map_or(0, |c| until.saturating_sub(c.birth));
    let dropped =
        if proof.len() < CERTAIN_COHORTS { site.site.longest_life() } else { site.site.second_life() };
    let is_bounded = || at_intervals && dropped >= oldest || is_full(site, steps, &proof);
    if !site.site.is_collected() && is_bounded() {
        return Outcome::Nothing;
    }
    let now = own.at(steps);
    let gap = f64::from(last - first) / (births.len().max(2) - 1) as f64;
    // Where the next is due is known where they come at intervals, and nearly so where no gap was much longer than others.
    let gaps = if at_intervals { DUE_GAPS * rhythm.spacing } else { GROWS_GAPS * gap };
    let longest = births.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
    let known = births.len() >= KNOWN_GAPS;
    let gaps = if known { gaps.min(LONGEST_GAPS * f64::from(longest)) } else { gaps };
    let by_gaps = f64::from(age) + gaps + GROWS_SLACK;
    let by_bursts = f64::from(age) + BURST_WAIT * rhythm.spacing;
    let is_recent = |last: u32| {
        let newest = f64::from(now.saturating_sub(last));
        newest <= by_gaps || (rhythm.in_bursts && newest <= by_bursts)
    };
    let is_dense = births.len() as f64 >= STEADY_SHARE * f64::from(last - first + 1);
    let of_each = is_dense && births.len() >= STEADY_COHORTS && site.site.layer != Layer::Code;
    let quiet = f64::from(now.saturating_sub(last).saturating_sub(age));
    let is_quiet_for = |share: f64| of_each && quiet <= share * f64::from(now);
    // Where another call of the same line has left one since, it goes on there.
    let is_recent = is_recent(last) || is_recent(own.at(view.last_survivor(site.site)));
    let still_grows = is_recent || is_quiet_for(QUIET_END);
    let latest_old = latest_of_age(view, &own, age);
    let later = births.iter().filter(|&&birth| birth > latest_old / 2).count();
    if !still_grows || (later as f64) < LATER_SHARE * births.len() as f64 {
        return Outcome::Nothing;
    }
    let latest = steps.saturating_sub(age.saturating_add(1));
    // The warm-up counts here: a cache takes in most of what it will ever hold then. Only the first step does
    // not: it sets up other things.
    let all = site.cohorts.iter().map(|c| c.birth).filter(|&birth| birth > 1 && birth <= latest);
    let all = all.map(|birth| own.at(birth)).filter(|&birth| slower.is_none_or(|from| birth >= from));
    let in_list = holders::are_appended(view, site.number);
    if !rhythm.in_bursts && !at_intervals && is_saturating(&all.collect::<Vec<u32>>(), latest_old, in_list) {
        return Outcome::Saturates;
    }
    let share = proof.len() as f64 / f64::from(latest_old.saturating_sub(first).saturating_add(1).max(1));
    let steady = (share >= STEADY_SHARE && proof.len() >= STEADY_COHORTS)
        || (rhythm.regular && !rhythm.in_bursts && proof.len() >= CERTAIN_COHORTS)
        || (rhythm.in_bursts && rhythm.events.len() >= CERTAIN_BURSTS);
    let enough =
        proof.len() >= CERTAIN_COHORTS && (!rhythm.in_bursts || rhythm.events.len() >= CERTAIN_BURSTS);
    let may_end = site.late > 0 || own.under_way != UnderWay::No || !(is_recent || is_quiet_for(SHORT_END));
    let is_certain = enough && !may_end && (site.freed > 0 || steady);
    // The cause also holds what came in the burn-in and in the newest steps, except a cohort larger than all
    // in between: that has warm-up in it, or something that may yet be freed.
    let largest = proof.iter().map(|c| c.bytes).max().unwrap_or(0);
    // As many blocks as always, each somewhat larger, are no more than what grows with the program's own sizes.
    let usual_blocks = median(proof.iter().map(|c| c.blocks));
    let is_alike = |c: &Cohort| c.blocks as f64 <= usual_blocks && c.bytes <= LARGER.saturating_mul(largest);
    let is_proof = |c: &Cohort| proof.binary_search_by_key(&c.birth, |p| p.birth).is_ok();
    let proven = |c: &&Cohort| {
        c.birth > view.burn_in
            && (is_proof(c) || (site.freed == 0 && c.bytes as f64 <= OUTLIER * largest as f64))
    };
    // Where a line frees nearly all that it makes, the newest may be what the last step has in hand, unless one was due.
    let is_rare = site.freed > 0 && share < STEADY_SHARE;
    let in_hand = |c: &Cohort| {
        if !is_rare || until.saturating_sub(c.birth) > site.site.usual_life() {
            return false;
        }
        let before = site.cohorts.iter().map(|other| other.birth).filter(|&birth| birth < c.birth).max();
        let gap = before.map_or(0, |birth| own.at(c.birth).saturating_sub(own.at(birth)));
        !(rhythm.regular && f64::from(gap) + DUE >= rhythm.spacing)
    };
    let belongs = |c: &&Cohort| proven(c) || ((c.bytes <= largest || is_alike(c)) && !in_hand(c));
    let held = site.cohorts.iter().filter(belongs).copied().collect();
    let holders = holders::of_site(view, site.number);
    let period = if own.is_all() { period(&rhythm) } else { period(&self::rhythm(&among_all, &[])) };
    Outcome::Grows(Survivors { site, holders, proof, held, age, period, is_certain, may_end, clock: own })
}

/// Returns whether a site has freed its oldest blocks in the last steps, as many in each as it allocates: a ring that is full by now.
fn is_full(site: &SiteView<'_>, steps: u32, held: &[Cohort]) -> bool {
    let of = site.site;
    let since = steps.saturating_sub(of.first_freed).saturating_add(1);
    let of_step = median(held.iter().map(|c| c.blocks)) as u64;
    // What follows the last step may have freed some too.
    let (least, most) = (since.max(2), since.saturating_add(1));
    let as_many = of_step.saturating_mul(u64::from(least))..=of_step.saturating_mul(u64::from(most));
    let Some(oldest) = site.alive().first().map(|c| c.birth) else { return false };
    // The first that it freed had lived as long as what is there by now.
    let in_order = of.first_freed.saturating_sub(of.first_birth) >= steps.saturating_sub(oldest);
    let gone = oldest.saturating_sub(of.first_birth);
    of.first_freed > 0 && in_order && as_many.contains(&of.frees) && (1..=most).contains(&gone)
}

/// Returns by a clock when the last of what is older than `age` by now can have come: by that clock, and by all steps.
fn latest_of_age(view: &View<'_>, clock: &PhaseClock<'_>, age: u32) -> u32 {
    let before = |steps: u32| steps.saturating_sub(age.saturating_add(1));
    before(clock.at(view.steps)).min(clock.at(before(view.steps)))
}

/// Returns the step up to which what a site holds grows old: the last one, unless the site has allocated nothing for far
/// longer than it ever paused. Then its loop is over, and what it had at that moment it has still.
fn last_turn(site: &SiteView<'_>, steps: u32) -> u32 {
    let (last, births) = (site.site.last_birth, site.site.births.max(1));
    let pause = GROWS_GAPS * f64::from(last) / f64::from(births) + GROWS_SLACK;
    if f64::from(steps.saturating_sub(last)) > pause && site.freed > 0 { last } else { steps }
}

/// Takes out cohorts that are far larger than the others, where these are few: a library's workspace that was set up
/// under the same line.
fn without_outliers(cohorts: &mut Vec<Cohort>) {
    let usual = OUTLIER * median(cohorts.iter().map(|c| c.bytes));
    let large = cohorts.iter().filter(|c| c.bytes as f64 > usual).count();
    if large as f64 <= OUTLIER_SHARE * cohorts.len() as f64 {
        cohorts.retain(|c| c.bytes as f64 <= usual);
    }
}

/// Returns whether two sites are one cause: one holder has both, or, where holders are not known or the same lines made
/// them, their blocks live and die together.
fn together(view: &View<'_>, a: &Survivors<'_, '_>, b: &Survivors<'_, '_>) -> bool {
    let (x, y) = (a.site.site, b.site.site);
    if x.layer != y.layer {
        return false;
    }
    let shared = holders::share(&a.holders, &b.holders);
    if shared == Some(true) {
        return true;
    }
    if !x.may_be_one_with(y) {
        return false;
    }
    // Compared where both can have survivors: the one with the higher age has no young ones yet.
    let latest = a.proof.last().map_or(0, |c| c.birth).min(b.proof.last().map_or(0, |c| c.birth));
    let births = |s: &Survivors<'_, '_>| -> Vec<u32> {
        s.proof.iter().map(|c| c.birth).filter(|&birth| birth <= latest).collect()
    };
    // What the same lines make may go to one object each: a cache of every layer's own. Last, since it takes all frames.
    let are_apart = || shared.is_some() && (view.context.lines)(x.stack) != (view.context.lines)(y.stack);
    overlap(&births(a), &births(b)) >= SAME_STEPS && !are_apart()
}

/// Returns the cohorts of several sites born up to `latest`. The parts of what comes every few steps may come in one step after the
/// other: a model, its gradients, its optimizer's state. Where each time one of them follows the first of the site that has the
/// most, or comes a step before that, it counts in the step of that.
fn aligned(sites: &[&[Cohort]], latest: u32) -> Vec<Cohort> {
    let born = |of: &[Cohort]| of.iter().filter(|c| c.birth <= latest).copied().collect::<Vec<Cohort>>();
    let sites: Vec<Vec<Cohort>> = sites.iter().map(|of| born(of)).collect();
    let first = |of: &[Cohort]| of.first().map_or(u32::MAX, |c| c.birth);
    let most = sites.iter().max_by_key(|of| (of.len(), Reverse(first(of))));
    let steps: Vec<u32> = most.into_iter().flatten().map(|c| c.birth).collect();
    let is_rare = median(gaps(&steps).into_iter()) >= APART;
    let times = |of: &[Cohort], ahead: u32| -> (usize, Vec<u32>) {
        let time = |c: &Cohort| {
            let at = steps.partition_point(|&s| s <= c.birth.saturating_add(ahead));
            at.checked_sub(1).map(|at| steps[at])
        };
        let twice = of.windows(2).filter(|w| time(&w[0]).is_some_and(|at| Some(at) == time(&w[1]))).count();
        let alone = of.iter().filter(|c| time(c).is_none()).count();
        (twice + alone, of.iter().map(|c| time(c).unwrap_or(c.birth)).collect())
    };
    // Whichever is so more often.
    let times = |of: &[Cohort]| -> Option<Vec<u32>> {
        let (odd, times) = [1, 0].map(|ahead| times(of, ahead)).into_iter().min_by_key(|(odd, _)| *odd)?;
        (is_rare && odd as f64 <= (1.0 - SAME_STEPS) * times.len() as f64).then_some(times)
    };
    let in_time = |mut of: Vec<Cohort>| {
        let times = times(&of);
        of.iter_mut().zip(times.into_iter().flatten()).for_each(|(c, time)| c.birth = time);
        of
    };
    sites.into_iter().flat_map(in_time).collect()
}

/// Returns what a step adds, as births are weighed, where they come in bursts: by whole intervals from the begin of one burst to
/// that of another, since anything else depends on where the pauses lie. The burn-in may have cut the first one.
fn rate_of_bursts(proof: &[Cohort], weight: fn(&Cohort) -> u64, clock: &PhaseClock<'_>) -> Option<f64> {
    let mut births: Vec<u32> = proof.iter().map(|c| clock.at(c.birth)).collect();
    births.dedup();
    let rhythm = rhythm(&births, &[]);
    let (from, to) = match &rhythm.events[..] {
        [_, from, _, .., to] | [from, _, to] => (*from, *to),
        _ => return None,
    };
    let within = |c: &&Cohort| (from..to).contains(&clock.at(c.birth));
    let added = proof.iter().filter(within).map(weight).fold(0, u64::saturating_add);
    rhythm.in_bursts.then(|| added as f64 / f64::from(to - from))
}

/// Returns what of the bytes of a step that adds anything, of `all` such, is a site's: it may add more at a time, and seldom.
fn share_of_step(own: &[Cohort], all: usize) -> f64 {
    match own.len() + 1 >= all || own.len() as f64 >= SAME_STEPS * all as f64 {
        true => median(own.iter().map(|c| c.bytes)),
        false => bytes(own) as f64 / all as f64,
    }
}

fn finding(view: &View<'_>, group: &[Survivors<'_, '_>]) -> Option<Finding> {
    let leader = group.first()?;
    let site = leader.site.site;
    let age = group.iter().map(|s| s.age).max()?;
    // Figures come from the births at which every site of the group could have survivors.
    let latest = view.steps.saturating_sub(age.saturating_add(1));
    let proof: Vec<&[Cohort]> = group.iter().map(|s| &s.proof[..]).collect();
    let proof = by_birth(aligned(&proof, latest).iter());
    let held: Vec<&[Cohort]> = group.iter().map(|s| &s.held[..]).collect();
    let held = by_birth(aligned(&held, u32::MAX).iter());
    let first = proof.first()?.birth;
    // What grows in one kind of step is compared with steps of that kind.
    let steps = |from: u32, to: u32| {
        let (from, to) = (leader.clock.at(from), leader.clock.at(to));
        to.saturating_sub(from).saturating_add(1)
    };
    let counted = latest_of_age(view, &leader.clock, age);
    let proof_span = counted.saturating_sub(leader.clock.at(first)).saturating_add(1);
    let frees = |s: &Survivors<'_, '_>| s.site.freed;
    let freed = group.iter().map(frees).fold(0, u64::wrapping_add);
    let is_collected = mostly_collected(group.iter().map(|s| s.site.site));
    let is_owned = group.iter().any(|s| holders::is_owned(view, s.site.number));
    let in_last_loop = || group.iter().all(|s| s.clock.under_way == UnderWay::Short);
    let kind = match () {
        // What this site frees is freed by the collector: so will this be, unless it is reachable.
        () if is_collected && !is_owned => Kind::PendingGc,
        // What it gathers may be released with it; not what was there before.
        () if in_last_loop() && !view.ran_out() => Kind::LastLoop,
        () if group.iter().any(|s| s.is_certain) => Kind::Leak,
        () => Kind::Growing,
    };
    let confidence = match kind {
        Kind::Growing | Kind::LastLoop => Confidence::Likely,
        _ if freed > 0 => Confidence::Confirmed,
        _ => Confidence::Likely,
    };
    let oldest_step = held.first()?.birth;
    // The span that `held` can fill: up to the newest birth that counts. What comes now and then fills none.
    let newest = held.last()?.birth.max(latest);
    let is_rare = held.len() as f64 * RARE < f64::from(steps(oldest_step, newest));
    let newest = if is_rare { view.steps } else { newest };
    // Of the parts of a thing the first may come at the beginning of what makes it and the last at its end: it is one thing.
    let most = group.iter().map(|s| s.held.len()).max().unwrap_or(0);
    let times = if is_rare && held.len() <= most + 1 { most } else { held.len() };
    let span = steps(oldest_step, newest);
    // What comes at random comes by what there is of it in all its steps; else by the births that prove it, from the first to
    // the last.
    let at_random = is_rare && leader.period.is_none();
    let by_proof = |weight: fn(&Cohort) -> u64| {
        let until_last = steps(first, proof.last().map_or(first, |c| c.birth));
        rate_of_bursts(&proof, weight, &leader.clock)
            .unwrap_or_else(|| rate(&proof, weight, until_last, proof_span))
    };
    let ratio = match at_random {
        true => times as f64 / f64::from(span),
        false => by_proof(|_| 1).min(1.0),
    };
    // So does what becomes more: the first births are the smallest.
    let late = late_bytes(&proof);
    let rate = match at_random || late.is_some() {
        true => bytes(&held) as f64 / f64::from(span),
        false => by_proof(|c| c.bytes),
    };
    let mut f = Finding {
        counted: leader.clock.counted(),
        bytes_per_step: median(proof.iter().map(|c| c.bytes)),
        bytes_interval: interval(proof.iter().map(|c| c.bytes)),
        blocks_per_step: median(proof.iter().map(|c| c.blocks)),
        growth_step_ratio: ratio,
        period_steps: leader.period,
        growth_bytes_per_step: rate,
        late_bytes_per_step: late.map(|of_step| of_step * ratio),
        cohorts: times as u32,
        oldest_step,
        first_step: oldest_step,
        span,
        until_step: (leader.clock.is_all() && newest + 1 < view.steps).then_some(newest),
        freed,
        longest_life: group.iter().map(|s| s.site.site.longest_life()).max().unwrap_or(0),
        evidence_step: group.iter().map(|s| s.site.late).max().unwrap_or(0),
        may_end: group.iter().any(|s| s.may_end),
        released_later: freed == 0 && group.iter().any(|s| s.site.site.frees > 0),
        ..Finding::new(kind, confidence, site.device, site.layer)
    };
    f.sites = group
        .iter()
        .map(|s| SiteShare {
            site: s.site.number,
            device: s.site.site.device,
            bytes_per_step: share_of_step(&s.proof, proof.len()),
            live_bytes: bytes(&s.held),
            live_blocks: blocks(&s.held),
        })
        .collect();
    f.add_up();
    Some(f)
}
