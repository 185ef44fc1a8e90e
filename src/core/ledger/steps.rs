//! The record of the steps: totals and net changes at each boundary, bounded by merging neighbours of the
//! older half: the newest steps each by itself, the older ones at even distances.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::devices::DeviceAt;
use super::sites::{Delta, Deltas};

/// Records kept before the older half is merged.
const MAX_RECORDS: usize = 16_384;
/// Of the older half at least the part, 1 in so many, is merged at a time.
const LEAST_THINNED: usize = 4;
/// Changes kept over all records: 16 MiB of them.
const MAX_DELTAS: usize = (16 << 20) / size_of::<Delta>();
/// Devices kept over all records: 16 MiB of them.
const MAX_DEVICES: usize = (16 << 20) / size_of::<DeviceAt>();

/// The totals and net changes at one boundary.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Number of the step that ended, from 1.
    pub step: u32,
    /// Nanoseconds since the recording began.
    pub at_ns: u64,
    /// Code of the boundary's source.
    pub source: u8,
    /// Id of the label that the program gave in this step; 0: none.
    pub label: u32,
    /// Mostly one.
    pub devices: SmallVec<[DeviceAt; 1]>,
    /// Sites whose live blocks or bytes changed since the record before, by site.
    pub deltas: Deltas,
}

/// All records, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Steps {
    records: Vec<StepRecord>,
    /// Changes and devices in all records.
    deltas: usize,
    devices: usize,
    /// The number of the older records that stand for the same number of steps each, and for how many.
    even: (usize, u64),
}

impl Steps {
    pub fn all(&self) -> &[StepRecord] {
        &self.records
    }

    pub fn get(&self, step: u32) -> Option<&StepRecord> {
        let at = self.records.binary_search_by_key(&step, |r| r.step).ok()?;
        self.records.get(at)
    }

    pub fn push(&mut self, record: StepRecord) {
        // A damaged checkpoint may hold any count.
        self.deltas = self.deltas.saturating_add(record.deltas.len());
        self.devices = self.devices.saturating_add(record.devices.len());
        self.records.push(record);
        self.bound(MAX_RECORDS, MAX_DELTAS, MAX_DEVICES);
    }

    /// Makes the last step go on until `record`.
    pub fn extend(&mut self, record: StepRecord) {
        match self.records.pop() {
            Some(last) => {
                self.deltas = self.deltas.saturating_sub(last.deltas.len());
                self.devices = self.devices.saturating_sub(last.devices.len());
                self.push(merge(last, record));
            }
            None => self.push(record),
        }
    }

    fn bound(&mut self, records: usize, deltas: usize, devices: usize) {
        let full = |s: &Steps| s.deltas > deltas || s.devices > devices;
        while self.records.len() > records || (full(self) && self.records.len() > 2) {
            self.thin();
        }
    }

    /// Merges neighbours in the older half, so that each record there stands for about as many steps: a rule that looks at
    /// the whole run finds all of it. Sums up to any step that is still there stay exact.
    fn thin(&mut self) {
        let older = self.records.len().div_ceil(2).max(2).min(self.records.len());
        // The first record ends where its span does.
        let mut span = self.records.first().map_or(1, |first| u64::from(first.step).next_power_of_two());
        let even = if self.even.1 == span { self.even.0.min(older) } else { 0 };
        let mut kept = self.merge_older(even, older, span);
        while kept > 1 && (older - kept) * LEAST_THINNED < older {
            span *= 2;
            kept = self.merge_older(0, kept, span);
        }
        self.records.drain(kept..older);
        self.even = (kept, span);
        self.deltas = self.records.iter().map(|r| r.deltas.len()).sum();
        self.devices = self.records.iter().map(|r| r.devices.len()).sum();
    }

    /// Merges the records among the first `count` whose steps lie in the same span, of which the first `even` are such that
    /// do not. Returns how many there are then.
    fn merge_older(&mut self, even: usize, count: usize, span: u64) -> usize {
        let of = |record: &StepRecord| (u64::from(record.step).saturating_sub(1)) / span;
        let mut kept = even.saturating_sub(1);
        for at in kept + 1..count {
            let (before, record) = self.records.split_at_mut(at);
            let (last, record) = (&mut before[kept], &mut record[0]);
            if of(last) == of(record) {
                *last = merge(std::mem::take(last), std::mem::take(record));
            } else {
                kept += 1;
                self.records.swap(kept, at);
            }
        }
        kept + 1
    }
}

/// Merges two neighbours: the time of the later one, the changes and peaks of both.
fn merge(first: StepRecord, mut second: StepRecord) -> StepRecord {
    for d in &first.devices {
        match second.devices.iter_mut().find(|e| e.device == d.device) {
            Some(e) => e.peak_bytes = e.peak_bytes.max(d.peak_bytes),
            None => second.devices.push(d.clone()),
        }
    }
    if second.label == 0 {
        second.label = first.label;
    }
    let mut deltas = first.deltas;
    deltas.append(&mut second.deltas);
    deltas.sort_by_key(|d| d.site);
    deltas.dedup_by(|later, kept| {
        let same = later.site == kept.site;
        if same {
            kept.blocks = kept.blocks.wrapping_add(later.blocks);
            kept.bytes = kept.bytes.wrapping_add(later.bytes);
        }
        same
    });
    deltas.retain(|d| d.blocks != 0 || d.bytes != 0);
    second.deltas = deltas;
    second
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(step: u32, deltas: &[(u32, i64)]) -> StepRecord {
        let device = DeviceAt { peak_bytes: u64::from(step) * 7 % 5, ..DeviceAt::default() };
        let deltas = deltas.iter().map(|&(site, bytes)| Delta { site, blocks: bytes.signum() as i32, bytes });
        StepRecord { step, at_ns: 0, source: 1, label: 0, devices: [device].into(), deltas: deltas.collect() }
    }

    fn sum(steps: &Steps, step: u32, site: u32) -> i64 {
        let upto = steps.all().iter().filter(|r| r.step <= step);
        upto.flat_map(|r| &r.deltas).filter(|d| d.site == site).map(|d| d.bytes).sum()
    }

    #[test]
    fn thinning_keeps_the_sums_the_newest_and_the_peaks() {
        let (mut thick, mut thin) = (Steps::default(), Steps::default());
        for step in 1..=1000 {
            let change = i64::from(step % 7) - 3;
            let r = record(step, &[(step % 5, change), (9, 512)]);
            thick.push(r.clone());
            thin.push(r);
            thin.bound(64, usize::MAX, usize::MAX);
        }
        assert!(thin.all().len() <= 64);
        assert!(thin.all().iter().rev().take(20).map(|r| r.step).eq((981..=1000).rev()));
        for kept in thin.all() {
            for site in [0, 1, 2, 3, 4, 9] {
                assert_eq!(sum(&thin, kept.step, site), sum(&thick, kept.step, site), "step {}", kept.step);
            }
        }
        let peak = |s: &Steps| s.all().iter().map(|r| r.devices[0].peak_bytes).max();
        assert_eq!(peak(&thin), peak(&thick));
    }

    #[test]
    fn older_records_stand_for_as_many_steps_each() {
        let mut steps = Steps::default();
        for step in 1..=20_000 {
            steps.push(record(step, &[(1, 512)]));
            steps.bound(256, usize::MAX, usize::MAX);
        }
        let spans: Vec<u32> = steps.all().windows(2).map(|w| w[1].step - w[0].step).collect();
        let (older, newer) = spans.split_at(spans.iter().position(|&span| span == 1).unwrap());
        let widest = older[0];
        assert!(
            widest <= 20_000 / 32 && older[..older.len() - 1].iter().all(|&span| span == widest),
            "{spans:?}"
        );
        assert!(newer.len() >= 100 && newer.iter().all(|&span| span == 1), "{spans:?}");
    }

    #[test]
    fn the_number_of_changes_is_bounded() {
        let mut steps = Steps::default();
        for step in 1..=500 {
            let all: Vec<_> = (0..40).map(|site| (site, i64::from(step % 3) - 1)).collect();
            steps.push(record(step, &all));
            steps.bound(usize::MAX, 400, usize::MAX);
        }
        assert!(
            steps.deltas <= 400 + 80
                && steps.deltas == steps.all().iter().map(|r| r.deltas.len()).sum::<usize>()
        );
    }

    #[test]
    fn many_devices_in_many_steps_are_bounded_too() {
        let mut steps = Steps::default();
        for step in 1..=500 {
            let mut r = record(step, &[(1, 512)]);
            r.devices = (0..40).map(|device| DeviceAt { device, ..DeviceAt::default() }).collect();
            steps.push(r);
            steps.bound(usize::MAX, usize::MAX, 400);
        }
        let held: usize = steps.all().iter().map(|r| r.devices.len()).sum();
        assert!(held == steps.devices && held <= 400, "{held}");
        assert_eq!(sum(&steps, 500, 1), 512 * 500);
    }
}
