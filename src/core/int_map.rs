//! Hash maps whose keys are integers (addresses, packed ids, content hashes): fast, because keys that come
//! from our own events need no defence against collisions made on purpose.

use std::hash::{BuildHasherDefault, Hasher};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The map of integer keys that both crates use.
pub type IntMap<K, V> = hashbrown::HashMap<K, V, BuildHasherDefault<IntHasher>>;

/// Returns an empty map; a constant, for the preload's statics.
pub const fn int_map<K, V>() -> IntMap<K, V> {
    IntMap::with_hasher(BuildHasherDefault::new())
}

/// A hasher of one multiplication, whose halves are folded together: every key bit reaches both the bucket
/// and the tag.
#[derive(Clone, Copy, Debug, Default)]
pub struct IntHasher(u64);

impl Hasher for IntHasher {
    #[inline(always)]
    fn write_u64(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15_u128;
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }

    #[inline(always)]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    /// A 128-bit key is a content hash: its low half is as good as all of it.
    #[inline(always)]
    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64);
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

/// Packs two 32-bit ids into one key.
#[inline]
pub const fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// Serde functions that write a map as a list and read it back into a table of the right size. Filling a
/// growing table in the order of another table of the same hash is slow: everything lands in the same few
/// buckets.
pub mod as_list {
    use super::*;

    pub fn serialize<V: Serialize, S: Serializer>(map: &IntMap<u64, V>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub fn deserialize<'de, V: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<IntMap<u64, V>, D::Error> {
        let list = Vec::<(u64, V)>::deserialize(from)?;
        let mut map = IntMap::with_capacity_and_hasher(list.len(), BuildHasherDefault::default());
        map.extend(list);
        Ok(map)
    }
}
