//! Rule A: survivors older than anything the site usually frees, of many birth steps, and more of them all the time.
//! Rule D grades it: what never freed anything and does not come steadily may yet have a bound. Rule E is in the view:
//! what was freed only at the very end counts as alive.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::clock::Clock;
use super::*;

/// Still recruiting: the newest survivor came within this many mean gaps (and a little) of the latest it could.
const RECRUIT_GAPS: f64 = 4.0;
const RECRUIT_SLACK: f64 = 2.0;
/// Of stairs: within this many times their spacing.
const STAIR_WAIT: f64 = 1.5;
/// The share of surviving birth steps that must lie in the later half of the run: growth that stopped is none.
const LATER_SHARE: f64 = 0.25;
/// Sites whose surviving birth steps overlap this much (Jaccard) live and die together: one cause.
const SAME_STEPS: f64 = 0.9;
/// Ever rarer births are a cache that fills up: so far their mean lies before the middle, in standard deviations.
/// (One of twenty steady ones lies there by chance.)
const SLOWING: f64 = -1.64;
/// And so far at least, as a share of the time: half way from steady births to those of a cache whose gaps close with a
/// third of the run as time constant, whose mean lies at 0.29. Of many births this says it, of few the one above.
const SLOW: f64 = 0.105;
/// Births in this share of the steps, so many of them at least, are steady.
const STEADY_SHARE: f64 = 0.9;
const STEADY_COHORTS: usize = 20;
/// Stairs that must be seen: for anything to be said, and to be steady.
const MIN_STAIRS: usize = 2;
const SURE_STAIRS: usize = 3;
/// Single births that come as regularly as a clock need be fewer.
const MIN_REGULAR: usize = 4;
const CLOCK: u64 = 5;

/// The over-age survivors of one site.
struct Survivors<'a, 'b> {
    suspect: &'b Suspect<'a>,
    owners: Vec<u64>,
    /// Those that prove it: older than `age` and born after the burn-in.
    proof: Vec<Cohort>,
    /// All that belong to the cause.
    held: Vec<Cohort>,
    age: u32,
    /// The steps from one birth, or stair, to the next, where they are regular.
    period: Option<f64>,
    sure: bool,
}

/// How the births come.
struct Rhythm {
    /// First births after a pause, where there are pauses; else every birth.
    events: Vec<u32>,
    stairs: bool,
    spacing: f64,
    regular: bool,
}

/// What the rule found, and the sites that fill up ever more slowly.
pub(super) struct Grown {
    pub findings: Vec<Finding>,
    pub slowing: Vec<u32>,
}

enum Outcome<'a, 'b> {
    Grows(Survivors<'a, 'b>),
    Slows,
    Nothing,
}

pub(super) fn find(view: &View<'_>, claimed: &BTreeSet<u32>) -> Grown {
    let mut slowing = Vec::new();
    let mut found = Vec::new();
    for suspect in view.suspects.iter().filter(|s| !claimed.contains(&s.number)) {
        match over_age(view, suspect) {
            Outcome::Grows(survivors) => found.push(survivors),
            Outcome::Slows => slowing.push(suspect.number),
            Outcome::Nothing => {}
        }
    }
    found.sort_by_key(|s| (Reverse(bytes(&s.proof)), s.suspect.number));
    let findings = grouped(found, together).iter().filter_map(|g| finding(view, g)).collect();
    Grown { findings, slowing }
}

fn rhythm(births: &[u32]) -> Rhythm {
    let all = gaps(births);
    let pause = (4.0 * median(all.iter().copied())).max(3.0);
    let starts = |w: &[u32]| (f64::from(w[1].saturating_sub(w[0])) > pause).then_some(w[1]);
    let mut events: Vec<u32> = births.first().copied().into_iter().collect();
    events.extend(births.windows(2).filter_map(starts));
    let between = gaps(&events);
    // Stairs are of a size; all but one, which may have been cut short.
    let sizes: Vec<usize> = (0..events.len())
        .map(|i| {
            let next = events.get(i + 1).copied().unwrap_or(u32::MAX);
            births.iter().filter(|&&b| b >= events[i] && b < next).count()
        })
        .collect();
    let largest = sizes.iter().max().copied().unwrap_or(0);
    let small = sizes.iter().filter(|&&size| size * 2 < largest).count();
    let stairs = events.len() >= MIN_STAIRS
        && small <= usize::from(events.len() > 2)
        && births.len() >= 2 * events.len()
        // The first one may have been cut short by the burn-in.
        && (between.len() == 1 || regular(&between) || (between.len() > 2 && regular(&between[1..])));
    if !stairs {
        let (spacing, regular) = (median(all.iter().copied()), regular(&all));
        return Rhythm { events: births.to_vec(), stairs, spacing, regular };
    }
    Rhythm { events, stairs, spacing: median(between.iter().copied()), regular: true }
}

fn period(rhythm: &Rhythm) -> Option<f64> {
    (rhythm.regular && rhythm.spacing >= 2.0).then_some(rhythm.spacing)
}

fn over_age<'a, 'b>(view: &View<'_>, suspect: &'b Suspect<'a>) -> Outcome<'a, 'b> {
    let steps = view.steps;
    if suspect.cohorts.len() < MIN_REGULAR {
        return Outcome::Nothing;
    }
    let age = MIN_AGE.max(suspect.site.usual_life().saturating_mul(AGE_FACTOR));
    let old = |c: &&Cohort| steps.saturating_sub(c.birth) > age;
    let proof: Vec<Cohort> =
        suspect.cohorts.iter().filter(old).filter(|c| c.birth > view.burn_in).copied().collect();
    let among_all: Vec<u32> = proof.iter().map(|c| c.birth).collect();
    let Some(own) = Clock::of(view, &among_all) else { return Outcome::Nothing };
    let mut births: Vec<u32> = among_all.iter().map(|&birth| own.at(birth)).collect();
    births.dedup();
    let (Some(&first), Some(&last)) = (births.first(), births.last()) else { return Outcome::Nothing };
    let rhythm = rhythm(&births);
    let clock = rhythm.regular && !rhythm.stairs && rhythm.spacing >= CLOCK as f64;
    if proof.len() < if clock { MIN_REGULAR } else { MIN_COHORTS } {
        return Outcome::Nothing;
    }
    let now = own.at(steps);
    let gap = f64::from(last - first) / (births.len().max(2) - 1) as f64;
    let newest = f64::from(now - last);
    let by_gaps = f64::from(age) + RECRUIT_GAPS * gap + RECRUIT_SLACK;
    let by_stairs = f64::from(age) + STAIR_WAIT * rhythm.spacing;
    let recruiting = newest <= by_gaps || (rhythm.stairs && newest <= by_stairs);
    let later = births.iter().filter(|&&birth| birth > now / 2).count();
    if !recruiting || (later as f64) < LATER_SHARE * births.len() as f64 {
        return Outcome::Nothing;
    }
    let latest = steps.saturating_sub(age.saturating_add(1));
    // The warm-up counts here: a cache takes most of what it will ever hold in it. The first step alone sets up other
    // things.
    let all = suspect.cohorts.iter().map(|c| c.birth).filter(|&birth| birth > 1 && birth <= latest);
    let all = all.map(|birth| own.at(birth));
    let latest = own.at(latest);
    if !rhythm.stairs && !clock && slows(&all.collect::<Vec<u32>>(), latest) {
        return Outcome::Slows;
    }
    let share = proof.len() as f64 / f64::from(latest.saturating_sub(first).saturating_add(1).max(1));
    let steady = (share >= STEADY_SHARE && proof.len() >= STEADY_COHORTS)
        || (rhythm.regular && !rhythm.stairs && proof.len() >= SURE_COHORTS)
        || (rhythm.stairs && rhythm.events.len() >= SURE_STAIRS);
    let enough = proof.len() >= SURE_COHORTS && (!rhythm.stairs || rhythm.events.len() >= SURE_STAIRS);
    let sure = suspect.late == 0 && enough && !own.under_way && (suspect.site.frees > 0 || steady);
    // The cause also holds what came in the burn-in and in the newest steps, but not where that is larger than all it
    // took in between: then there is warm-up in it, or something that may yet be freed.
    let largest = proof.iter().map(|c| c.bytes).max().unwrap_or(0);
    let proven = |c: &&Cohort| c.birth > view.burn_in && (old(c) || suspect.site.frees == 0);
    let belongs = |c: &&Cohort| proven(c) || c.bytes <= largest;
    let held = suspect.cohorts.iter().filter(belongs).copied().collect();
    let owners = holders::owners(view, suspect.number);
    let period = if own.is_all() { period(&rhythm) } else { period(&self::rhythm(&among_all)) };
    Outcome::Grows(Survivors { suspect, owners, proof, held, age, period, sure })
}

/// True if the births come ever more rarely. Of evenly spread ones the mean lies in the middle.
fn slows(births: &[u32], latest: u32) -> bool {
    let place = |&birth: &u32| (f64::from(birth) - 1.5) / f64::from(latest.max(2) - 1);
    let n = births.len() as f64;
    let mean = births.iter().map(place).sum::<f64>() / n;
    (mean - 0.5) * (12.0 * n).sqrt() < SLOWING && 0.5 - mean > SLOW
}

/// One cause: one holder has both; where that is not known, they live and die together.
fn together(a: &Survivors<'_, '_>, b: &Survivors<'_, '_>) -> bool {
    let (x, y) = (a.suspect.site, b.suspect.site);
    if x.device != y.device || x.layer != y.layer {
        return false;
    }
    if let Some(one) = holders::share(&a.owners, &b.owners) {
        return one;
    }
    // Compared where both could have survivors: the one that waits longer has no young ones yet.
    let latest = a.proof.last().map_or(0, |c| c.birth).min(b.proof.last().map_or(0, |c| c.birth));
    let births = |s: &Survivors<'_, '_>| -> Vec<u32> {
        s.proof.iter().map(|c| c.birth).filter(|&birth| birth <= latest).collect()
    };
    overlap(&births(a), &births(b)) >= SAME_STEPS
}

fn finding(view: &View<'_>, group: &[Survivors<'_, '_>]) -> Option<Finding> {
    let leader = group.first()?;
    let site = leader.suspect.site;
    let age = group.iter().map(|s| s.age).max()?;
    // Figures come from the births at which every site of the group could have survivors.
    let latest = view.steps.saturating_sub(age.saturating_add(1));
    let proof = by_birth(group.iter().flat_map(|s| &s.proof).filter(|c| c.birth <= latest));
    let held = by_birth(group.iter().flat_map(|s| &s.held));
    let first = proof.first()?.birth;
    let span = latest.saturating_sub(first).saturating_add(1);
    let frees = |s: &Survivors<'_, '_>| s.suspect.site.frees;
    let freed = group.iter().map(frees).fold(0, u64::wrapping_add);
    let collected = group.iter().map(|s| s.suspect.site.collected).fold(0, u64::wrapping_add);
    let aged = group.iter().map(|s| s.suspect.site.aged).fold(0, u64::wrapping_add);
    let kind = match () {
        // What this line lets go is let go by the collector: so will this be, unless it finds it reachable.
        () if aged > 0 && collected * 2 >= aged => Kind::PendingGc,
        () if group.iter().any(|s| s.sure) => Kind::Leak,
        () => Kind::Growing,
    };
    let confidence = if freed > 0 { Confidence::Confirmed } else { Confidence::Likely };
    let oldest_step = held.first()?.birth;
    // The span that `held` can fill: up to the newest birth that counts.
    let newest = held.last()?.birth.max(latest);
    let mut f = Finding {
        bytes_per_step: median(proof.iter().map(|c| c.bytes)),
        bytes_interval: interval(proof.iter().map(|c| c.bytes)),
        blocks_per_step: median(proof.iter().map(|c| c.blocks)),
        growth_step_ratio: (proof.len() as f64 / f64::from(span)).min(1.0),
        period_steps: leader.period,
        growth_bytes_per_step: bytes(&proof) as f64 / f64::from(span),
        cohorts: held.len() as u32,
        oldest_step,
        first_step: oldest_step,
        span: newest.saturating_sub(oldest_step).saturating_add(1),
        freed,
        longest_life: group.iter().map(|s| s.suspect.site.longest_life()).max().unwrap_or(0),
        evidence_step: group.iter().map(|s| s.suspect.late).max().unwrap_or(0),
        ..Finding::new(kind, confidence, site.device, site.layer)
    };
    f.sites = group
        .iter()
        .map(|s| SiteShare {
            site: s.suspect.number,
            bytes_per_step: median(s.proof.iter().map(|c| c.bytes)),
            live_bytes: bytes(&s.held),
            live_blocks: blocks(&s.held),
        })
        .collect();
    f.add_up();
    Some(f)
}
