//! The map of the segments at the judged moment: where each lies, and the blocks in it. What the teardown has taken since
//! is still on it: after a run that ended as it should, nothing else would be left to see.

use serde::{Deserialize, Serialize};

use super::{AFTER_EXIT, Layer, Ledger, LiveAllocation};
use crate::format::event::NO_DEVICE;

/// Segments kept in mind that were given back since the last boundary.
const MAX_DEPARTED: usize = 65_536;

/// Where a segment lies, or a part of one that was mapped by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    pub start: u64,
    pub end: u64,
    pub site: u32,
    pub birth: u32,
    pub mapped: bool,
}

/// A segment, and what is alive in it, by address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub device: u8,
    pub start: u64,
    pub end: u64,
    pub blocks: Vec<LiveAllocation>,
}

impl Ledger {
    /// A segment is given back: one that was there at the judged moment is kept in mind until the next boundary.
    #[cold]
    pub(super) fn segment_departs(&mut self, extent: Extent) {
        let judged = if self.completed == 0 { self.exit.is_some() } else { extent.birth <= self.completed };
        if judged && extent.birth != AFTER_EXIT && self.departed_segments.len() < MAX_DEPARTED {
            self.departed_segments.push(extent);
        }
    }

    /// The last step whose births count at the judged moment: what was born after the last boundary belongs to a step
    /// that never ended.
    pub(super) fn last_judged(&self) -> u32 {
        if self.completed == 0 { AFTER_EXIT - 1 } else { self.completed }
    }

    /// The segments at the judged moment, by address. Neighbours that were mapped one after the other are one.
    pub fn segment_map(&self) -> Vec<Segment> {
        let last = self.last_judged();
        let mut extents = self.driver.segments();
        extents.extend(&self.departed_segments);
        extents.retain(|e| e.birth <= last && e.start < e.end);
        extents.sort_unstable_by_key(|e| (e.start, e.end));
        let mut map: Vec<(Segment, bool)> = Vec::new();
        for e in &extents {
            let device = self.site(e.site).map_or(NO_DEVICE, |s| s.device);
            match map.last_mut() {
                Some((s, true)) if e.mapped && s.end == e.start && s.device == device => s.end = e.end,
                // Given back, and given anew at the same place.
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

    /// The blocks of caching allocators at the judged moment, by address.
    fn judged_blocks(&self, last: u32) -> Vec<LiveAllocation> {
        let alive = self.blocks.iter().map(|(&address, b)| LiveAllocation {
            address,
            bytes: b.bytes,
            site: b.site,
            birth: b.birth,
        });
        let of_blocks = |site| self.site(site).is_some_and(|s| s.layer == Layer::Block);
        let departed = self.departed.iter().filter(|d| d.address != 0 && of_blocks(d.site));
        let departed = departed.map(|d| LiveAllocation {
            address: d.address,
            bytes: d.bytes,
            site: d.site,
            birth: d.birth,
        });
        let mut blocks: Vec<LiveAllocation> = alive.chain(departed).filter(|b| b.birth <= last).collect();
        blocks.sort_unstable_by_key(|b| (b.address, b.birth));
        blocks
    }
}
