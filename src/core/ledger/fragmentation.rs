//! Fragmentation: which blocks keep segments that are mostly empty from going back to the driver. Looked at
//! now and then while much more is reserved than was ever live: after the teardown nothing of it would be
//! left to see.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::blocks::Blocks;
use super::driver::Driver;
use super::sites::Sites;
use super::totals::Books;
use crate::format::event::NO_DEVICE;
use crate::frameworks;

/// Reserved memory is worth a look from this many times the peak of live bytes, and from so many bytes, on.
const TIMES_PEAK: f64 = 1.5;
const MIN_RESERVED: u64 = 64 << 20;
/// A segment is mostly empty when less than this share of it is used.
const MOSTLY_EMPTY: f64 = 0.5;
/// Steps between two looks.
const EVERY: u32 = 64;
/// Sites kept per device.
const MAX_SITES: usize = 8;

/// What the blocks of one site pin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pin {
    pub site: u32,
    pub blocks: u64,
    pub bytes: u64,
    /// Free bytes of the segments it has blocks in.
    pub empty: u64,
}

/// What lies in a segment: its bytes, and (blocks, bytes) by site.
type Used = (u64, BTreeMap<u32, (u64, u64)>);

/// What is pinned on one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pinned {
    pub device: u8,
    pub step: u32,
    /// Free bytes in segments that are used, but mostly empty.
    pub empty: u64,
    pub reserved: u64,
    pub blocks: u64,
    pub bytes: u64,
    /// The sites that pin most.
    pub pins: Vec<Pin>,
}

/// What was pinned at the latest look, by device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fragmentation {
    pinned: Vec<Pinned>,
}

impl Fragmentation {
    pub fn pinned(&self) -> &[Pinned] {
        &self.pinned
    }

    /// Looks at the segments if this step is one of those in which they are looked at.
    pub fn look(&mut self, books: &Books, blocks: &Blocks, driver: &Driver) {
        let step = books.completed;
        if !step.is_power_of_two() && !step.is_multiple_of(EVERY) {
            return;
        }
        let strained = books.devices.iter().filter(|d| {
            let reserved = d.segment_bytes;
            d.device != NO_DEVICE
                && reserved >= MIN_RESERVED
                && reserved as f64 >= TIMES_PEAK * d.peak_bytes() as f64
        });
        let strained: Vec<(u8, u64)> = strained.map(|d| (d.device, d.segment_bytes)).collect();
        self.pinned.clear();
        if strained.is_empty() {
            return;
        }
        let segments = driver.segments_with_device(&books.sites);
        for (device, reserved) in strained {
            let mut pinned = pinned_on(device, &segments, blocks, &books.sites);
            (pinned.device, pinned.step, pinned.reserved) = (device, step, reserved);
            self.pinned.push(pinned);
        }
    }
}

fn pinned_on(device: u8, segments: &[(u64, u64, u8)], blocks: &Blocks, sites: &Sites) -> Pinned {
    let of_site = |site| frameworks::of_number(sites.get(site).map_or(0, |s| s.entry_point));
    let mut used: Vec<Used> = vec![Used::default(); segments.len()];
    for (address, block) in blocks.iter() {
        if !of_site(block.site).returns_segments {
            continue;
        }
        let at = segments.partition_point(|s| s.0 <= address).checked_sub(1);
        let Some(at) = at.filter(|&at| address < segments[at].1 && segments[at].2 == device) else {
            continue;
        };
        let (sum, sites) = &mut used[at];
        *sum = sum.wrapping_add(block.bytes);
        let (blocks, bytes) = sites.entry(block.site).or_default();
        (*blocks, *bytes) = (blocks.wrapping_add(1), bytes.wrapping_add(block.bytes));
    }
    let mut all = Pinned::default();
    let mut pins: BTreeMap<u32, Pin> = BTreeMap::new();
    for ((start, end, _), (sum, sites)) in segments.iter().zip(&used).filter(|(_, used)| used.0 > 0) {
        let size = end.saturating_sub(*start);
        if *sum as f64 >= MOSTLY_EMPTY * size as f64 {
            continue;
        }
        let empty = size.saturating_sub(*sum);
        all.empty = all.empty.wrapping_add(empty);
        for (&site, (blocks, bytes)) in sites {
            let pin = pins.entry(site).or_insert(Pin { site, ..Pin::default() });
            pin.blocks = pin.blocks.wrapping_add(*blocks);
            pin.bytes = pin.bytes.wrapping_add(*bytes);
            pin.empty = pin.empty.wrapping_add(empty);
            all.blocks = all.blocks.wrapping_add(*blocks);
            all.bytes = all.bytes.wrapping_add(*bytes);
        }
    }
    all.pins = pins.into_values().collect();
    all.pins.sort_by_key(|p| (std::cmp::Reverse(p.empty), p.site));
    all.pins.truncate(MAX_SITES);
    all
}
