//! What all rules look at: the sites at the judged moment, what others know of them, and the thresholds that
//! several rules share.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use super::finding::SiteShare;
use crate::format::entry::Retention;
use crate::ledger::cohort::{Cohort, blocks, by_birth, bytes};
use crate::ledger::releases::{Late, is_late};
use crate::ledger::replay::Ledger;
use crate::ledger::sites::{Layer, Site};

/// Distinct birth steps that must have survived for anything to be said …
pub const MIN_COHORTS: usize = 5;
/// … and for it to be called a leak.
pub const CERTAIN_COHORTS: usize = 8;
/// A survivor is older than this many steps, whatever the site frees …
pub const MIN_AGE: u32 = 3;
/// … and older than this many times the site's usual life.
pub const AGE_FACTOR: u32 = 2;
/// Births in the first steps are warm-up: in this many steps, or in this share of the run if that is longer.
pub const BURN_IN_STEPS: u32 = 5;
const BURN_IN_SHARE: f64 = 0.1;
/// A usual life is as long as another one from this share of that on: in a queue that backs up, each is a little longer than
/// the last.
const AS_LONG: f64 = 0.9;
/// Only in a run of so many steps can the last few be told from the rest.
const LATE_STEPS: u32 = 100;

/// Returns from which age on a block is older than those that its site frees usually are.
pub fn old_age(usual_life: u32) -> u32 {
    MIN_AGE.max(usual_life.saturating_mul(AGE_FACTOR))
}

/// Returns whether a block of this age has lived longer than those that its site frees usually do.
pub fn outlives(age: u32, usual_life: u32) -> bool {
    AS_LONG * f64::from(age) > f64::from(usual_life)
}

/// A run shorter than this cannot show a leak: burn-in, `MIN_COHORTS` births, `MIN_AGE` steps of waiting.
pub const MIN_STEPS: u32 = BURN_IN_STEPS + MIN_COHORTS as u32 + MIN_AGE + 1;

/// Blocks of a site that one holder had at the latest heap scan.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteHolder {
    /// Equal for one holder.
    pub holder: u64,
    /// Equal for the attributes of one object, and for the entries of one collection.
    pub object: u64,
    pub retention: Retention,
    /// Whether it is a variable of the framework's, whose value before is needed to compute the next one.
    pub is_state: bool,
    /// Whether it is a variable of the function that allocates, or of one that it called: it goes when that returns.
    pub is_of_call: bool,
    pub blocks: u64,
    pub bytes: u64,
}

/// What is known of stacks and sites outside the ledger.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Where in the program a stack allocates, as a number: equal ones are one line.
    pub location: &'a dyn Fn(u32) -> u64,
    /// By which way from that line inwards, as a number: stacks with equal ones differ in who called the line.
    pub way: &'a dyn Fn(u32) -> u64,
    /// Which lines of the program a stack goes through, as a number: equal ones differ in places within a line.
    pub lines: &'a dyn Fn(u32) -> u64,
    /// The holders of a site's blocks.
    pub holders: &'a dyn Fn(u32) -> Vec<SiteHolder>,
    /// Whether a stack is in a step of an optimizer of a framework's.
    pub is_optimizer: &'a dyn Fn(u32) -> bool,
}

/// One site as the rules see it.
pub struct SiteView<'a> {
    pub number: u32,
    pub site: &'a Site,
    /// What is alive, and what was freed only at the very end, by birth step.
    pub cohorts: Vec<Cohort>,
    /// The cohorts that are alive, where some were freed: see `late`.
    still_alive: Option<Vec<Cohort>>,
    /// The latest step in which some of the cohorts were freed; 0: all are alive.
    pub late: u32,
    /// The blocks that it freed; none where it freed for the first time at the very end.
    pub freed: u64,
}

impl SiteView<'_> {
    /// Returns what is alive, by birth step.
    pub fn alive(&self) -> &[Cohort] {
        self.still_alive.as_deref().unwrap_or(&self.cohorts)
    }

    /// Returns its share of a finding: all that it holds, and what of it a step adds.
    pub fn share(&self, bytes_per_step: f64) -> SiteShare {
        let (live_bytes, live_blocks) = (bytes(&self.cohorts), blocks(&self.cohorts));
        SiteShare { site: self.number, device: self.site.device, bytes_per_step, live_bytes, live_blocks }
    }
}

/// The whole run as the rules see it.
pub struct View<'a> {
    pub ledger: &'a Ledger,
    pub steps: u32,
    /// What is born up to this step is warm-up.
    pub burn_in: u32,
    /// The sites that have cohorts, by number.
    pub sites: Vec<SiteView<'a>>,
    pub context: Context<'a>,
    /// The latest birth among what is alive of a line and old, whoever calls it: by its way inwards. That takes the frames of
    /// every stack, so it waits until somebody asks.
    survivors: OnceCell<BTreeMap<(u64, u8, Layer, u16), u32>>,
    /// The longest of the usual lives, where they are long, of what a line frees, whoever calls it: by its way inwards.
    lives: BTreeMap<(u64, u8, Layer, u16), u32>,
}

impl<'a> View<'a> {
    pub fn new(ledger: &'a Ledger, context: Context<'a>) -> View<'a> {
        let steps = ledger.step_count();
        let burn_in = BURN_IN_STEPS.max((BURN_IN_SHARE * f64::from(steps)) as u32);
        let mut lives = BTreeMap::new();
        for (_, site) in ledger.sites().filter(|(_, site)| site.usual_life() >= MIN_AGE) {
            let life: &mut u32 = lives.entry(key(context, site)).or_default();
            *life = (*life).max(site.usual_life());
        }
        let survivors = OnceCell::new();
        View { ledger, steps, burn_in, sites: sites(ledger, steps), context, survivors, lives }
    }

    /// Returns how long what a site frees lives usually, or what the same line frees when another one calls it: what a call
    /// gathers goes when it returns, and may be there yet in the last one.
    pub fn usual_life(&self, s: &SiteView<'_>) -> u32 {
        let own = s.site.usual_life();
        match self.lives.get(&key(self.context, s.site)) {
            Some(&of_line) if of_line > own && !self.is_gathered_outside(s.number) => of_line,
            _ => own,
        }
    }

    /// Returns whether all that is known to hold a site's blocks can take in more for ever, and stays when the call returns.
    fn is_gathered_outside(&self, site: u32) -> bool {
        let held = (self.context.holders)(site);
        let mut known = held.iter().filter(|h| h.retention != Retention::Unknown).peekable();
        known.peek().is_some() && known.all(|h| h.retention.is_unbounded() && !h.is_of_call)
    }

    /// Returns whether the run is a training: an optimizer stepped in most of its steps.
    pub fn is_training(&self) -> bool {
        2 * u64::from(self.ledger.optimizer_steps()) >= u64::from(self.steps)
    }

    /// Returns whether memory ran out in the last step, or behind it.
    pub fn ran_out(&self) -> bool {
        self.ledger.out_of_memory().last().is_some_and(|oom| oom.step >= self.steps)
    }

    /// Returns when the latest was born of what is alive of the line that a site is of, whoever calls it, and is older than
    /// what it frees usually is.
    pub fn last_survivor(&self, site: &Site) -> u32 {
        let all = self.survivors.get_or_init(|| {
            let mut all = BTreeMap::new();
            for s in &self.sites {
                let age = old_age(self.usual_life(s));
                let is_old = |birth: &u32| self.steps.saturating_sub(*birth) > age;
                // What the last step has in hand is no survivor.
                let last = s.cohorts.iter().rev().map(|c| c.birth).find(is_old).unwrap_or(0);
                let newest: &mut u32 = all.entry(key(self.context, s.site)).or_default();
                *newest = (*newest).max(last);
            }
            all
        });
        all.get(&key(self.context, site)).copied().unwrap_or(0)
    }

    /// Returns a site by its number, if it has cohorts.
    pub fn site(&self, number: u32) -> Option<&SiteView<'a>> {
        let at = self.sites.binary_search_by_key(&number, |s| s.number).ok()?;
        self.sites.get(at)
    }
}

/// One call may give several blocks, of which one is renewed and another kept: these have entry points of their own.
fn key(context: Context<'_>, site: &Site) -> (u64, u8, Layer, u16) {
    ((context.way)(site.stack), site.device, site.layer, site.entry_point)
}

/// What was freed in the last steps of a long run, having lived longer than its site's blocks usually do, counts as alive:
/// whoever frees its leaks at exit leaks all the same.
fn sites(ledger: &Ledger, steps: u32) -> Vec<SiteView<'_>> {
    /// What is alive of a site, what of it was freed late, and the latest step in which that was so.
    type Of = (Vec<Cohort>, Vec<Cohort>, u32);
    let mut all: BTreeMap<u32, Of> =
        ledger.cohorts().into_iter().map(|(site, cohorts)| (site, (cohorts, Vec::new(), 0))).collect();
    if steps >= LATE_STEPS {
        let is_usual = |l: &&Late| {
            ledger
                .site(l.site)
                .is_some_and(|site| !outlives(l.step.saturating_sub(l.birth), site.usual_life()))
        };
        for l in ledger.releases.late(steps).filter(|l| !is_usual(l)) {
            let (_, freed, late) = all.entry(l.site).or_default();
            freed.push(Cohort { birth: l.birth, blocks: l.blocks, bytes: l.bytes });
            *late = (*late).max(l.step);
        }
    }
    let view = |(number, (alive, freed_late, late)): (u32, Of)| {
        let (cohorts, still_alive) = match late {
            0 => (alive, None),
            _ => (by_birth(alive.iter().chain(&freed_late)), Some(alive)),
        };
        let site = ledger.site(number)?;
        let at_end = site.first_freed >= steps || late > 0 && is_late(site.first_freed, steps);
        let freed = if at_end { 0 } else { site.frees };
        Some(SiteView { number, site, cohorts, still_alive, late, freed })
    };
    all.into_iter().filter_map(view).collect()
}
