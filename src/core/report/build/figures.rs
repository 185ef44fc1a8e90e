//! What was in use on each device: at the judged moment, at a step, over the steps.

use super::Builder;
use crate::format::event::NO_DEVICE;
use crate::ledger::{self, Ledger};
use crate::report::{Device, Step, StepDevice};

/// Steps listed one by one, and devices listed in all of them.
const SERIES: usize = 10_000;
const SERIES_DEVICES: usize = 80_000;

/// Lists the totals of the latest steps.
pub(super) fn series(ledger: &Ledger) -> Vec<Step> {
    let records = ledger.steps();
    let mut devices = 0;
    let fits = |r: &&ledger::StepRecord| {
        devices += r.devices.len();
        devices <= SERIES_DEVICES
    };
    let listed = records.iter().rev().take(SERIES).take_while(fits).count();
    let latest = records.iter().skip(records.len() - listed);
    let device = |d: &ledger::DeviceAt| StepDevice {
        index: d.device,
        live_bytes: d.live_bytes(),
        block_bytes: d.block_bytes,
        pool_used_bytes: d.pool_used_bytes,
        reserved_bytes: d.reserved_bytes,
        driver_live_bytes: d.driver_bytes,
        unattributed_bytes: d.unattributed_bytes,
    };
    let step = |r: &ledger::StepRecord| Step {
        step: r.step,
        at_s: r.at_ns as f64 / 1e9,
        host_bytes: r.devices.iter().fold(0, |sum: u64, d| sum.wrapping_add(d.host_bytes)),
        devices: r.devices.iter().filter(|d| d.device != NO_DEVICE).map(device).collect(),
    };
    latest.map(step).collect()
}

impl Builder<'_> {
    /// Returns the devices at a step, or at the judged moment.
    fn at(&self, step: Option<u32>) -> Vec<ledger::DeviceAt> {
        let record = step.and_then(|s| self.ledger.step(s));
        record.map_or_else(|| self.ledger.judged_devices(), |r| r.devices.to_vec())
    }

    /// Returns the pinned host memory at that moment, and (without a step) at the very end.
    pub(super) fn host(&self, step: Option<u32>) -> (u64, u64) {
        let then = self.at(step).iter().fold(0, |sum: u64, d| sum.wrapping_add(d.host_bytes));
        let last = self.ledger.devices().iter().fold(0, |sum: u64, d| sum.wrapping_add(d.host_bytes));
        (then, if step.is_some() { then } else { last })
    }

    /// Lists the devices, by index.
    pub(super) fn devices(&self, step: Option<u32>) -> Vec<Device> {
        let at = self.at(step);
        let peak = |d: &ledger::DeviceAt| match step {
            Some(step) => {
                let records = self.ledger.steps().iter().take_while(|r| r.step <= step);
                let peaks = records.flat_map(|r| &r.devices).filter(|e| e.device == d.device);
                peaks.map(|e| e.peak_bytes).max().unwrap_or(d.peak_bytes)
            }
            None => d.peak_bytes,
        };
        let mut devices: Vec<Device> = at
            .iter()
            .filter(|d| d.device != NO_DEVICE)
            .map(|d| {
                let known = self.tables.devices.get(&d.device);
                let now = self.ledger.devices().iter().find(|e| e.device == d.device);
                let total = now.map_or(0, |e| e.total_bytes);
                Device {
                    index: d.device,
                    name: known.map_or_else(String::new, |k| k.name.clone()),
                    total_bytes: known.map_or(total, |k| k.total_bytes),
                    peak_bytes: peak(d),
                    live_bytes: d.live_bytes(),
                    before_attaching_bytes: d.before_bytes,
                    reserved_bytes: d.reserved_bytes,
                    unattributed_bytes: d.unattributed_bytes,
                    block_bytes: d.block_bytes,
                    driver_allocation_bytes: d.driver_allocation_bytes,
                    pool_used_bytes: d.pool_used_bytes,
                    host_bytes: d.host_bytes,
                    external_bytes: d.external_bytes,
                    code_bytes: d.code_bytes,
                    driver_live_bytes: match step {
                        Some(_) => d.driver_bytes,
                        None => now.map_or(d.driver_bytes, ledger::Device::driver_bytes),
                    },
                    steps_to_oom: None,
                }
            })
            .collect();
        devices.sort_by_key(|d| d.index);
        devices
    }
}
