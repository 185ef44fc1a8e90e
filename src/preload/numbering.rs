//! Ids of what a recording describes once and refers to from then on: stacks, code objects, modules, autograd
//! contexts. Knows hashes and entries, not what they describe.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::writer::recording::append_entry;
use leaktrace_core::format::entry::TableEntry;
use leaktrace_core::int_map::{IntMap, int_map};

/// Bytes that all descriptions of a recording may take together. They lie in the file alone.
const MAX_BYTES: usize = 128 << 20;

/// The most ids of one kind: a program may make code without end. With so many the hash table is as full as it may be, and would have
/// to double for more.
pub const MAX_IDS: usize = 56 << 10;

static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Returns how many eighths of the bytes are taken.
pub fn eighths() -> usize {
    BYTES.load(Ordering::Relaxed) / (MAX_BYTES / 8)
}

/// In a forked child: its recording is a new one, in which nothing is described yet.
pub fn after_fork_child() {
    BYTES.store(0, Ordering::Relaxed);
}

/// Adds to the bytes written; false once they are too many.
fn reserve(bytes: usize) -> bool {
    let bytes = bytes + 16;
    if BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes <= MAX_BYTES {
        return true;
    }
    BYTES.fetch_sub(bytes, Ordering::Relaxed);
    false
}

/// Takes off what was not written.
fn give_back(bytes: usize) {
    // Not below zero: where a signal handler forked meanwhile, they were taken off already.
    let less = |all: usize| Some(all.saturating_sub(bytes + 16));
    let _ = BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// Why something got no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Descriptions take more bytes than they may, or there are too many of this kind.
    NoRoom,
    /// The recording could not take the entry.
    NotWritten,
}

/// The ids of one kind of description, by a hash of the contents.
pub struct Numbering {
    ids: IntMap<u128, u32>,
    last: u32,
}

impl Numbering {
    pub const fn new() -> Numbering {
        Numbering { ids: int_map(), last: 0 }
    }

    /// The id given last; 0 before the first.
    pub fn last(&self) -> u32 {
        self.last
    }

    pub fn get(&self, key: u128) -> Option<u32> {
        self.ids.get(&key).copied()
    }

    /// Returns the id of the contents that `key` stands for. On first sight the entry of about `bytes` bytes
    /// that describes them is written.
    pub fn id<'e>(
        &mut self,
        key: u128,
        bytes: usize,
        entry: impl FnOnce(u32) -> TableEntry<'e>,
    ) -> Result<u32, Refused> {
        if let Some(id) = self.get(key) {
            return Ok(id);
        }
        if self.ids.len() >= MAX_IDS || !reserve(bytes) {
            return Err(Refused::NoRoom);
        }
        let id = self.append(entry).inspect_err(|_| give_back(bytes))?;
        self.ids.insert(key, id);
        Ok(id)
    }

    /// Writes an entry under the next id, whatever room there is. It cannot be looked up.
    pub fn append<'e>(&mut self, entry: impl FnOnce(u32) -> TableEntry<'e>) -> Result<u32, Refused> {
        let id = self.last + 1;
        if !append_entry(&entry(id)) {
            return Err(Refused::NotWritten);
        }
        self.last = id;
        Ok(id)
    }

    pub fn clear(&mut self) {
        self.ids.clear();
        self.last = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_takes_no_room() {
        let mut numbering = Numbering::new();
        let text = "x".repeat(200_000);
        for key in 0..5 {
            let refused = numbering.id(key, MAX_BYTES / 2, |id| TableEntry::Label { id, text: &text });
            assert_eq!(refused, Err(Refused::NotWritten));
        }
    }
}
