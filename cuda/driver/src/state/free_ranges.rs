//! Free address ranges: best fit, neighbours merge.

use std::collections::{BTreeMap, BTreeSet};

pub struct FreeRanges {
    by_address: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl FreeRanges {
    pub const fn new() -> FreeRanges {
        FreeRanges { by_address: BTreeMap::new(), by_size: BTreeSet::new() }
    }

    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let &(size, at) = self.by_size.range((bytes, 0)..).next()?;
        self.remove(at, size);
        if size > bytes {
            self.add(at + bytes, size - bytes);
        }
        Some(at)
    }

    pub fn insert(&mut self, mut at: u64, mut bytes: u64) {
        if let Some(&after) = self.by_address.get(&(at + bytes)) {
            self.remove(at + bytes, after);
            bytes += after;
        }
        if let Some((&before, &size)) = self.by_address.range(..at).next_back()
            && before + size == at
        {
            self.remove(before, size);
            at = before;
            bytes += size;
        }
        self.add(at, bytes);
    }

    fn add(&mut self, at: u64, size: u64) {
        self.by_address.insert(at, size);
        self.by_size.insert((size, at));
    }

    fn remove(&mut self, at: u64, size: u64) {
        self.by_address.remove(&at);
        self.by_size.remove(&(size, at));
    }
}

#[cfg(test)]
mod tests {
    use super::FreeRanges;

    #[test]
    fn best_fit_then_merge() {
        let mut ranges = FreeRanges::new();
        ranges.insert(0x1000, 0x1000);
        ranges.insert(0x10000, 0x200);
        assert_eq!(ranges.take(0x200), Some(0x10000), "the tighter range");
        assert_eq!(ranges.take(0x400), Some(0x1000));
        assert_eq!(ranges.take(0x1000), None);
        ranges.insert(0x1000, 0x400);
        assert_eq!(ranges.take(0x1000), Some(0x1000), "merged again");
    }
}
