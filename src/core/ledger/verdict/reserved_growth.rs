//! Rule C: two sources. While blocks grow, does the caching allocator take more from the driver, or is the
//! growth served from memory that it had already?

use super::finding::{Finding, Kind};
use super::view::View;
use crate::ledger::sites::Layer;
use crate::ledger::steps::StepRecord;

/// Reserved memory grows by itself if each of so many parts of the run adds at least this share of the mean one …
const PARTS: usize = 8;
const EVEN: f64 = 0.5;
/// … that is so many bytes, more than one segment, …
const LEAST: f64 = (4 << 20) as f64;
/// … and so many times what grows in blocks.
const FAR_MORE: f64 = 2.0;

/// Sets for every growth of blocks how much the reserved memory of its device grew meanwhile.
pub fn compare(view: &View<'_>, findings: &mut [Finding]) {
    let growing = |f: &&mut Finding| matches!(f.kind, Kind::Leak | Kind::Growing) && f.layer == Layer::Block;
    for f in findings.iter_mut().filter(growing) {
        let reserved = |record: &StepRecord| {
            let device = record.devices.iter().find(|d| d.device == f.device)?;
            i64::try_from(device.reserved_bytes).ok()
        };
        let records = view.ledger.steps();
        let from = f.oldest_step.max(view.burn_in);
        let before = records.iter().find(|r| r.step >= from).and_then(reserved);
        let after = records.last().and_then(reserved);
        f.reserved_growth_bytes = before.zip(after).map(|(b, a)| a.saturating_sub(b));
        let since: Vec<(u32, i64)> =
            records.iter().filter(|r| r.step >= from).filter_map(|r| Some((r.step, reserved(r)?))).collect();
        f.reserved_bytes_per_step = steady(&since).filter(|rate| *rate >= FAR_MORE * f.growth_bytes_per_step);
    }
}

/// Returns what a step adds to reserved memory, if every part of the run adds about as much.
fn steady(reserved: &[(u32, i64)]) -> Option<f64> {
    let ((from, before), (to, after)) = (*reserved.first()?, *reserved.last()?);
    let part = to.saturating_sub(from) as usize / PARTS;
    let mean = after.saturating_sub(before) as f64 / PARTS as f64;
    if part == 0 || mean < LEAST {
        return None;
    }
    let at = |step: u32| reserved.iter().rev().find(|(s, _)| *s <= step).map_or(before, |(_, bytes)| *bytes);
    let ends: Vec<i64> = (0..=PARTS).map(|i| at(from + (i * part) as u32)).collect();
    let even = ends.windows(2).all(|w| w[1].saturating_sub(w[0]) as f64 >= EVEN * mean);
    even.then(|| mean * PARTS as f64 / f64::from(to - from))
}
