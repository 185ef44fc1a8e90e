//! The tables of stacks that every thread shares: ids by hash, and by what the stacks are made of. Knows
//! numbers and packed frames, not what they stand for.
//!
//! What they take has a bound, whatever the number of stacks: the more there are, the fewer frames new ones keep
//! ([`DEPTHS`]), so that the outer parts, by which most of very many stacks differ, are left out first.

use crate::hash::content;
use crate::lock::{Mutex, Rank};
use crate::numbering::{self, MAX_IDS, Numbering, Refused};
use crate::state;
use crate::writer::recording::append_entry;
use leaktrace_core::format::entry::{Frame, TableEntry};
use leaktrace_core::int_map::{IntMap, int_map};

const SHARDS: usize = 16;
/// Hashes a shard remembers; beyond, it forgets them all and they are found again by content.
const SHARD_LIMIT: usize = 14_000;
/// (Eighths in use, innermost frames that new stacks keep.) In use are stacks, of [`MAX_IDS`], or bytes of descriptions, whichever is
/// more. The ledger keeps some 250 bytes for each stack.
const DEPTHS: [(usize, usize); 4] = [(5, usize::MAX), (6, 16), (7, 4), (8, 1)];
/// The eighths up to which stacks get native samples.
const SAMPLED: usize = 2;

pub struct Shard {
    epoch: u64,
    ids: IntMap<u64, u32>,
}

pub struct Interned {
    stacks: Numbering,
    /// Which of [`DEPTHS`] new stacks have.
    level: usize,
    /// The one stack that stands for all that found no room; 0 while there is room.
    overflow: u32,
}

pub static BY_HASH: [Mutex<Shard>; SHARDS] =
    [const { Mutex::new(Rank::StackShards, Shard { epoch: 0, ids: int_map() }) }; SHARDS];
pub static INTERNED: Mutex<Interned> =
    Mutex::new(Rank::Stacks, Interned { stacks: Numbering::new(), level: 0, overflow: 0 });

fn shard(hash: u64) -> &'static Mutex<Shard> {
    &BY_HASH[(hash >> 60) as usize % SHARDS]
}

/// True while there is room for native samples.
pub fn has_much_room() -> bool {
    INTERNED.lock().is_some_and(|interned| interned.eighths() < SAMPLED)
}

/// Returns how many of its innermost frames a new stack keeps.
pub fn depth() -> usize {
    INTERNED.lock().map_or(usize::MAX, |mut interned| interned.depth())
}

/// Returns the id that some thread found for this hash; 0 if none did.
pub fn by_hash(epoch: u64, hash: u64) -> u32 {
    let Some(shard) = shard(hash).lock() else { return 0 };
    if shard.epoch != epoch {
        return 0;
    }
    shard.ids.get(&hash).copied().unwrap_or(0)
}

/// Remembers the id of a hash for all threads.
pub fn remember(epoch: u64, hash: u64, id: u32) {
    let Some(mut shard) = shard(hash).lock() else { return };
    if shard.epoch < epoch || shard.ids.len() >= SHARD_LIMIT {
        shard.epoch = shard.epoch.max(epoch);
        shard.ids.clear();
    }
    if shard.epoch == epoch {
        shard.ids.insert(hash, id);
    }
}

/// Returns the id of a stack of packed frames, which is written on first sight; 0 if it could not be. The
/// first `python` frames are Python's.
pub fn intern(python: u32, frames: &[u8]) -> u32 {
    if frames.is_empty() {
        return 0;
    }
    let key = content(&[&python.to_le_bytes(), frames]);
    let Some(mut interned) = INTERNED.lock() else { return 0 };
    if let Some(id) = interned.stacks.get(key) {
        return id;
    }
    if interned.overflow != 0 {
        return interned.overflow();
    }
    match interned.stacks.id(key, frames.len(), |id| TableEntry::Stack { id, python, frames }) {
        Ok(id) => id,
        Err(Refused::NoRoom) => interned.overflow(),
        Err(Refused::NotWritten) => 0,
    }
}

/// Returns the id of the stack that stands for all that found no room.
pub fn overflow_stack() -> u32 {
    INTERNED.lock().map_or(0, |mut interned| interned.overflow())
}

impl Interned {
    /// Returns how many eighths of the room are taken.
    fn eighths(&self) -> usize {
        (self.stacks.last() as usize * 8 / MAX_IDS).max(numbering::eighths())
    }

    fn depth(&mut self) -> usize {
        let taken = self.eighths();
        let level = DEPTHS.iter().position(|&(until, _)| taken < until).unwrap_or(DEPTHS.len() - 1);
        if level > self.level {
            let ((_, depth), after) = (DEPTHS[level], self.stacks.last());
            let seconds = state::elapsed() as f64 / 1e9;
            append_entry(&TableEntry::Note {
                text: &format!(
                    "outer frames of new call stacks: after {after} different ones ({seconds:.1} s) each keeps its {depth} innermost"
                ),
            });
            self.level = level;
        }
        DEPTHS[self.level].1
    }

    fn overflow(&mut self) -> u32 {
        if self.overflow == 0 {
            let frames = Frame::Truncated.pack().to_le_bytes();
            let written = self.stacks.append(|id| TableEntry::Stack { id, python: 0, frames: &frames });
            self.overflow = written.unwrap_or(0);
            if self.overflow != 0 {
                append_entry(&TableEntry::Note {
                    text: "too many different call stacks: new ones are shown as one",
                });
            }
        }
        self.overflow
    }
}

/// In a forked child, whose recording holds no stack yet.
pub fn after_fork_child() {
    for mut shard in BY_HASH.iter().filter_map(Mutex::lock) {
        shard.ids.clear();
    }
    if let Some(mut interned) = INTERNED.lock() {
        interned.stacks.clear();
        (interned.level, interned.overflow) = (0, 0);
    }
}
