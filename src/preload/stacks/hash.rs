//! Hashing: of stacks on the hot path, of contents on first sight. Knows numbers only.

use std::hash::{BuildHasherDefault, Hasher};

const A: u64 = 0xa076_1d64_78bd_642f;
const B: u64 = 0xe703_7ed1_a0b4_28db;
const C: u64 = 0x8ebc_6af0_9c88_c6e3;

#[inline(always)]
const fn fold(a: u64, b: u64) -> u64 {
    let wide = (a as u128) * (b as u128);
    wide as u64 ^ (wide >> 64) as u64
}

/// A running hash in two lanes that take turns: half the latency of one, so that it hides behind the walk.
#[derive(Clone, Copy)]
pub(crate) struct Hash(u64, u64);

impl Hash {
    #[inline(always)]
    pub const fn new(seed: u64) -> Hash {
        Hash(seed ^ C, seed ^ B)
    }

    #[inline(always)]
    pub const fn add(&mut self, word: u64) {
        *self = Hash(self.1, fold(self.0 ^ word, A));
    }

    #[inline(always)]
    pub const fn add2(&mut self, first: u64, second: u64) {
        *self = Hash(self.1, fold(self.0 ^ first, B ^ second));
    }

    /// Never 0, which marks an empty place in the caches.
    #[inline(always)]
    pub const fn finish(self) -> u64 {
        let hash = fold(self.0 ^ A, self.1 ^ C);
        if hash == 0 { 1 } else { hash }
    }
}

/// A running hash of three instructions per word, for the longest loop there is: that over the Python frames. Its sum is mixed
/// too little to be looked up by: it goes into a [`Hash`].
#[derive(Clone, Copy)]
pub(crate) struct Quick(u64);

impl Quick {
    pub const START: Quick = Quick(B);

    #[inline(always)]
    pub const fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(A);
    }

    #[inline(always)]
    pub const fn sum(self) -> u64 {
        self.0
    }
}

/// A running hash in one lane, for where its value at every word is wanted.
#[inline(always)]
pub(crate) const fn chain(hash: u64, word: u64) -> u64 {
    fold(hash ^ word, A)
}

/// 128 bits that stand for contents: no two that occur share them.
pub(crate) fn content(parts: &[&[u8]]) -> u128 {
    let (mut low, mut high) = (Hash::new(A), Hash::new(C));
    for part in parts {
        low.add(part.len() as u64);
        high.add(part.len() as u64);
        for chunk in part.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            let word = u64::from_le_bytes(bytes);
            low.add(word);
            high.add2(word, B);
        }
    }
    (high.finish() as u128) << 64 | low.finish() as u128
}

/// Hasher of the tables here, whose keys are numbers.
#[derive(Default, Clone, Copy)]
pub(crate) struct Number(u64);

impl Hasher for Number {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte as u64);
        }
    }
    #[inline]
    fn write_u64(&mut self, n: u64) {
        self.0 = fold(self.0 ^ n ^ C, A);
    }
    #[inline]
    fn write_u128(&mut self, n: u128) {
        self.write_u64(n as u64);
    }
}

pub(crate) type Map<K, V> = hashbrown::HashMap<K, V, BuildHasherDefault<Number>>;

pub(crate) const fn map<K, V>() -> Map<K, V> {
    Map::with_hasher(BuildHasherDefault::new())
}
