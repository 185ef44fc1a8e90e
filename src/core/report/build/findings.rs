//! Findings as they are listed: their sites, their curves, the steps until they fill their device.

use std::collections::HashMap;

use super::Builder;
use crate::format::event::NO_DEVICE;
use crate::frameworks::named;
use crate::ledger::{self, Ledger, verdict};
use crate::report::{Device, Finding, Point, Program, Site, wording};

/// Sites listed under one finding.
const SITES: usize = 20;
/// Points of the curve of one finding.
const CURVE: usize = 120;

impl Builder<'_> {
    /// Lists a finding.
    pub(super) fn finding(&mut self, f: &verdict::Finding, devices: &[Device], program: &Program) -> Finding {
        let parts = by_stack(self.ledger, &f.sites);
        let mut sites: Vec<Site> = parts
            .into_iter()
            .take(SITES)
            .filter_map(|(part, numbers)| {
                let site = self.ledger.site(part.site)?;
                let (allocated_at, stack) = self.stack(site.stack);
                let other_native_stacks = self.other_native_stacks(site.stack);
                Some(Site {
                    numbers,
                    allocated_at,
                    library_at: self.library_at(site.stack),
                    bytes_per_step: part.bytes_per_step,
                    live_bytes: part.live_bytes,
                    live_blocks: part.live_blocks,
                    entry_point: self.entry_point(site.entry_point),
                    stack,
                    other_native_stacks,
                    forward_site: self.forward_site(site.stack),
                })
            })
            .collect();
        // What the backward of a backward pass makes has no line; whatever else the cause has tells more.
        sites.sort_by_key(|site| !site.stack.iter().any(|frame| frame.own));
        let is_foretold = fills(f) && !self.has_run_out();
        let mut holders = self.holders_of(f);
        let arena = (f.layer == ledger::Layer::Driver)
            .then(|| sites.first().and_then(|s| wording::arena(&s.stack)))
            .flatten();
        if arena.is_some() {
            // Objects hold parts of a piece. That none points to its beginning says nothing.
            holders.retain(|h| wording::is_named(&h.path));
        }
        let holders_unknown = match arena {
            _ if !holders.is_empty() => None,
            Some(arena) => Some(format!("who holds a part of the {} is not searched for", arena.name)),
            None => self.why_no_holder(f),
        };
        let several = f.devices();
        Finding {
            kind: f.kind,
            confidence: f.confidence,
            device: (f.device != NO_DEVICE).then_some(f.device),
            devices: if several.len() > 1 { several.into_iter().collect() } else { Vec::new() },
            layer: f.layer.name(),
            counted_steps: f.counted.name(),
            bytes_per_step: f.bytes_per_step,
            bytes_per_step_interval: f.bytes_interval,
            blocks_per_step: f.blocks_per_step,
            growth_step_ratio: f.growth_step_ratio,
            period_steps: f.period_steps,
            growth_bytes_per_step: f.growth_bytes_per_step,
            live_bytes: f.live_bytes,
            live_blocks: f.live_blocks,
            cohorts: f.cohorts,
            oldest_step: f.oldest_step,
            first_step: (f.first_step > 0).then_some(f.first_step),
            peak_reduction_bytes: f.peak_reduction_bytes,
            evidence_step: (f.evidence_step > 0).then_some(f.evidence_step),
            reserved_growth_bytes: f.reserved_growth_bytes,
            late_bytes_per_step: f.late_bytes_per_step,
            reserved_bytes_per_step: f.reserved_bytes_per_step,
            bound_bytes: f.bound_bytes,
            limit: f.limit,
            ever_later: f.ever_later,
            is_collected: f.kind == verdict::Kind::PendingGc && f.longest_life > 0,
            collector_is_off: f.collector_is_off,
            steps_to_oom: devices.iter().filter(|_| is_foretold).filter_map(|d| until_full(d, f)).min(),
            explanation: wording::explanation(f, &sites, &holders, &program.base),
            why: wording::why(f, &sites, &holders, &program.base),
            sites,
            holders,
            holders_unknown,
            retained_over_steps: Vec::new(),
        }
    }

    /// Returns whether memory ran out in the last step: that it will is nothing to be foretold.
    fn has_run_out(&self) -> bool {
        self.ledger.out_of_memory().last().is_some_and(|failure| failure.step >= self.ledger.step_count())
    }
}

/// Adds up the sites that only the position among the outputs of a function tells apart, and returns their numbers.
fn by_stack(ledger: &Ledger, parts: &[verdict::SiteShare]) -> Vec<(verdict::SiteShare, Vec<u32>)> {
    let mut places: HashMap<_, usize> = HashMap::new();
    let mut sums: Vec<(verdict::SiteShare, Vec<u32>)> = Vec::new();
    for part in parts {
        let key = ledger.site(part.site).map(|s| (s.stack, s.layer, s.device, named(s.entry_point)));
        match places.get(&key).and_then(|&at| sums.get_mut(at)) {
            Some((sum, numbers)) => {
                sum.bytes_per_step += part.bytes_per_step;
                sum.live_bytes = sum.live_bytes.saturating_add(part.live_bytes);
                sum.live_blocks = sum.live_blocks.saturating_add(part.live_blocks);
                numbers.push(part.site);
            }
            None => {
                places.insert(key, sums.len());
                sums.push((part.clone(), vec![part.site]));
            }
        }
    }
    sums
}

/// Returns what each finding's sites retained over the run, less what they set up first and have beside the finding.
pub(super) fn curves(ledger: &Ledger, findings: &[verdict::Finding]) -> Vec<Vec<Point>> {
    let mut of_site: HashMap<u32, Vec<usize>> = HashMap::new();
    for (i, f) in findings.iter().enumerate() {
        f.sites.iter().for_each(|p| of_site.entry(p.site).or_default().push(i));
    }
    let records = ledger.steps();
    let stride = records.len().div_ceil(CURVE).max(1);
    let mut sums = vec![0i64; findings.len()];
    let mut curves = vec![Vec::new(); findings.len()];
    if findings.is_empty() {
        return curves;
    }
    for (i, record) in records.iter().enumerate() {
        for delta in &record.deltas {
            for &f in of_site.get(&delta.site).into_iter().flatten() {
                sums[f] = sums[f].wrapping_add(delta.bytes);
            }
        }
        if (records.len() - 1 - i).is_multiple_of(stride) {
            for (f, finding) in findings.iter().enumerate() {
                let device = record.devices.iter().find(|d| d.device == finding.device);
                let bytes = match finding.sites.is_empty() {
                    true => device.and_then(|d| d.unattributed_bytes).unwrap_or(0),
                    false => sums[f].max(0) as u64,
                };
                curves[f].push(Point { step: record.step, bytes });
            }
        }
    }
    for (curve, finding) in curves.iter_mut().zip(findings) {
        take_off(curve, finding);
    }
    curves
}

/// Takes what is no part of a finding off its curve: a library's workspace under the same line would flatten it.
fn take_off(curve: &mut [Point], f: &verdict::Finding) {
    let first = curve.len() / 4;
    let floor = curve.iter().skip(first).map(|p| p.bytes).min().unwrap_or(0);
    let more = curve.last().map_or(0, |p| p.bytes.saturating_sub(f.live_bytes));
    if !f.sites.is_empty() && fills(f) {
        curve.iter_mut().for_each(|p| p.bytes = p.bytes.saturating_sub(more.min(floor)));
    }
}

/// Counts the steps until a finding has filled a device: with blocks, or, if that comes first, with the segments that
/// are reserved for them.
fn until_full(device: &Device, f: &verdict::Finding) -> Option<u64> {
    let part = f.part_on(device.index);
    let rate = f.late_bytes_per_step.unwrap_or(f.growth_bytes_per_step);
    let by_blocks = steps_to_oom(device, rate * part);
    let by_segments =
        f.reserved_bytes_per_step.and_then(|rate| steps_until(device, device.reserved_bytes, rate * part));
    by_blocks.into_iter().chain(by_segments).min()
}

/// Counts the steps until the device is full at a rate of growth.
pub(super) fn steps_to_oom(device: &Device, growth_bytes_per_step: f64) -> Option<u64> {
    let live = device.live_bytes.saturating_add(device.before_attaching_bytes);
    steps_until(device, live, growth_bytes_per_step)
}

/// Counts the steps until a device is full of which so many bytes are taken, besides what is unattributed.
fn steps_until(device: &Device, taken: u64, bytes_per_step: f64) -> Option<u64> {
    let used = taken.saturating_add(device.unattributed_bytes.unwrap_or(0));
    let free = device.total_bytes.checked_sub(used).filter(|_| device.total_bytes > 0)?;
    let steps = free as f64 / bytes_per_step;
    (bytes_per_step > 0.0 && steps.is_finite()).then_some(steps as u64)
}

/// Returns whether a finding fills its device.
pub(super) fn fills(f: &verdict::Finding) -> bool {
    matches!(f.kind, verdict::Kind::Leak | verdict::Kind::Growing)
        && !matches!(f.layer, ledger::Layer::Host | ledger::Layer::Code)
}
