//! Hash functions: of stacks on the hot path, of contents on first sight. Knows numbers only.

/// Odd constants without a pattern, as wyhash has them.
const A: u64 = 0xa076_1d64_78bd_642f;
const B: u64 = 0xe703_7ed1_a0b4_28db;
const C: u64 = 0x8ebc_6af0_9c88_c6e3;

/// Multiplies to 128 bits and folds them to 64.
#[inline(always)]
const fn fold(a: u64, b: u64) -> u64 {
    let wide = (a as u128) * (b as u128);
    wide as u64 ^ (wide >> 64) as u64
}

/// A running hash in two lanes that take turns: half the latency of one lane, so that it hides behind the
/// walk.
#[derive(Clone, Copy)]
pub struct Hash(u64, u64);

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

    /// Returns the hash; never 0, which marks an empty slot in the caches.
    #[inline(always)]
    pub const fn finish(self) -> u64 {
        let hash = fold(self.0 ^ A, self.1 ^ C);
        if hash == 0 { 1 } else { hash }
    }
}

/// A running hash of three instructions per word, for the longest loop there is: that over the Python frames.
/// Its value is mixed too little to be looked up by, so it goes into a [`struct@Hash`] as one word.
#[derive(Clone, Copy)]
pub struct FrameHash(u64);

impl FrameHash {
    pub const START: FrameHash = FrameHash(B);

    #[inline(always)]
    pub const fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(A);
    }

    #[inline(always)]
    pub const fn word(self) -> u64 {
        self.0
    }
}

/// Adds a word to a hash of one lane, whose value is wanted after every word.
#[inline(always)]
pub const fn chain(hash: u64, word: u64) -> u64 {
    fold(hash ^ word, A)
}

/// Returns 128 bits that stand for contents: no two contents that occur share them.
pub fn content(parts: &[&[u8]]) -> u128 {
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
