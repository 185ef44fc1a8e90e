//! Unattributed memory, in use but part of no allocation that was seen: does it grow with the steps? There
//! are no blocks here whose identity could tell, only the driver's own report at each boundary, so it takes a
//! rise that goes on and on.

use super::finding::{Confidence, Finding, Kind};
use super::statistics::median;
use super::view::View;
use crate::format::event::NO_DEVICE;
use crate::ledger::devices::DeviceAt;
use crate::ledger::replay::Ledger;
use crate::ledger::sites::{Delta, Layer};
use crate::ledger::steps::StepRecord;

/// The run after its warm-up is cut into so many windows; the lowest report of each must lie above the one
/// before.
const WINDOWS: usize = 8;
/// The first steps load code, make handles and workspaces: this share of the run is warm-up, and at least so
/// many steps.
const WARM_UP_SHARE: f64 = 0.25;
const WARM_UP_STEPS: usize = 5;
/// Reports in each window, at least: with several, a spike does not raise the lowest.
const MIN_REPORTS: usize = 3;
/// A device hands out memory in large pages: less than a few of them is no growth.
const MIN_GROWTH: u64 = 16 << 20;
/// The page that a device hands memory out in: an allocation may take up so much more than its size.
const PAGE: u64 = 2 << 20;
/// Each window adds at least this share of the mean one: one jump is not a rise.
const EVEN: f64 = 0.25;

/// A program's own context takes less, with its code and handles. A device that has more in use from the first boundary on
/// is used by other processes too, whose growth looks the same.
const OWN: u64 = 2 << 30;

/// Returns whether other processes use a device, of which the first boundary has this report.
pub fn is_shared(unattributed_bytes: Option<u64>) -> bool {
    unattributed_bytes.is_some_and(|bytes| bytes > OWN)
}

/// Finds the devices on which it grows.
pub fn find(view: &View<'_>) -> Vec<Finding> {
    let ledger = view.ledger;
    let devices = ledger.devices().iter().map(|d| d.device).filter(|&d| d != NO_DEVICE);
    devices.filter_map(|device| judge(ledger, device)).collect()
}

fn judge(ledger: &Ledger, device: u8) -> Option<Finding> {
    let at = |devices: &[DeviceAt]| devices.iter().find(|d| d.device == device)?.unattributed_bytes;
    // Driver allocations take whole pages: what the rounding of more and more of them can explain is
    // attributed.
    let (mut allocations, mut most) = (0i64, 0);
    let mut report = |r: &StepRecord| {
        let of_device =
            |d: &&Delta| ledger.site(d.site).is_some_and(|s| s.device == device && s.layer == Layer::Driver);
        allocations += r.deltas.iter().filter(of_device).map(|d| i64::from(d.blocks)).sum::<i64>();
        most = most.max((allocations.max(0) as u64).saturating_mul(PAGE));
        Some((r.step, at(&r.devices)?, most))
    };
    let mut reports: Vec<(u32, u64, u64)> = ledger.steps().iter().filter_map(&mut report).collect();
    // Of a long run the older records stand for several steps each: of the newest as few are looked at.
    let spanned = ledger.steps().first()?.step.max(1);
    reports.dedup_by(|later, kept| {
        let same = later.0.saturating_sub(1) / spanned == kept.0.saturating_sub(1) / spanned;
        if same {
            *kept = *later;
        }
        same
    });
    let rounding = reports.last()?.2;
    if is_shared(reports.first().map(|report| report.1)) {
        return None;
    }
    let reports: Vec<(u32, u64)> = reports
        .into_iter()
        .map(|(step, bytes, below)| (step, bytes.saturating_add(rounding - below)))
        .collect();
    let warm_up = WARM_UP_STEPS.max((WARM_UP_SHARE * reports.len() as f64) as usize);
    let judged = reports.get(warm_up..)?;
    let window = judged.len() / WINDOWS;
    if window < MIN_REPORTS {
        return None;
    }
    // The newest windows whole: what is left over goes to the warm-up.
    let judged = &judged[judged.len() - window * WINDOWS..];
    let lows: Vec<u64> = judged.chunks(window).filter_map(|w| w.iter().map(|a| a.1).min()).collect();
    let (first, last) = (*lows.first()?, *lows.last()?);
    let growth = last.checked_sub(first).filter(|&g| g >= MIN_GROWTH)?;
    let mean = growth as f64 / (WINDOWS - 1) as f64;
    let rises = lows.windows(2).all(|w| w[1].saturating_sub(w[0]) as f64 >= EVEN * mean);
    if !rises {
        return None;
    }
    let steps = judged[window * (WINDOWS - 1)].0.saturating_sub(judged[0].0).max(1);
    let slope = growth as f64 / f64::from(steps);
    let added =
        |w: &[(u32, u64)]| w[1].1.saturating_sub(w[0].1) / u64::from(w[1].0.saturating_sub(w[0].0).max(1));
    let adding: Vec<u64> = judged.windows(2).map(added).filter(|&step| step > 0).collect();
    let held = reports.last()?.1.saturating_sub(judged[0].1);
    Some(Finding {
        bytes_per_step: median(adding.iter().copied()),
        growth_step_ratio: adding.len() as f64 / (judged.len() - 1).max(1) as f64,
        growth_bytes_per_step: slope,
        live_bytes: held,
        oldest_step: judged[0].0,
        first_step: judged[0].0,
        span: reports.last()?.0.saturating_sub(judged[0].0),
        ..Finding::new(Kind::Growing, Confidence::Likely, device, Layer::Driver)
    })
}
