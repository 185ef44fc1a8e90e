//! Per device: its bytes by layer, the peak, and the comparison with what the allocator and the driver report
//! of it.

use serde::{Deserialize, Serialize};

use super::sites::Layer;

/// Frees of carried-over blocks kept in one step.
const MAX_CARRIED: usize = 16_384;

/// The free of a block or driver allocation that the step before left alive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CarriedFree {
    pub site: u32,
    pub bytes: u64,
    /// Most live bytes since the carried free before.
    pub peak: u64,
    /// True if anything was born since the carried free before: the two did not die together.
    pub apart: bool,
    /// Most live bytes from then on until the next one, without this block.
    pub rest: u64,
}

/// The totals of one device, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Device {
    pub device: u8,
    pub block_bytes: u64,
    pub driver_allocation_bytes: u64,
    pub segment_bytes: u64,
    pub host_bytes: u64,
    /// Memory of [`Layer::External`]: no part of any other figure.
    pub external_bytes: u64,
    /// Memory of [`Layer::Code`]: no part of any other figure.
    pub code_bytes: u64,
    /// The part of `driver_allocation_bytes` that came out of a pool of the driver's.
    pub(super) pooled_bytes: u64,
    pool_reserved: u64,
    pool_used: u64,
    peak_bytes: u64,
    step_peak: u64,
    /// Most live bytes since the latest entry of `carried_frees`.
    span_peak: u64,
    /// The same, but for the block of that entry.
    rest_peak: u64,
    /// Births so far, and how many there were at the latest entry of `carried_frees`.
    births: u64,
    births_then: u64,
    /// What the step before left alive and this one freed, in order.
    pub(super) carried_frees: Vec<CarriedFree>,
    last_block_seq: u64,
    /// What was there when the recording began, in a process that was running; `None` before anybody said.
    before: Option<Before>,
    /// Comparisons with the caching allocator's own total, and how many did not agree.
    pub(super) checks: u64,
    pub(super) mismatches: u64,
    /// Total memory by the driver's latest report; 0: there was none.
    pub total_bytes: u64,
    /// In use by the driver's latest report, but part of no allocation that was seen.
    pub unattributed_bytes: Option<u64>,
}

/// What caching allocators had when the recording began, by their own account, and still have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Before {
    block_bytes: u64,
    reserved_bytes: u64,
}

/// A device at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceAt {
    pub device: u8,
    pub block_bytes: u64,
    pub driver_allocation_bytes: u64,
    pub reserved_bytes: u64,
    /// Everything the driver gave and has not got back: segments and driver allocations.
    pub driver_bytes: u64,
    pub host_bytes: u64,
    pub external_bytes: u64,
    pub code_bytes: u64,
    /// Blocks that were there before the recording began, in a process that was running: no part of any other figure.
    pub before_bytes: u64,
    /// In use of the device's memory pools as the driver counts it, its own rounding included.
    pub pool_used_bytes: u64,
    /// Most live bytes since the boundary before; of a moment outside the steps, since the beginning.
    pub peak_bytes: u64,
    pub unattributed_bytes: Option<u64>,
}

impl DeviceAt {
    /// Returns the bytes of blocks and driver allocations.
    pub fn live_bytes(&self) -> u64 {
        self.block_bytes.wrapping_add(self.driver_allocation_bytes)
    }
}

impl Device {
    pub(super) fn new(device: u8) -> Device {
        Device { device, ..Device::default() }
    }

    /// Returns the bytes of blocks and driver allocations.
    #[inline]
    pub fn live_bytes(&self) -> u64 {
        self.block_bytes.wrapping_add(self.driver_allocation_bytes)
    }

    /// Returns the number of allocations so far.
    pub fn allocations(&self) -> u64 {
        self.births
    }

    /// Returns what caching allocators and pools hold from the driver, used or not.
    pub fn reserved_bytes(&self) -> u64 {
        let before = self.before.unwrap_or_default().reserved_bytes;
        self.segment_bytes.wrapping_add(self.pool_reserved).wrapping_add(before)
    }

    /// Returns everything the driver gave and has not got back.
    pub fn driver_bytes(&self) -> u64 {
        self.segment_bytes.wrapping_add(self.driver_allocation_bytes)
    }

    /// Returns the most bytes that were ever live.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes.max(self.step_peak).max(self.last_span())
    }

    #[inline]
    fn figure(&mut self, layer: Layer) -> &mut u64 {
        match layer {
            Layer::Block => &mut self.block_bytes,
            Layer::Driver => &mut self.driver_allocation_bytes,
            Layer::Host => &mut self.host_bytes,
            Layer::External => &mut self.external_bytes,
            Layer::Code => &mut self.code_bytes,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, layer: Layer, bytes: u64) {
        self.births = self.births.wrapping_add(1);
        let figure = self.figure(layer);
        *figure = figure.wrapping_add(bytes);
    }

    /// Takes bytes off. The peak is updated only here and at boundaries: a maximum stands right before
    /// something leaves. So a segment, which counts as a driver allocation until its first block shows what
    /// it is, never makes a peak.
    #[inline]
    pub(super) fn take(&mut self, layer: Layer, bytes: u64) {
        let live = self.live_bytes();
        (self.span_peak, self.rest_peak) = (self.span_peak.max(live), self.rest_peak.max(live));
        let figure = self.figure(layer);
        *figure = figure.wrapping_sub(bytes);
    }

    /// Takes off what the step before left alive, and keeps its free.
    #[inline]
    pub(super) fn take_carried(&mut self, layer: Layer, site: u32, bytes: u64) {
        let is_kept = self.carried_frees.len() < MAX_CARRIED;
        if is_kept {
            self.end_span(site, bytes);
        }
        self.take(layer, bytes);
        if is_kept {
            self.rest_peak = 0;
        }
    }

    /// Ends a span at the free of a block that is still alive.
    fn end_span(&mut self, site: u32, bytes: u64) {
        let peak = self.span_peak.max(self.live_bytes());
        let apart = self.births != self.births_then;
        self.note_rest();
        self.carried_frees.push(CarriedFree { site, bytes, peak, apart, rest: 0 });
        self.births_then = self.births;
        self.step_peak = self.step_peak.max(peak);
        self.span_peak = 0;
    }

    /// Notes the most bytes live since the latest entry of `carried_frees`, without its block.
    pub(super) fn note_rest(&mut self) {
        let rest = self.rest_peak.max(self.live_bytes());
        if let Some(free) = self.carried_frees.last_mut() {
            free.rest = rest;
        }
    }

    /// Returns the peak of the steps that ended.
    pub(super) fn peak_of_steps(&self) -> u64 {
        self.peak_bytes
    }

    /// Returns the most bytes live in this step so far.
    pub(super) fn step_so_far(&self) -> u64 {
        self.step_peak.max(self.last_span())
    }

    /// Returns the most bytes live since the latest entry of `carried_frees`.
    pub(super) fn last_span(&self) -> u64 {
        self.span_peak.max(self.live_bytes())
    }

    /// Moves bytes from the driver allocations to the segments.
    pub(super) fn mark_as_segment(&mut self, bytes: u64) {
        self.driver_allocation_bytes = self.driver_allocation_bytes.wrapping_sub(bytes);
        self.segment_bytes = self.segment_bytes.wrapping_add(bytes);
    }

    /// Remembers the latest block event, see [`Device::compare_allocator`].
    #[inline]
    pub(super) fn block_event(&mut self, seq: u64) {
        self.last_block_seq = self.last_block_seq.max(seq);
    }

    /// Compares the caching allocator's own total with the blocks here; `then` is the low half of the latest
    /// sequence number when it was read. Of a process that was running (`attached`), the first total tells what was
    /// there before.
    pub(super) fn compare_allocator(
        &mut self,
        seq: u64,
        allocated: u64,
        reserved: u64,
        then: u32,
        attached: bool,
    ) {
        let events_ago = (seq as u32).wrapping_sub(then);
        // Only a total that no later block event of ours has overtaken can be compared.
        if self.last_block_seq > seq.saturating_sub(u64::from(events_ago)) {
            return;
        }
        if attached {
            let reserved_bytes = reserved.saturating_sub(self.segment_bytes);
            let unseen = allocated.saturating_sub(self.block_bytes);
            let block_bytes = self.before.map_or(unseen, |before| before.block_bytes);
            if self.before.replace(Before { block_bytes, reserved_bytes }).is_none() {
                return;
            }
        }
        let before = self.before.unwrap_or_default().block_bytes;
        self.checks = self.checks.wrapping_add(1);
        let differs = allocated != self.block_bytes.wrapping_add(before);
        self.mismatches = self.mismatches.wrapping_add(u64::from(differs));
    }

    /// Takes off a block that was there before the recording began; false if there cannot have been one.
    pub(super) fn freed_from_before(&mut self, bytes: u64) -> bool {
        // What goes before the first total is no part of it.
        let Some(before) = &mut self.before else { return true };
        match before.block_bytes.checked_sub(bytes) {
            Some(rest) => before.block_bytes = rest,
            None => return false,
        }
        true
    }

    pub(super) fn set_pool_totals(&mut self, reserved: u64, used: u64) {
        (self.pool_reserved, self.pool_used) = (reserved, used);
    }

    /// Takes in the driver's own report of free and total memory.
    pub(super) fn set_memory_info(&mut self, free: u64, total: u64) {
        // All of a pool's memory is charged to the device, used or not.
        let outside_pools = self.driver_bytes().wrapping_sub(self.pooled_bytes);
        let before = self.before.unwrap_or_default().reserved_bytes;
        let tracked =
            outside_pools.wrapping_add(self.pool_reserved.max(self.pooled_bytes)).wrapping_add(before);
        self.total_bytes = total;
        self.unattributed_bytes = Some(total.saturating_sub(free).saturating_sub(tracked));
    }

    fn at(&self, peak_bytes: u64) -> DeviceAt {
        DeviceAt {
            device: self.device,
            block_bytes: self.block_bytes,
            driver_allocation_bytes: self.driver_allocation_bytes,
            reserved_bytes: self.reserved_bytes(),
            driver_bytes: self.driver_bytes(),
            host_bytes: self.host_bytes,
            external_bytes: self.external_bytes,
            code_bytes: self.code_bytes,
            before_bytes: self.before.unwrap_or_default().block_bytes,
            pool_used_bytes: self.pool_used,
            peak_bytes,
            unattributed_bytes: self.unattributed_bytes,
        }
    }

    /// Returns the device now, with the peak of the run so far.
    pub(super) fn now(&self) -> DeviceAt {
        self.at(self.peak_bytes())
    }

    /// Returns the device at the end of a step, and starts the next step's peak.
    pub(super) fn end_step(&mut self) -> DeviceAt {
        let peak = self.step_peak.max(self.last_span());
        self.peak_bytes = self.peak_bytes.max(peak);
        (self.step_peak, self.span_peak) = (self.live_bytes(), 0);
        self.births_then = self.births;
        self.at(peak)
    }
}
