//! What each site retained: at a step, or at the judged moment.

use crate::int_map::IntMap;
use crate::ledger::cohort::{self, Cohort};
use crate::ledger::replay::Ledger;
use crate::ledger::sites::{Retained, rank};

/// Returns what each site holds at the boundary that ended `step` (`None`: at the program's exit, or now),
/// largest first. Empty for a step of which there is no record.
pub fn retained(ledger: &Ledger, step: Option<u32>) -> Vec<Retained> {
    let mut all: Vec<Retained> = match step {
        Some(step) if ledger.step(step).is_some() => {
            let mut sums: IntMap<u32, (i64, i64)> = IntMap::default();
            for d in ledger.steps().iter().take_while(|r| r.step <= step).flat_map(|r| &r.deltas) {
                let sum = sums.entry(d.site).or_insert((0, 0));
                *sum = (sum.0.wrapping_add(i64::from(d.blocks)), sum.1.wrapping_add(d.bytes));
            }
            let held = sums.into_iter().filter(|(_, (blocks, _))| *blocks > 0);
            held.map(|(site, (blocks, bytes))| Retained { site, blocks: blocks as u64, bytes: bytes as u64 })
                .collect()
        }
        Some(_) => Vec::new(),
        None => return retained_since(ledger, 0),
    };
    rank(&mut all);
    all
}

/// Returns what each site holds at the judged moment of what it allocated after the step `since`, largest first.
pub fn retained_since(ledger: &Ledger, since: u32) -> Vec<Retained> {
    let of_site = |(site, mut cohorts): (u32, Vec<Cohort>)| {
        cohorts.retain(|c| c.birth > since);
        Retained { site, blocks: cohort::blocks(&cohorts), bytes: cohort::bytes(&cohorts) }
    };
    let mut all: Vec<Retained> =
        ledger.cohorts().into_iter().map(of_site).filter(|r| since == 0 || r.blocks > 0).collect();
    rank(&mut all);
    all
}
