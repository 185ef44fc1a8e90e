//! Cohorts: the blocks of a site that were born in one step.

use std::collections::BTreeMap;

/// What is alive of the blocks and driver allocations that a site made in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cohort {
    pub birth: u32,
    pub blocks: u64,
    pub bytes: u64,
}

/// Returns the bytes of several cohorts.
pub fn bytes(cohorts: &[Cohort]) -> u64 {
    cohorts.iter().fold(0, |sum, c| sum.wrapping_add(c.bytes))
}

/// Returns the number of blocks in several cohorts.
pub fn blocks(cohorts: &[Cohort]) -> u64 {
    cohorts.iter().fold(0, |sum, c| sum.wrapping_add(c.blocks))
}

/// Merges the cohorts of several sites by birth step, in ascending order.
pub fn by_birth<'a>(cohorts: impl Iterator<Item = &'a Cohort>) -> Vec<Cohort> {
    let mut sums: BTreeMap<u32, Cohort> = BTreeMap::new();
    for c in cohorts {
        let sum = sums.entry(c.birth).or_insert(Cohort { birth: c.birth, blocks: 0, bytes: 0 });
        sum.blocks = sum.blocks.wrapping_add(c.blocks);
        sum.bytes = sum.bytes.wrapping_add(c.bytes);
    }
    sums.into_values().collect()
}
