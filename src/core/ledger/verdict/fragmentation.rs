//! Fragmentation: much is reserved and little of it used, because a few blocks keep mostly empty segments
//! from going back.

use std::collections::BTreeSet;

use super::finding::{Confidence, Finding, Kind, SiteShare};
use super::view::View;
use crate::ledger::fragmentation::{Pin, Pinned};
use crate::ledger::sites::Layer;

/// It is a finding from this share of what is reserved, and so many bytes, on that are free and cannot go
/// back.
const PINNED_SHARE: f64 = 0.25;
const MIN_PINNED: u64 = 64 << 20;

/// Segments that a leak pins, at least this share of what is empty, are its doing: without it they would be free.
const BY_LEAK: f64 = 0.5;

pub fn find(view: &View<'_>, growing: &BTreeSet<u32>) -> Vec<Finding> {
    let by_leak = |p: &Pinned| {
        let of_leak = p.pins.iter().filter(|pin| growing.contains(&pin.site));
        of_leak.map(|pin| pin.empty).max().unwrap_or(0) as f64 >= BY_LEAK * p.empty as f64
    };
    view.ledger.fragmentation.pinned().iter().filter(|p| !by_leak(p)).filter_map(judge).collect()
}

fn judge(p: &Pinned) -> Option<Finding> {
    if p.empty < MIN_PINNED || (p.empty as f64) < PINNED_SHARE * p.reserved as f64 {
        return None;
    }
    let part = |pin: &Pin| SiteShare {
        site: pin.site,
        device: p.device,
        bytes_per_step: 0.0,
        live_bytes: pin.bytes,
        live_blocks: pin.blocks,
    };
    Some(Finding {
        sites: p.pins.iter().map(part).collect(),
        live_bytes: p.bytes,
        live_blocks: p.blocks,
        evidence_step: p.step,
        reserved_growth_bytes: i64::try_from(p.empty).ok(),
        ..Finding::new(Kind::Fragmentation, Confidence::Likely, p.device, Layer::Block)
    })
}
