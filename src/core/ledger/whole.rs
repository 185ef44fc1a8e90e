//! The books as a whole, for who writes them down elsewhere: every site, cohort, block and segment.

use super::segments::Extent;
use super::view::LiveAllocation;
use super::{Ledger, Site};

impl Ledger {
    /// Every site by its number.
    pub fn sites(&self) -> impl Iterator<Item = (u32, &Site)> {
        self.sites.iter()
    }

    /// The segments that there are now, by address.
    pub fn live_segments(&self) -> Vec<Extent> {
        self.driver.segments()
    }

    /// The blocks of caching allocators that are alive now, by address.
    pub fn live_blocks(&self) -> Vec<LiveAllocation> {
        let blocks = self.blocks.iter();
        by_address(blocks.map(|(&address, b)| LiveAllocation {
            address,
            bytes: b.bytes,
            site: b.site,
            birth: b.birth,
        }))
    }

    /// What else the driver gave that is alive now and has an address, by that.
    pub fn live_driver_allocations(&self) -> Vec<LiveAllocation> {
        let objects = self.driver.pointers().filter(|(_, g)| !g.segment);
        by_address(objects.map(|(address, g)| LiveAllocation {
            address,
            bytes: g.bytes,
            site: g.site,
            birth: g.birth,
        }))
    }
}

fn by_address(living: impl Iterator<Item = LiveAllocation>) -> Vec<LiveAllocation> {
    let mut all: Vec<LiveAllocation> = living.collect();
    all.sort_unstable_by_key(|l| l.address);
    all
}
