//! Which device bytes the host wrote since the last launch.
//!
//! Kernels do not run, so a count or flag the host reads back would be stale. Hence the rule: a
//! device-to-host read of 16 bytes or less gives 0 unless the host wrote that range since the last launch. A
//! loop that waits for a flag would never end: every so many reads of one byte may give 1.

use std::collections::BTreeMap;

/// A read of at most this many bytes is taken for a count or a flag.
pub const SMALL_READ: u64 = 16;

/// The reads of one byte that no host wrote: flags.
#[derive(Default)]
pub struct FlagReads {
    /// How many reads bring one that gives 1; 0: none does.
    period: u32,
    since: u32,
}

impl FlagReads {
    pub fn every(period: u32) -> FlagReads {
        FlagReads { period, since: 0 }
    }

    /// Returns what the next one gives.
    pub fn next(&mut self) -> u8 {
        self.since += u32::from(self.period > 0);
        let is_set = self.period > 0 && self.since >= self.period;
        if is_set {
            self.since = 0;
        }
        is_set.into()
    }
}

#[derive(Default)]
pub struct HostWrites {
    /// Disjoint ranges, from start to end.
    ranges: BTreeMap<u64, u64>,
}

impl HostWrites {
    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    pub fn insert(&mut self, at: u64, bytes: u64) {
        let (mut start, mut end) = (at, at.saturating_add(bytes));
        while let Some((&s, &e)) = self.ranges.range(..=end).next_back()
            && e >= start
        {
            self.ranges.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.ranges.insert(start, end);
    }

    /// Forgets a range whose bytes are no longer the host's.
    pub fn remove(&mut self, at: u64, bytes: u64) {
        let end = at.saturating_add(bytes);
        while let Some((&s, &e)) = self.ranges.range(..end).next_back()
            && e > at
        {
            self.ranges.remove(&s);
            if s < at {
                self.ranges.insert(s, at);
            }
            if e > end {
                self.ranges.insert(end, e);
            }
        }
    }

    pub fn contains(&self, at: u64, bytes: u64) -> bool {
        self.ranges.range(..=at).next_back().is_some_and(|(_, &end)| at + bytes <= end)
    }
}

#[cfg(test)]
mod tests {
    use super::HostWrites;

    #[test]
    fn overlapping_writes_are_one_range() {
        let mut host_writes = HostWrites::default();
        host_writes.insert(100, 100);
        host_writes.insert(150, 10);
        assert!(host_writes.contains(155, 16), "a small write inside must not hide the large one");
        host_writes.insert(200, 8);
        assert!(host_writes.contains(196, 8));
        host_writes.remove(120, 4);
        assert!(!host_writes.contains(118, 4));
        assert!(host_writes.contains(100, 20) && host_writes.contains(124, 16));
    }
}
