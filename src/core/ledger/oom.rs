//! Memory ran out: what was alive at that moment, what of it was the step before's, and what lay empty all the same.

use serde::{Deserialize, Serialize};

use super::view::{self, Retained};
use super::{Layer, Ledger};
use crate::format::event::Event;

/// Sites in the snapshot, and snapshots kept.
pub(super) const SITES: usize = 50;
pub(super) const KEPT: usize = 4;
/// The snapshot looks at no more blocks than this one by one.
const MOST: usize = 2_000_000;

/// What was alive when the program could not get more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutOfMemory {
    pub device: u8,
    /// Stack id of the allocation that failed.
    pub stack: u32,
    pub requested_bytes: u64,
    pub allocated_bytes: u64,
    /// The step it happened in (not yet ended).
    pub step: u32,
    pub sites: Vec<Retained>,
    /// Alive, born in the step before, and of lines whose blocks usually die in the next: carried over.
    pub carry_over_bytes: u64,
    /// What caching allocators had from the driver, how much of it no block used, and the largest piece of that.
    pub reserved_bytes: u64,
    pub free_in_segments_bytes: u64,
    pub largest_free_block_bytes: u64,
}

impl Ledger {
    /// The allocator gave up.
    pub(super) fn ran_out(&mut self, e: &Event) {
        self.out_of_memory_count = self.out_of_memory_count.saturating_add(1);
        if self.out_of_memory.len() >= KEPT {
            self.out_of_memory.remove(0);
        }
        let of_device = self.sites.iter().filter(|(_, s)| s.device == e.device && s.live_blocks > 0);
        let live = of_device.map(|(site, s)| Retained { site, blocks: s.live_blocks, bytes: s.live_bytes });
        let mut sites: Vec<Retained> = live.collect();
        view::rank(&mut sites);
        sites.truncate(SITES);
        let reserved = self.devices.iter().find(|d| d.device == e.device).map_or(0, |d| d.segment_bytes);
        let (free_in_segments_bytes, largest_free_block_bytes) = self.holes(e.device);
        self.out_of_memory.push(OutOfMemory {
            device: e.device,
            stack: e.stack,
            requested_bytes: e.size,
            allocated_bytes: e.address,
            step: self.completed.saturating_add(1),
            sites,
            carry_over_bytes: self.carried_now(e.device),
            reserved_bytes: reserved,
            free_in_segments_bytes,
            largest_free_block_bytes,
        });
    }

    fn carried_now(&self, device: u8) -> u64 {
        if self.completed == 0 || self.blocks.len() > MOST {
            return 0;
        }
        let of_before = self.blocks.values().filter(|b| b.birth == self.completed);
        let carried = of_before.filter(|b| {
            let site = self.sites.get(b.site);
            site.is_some_and(|s| s.device == device && s.layer == Layer::Block && s.usual_life() == 1)
        });
        carried.fold(0, |sum, b| sum.wrapping_add(b.bytes))
    }

    /// Bytes of a device's segments that no block uses, and the largest piece of them.
    fn holes(&self, device: u8) -> (u64, u64) {
        if self.blocks.len() > MOST {
            return (0, 0);
        }
        let segments = self.segments();
        let mut blocks: Vec<(u64, u64)> = self.blocks.iter().map(|(&at, b)| (at, b.bytes)).collect();
        blocks.sort_unstable();
        let (mut empty, mut largest) = (0u64, 0u64);
        let mut hole = |size: u64| {
            empty = empty.saturating_add(size);
            largest = largest.max(size);
        };
        for &(start, end, _) in segments.iter().filter(|s| s.2 == device) {
            let mut at = start;
            let first = blocks.partition_point(|b| b.0 < start);
            for &(address, bytes) in blocks.iter().skip(first).take_while(|b| b.0 < end) {
                hole(address.saturating_sub(at));
                at = at.max(address.saturating_add(bytes));
            }
            hole(end.saturating_sub(at));
        }
        (empty, largest)
    }
}
