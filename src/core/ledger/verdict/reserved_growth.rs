//! While blocks grow, does the caching allocator take more from the driver, or is the
//! growth served from memory that it had already?

use super::finding::{Finding, Kind};
use super::statistics::steady;
use super::view::View;
use crate::ledger::sites::Layer;
use crate::ledger::steps::StepRecord;

/// Reserved memory grows by itself if each of so many parts of the run adds about as much …
const PARTS: usize = 8;
/// … that is so many bytes, more than one segment, …
const LEAST: f64 = (4 << 20) as f64;
/// … and so many times what grows in blocks.
const FAR_MORE: f64 = 2.0;

/// Sets for every growth of blocks how much the reserved memory of its devices grew meanwhile.
pub fn compare(view: &View<'_>, findings: &mut [Finding]) {
    let growing = |f: &&mut Finding| matches!(f.kind, Kind::Leak | Kind::Growing) && f.layer == Layer::Block;
    for f in findings.iter_mut().filter(growing) {
        let devices = f.devices();
        let reserved = |record: &StepRecord| {
            let its = || record.devices.iter().filter(|d| devices.contains(&d.device));
            its().next()?;
            i64::try_from(its().fold(0u64, |sum, d| sum.saturating_add(d.reserved_bytes))).ok()
        };
        let records = view.ledger.steps();
        // Of what is made anew all the time nothing is old.
        let from = if f.renewed { f.first_step } else { f.oldest_step }.max(view.burn_in);
        let before = records.iter().find(|r| r.step >= from).and_then(reserved);
        let after = records.last().and_then(reserved);
        f.reserved_growth_bytes = before.zip(after).map(|(b, a)| a.saturating_sub(b));
        let since: Vec<(u32, i64)> =
            records.iter().filter(|r| r.step >= from).filter_map(|r| Some((r.step, reserved(r)?))).collect();
        f.reserved_bytes_per_step =
            per_step(&since).filter(|rate| *rate >= FAR_MORE * f.growth_bytes_per_step);
    }
}

/// Returns what a step adds to reserved memory, if every part of the run adds about as much.
fn per_step(reserved: &[(u32, i64)]) -> Option<f64> {
    let ((from, before), (to, _)) = (*reserved.first()?, *reserved.last()?);
    let part = to.saturating_sub(from) / PARTS as u32;
    let at = |step: u32| reserved.iter().rev().find(|(s, _)| *s <= step).map_or(before, |(_, bytes)| *bytes);
    let levels: Vec<i64> = (0..=PARTS as u32).map(|i| at(from.saturating_add(i * part))).collect();
    steady(&levels).filter(|&each| part > 0 && each >= LEAST).map(|each| each / f64::from(part))
}
