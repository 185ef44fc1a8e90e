//! Hash maps from 64-bit keys, fast because their keys need no defence: they come from our own events.

use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are 64-bit words (addresses, packed ids).
pub type Map<V> = hashbrown::HashMap<u64, V, BuildHasherDefault<Fold>>;

/// One multiplication, its halves folded together: every key bit reaches both the bucket and the tag.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fold(u64);

impl Hasher for Fold {
    #[inline(always)]
    fn write_u64(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
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
