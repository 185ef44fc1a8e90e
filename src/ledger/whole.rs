//! The books as a whole, for who writes them down elsewhere: every site, cohort, block and segment.

use super::view::{Cohort, Living};
use super::{Ledger, Site};

/// Memory that a caching allocator cuts up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub start: u64,
    pub end: u64,
    /// Who asked the driver for it.
    pub site: u32,
    /// Mapped into a reserved range, piece by piece.
    pub mapped: bool,
}

impl Ledger {
    /// Every site by its number.
    pub fn sites(&self) -> impl Iterator<Item = (u32, &Site)> {
        self.sites.iter()
    }

    /// What is alive at the judged moment but segments: per site the cohorts by birth step, sites by number.
    pub fn living_cohorts(&self) -> Vec<(u32, Vec<Cohort>)> {
        self.cohorts()
    }

    /// The segments that there are now, by address.
    pub fn living_segments(&self) -> Vec<Segment> {
        let all = self.driver.segments().into_iter();
        all.map(|(start, end, site)| Segment { start, end, site, mapped: !self.driver.is_alive(start) })
            .collect()
    }

    /// The blocks of caching allocators that are alive now, by address.
    pub fn living_blocks(&self) -> Vec<Living> {
        let blocks = self.blocks.iter();
        by_address(blocks.map(|(&address, b)| Living {
            address,
            bytes: b.bytes,
            site: b.site,
            birth: b.birth,
        }))
    }

    /// What else the driver gave that is alive now and has an address, by that.
    pub fn living_objects(&self) -> Vec<Living> {
        let objects = self.driver.pointers().filter(|(_, g)| !g.segment);
        by_address(objects.map(|(address, g)| Living {
            address,
            bytes: g.bytes,
            site: g.site,
            birth: g.birth,
        }))
    }
}

fn by_address(living: impl Iterator<Item = Living>) -> Vec<Living> {
    let mut all: Vec<Living> = living.collect();
    all.sort_unstable_by_key(|l| l.address);
    all
}
