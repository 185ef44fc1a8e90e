//! Is it a leak? Rules over one view of the books, one file each, resting on the identity of blocks: which step bore
//! them, what they outlived, what was let go together. Never on a rising curve.

mod benign;
mod carry;
mod clock;
mod fragments;
mod holders;
mod pending;
mod periodic;
mod renewal;
mod residue;
mod sources;
mod survivors;

use std::collections::{BTreeMap, BTreeSet};

pub use holders::SiteHolder;
use serde::Serialize;

use super::view::Cohort;
use super::{Layer, Ledger, Site};

/// Distinct birth steps that must have survived for anything to be said …
const MIN_COHORTS: usize = 5;
/// … and for it to be called a leak.
const SURE_COHORTS: usize = 8;
/// A survivor is older than this many steps, whatever the site frees …
const MIN_AGE: u32 = 3;
/// … and older than this many times the site's usual life.
const AGE_FACTOR: u32 = 2;
/// Births in the first steps are warm-up: this many steps, or this share of the run if that is longer.
const BURN_IN_STEPS: u32 = 5;
const BURN_IN_SHARE: f64 = 0.1;
/// Only in a run of so many steps can the last few be told from the rest.
const LATE_STEPS: u32 = 100;

/// A run shorter than this cannot show a leak: burn-in, `MIN_COHORTS` births, `MIN_AGE` steps of waiting.
pub const MIN_STEPS: u32 = BURN_IN_STEPS + MIN_COHORTS as u32 + MIN_AGE + 1;

/// What kind of cause it is; the order is that of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Grows with the steps, and nothing lets go of it.
    Leak,
    /// Grows, and the run cannot show whether there is a bound.
    Growing,
    /// Garbage that only the cyclic collector frees.
    PendingGc,
    /// Stayed when what it was allocated with was let go.
    Residue,
    /// A few blocks keep much memory that nobody uses from going back to the driver.
    Fragmentation,
    /// Of the step before, alive at the next one's peak.
    CarryOver,
    /// Gathers, and is let go down to the same floor.
    Periodic,
    /// Not findings: what looks like one and is none.
    WarmUp,
    Plateau,
    Cache,
    Spike,
    ReservedGrowth,
}

impl Kind {
    /// The name reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Leak => "leak",
            Kind::Growing => "growing",
            Kind::PendingGc => "pending-gc",
            Kind::Residue => "residue",
            Kind::Fragmentation => "fragmentation",
            Kind::CarryOver => "carry-over",
            Kind::Periodic => "periodic",
            Kind::WarmUp => "warm-up",
            Kind::Plateau => "plateau",
            Kind::Cache => "cache",
            Kind::Spike => "spike",
            Kind::ReservedGrowth => "reserved-growth",
        }
    }
}

/// How sure that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// The site frees other blocks, and these outlived them all; or the figures leave no other reading.
    Confirmed,
    /// The site never freed anything: a bound that the run has not reached would look the same.
    Likely,
}

/// One site's part in a finding.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteShare {
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
    pub sites: Vec<SiteShare>,
    /// What a step that adds anything adds (median); of carry-over, what one step carries.
    pub bytes_per_step: f64,
    /// In what bounds `bytes_per_step` lies, see [`interval`]; `None` where there are no values of single steps.
    pub bytes_interval: Option<[f64; 2]>,
    pub blocks_per_step: f64,
    /// The share of steps that add (or carry).
    pub growth_step_ratio: f64,
    /// Length of a sawtooth, or the steps from one stair to the next, where they are regular.
    pub period_steps: Option<f64>,
    /// The mean slope of what is never freed.
    pub growth_bytes_per_step: f64,
    pub live_bytes: u64,
    pub live_blocks: u64,
    /// Distinct birth steps alive, and the first of them.
    pub cohorts: u32,
    pub oldest_step: u32,
    /// The first step it was seen in: of what grows the birth of the oldest survivor, else the first that did it.
    pub first_step: u32,
    /// Steps in which a survivor could have been born, since the first: `cohorts` of so many are still held.
    pub span: u32,
    /// Blocks its sites did free, and the longest life among them in steps.
    pub freed: u64,
    pub longest_life: u32,
    /// Carry-over: how much lower the run's peak would be without it.
    pub peak_reduction_bytes: u64,
    /// The step that shows it: of the unload, of the latest release, of the latest sudden freeing at the end.
    pub evidence_step: u32,
    /// What the caching allocator took from the driver while this grew; `None` where that says nothing.
    pub reserved_growth_bytes: Option<i64>,
    /// Grows by being renewed: no block is old.
    pub renewed: bool,
    /// What it can grow to, where its holder lets go of the rest by itself.
    pub bound_bytes: Option<u64>,
}

impl Finding {
    pub(super) fn new(kind: Kind, confidence: Confidence, device: u8, layer: Layer) -> Finding {
        Finding {
            kind,
            confidence,
            device,
            layer,
            sites: Vec::new(),
            bytes_per_step: 0.0,
            bytes_interval: None,
            blocks_per_step: 0.0,
            growth_step_ratio: 0.0,
            period_steps: None,
            growth_bytes_per_step: 0.0,
            live_bytes: 0,
            live_blocks: 0,
            cohorts: 0,
            oldest_step: 0,
            first_step: 0,
            span: 0,
            freed: 0,
            longest_life: 0,
            peak_reduction_bytes: 0,
            evidence_step: 0,
            reserved_growth_bytes: None,
            renewed: false,
            bound_bytes: None,
        }
    }

    /// Largest first, and their sums.
    fn add_up(&mut self) {
        self.sites.sort_by(|a, b| {
            let by_step = b.bytes_per_step.total_cmp(&a.bytes_per_step);
            by_step.then(b.live_bytes.cmp(&a.live_bytes)).then(a.site.cmp(&b.site))
        });
        self.live_bytes = self.sites.iter().fold(0, |sum, p| sum.wrapping_add(p.live_bytes));
        self.live_blocks = self.sites.iter().fold(0, |sum, p| sum.wrapping_add(p.live_blocks));
    }
}

/// What the rules say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    pub findings: Vec<Finding>,
    /// What looks like a leak and is none.
    pub non_leaks: Vec<Finding>,
}

/// A site as the rules see it.
struct Suspect<'a> {
    number: u32,
    site: &'a Site,
    /// By birth step: what is alive, and what was freed only at the very end.
    cohorts: Vec<Cohort>,
    /// The latest step in which some of the cohorts were freed; 0: all are alive.
    late: u32,
}

/// What all rules look at.
struct View<'a> {
    ledger: &'a Ledger,
    steps: u32,
    /// What is born up to this step is warm-up.
    burn_in: u32,
    suspects: Vec<Suspect<'a>>,
    context: Context<'a>,
}

/// What others know of stacks and sites.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Where in the program a stack allocates, as a number: equal ones are one line.
    pub location: &'a dyn Fn(u32) -> u64,
    /// Who held a site's blocks when somebody looked.
    pub holders: &'a dyn Fn(u32) -> Vec<SiteHolder>,
}

/// Judges everything alive at the last boundary; every stack is a place of its own, and who holds what is not known.
pub fn judge(ledger: &Ledger) -> Verdict {
    judge_by(ledger, Context { location: &|stack| u64::from(stack), holders: &|_| Vec::new() })
}

/// Judges everything alive at the last boundary.
pub fn judge_by(ledger: &Ledger, context: Context<'_>) -> Verdict {
    let steps = ledger.step_count();
    if steps < MIN_STEPS {
        return Verdict::default();
    }
    let burn_in = BURN_IN_STEPS.max((BURN_IN_SHARE * f64::from(steps)) as u32);
    let view = View { ledger, steps, burn_in, suspects: suspects(ledger, steps), context };
    let mut findings = pending::find(&view);
    let mut claimed = sites_of(&findings);
    let grown = survivors::find(&view, &claimed);
    findings.extend(grown.findings);
    for rule in [renewal::find, periodic::find, residue::find] {
        claimed = sites_of(&findings);
        findings.extend(rule(&view, &claimed));
    }
    claimed = sites_of(&findings);
    // A site may add to these and be part of another cause too: nothing is claimed.
    findings.extend(carry::find(&view));
    findings.extend(fragments::find(&view));
    findings.extend(super::unattributed::growing(ledger));
    sources::compare(&view, &mut findings);
    let bounded = holders::weigh(&view, &mut findings);
    let weight = |f: &Finding| match f.kind {
        Kind::Leak | Kind::Growing => f.growth_bytes_per_step,
        Kind::CarryOver => f.peak_reduction_bytes as f64,
        _ => f.live_bytes as f64,
    };
    findings.sort_by(|a, b| a.kind.cmp(&b.kind).then(weight(b).total_cmp(&weight(a))));
    let mut non_leaks = benign::find(&view, &claimed, grown.slowing);
    non_leaks.extend(bounded);
    Verdict { findings, non_leaks }
}

fn sites_of(findings: &[Finding]) -> BTreeSet<u32> {
    findings.iter().flat_map(|f| f.sites.iter().map(|p| p.site)).collect()
}

fn suspects(ledger: &Ledger, steps: u32) -> Vec<Suspect<'_>> {
    let mut all: BTreeMap<u32, (Vec<Cohort>, u32)> =
        ledger.cohorts().into_iter().map(|(site, cohorts)| (site, (cohorts, 0))).collect();
    if steps >= LATE_STEPS {
        for l in ledger.past.late(steps) {
            let (cohorts, late) = all.entry(l.site).or_default();
            cohorts.push(Cohort { birth: l.birth, blocks: l.blocks, bytes: l.bytes });
            *late = (*late).max(l.step);
        }
    }
    let suspect = |(number, (cohorts, late)): (u32, (Vec<Cohort>, u32))| {
        let cohorts = if late > 0 { by_birth(cohorts.iter()) } else { cohorts };
        Some(Suspect { number, site: ledger.site(number)?, cohorts, late })
    };
    all.into_iter().filter_map(suspect).collect()
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

/// The values between which their median lies, with 95 % confidence: two of them, told by their ranks alone, whatever
/// the distribution (the sign test turned round). Of fewer than six it is all of their range, which covers less.
pub(super) fn interval(values: impl Iterator<Item = u64>) -> Option<[f64; 2]> {
    /// Of the normal distribution, two-sided 95 %.
    const Z: f64 = 1.96;
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    let n = values.len() as f64;
    let rank = (0.5 * (n - Z * n.sqrt())).max(1.0) as usize;
    let (low, high) = (values.get(rank - 1)?, values.get(values.len() - rank)?);
    Some([*low as f64, *high as f64])
}

/// The bounds of a sum of what goes together.
fn wider(a: Option<[f64; 2]>, b: Option<[f64; 2]>) -> Option<[f64; 2]> {
    let (Some(a), Some(b)) = (a, b) else { return a.or(b) };
    Some([a[0] + b[0], a[1] + b[1]])
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

/// How many of the numbers two sorted lists hold together they share (Jaccard).
fn overlap(a: &[u32], b: &[u32]) -> f64 {
    let both = a.iter().filter(|x| b.binary_search(x).is_ok()).count();
    let either = a.len() + b.len() - both;
    if either == 0 { 0.0 } else { both as f64 / either as f64 }
}

/// Causes told of at most, the first in the order they are given: each further site is compared with all of them.
const MAX_CAUSES: usize = 200;

/// Puts together what belongs together, in the order given: each joins the first group whose leader it fits.
fn grouped<T>(all: Vec<T>, fits: impl Fn(&T, &T) -> bool) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    for one in all {
        let room = groups.len() < MAX_CAUSES;
        match groups.iter_mut().find(|g| g.first().is_some_and(|leader| fits(leader, &one))) {
            Some(group) => group.push(one),
            None if room => groups.push(vec![one]),
            None => {}
        }
    }
    groups
}

/// Distances from each to the next.
fn gaps(sorted: &[u32]) -> Vec<u64> {
    sorted.windows(2).map(|w| u64::from(w[1].saturating_sub(w[0]))).collect()
}

/// All distances (nearly) the same.
fn regular(gaps: &[u64]) -> bool {
    let middle = median(gaps.iter().copied());
    let near = |&&gap: &&u64| (gap as f64 - middle).abs() <= (0.1 * middle).max(1.0);
    !gaps.is_empty() && gaps.iter().filter(near).count() as f64 >= 0.9 * gaps.len() as f64
}
