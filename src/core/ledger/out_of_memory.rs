//! Out of memory: what was alive when an allocation failed, what of it was carry-over, and what was free
//! inside segments.

use serde::{Deserialize, Serialize};

use super::blocks::Blocks;
use super::driver::Driver;
use super::sites::{self, Layer, Retained};
use super::totals::Books;
use crate::format::event::Event;

/// Sites in one snapshot.
pub const MAX_SITES: usize = 50;
/// Snapshots kept: the latest.
pub const MAX_SNAPSHOTS: usize = 4;
/// With more blocks than this, no figure that takes a look at each of them is made.
const MAX_BLOCKS: usize = 2_000_000;

/// What was alive when an allocation failed for want of memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutOfMemory {
    pub device: u8,
    /// Stack id of the allocation that failed.
    pub stack: u32,
    pub requested_bytes: u64,
    pub allocated_bytes: u64,
    /// The step it happened in, which had not ended.
    pub step: u32,
    pub sites: Vec<Retained>,
    /// Alive, born in the step before, and of sites whose blocks usually die in the next: carry-over.
    pub carry_over_bytes: u64,
    /// What caching allocators held from the driver, how much of it no block used, and the largest free
    /// piece.
    pub reserved_bytes: u64,
    pub free_in_segments_bytes: u64,
    pub largest_free_block_bytes: u64,
}

/// The latest snapshots, and how many there were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutOfMemoryLog {
    latest: Vec<OutOfMemory>,
    count: u64,
}

impl OutOfMemoryLog {
    pub fn latest(&self) -> &[OutOfMemory] {
        &self.latest
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Takes a snapshot for the event of a failed allocation.
    pub fn record(&mut self, books: &Books, blocks: &Blocks, driver: &Driver, e: &Event) {
        self.count = self.count.saturating_add(1);
        if self.latest.len() >= MAX_SNAPSHOTS {
            self.latest.remove(0);
        }
        let of_device = books.sites.iter().filter(|(_, s)| s.device == e.device && s.live_bytes > 0);
        let live = of_device.map(|(site, s)| Retained { site, blocks: s.live_blocks, bytes: s.live_bytes });
        let mut sites: Vec<Retained> = live.collect();
        sites::rank(&mut sites);
        sites.truncate(MAX_SITES);
        let reserved = books.devices.iter().find(|d| d.device == e.device).map_or(0, |d| d.segment_bytes);
        let few = blocks.len() <= MAX_BLOCKS;
        let (free, largest) = if few { free_in_segments(books, blocks, driver, e.device) } else { (0, 0) };
        self.latest.push(OutOfMemory {
            device: e.device,
            stack: e.stack,
            requested_bytes: e.size,
            allocated_bytes: e.address,
            step: books.completed.saturating_add(1),
            sites,
            carry_over_bytes: if few { carry_over(books, blocks, e.device) } else { 0 },
            reserved_bytes: reserved,
            free_in_segments_bytes: free,
            largest_free_block_bytes: largest,
        });
    }
}

fn carry_over(books: &Books, blocks: &Blocks, device: u8) -> u64 {
    if books.completed == 0 {
        return 0;
    }
    let of_step_before = blocks.iter().filter(|(_, b)| b.birth == books.completed);
    let carried = of_step_before.filter(|(_, b)| {
        let site = books.site(b.site);
        site.is_some_and(|s| s.device == device && s.layer == Layer::Block && s.usual_life() == 1)
    });
    carried.fold(0, |sum, (_, b)| sum.wrapping_add(b.bytes))
}

/// Returns the bytes of a device's segments that no block uses, and the largest piece of them.
fn free_in_segments(books: &Books, blocks: &Blocks, driver: &Driver, device: u8) -> (u64, u64) {
    let segments = driver.segments_with_device(&books.sites);
    let mut blocks: Vec<(u64, u64)> = blocks.iter().map(|(at, b)| (at, b.bytes)).collect();
    blocks.sort_unstable();
    let (mut free, mut largest) = (0u64, 0u64);
    let mut piece = |size: u64| {
        free = free.saturating_add(size);
        largest = largest.max(size);
    };
    for &(start, end, _) in segments.iter().filter(|s| s.2 == device) {
        let mut at = start;
        let first = blocks.partition_point(|b| b.0 < start);
        for &(address, bytes) in blocks.iter().skip(first).take_while(|b| b.0 < end) {
            piece(address.saturating_sub(at));
            at = at.max(address.saturating_add(bytes));
        }
        piece(end.saturating_sub(at));
    }
    (free, largest)
}
