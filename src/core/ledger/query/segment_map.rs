//! The map of the segments at the judged moment: where each lies, and the blocks in it. What was freed since
//! the last boundary is still on it: after a run that exited cleanly, nothing else would be left to see.

use super::live::LiveAllocation;
use crate::format::event::NO_DEVICE;
use crate::ledger::replay::Ledger;
use crate::ledger::sites::Layer;

/// A segment, and what is alive in it, by address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub device: u8,
    pub start: u64,
    pub end: u64,
    pub blocks: Vec<LiveAllocation>,
}

impl Ledger {
    /// Returns the segments at the judged moment, by address. Neighbours that were mapped one after the other
    /// are one.
    pub fn segment_map(&self) -> Vec<Segment> {
        let last = self.books.last_judged_birth();
        let mut extents = self.driver.segments();
        extents.extend(self.driver.returned_segments());
        extents.retain(|e| e.birth <= last && e.start < e.end);
        extents.sort_unstable_by_key(|e| (e.start, e.end));
        let mut map: Vec<(Segment, bool)> = Vec::new();
        for e in &extents {
            let device = self.site(e.site).map_or(NO_DEVICE, |s| s.device);
            match map.last_mut() {
                Some((s, true)) if e.mapped && s.end == e.start && s.device == device => s.end = e.end,
                // Returned, and allocated again at the same address.
                Some((s, _)) if e.start < s.end => {}
                _ => {
                    let segment = Segment { device, start: e.start, end: e.end, blocks: Vec::new() };
                    map.push((segment, e.mapped));
                }
            }
        }
        let mut map: Vec<Segment> = map.into_iter().map(|(segment, _)| segment).collect();
        for block in self.judged_blocks(last) {
            let at = map.partition_point(|s| s.start <= block.address).checked_sub(1);
            if let Some(s) = at.and_then(|at| map.get_mut(at)).filter(|s| block.address < s.end) {
                s.blocks.push(block);
            }
        }
        map
    }

    /// Returns the blocks of caching allocators at the judged moment, by address.
    fn judged_blocks(&self, last: u32) -> Vec<LiveAllocation> {
        let of_blocks = |site| self.site(site).is_some_and(|s| s.layer == Layer::Block);
        let freed = self.books.releases_since_boundary.iter();
        let freed = freed.filter(|d| d.address != 0 && of_blocks(d.site));
        let freed = freed.map(|d| LiveAllocation {
            address: d.address,
            bytes: d.bytes,
            site: d.site,
            birth: d.birth,
        });
        let alive = self.live_blocks();
        let mut blocks: Vec<LiveAllocation> =
            alive.into_iter().chain(freed).filter(|b| b.birth <= last).collect();
        blocks.sort_unstable_by_key(|b| (b.address, b.birth));
        blocks
    }
}
