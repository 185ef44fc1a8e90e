//! Hash maps from 64-bit keys, fast because their keys need no defence: they come from our own events.

use std::hash::{BuildHasherDefault, Hasher};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A map whose keys are 64-bit words (addresses, packed ids).
pub type Map<V> = hashbrown::HashMap<u64, V, BuildHasherDefault<Fold>>;

/// One multiplication, its halves folded together: every key bit reaches both the bucket and the tag.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fold(u64);

impl Hasher for Fold {
    #[inline(always)]
    fn write_u64(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15_u128;
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline(always)]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Two 32-bit ids as one key.
#[inline]
pub const fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// Writes a map as a list and takes it back into a table made for its length. Filling a growing table in the order of
/// another table of the same hash is slow: everything lands in the same few buckets.
pub mod listed {
    use super::*;

    pub fn serialize<V: Serialize, S: Serializer>(map: &Map<V>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub fn deserialize<'de, V: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Map<V>, D::Error> {
        let list = Vec::<(u64, V)>::deserialize(from)?;
        let mut map = Map::with_capacity_and_hasher(list.len(), BuildHasherDefault::default());
        map.extend(list);
        Ok(map)
    }
}
