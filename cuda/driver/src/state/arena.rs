//! A device's memory: one lazily backed range of addresses over one nameless shared file.
//!
//! The file is sparse, so tens of GiB cost nothing until they are touched; freed blocks are punched out of
//! it. Because it is a file, another process can open a block of it, and a physical handle can be mapped
//! anywhere.

use crate::state::free_ranges::FreeRanges;
use crate::state::mapping::{RW, close, discard, map, shared_file};

pub const SMALL: u64 = 512;
pub const LARGE: u64 = 2 << 20;
/// Small blocks are cut from chunks of this size, so that large ones stay aligned.
const CHUNK: u64 = 8 << 20;
/// Smaller freed blocks keep their pages.
const MIN_PUNCHED: u64 = 64 << 10;

pub struct Arena {
    pub base: u64,
    pub file: i32,
    large: FreeRanges,
    small: FreeRanges,
}

/// Returns what a block of `bytes` costs: in steps of 512 B, from 1 MiB up in steps of 2 MiB.
pub fn rounded(bytes: u64) -> Option<u64> {
    let step = if bytes < 1 << 20 { SMALL } else { LARGE };
    bytes.max(1).checked_next_multiple_of(step)
}

impl Arena {
    /// Reserves twice the capacity and 1 GiB, or half of that and half again until there is room for the
    /// range.
    pub fn new(capacity: u64) -> Option<Arena> {
        let mut bytes = (capacity.saturating_mul(2).saturating_add(1 << 30)).next_multiple_of(LARGE);
        while bytes >= LARGE {
            if let Some((base, file)) = reserve(bytes) {
                let start = base.next_multiple_of(LARGE);
                let mut large = FreeRanges::new();
                large.insert(start, (base + bytes + LARGE - start) / LARGE * LARGE);
                return Some(Arena { base, file, large, small: FreeRanges::new() });
            }
            bytes = (bytes / 2).next_multiple_of(LARGE);
            if bytes == LARGE {
                break;
            }
        }
        None
    }

    /// Allocates `bytes`, a number that `rounded` gave.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        if bytes.is_multiple_of(LARGE) {
            return self.large.take(bytes);
        }
        self.small.take(bytes).or_else(|| {
            let chunk = self.large.take(CHUNK)?;
            self.small.insert(chunk, CHUNK);
            self.small.take(bytes)
        })
    }

    pub fn free(&mut self, at: u64, bytes: u64) {
        if bytes >= MIN_PUNCHED {
            discard(at, bytes);
        }
        if bytes.is_multiple_of(LARGE) { self.large.insert(at, bytes) } else { self.small.insert(at, bytes) }
    }

    pub fn offset(&self, at: u64) -> i64 {
        (at - self.base) as i64
    }
}

fn reserve(bytes: u64) -> Option<(u64, i32)> {
    let room = bytes + LARGE;
    let file = shared_file(room);
    let base = match file {
        Some(file) => map(0, room, RW, file, 0),
        None => map(0, room, RW, -1, 0),
    };
    let Some(base) = base else {
        if let Some(file) = file {
            close(file);
        }
        return None;
    };
    // SAFETY: the range was mapped just now.
    unsafe { libc::madvise(base as *mut _, room as usize, libc::MADV_NOHUGEPAGE) };
    Some((base, file.unwrap_or(-1)))
}
