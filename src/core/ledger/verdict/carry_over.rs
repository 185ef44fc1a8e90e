//! Carry-over: blocks of step n that are still alive at the peak of n + 1 and die in it. No growth, but a
//! higher peak.

use super::finding::{Confidence, Finding, Kind, SiteShare};
use super::statistics::{interval, median};
use super::view::View;
use crate::ledger::carry_over::Cause;
use crate::ledger::cohort::{Cohort, blocks, bytes};

/// Less than this share of the peak is what every loop carries over: its batch, its loss.
const MIN_SHARE: f64 = 0.05;
/// Carried over in at least this share of the steps, and in so many.
const MIN_STEPS_SHARE: f64 = 0.25;
const MIN_CARRIED: u32 = 5;

pub fn find(view: &View<'_>) -> Vec<Finding> {
    view.ledger.carry_over.causes().iter().filter_map(|cause| judge(view, cause)).collect()
}

fn judge(view: &View<'_>, cause: &Cause) -> Option<Finding> {
    let device = view.ledger.devices().iter().find(|d| d.device == cause.device)?;
    let site = view.ledger.site(cause.site)?;
    let peak = device.peak_of_steps();
    let reduction = peak.saturating_sub(cause.without);
    let carried = median(cause.bytes.iter());
    let often = f64::from(cause.steps) >= MIN_STEPS_SHARE * f64::from(view.steps);
    let judged = peak.saturating_sub(cause.with_last).min(carried as u64);
    let large = judged as f64 >= MIN_SHARE * peak as f64;
    let held = (view.context.holders)(cause.site);
    let is_state = held.iter().any(|holder| holder.is_state);
    if !often || !large || is_state || cause.steps < MIN_CARRIED {
        return None;
    }
    let alive = |number: u32| view.site(number);
    let mut f = Finding {
        bytes_per_step: carried,
        bytes_interval: interval(cause.bytes.iter()),
        blocks_per_step: median(cause.blocks.iter()),
        growth_step_ratio: f64::from(cause.steps) / f64::from(view.steps.saturating_sub(1).max(1)),
        peak_reduction_bytes: reduction,
        oldest_step: view.steps,
        first_step: cause.first,
        evidence_step: cause.last,
        cohorts: 1,
        span: view.steps,
        longest_life: 1,
        ..Finding::new(Kind::CarryOver, Confidence::Confirmed, cause.device, site.layer)
    };
    f.sites = cause
        .parts
        .iter()
        .map(|p| {
            // What the last step has just left alive.
            let young = |c: &&Cohort| c.birth == view.steps;
            let young: Vec<Cohort> =
                alive(p.site).map_or_else(Vec::new, |s| s.cohorts.iter().filter(young).copied().collect());
            let bytes_per_step = p.bytes as f64 / f64::from(cause.carried.max(1));
            SiteShare {
                site: p.site,
                device: cause.device,
                bytes_per_step,
                live_bytes: bytes(&young),
                live_blocks: blocks(&young),
            }
        })
        .collect();
    f.add_up();
    Some(f)
}
