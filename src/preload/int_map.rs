//! A hash table whose keys are integers: addresses, ids, and hashes that are well mixed already.

use std::hash::{BuildHasherDefault, Hasher};

use crate::hash::fold;

/// Hasher of integer keys: one multiplication.
#[derive(Default, Clone, Copy)]
pub struct IntHasher(u64);

impl Hasher for IntHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    #[inline]
    fn write_u64(&mut self, n: u64) {
        self.0 = fold(self.0 ^ n ^ 0x8ebc_6af0_9c88_c6e3, 0xa076_1d64_78bd_642f);
    }
    #[inline]
    fn write_u128(&mut self, n: u128) {
        self.write_u64(n as u64);
    }
}

pub type IntMap<K, V> = hashbrown::HashMap<K, V, BuildHasherDefault<IntHasher>>;

/// Returns an empty table; for statics.
pub const fn int_map<K, V>() -> IntMap<K, V> {
    IntMap::with_hasher(BuildHasherDefault::new())
}
