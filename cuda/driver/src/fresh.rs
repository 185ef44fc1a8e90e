//! Which device bytes the host wrote since the last launch.
//!
//! Kernels do not run, so a count or flag the host reads back would be stale. Hence the rule: a device-to-host read
//! of 16 bytes or less gives 0 unless the host wrote that range since the last launch.

use std::collections::BTreeMap;

/// A read of at most this many bytes is taken for a count or a flag.
pub const SMALL_READ: u64 = 16;

pub struct Fresh {
    /// start → end, disjoint
    ranges: BTreeMap<u64, u64>,
}

impl Fresh {
    pub const fn new() -> Fresh {
        Fresh { ranges: BTreeMap::new() }
    }

    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    pub fn wrote(&mut self, at: u64, bytes: u64) {
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

    /// What is now in the range is no longer what the host wrote.
    pub fn forget(&mut self, at: u64, bytes: u64) {
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

    pub fn covers(&self, at: u64, bytes: u64) -> bool {
        self.ranges.range(..=at).next_back().is_some_and(|(_, &end)| at + bytes <= end)
    }
}

#[cfg(test)]
mod tests {
    use super::Fresh;

    #[test]
    fn overlapping_writes_are_one_range() {
        let mut fresh = Fresh::new();
        fresh.wrote(100, 100);
        fresh.wrote(150, 10);
        assert!(fresh.covers(155, 16), "a small write inside must not hide the large one");
        fresh.wrote(200, 8);
        assert!(fresh.covers(196, 8));
        fresh.forget(120, 4);
        assert!(!fresh.covers(118, 4));
        assert!(fresh.covers(100, 20) && fresh.covers(124, 16));
    }
}
