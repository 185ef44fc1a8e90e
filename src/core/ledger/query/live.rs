//! What is alive: blocks, driver allocations and segments one by one, and cohorts by site.

use crate::int_map::{IntMap, pair};
use crate::ledger::allocation::Extent;
use crate::ledger::cohort::Cohort;
use crate::ledger::replay::Ledger;

/// A block or driver allocation that is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveAllocation {
    pub address: u64,
    pub bytes: u64,
    pub site: u32,
    /// The step it was born in.
    pub birth: u32,
}

impl Ledger {
    /// Counts what is alive now, and the sites that it was allocated at.
    pub fn live_counts(&self) -> (usize, usize) {
        let sites = self.books.sites.iter().filter(|(_, site)| site.live_blocks > 0).count();
        (self.blocks.len().saturating_add(self.driver.iter().count()), sites)
    }

    /// Returns the segments that there are now, by address.
    pub fn live_segments(&self) -> Vec<Extent> {
        self.driver.segments()
    }

    /// Returns the blocks of caching allocators that are alive now, by address.
    pub fn live_blocks(&self) -> Vec<LiveAllocation> {
        by_address(self.blocks_of(|_| true))
    }

    /// Returns the driver allocations that are alive now and have an address, by that; segments left out.
    pub fn live_driver_allocations(&self) -> Vec<LiveAllocation> {
        by_address(self.driver_allocations_of(|_| true))
    }

    /// Returns what is alive now of these sites, by address.
    pub fn live_at_sites(&self, sites: &[u32]) -> Vec<LiveAllocation> {
        let of = |site: u32| sites.contains(&site);
        by_address(self.blocks_of(of).chain(self.driver_allocations_of(of)))
    }

    /// Returns the cohorts of each site at the judged moment, sites by number; segments left out.
    pub fn cohorts(&self) -> Vec<(u32, Vec<Cohort>)> {
        let last = self.books.last_judged_birth();
        let mut sums: IntMap<u64, (u64, u64)> = IntMap::default();
        let mut add = |site, birth, bytes| {
            if birth <= last {
                let sum = sums.entry(pair(site, birth)).or_insert((0, 0));
                *sum = (sum.0.wrapping_add(1), sum.1.wrapping_add(bytes));
            }
        };
        self.books.releases_since_boundary.iter().for_each(|d| add(d.site, d.birth, d.bytes));
        self.blocks.iter().for_each(|(_, b)| add(b.site, b.birth, b.bytes));
        self.driver.iter().filter(|a| !a.segment).for_each(|a| add(a.site, a.birth, a.bytes));
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_unstable_by_key(|(key, _)| *key);
        let mut all: Vec<(u32, Vec<Cohort>)> = Vec::new();
        for (key, (blocks, bytes)) in sums {
            let (site, cohort) = ((key >> 32) as u32, Cohort { birth: key as u32, blocks, bytes });
            match all.last_mut() {
                Some((last, cohorts)) if *last == site => cohorts.push(cohort),
                _ => all.push((site, vec![cohort])),
            }
        }
        all
    }

    fn blocks_of(&self, of: impl Fn(u32) -> bool) -> impl Iterator<Item = LiveAllocation> {
        let blocks = self.blocks.iter().filter(move |(_, b)| of(b.site));
        blocks.map(|(address, b)| LiveAllocation { address, bytes: b.bytes, site: b.site, birth: b.birth })
    }

    fn driver_allocations_of(&self, of: impl Fn(u32) -> bool) -> impl Iterator<Item = LiveAllocation> {
        let all = self.driver.pointers().filter(move |(_, a)| !a.segment && of(a.site));
        all.map(|(address, a)| LiveAllocation { address, bytes: a.bytes, site: a.site, birth: a.birth })
    }
}

fn by_address(live: impl Iterator<Item = LiveAllocation>) -> Vec<LiveAllocation> {
    let mut all: Vec<LiveAllocation> = live.collect();
    all.sort_unstable_by_key(|l| l.address);
    all
}
