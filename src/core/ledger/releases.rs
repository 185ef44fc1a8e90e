//! What a step let go of all that earlier steps had left: in which steps blocks of several birth steps died together, by
//! whose hand, and what stayed. And what the last few steps let go late in the run.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::Ledger;
use super::view::Cohort;

/// Birth steps that die in one step for it to be a release and not a block here and there.
const MIN_COHORTS: u32 = 3;
/// Releases kept per site: the latest.
const MAX_RELEASES: usize = 16;
/// What is freed in the last so many of a hundred steps was held until the end.
pub(super) const LATE_PERCENT: u64 = 2;
/// … if it had lived so many steps at least.
const LATE_AGE: u32 = 5;
const MAX_LATE: usize = 16_384;
/// Steps kept in which segments were given back: the first ones and the latest ones.
const MAX_TRIMS: usize = 64;

/// Blocks of several birth steps that were freed in one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Release {
    pub step: u32,
    /// Birth steps among them, and what one of those held (median).
    pub cohorts: u32,
    pub cohort_bytes: u64,
    pub cohort_blocks: u64,
    /// All of it.
    pub blocks: u64,
    pub bytes: u64,
    /// Freed by the garbage collector.
    pub collected: u64,
    pub oldest: u32,
    pub newest: u32,
    /// What the site still held when the step ended.
    pub left_blocks: u64,
    pub left_bytes: u64,
}

/// A block that was alive at the boundary before and has been freed since.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Departed {
    pub site: u32,
    pub birth: u32,
    pub bytes: u64,
    /// By the garbage collector.
    pub collected: bool,
    /// Where it lay; 0: not a block.
    pub address: u64,
}

/// What was freed late in the run, having lived long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Late {
    pub step: u32,
    pub site: u32,
    pub birth: u32,
    pub blocks: u64,
    pub bytes: u64,
}

/// The memory that the rules need of the past beside the sites' own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Past {
    late: VecDeque<Late>,
    /// Steps in which segments went back to the driver.
    trims: Vec<u32>,
    pub(super) trimmed: bool,
}

impl Past {
    /// What was freed in the last steps of the run, having lived long.
    pub(super) fn late(&self, steps: u32) -> impl Iterator<Item = &Late> {
        self.late.iter().filter(move |l| is_late(l.step, steps))
    }

    pub(super) fn trims(&self) -> &[u32] {
        &self.trims
    }

    /// What was freed long enough ago that it was not held until the end.
    fn early(&mut self, step: u32) -> Option<Late> {
        let early = self.late.front().is_some_and(|l| !is_late(l.step, step));
        early.then(|| self.late.pop_front()).flatten()
    }

    fn end_step(&mut self, step: u32) {
        if std::mem::take(&mut self.trimmed) && self.trims.last() != Some(&step) {
            if self.trims.len() >= MAX_TRIMS {
                self.trims.remove(MAX_TRIMS / 2);
            }
            self.trims.push(step);
        }
    }
}

fn is_late(step: u32, steps: u32) -> bool {
    u64::from(step) * 100 > u64::from(steps) * (100 - LATE_PERCENT)
}

impl Ledger {
    /// Books what was freed since the last boundary, now that the program has gone on.
    pub(super) fn settle_departed(&mut self) {
        let step = self.completed;
        self.past.end_step(step);
        self.departed_segments.clear();
        while let Some(l) = self.past.early(step) {
            if let Some(s) = self.sites.get_mut(l.site) {
                s.lived(l.birth, l.step.saturating_sub(l.birth));
            }
        }
        let mut gone = std::mem::take(&mut self.departed);
        gone.sort_unstable_by_key(|d| (d.site, d.birth, d.bytes, d.collected));
        let mut cohorts: Vec<Cohort> = Vec::new();
        for of_site in gone.chunk_by(|a, b| a.site == b.site) {
            let Some(site) = of_site.first().map(|d| d.site) else { continue };
            let collected = of_site.iter().filter(|d| d.collected && d.birth < step).count() as u64;
            cohorts.clear();
            for of_birth in of_site.chunk_by(|a, b| a.birth == b.birth) {
                let Some(birth) = of_birth.first().map(|d| d.birth) else { continue };
                let bytes = of_birth.iter().fold(0, |sum: u64, d| sum.wrapping_add(d.bytes));
                let cohort = Cohort { birth, blocks: of_birth.len() as u64, bytes };
                let late = self.note_late(site, &cohort);
                if let Some(s) = self.sites.get_mut(site) {
                    s.freed(step, cohort.blocks);
                    if !late {
                        s.lived(birth, step.saturating_sub(birth));
                    }
                }
                if birth < step {
                    cohorts.push(cohort);
                }
            }
            if let Some(s) = self.sites.get_mut(site).filter(|_| !cohorts.is_empty()) {
                let blocks = cohorts.iter().fold(0, |sum: u64, c| sum.wrapping_add(c.blocks));
                s.released(blocks, collected, step);
                if let Some(mut release) = release(step, &cohorts).filter(|r| r.cohorts >= MIN_COHORTS) {
                    release.collected = collected;
                    (release.left_blocks, release.left_bytes) = (s.live_blocks, s.live_bytes);
                    if s.releases.len() >= MAX_RELEASES {
                        s.releases.remove(0);
                    }
                    s.releases.push(release);
                    s.release_count = s.release_count.saturating_add(1);
                }
            }
        }
        gone.clear();
        self.departed = gone;
    }

    /// Whether it may turn out to have been held until the end; its age then counts only when it has not.
    fn note_late(&mut self, site: u32, c: &Cohort) -> bool {
        let step = self.completed;
        let age = step.saturating_sub(c.birth);
        let long = u64::from(age) * 100 >= u64::from(step) * LATE_PERCENT && age >= LATE_AGE;
        let late = long && self.past.late.len() < MAX_LATE;
        if late {
            let &Cohort { birth, blocks, bytes } = c;
            self.past.late.push_back(Late { step, site, birth, blocks, bytes });
        }
        late
    }
}

fn release(step: u32, cohorts: &[Cohort]) -> Option<Release> {
    let middle = |of: fn(&Cohort) -> u64| {
        let mut all: Vec<u64> = cohorts.iter().map(of).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or(0)
    };
    let sum = |of: fn(&Cohort) -> u64| cohorts.iter().map(of).fold(0, u64::wrapping_add);
    Some(Release {
        step,
        cohorts: cohorts.len() as u32,
        cohort_bytes: middle(|c| c.bytes),
        cohort_blocks: middle(|c| c.blocks),
        blocks: sum(|c| c.blocks),
        bytes: sum(|c| c.bytes),
        collected: 0,
        oldest: cohorts.first()?.birth,
        newest: cohorts.last()?.birth,
        left_blocks: 0,
        left_bytes: 0,
    })
}
