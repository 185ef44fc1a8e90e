//! What a step released of all that earlier steps had retained: in which steps blocks of several birth steps
//! died together, who freed them, and what stayed. And what the last steps of the run released.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::cohort::{self, Cohort};
use super::sites::Release;
use super::totals::Books;

/// Birth steps that die in one step for it to be a release and not a block here and there.
const MIN_COHORTS: u32 = 3;
/// Releases kept per site: the latest.
const MAX_RELEASES: usize = 16;
/// What is freed in the last so many percent of the run was held until the end …
const LATE_PERCENT: u64 = 2;
/// … if it had lived so many steps at least.
const LATE_AGE: u32 = 5;
const MAX_LATE: usize = 16_384;
/// Steps kept in which segments were returned: the first ones and the latest ones.
const MAX_TRIMS: usize = 64;

/// Blocks freed late in the run, having lived long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Late {
    pub step: u32,
    pub site: u32,
    pub birth: u32,
    pub blocks: u64,
    pub bytes: u64,
}

/// The releases of all sites, as far as the sites themselves do not keep them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Releases {
    late: VecDeque<Late>,
    trims: Vec<u32>,
}

impl Releases {
    /// Returns what was freed in the last steps of the run, having lived long.
    pub fn late(&self, steps: u32) -> impl Iterator<Item = &Late> {
        self.late.iter().filter(move |l| is_late(l.step, steps))
    }

    /// Returns the steps in which cached memory went back to the driver.
    pub fn trims(&self) -> &[u32] {
        &self.trims
    }

    /// Books what was freed since the last boundary, now that the program has gone on; `trimmed` if cached
    /// memory went back to the driver.
    pub fn settle(&mut self, books: &mut Books, trimmed: bool) {
        let step = books.completed;
        // Born before this step: outlived two boundaries.
        let lasting = step.saturating_sub(1);
        if trimmed && self.trims.last() != Some(&step) {
            if self.trims.len() >= MAX_TRIMS {
                self.trims.remove(MAX_TRIMS / 2);
            }
            self.trims.push(step);
        }
        while let Some(l) = self.no_longer_late(step) {
            if let Some(s) = books.sites.get_mut(l.site) {
                s.lived(l.birth, l.step.saturating_sub(l.birth));
            }
        }
        let mut departed = std::mem::take(&mut books.releases_since_boundary);
        departed.sort_unstable_by_key(|d| (d.site, d.birth, d.bytes, d.collected));
        let mut cohorts: Vec<Cohort> = Vec::new();
        for of_site in departed.chunk_by(|a, b| a.site == b.site) {
            let Some(site) = of_site.first().map(|d| d.site) else { continue };
            let collected =
                |before: u32| of_site.iter().filter(|d| d.collected && d.birth < before).count() as u64;
            cohorts.clear();
            for of_birth in of_site.chunk_by(|a, b| a.birth == b.birth) {
                let Some(birth) = of_birth.first().map(|d| d.birth) else { continue };
                let bytes = of_birth.iter().fold(0, |sum: u64, d| sum.wrapping_add(d.bytes));
                let cohort = Cohort { birth, blocks: of_birth.len() as u64, bytes };
                let late = self.keep_late(step, site, &cohort);
                if let Some(s) = books.sites.get_mut(site) {
                    s.freed(step, cohort.blocks);
                    if !late {
                        s.lived(birth, step.saturating_sub(birth));
                    }
                }
                if birth < step {
                    cohorts.push(cohort);
                }
            }
            let (Some(first), Some(last)) = (cohorts.first(), cohorts.last()) else { continue };
            let Some(s) = books.sites.get_mut(site) else { continue };
            let blocks = cohort::blocks(&cohorts);
            s.released(blocks, step);
            let old = cohorts.partition_point(|c| c.birth < lasting);
            s.outlasted(cohort::blocks(cohorts.get(..old).unwrap_or_default()), collected(lasting));
            if cohorts.len() as u32 >= MIN_COHORTS {
                if s.releases.len() >= MAX_RELEASES {
                    s.releases.remove(0);
                }
                s.releases.push(Release {
                    step,
                    cohorts: cohorts.len() as u32,
                    cohort_bytes: middle(&cohorts, |c| c.bytes),
                    cohort_blocks: middle(&cohorts, |c| c.blocks),
                    blocks,
                    bytes: cohort::bytes(&cohorts),
                    collected: collected(step),
                    oldest: first.birth,
                    newest: last.birth,
                    left_blocks: s.live_blocks,
                    left_bytes: s.live_bytes,
                });
                s.release_count = s.release_count.saturating_add(1);
            }
        }
        departed.clear();
        books.releases_since_boundary = departed;
    }

    /// Takes out what was freed so long ago that it was not held until the end.
    fn no_longer_late(&mut self, step: u32) -> Option<Late> {
        let early = self.late.front().is_some_and(|l| !is_late(l.step, step));
        early.then(|| self.late.pop_front()).flatten()
    }

    /// Keeps a freed cohort that may turn out to have been held until the end; its age then counts only when
    /// it has not.
    fn keep_late(&mut self, step: u32, site: u32, c: &Cohort) -> bool {
        let age = step.saturating_sub(c.birth);
        let long = u64::from(age) * 100 >= u64::from(step) * LATE_PERCENT && age >= LATE_AGE;
        let late = long && self.late.len() < MAX_LATE;
        if late {
            let &Cohort { birth, blocks, bytes } = c;
            self.late.push_back(Late { step, site, birth, blocks, bytes });
        }
        late
    }
}

/// Returns whether a step is one of the last of so many.
pub fn is_late(step: u32, steps: u32) -> bool {
    u64::from(step) * 100 > u64::from(steps) * (100 - LATE_PERCENT)
}

fn middle(cohorts: &[Cohort], of: fn(&Cohort) -> u64) -> u64 {
    let mut all: Vec<u64> = cohorts.iter().map(of).collect();
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(0)
}
