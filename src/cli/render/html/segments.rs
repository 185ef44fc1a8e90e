//! The segment map as a page carries it: what is used of each segment and by which site, and which blocks keep a mostly
//! free one from being returned to the driver.

use std::collections::BTreeSet;

use serde::Serialize;

use super::history::History;
use leaktrace_core::ledger::{Ledger, LiveAllocation, Segment};

/// Cells shown of one segment, at most and at least, and of all.
const CELLS: usize = 256;
const FEW_CELLS: usize = 16;
const ALL_CELLS: usize = 100_000;
/// Blocks listed as pinning.
const PINS: usize = 100;

/// A segment. Its cells, by address: offset, length, used bytes, site (`-1`: several), blocks, birth step of the
/// oldest; and again.
#[derive(Debug, Serialize)]
struct Listed {
    device: u8,
    start: String,
    bytes: u64,
    used: u64,
    blocks: usize,
    /// Less than half of it is used, but not nothing.
    pinned: bool,
    cells: Vec<i64>,
}

/// A block that pins a segment: it, and others of that segment, keep it from going back to the driver.
#[derive(Debug, Default, Serialize)]
struct Pin {
    segment: String,
    site: usize,
    bytes: u64,
    birth: u32,
    /// Free bytes of the segment; only with its first block, so that they are counted once.
    free: u64,
}

/// All segments of a run at the judged moment.
#[derive(Debug, Serialize)]
pub struct Map {
    count: usize,
    bytes: u64,
    used: u64,
    /// Free bytes in pinned segments.
    pinned: u64,
    segments: Vec<Listed>,
    pins: Vec<Pin>,
}

#[derive(Clone, Copy)]
struct Cell {
    start: u64,
    end: u64,
    used: u64,
    site: i64,
    blocks: u64,
    birth: u32,
}

impl Map {
    pub fn new(ledger: &Ledger, history: &History, most: usize) -> Map {
        let all = ledger.segment_map();
        let mut map =
            Map { count: all.len(), bytes: 0, used: 0, pinned: 0, segments: Vec::new(), pins: Vec::new() };
        let mut pins: Vec<(u64, Vec<Pin>)> = Vec::new();
        for s in &all {
            let (bytes, used) =
                (s.end - s.start, s.blocks.iter().fold(0, |sum: u64, b| sum.wrapping_add(b.bytes)));
            let pinned = used > 0 && used < bytes / 2;
            map.bytes = map.bytes.wrapping_add(bytes);
            map.used = map.used.wrapping_add(used);
            if pinned {
                map.pinned = map.pinned.wrapping_add(bytes - used);
                let pin = |b: &LiveAllocation| Pin {
                    segment: format!("{:#x}", s.start),
                    site: history.slot(b.site),
                    bytes: b.bytes,
                    birth: b.birth,
                    free: 0,
                };
                let mut of_segment: Vec<Pin> = s.blocks.iter().map(pin).collect();
                of_segment.sort_by_key(|pin| std::cmp::Reverse(pin.bytes));
                if let Some(first) = of_segment.first_mut() {
                    first.free = bytes - used;
                }
                pins.push((bytes - used, of_segment));
            }
            map.segments.push(Listed {
                device: s.device,
                start: format!("{:#x}", s.start),
                bytes,
                used,
                blocks: s.blocks.len(),
                pinned,
                cells: Vec::new(),
            });
        }
        let mut order: Vec<usize> = (0..all.len()).collect();
        if order.len() > most {
            // Those that keep most from being returned, in the order of their addresses.
            order.sort_by_key(|&i| {
                let l = &map.segments[i];
                (!l.pinned, std::cmp::Reverse(l.bytes.saturating_sub(l.used)))
            });
            order.truncate(most);
            order.sort_unstable();
        }
        let share = (ALL_CELLS / order.len().max(1)).clamp(FEW_CELLS, CELLS);
        for &i in &order {
            map.segments[i].cells = cells(&all[i], history, share);
        }
        let kept: BTreeSet<usize> = order.into_iter().collect();
        let mut index = 0..;
        map.segments.retain(|_| index.next().is_some_and(|i: usize| kept.contains(&i)));
        pins.sort_by_key(|(free, _)| std::cmp::Reverse(*free));
        map.pins = pins.into_iter().flat_map(|(_, pins)| pins).take(PINS).collect();
        map
    }
}

fn cells(segment: &Segment, history: &History, most: usize) -> Vec<i64> {
    let mut cells: Vec<Cell> = Vec::new();
    for b in &segment.blocks {
        let end = b.address.saturating_add(b.bytes).min(segment.end);
        let site = history.slot(b.site) as i64;
        cells.push(Cell { start: b.address, end, used: b.bytes, site, blocks: 1, birth: b.birth });
    }
    // Too many to be drawn: neighbours are merged, those with the smallest gap first.
    let mut gap = 0;
    while cells.len() > most {
        cells.dedup_by(|next, kept| {
            let near = next.start.saturating_sub(kept.end) <= gap
                && next.end.max(kept.end) - kept.start <= (segment.end - segment.start) / (most as u64 / 4);
            if near {
                kept.end = kept.end.max(next.end);
                kept.used = kept.used.wrapping_add(next.used);
                kept.site = if kept.site == next.site { kept.site } else { -1 };
                kept.blocks += next.blocks;
                kept.birth = kept.birth.min(next.birth);
            }
            near
        });
        if gap > segment.end - segment.start {
            break;
        }
        gap = gap.max(128) * 2;
    }
    let flat = |c: &Cell| {
        let offset = c.start.saturating_sub(segment.start);
        [
            offset as i64,
            c.end.saturating_sub(c.start) as i64,
            c.used as i64,
            c.site,
            c.blocks as i64,
            c.birth.into(),
        ]
    };
    cells.iter().flat_map(flat).collect()
}
