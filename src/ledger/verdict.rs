//! Is it a leak? Rules over one view of the books, resting on the identity of blocks: which step bore them, and whether
//! they outlived what the same site lets go. Never on a rising curve.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::view::Cohort;
use super::{Layer, Ledger, Site};

/// Distinct birth steps that must have survived (exploring; a gate would ask for 8).
const MIN_COHORTS: usize = 5;
/// A survivor is older than this many steps, whatever the site frees …
const MIN_AGE: u32 = 3;
/// … and older than this many times the site's usual life.
const AGE_FACTOR: u32 = 2;
/// Births in the first steps are warm-up: this many steps, or this share of the run if that is longer.
const BURN_IN_STEPS: u32 = 5;
const BURN_IN_SHARE: f64 = 0.1;
/// Still recruiting: the newest survivor came within this many mean gaps (and a little) of the latest it could.
const RECRUIT_GAPS: f64 = 4.0;
const RECRUIT_SLACK: f64 = 2.0;
/// The share of surviving birth steps that must lie in the later half of the run: growth that stopped is none.
const LATER_SHARE: f64 = 0.25;
/// Sites whose surviving birth steps overlap this much (Jaccard) live and die together: one cause.
const SAME_STEPS: f64 = 0.9;

/// Causes told of at most, the largest: each further site is compared with all of them.
const MAX_CAUSES: usize = 200;

/// A run shorter than this cannot show a leak: burn-in, `MIN_COHORTS` births, `MIN_AGE` steps of waiting.
pub const MIN_STEPS: u32 = BURN_IN_STEPS + MIN_COHORTS as u32 + MIN_AGE + 1;

/// What kind of cause it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Grows with the steps, and nothing lets go of it.
    Leak,
    /// Grows with the steps where no allocation was seen: no blocks whose identity could say more.
    Growing,
}

/// How sure that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// The site frees other blocks, and these outlived them all.
    Confirmed,
    /// The site never freed anything: a bound that the run has not reached would look the same.
    Likely,
}

/// One site's part in a finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub site: u32,
    pub bytes_per_step: f64,
    pub live_bytes: u64,
    pub live_blocks: u64,
}

/// One cause.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub kind: Kind,
    pub confidence: Confidence,
    pub device: u8,
    pub layer: Layer,
    /// Largest first; none of what grows unseen.
    pub parts: Vec<Part>,
    /// What a step that adds anything adds (median).
    pub bytes_per_step: f64,
    pub blocks_per_step: f64,
    /// The share of steps that add.
    pub adding_share: f64,
    /// The mean slope of what is never freed.
    pub growth_bytes_per_step: f64,
    pub live_bytes: u64,
    pub live_blocks: u64,
    /// Distinct birth steps alive, and the first of them.
    pub cohorts: u32,
    pub oldest_step: u32,
    /// Steps in which a survivor could have been born, since the first: `cohorts` of so many are still held.
    pub span: u32,
    /// Blocks its sites did free, and the longest life among them in steps.
    pub freed: u64,
    pub longest_life: u32,
}

/// What the rules say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    pub findings: Vec<Finding>,
    /// What looks like a leak and is none.
    pub benign: Vec<Finding>,
}

/// A site as the rules see it.
struct Suspect<'a> {
    number: u32,
    site: &'a Site,
    cohorts: Vec<Cohort>,
}

/// What all rules look at.
struct View<'a> {
    steps: u32,
    suspects: Vec<Suspect<'a>>,
}

/// Judges everything alive at the last boundary.
pub fn judge(ledger: &Ledger) -> Verdict {
    let steps = ledger.step_count();
    if steps < MIN_STEPS {
        return Verdict::default();
    }
    let suspects = ledger.cohorts().into_iter();
    let suspects = suspects
        .filter_map(|(number, cohorts)| Some(Suspect { number, site: ledger.site(number)?, cohorts }));
    let view = View { steps, suspects: suspects.collect() };
    let mut findings = leaks(&view);
    findings.extend(super::unattributed::growing(ledger));
    findings.sort_by(|a, b| b.growth_bytes_per_step.total_cmp(&a.growth_bytes_per_step));
    Verdict { findings, benign: Vec::new() }
}

/// The over-age survivors of one site.
struct Survivors<'a, 'b> {
    suspect: &'b Suspect<'a>,
    /// Those that prove it: older than `age` and born after the burn-in.
    proof: Vec<Cohort>,
    /// All that belong to the cause.
    held: Vec<Cohort>,
    age: u32,
}

/// Rule A: survivors older than anything the site usually frees, of many birth steps, and more of them all the time.
fn leaks(view: &View<'_>) -> Vec<Finding> {
    let mut found: Vec<Survivors<'_, '_>> =
        view.suspects.iter().filter_map(|s| over_age(view.steps, s)).collect();
    found.sort_by_key(|s| (Reverse(bytes(&s.proof)), s.suspect.number));
    let mut groups: Vec<Vec<Survivors<'_, '_>>> = Vec::new();
    for survivors in found {
        let room = groups.len() < MAX_CAUSES;
        match groups.iter_mut().find(|g| g.first().is_some_and(|leader| together(leader, &survivors))) {
            Some(group) => group.push(survivors),
            None if room => groups.push(vec![survivors]),
            None => {}
        }
    }
    groups.iter().filter_map(|g| finding(view.steps, g)).collect()
}

fn over_age<'a, 'b>(steps: u32, suspect: &'b Suspect<'a>) -> Option<Survivors<'a, 'b>> {
    if suspect.cohorts.len() < MIN_COHORTS {
        return None;
    }
    let age = MIN_AGE.max(suspect.site.usual_life().saturating_mul(AGE_FACTOR));
    let burn_in = BURN_IN_STEPS.max((BURN_IN_SHARE * f64::from(steps)) as u32);
    let old = |c: &&Cohort| steps.saturating_sub(c.birth) > age;
    let proof: Vec<Cohort> =
        suspect.cohorts.iter().filter(old).filter(|c| c.birth > burn_in).copied().collect();
    let (first, last) = (proof.first()?.birth, proof.last()?.birth);
    if proof.len() < MIN_COHORTS {
        return None;
    }
    let gap = f64::from(last - first) / (proof.len() - 1) as f64;
    let newest = f64::from(steps - last);
    let recruiting = newest <= f64::from(age) + RECRUIT_GAPS * gap + RECRUIT_SLACK;
    let later = proof.iter().filter(|c| c.birth > steps / 2).count();
    if !recruiting || (later as f64) < LATER_SHARE * proof.len() as f64 {
        return None;
    }
    // The cause also holds what came in the burn-in and in the newest steps, but not where that is larger than all it
    // took in between: then there is warm-up in it, or something that may yet be freed.
    let largest = proof.iter().map(|c| c.bytes).max().unwrap_or(0);
    let proven = |c: &&Cohort| c.birth > burn_in && (old(c) || suspect.site.frees == 0);
    let belongs = |c: &&Cohort| proven(c) || c.bytes <= largest;
    let held = suspect.cohorts.iter().filter(belongs).copied().collect();
    Some(Survivors { suspect, proof, held, age })
}

fn together(a: &Survivors<'_, '_>, b: &Survivors<'_, '_>) -> bool {
    let (x, y) = (a.suspect.site, b.suspect.site);
    if x.device != y.device || x.layer != y.layer {
        return false;
    }
    // Compared where both could have survivors: the one that waits longer has no young ones yet.
    let latest = a.proof.last().map_or(0, |c| c.birth).min(b.proof.last().map_or(0, |c| c.birth));
    let births = |s: &Survivors<'_, '_>| s.proof.iter().filter(|c| c.birth <= latest).count();
    let of_b: Vec<u32> = b.proof.iter().map(|c| c.birth).filter(|&birth| birth <= latest).collect();
    let both = a.proof.iter().filter(|c| of_b.binary_search(&c.birth).is_ok()).count();
    let either = births(a) + of_b.len() - both;
    either > 0 && both as f64 >= SAME_STEPS * either as f64
}

fn bytes(cohorts: &[Cohort]) -> u64 {
    cohorts.iter().fold(0, |sum, c| sum.wrapping_add(c.bytes))
}

fn blocks(cohorts: &[Cohort]) -> u64 {
    cohorts.iter().fold(0, |sum, c| sum.wrapping_add(c.blocks))
}

pub(super) fn median(values: impl Iterator<Item = u64>) -> f64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2] as f64,
        n => (values[n / 2 - 1] as f64 + values[n / 2] as f64) / 2.0,
    }
}

/// Adds up the cohorts of several sites by birth step.
fn by_birth<'a>(cohorts: impl Iterator<Item = &'a Cohort>) -> Vec<Cohort> {
    let mut sums: BTreeMap<u32, Cohort> = BTreeMap::new();
    for c in cohorts {
        let sum = sums.entry(c.birth).or_insert(Cohort { birth: c.birth, blocks: 0, bytes: 0 });
        sum.blocks = sum.blocks.wrapping_add(c.blocks);
        sum.bytes = sum.bytes.wrapping_add(c.bytes);
    }
    sums.into_values().collect()
}

fn finding(steps: u32, group: &[Survivors<'_, '_>]) -> Option<Finding> {
    let site = group.first()?.suspect.site;
    let age = group.iter().map(|s| s.age).max()?;
    // Figures come from the births at which every site of the group could have survivors.
    let latest = steps.saturating_sub(age.saturating_add(1));
    let proof = by_birth(group.iter().flat_map(|s| &s.proof).filter(|c| c.birth <= latest));
    let held = by_birth(group.iter().flat_map(|s| &s.held));
    let first = proof.first()?.birth;
    let span = latest.saturating_sub(first).saturating_add(1);
    let frees = |s: &Survivors<'_, '_>| s.suspect.site.frees;
    let freed = group.iter().map(frees).fold(0, u64::wrapping_add);
    let mut parts: Vec<Part> = group
        .iter()
        .map(|s| Part {
            site: s.suspect.number,
            bytes_per_step: median(s.proof.iter().map(|c| c.bytes)),
            live_bytes: bytes(&s.held),
            live_blocks: blocks(&s.held),
        })
        .collect();
    parts.sort_by(|a, b| b.bytes_per_step.total_cmp(&a.bytes_per_step).then(a.site.cmp(&b.site)));
    let oldest_step = held.first()?.birth;
    // The span that `held` can fill: up to the newest birth that counts.
    let newest = held.last()?.birth.max(latest);
    Some(Finding {
        kind: Kind::Leak,
        confidence: if freed > 0 { Confidence::Confirmed } else { Confidence::Likely },
        device: site.device,
        layer: site.layer,
        parts,
        bytes_per_step: median(proof.iter().map(|c| c.bytes)),
        blocks_per_step: median(proof.iter().map(|c| c.blocks)),
        adding_share: (proof.len() as f64 / f64::from(span)).min(1.0),
        growth_bytes_per_step: bytes(&proof) as f64 / f64::from(span),
        live_bytes: bytes(&held),
        live_blocks: blocks(&held),
        cohorts: held.len() as u32,
        oldest_step,
        span: newest.saturating_sub(oldest_step).saturating_add(1),
        freed,
        longest_life: group.iter().map(|s| s.suspect.site.longest_life()).max().unwrap_or(0),
    })
}
