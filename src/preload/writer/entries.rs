//! Table entries and checkpoints: what is written under the lock of the segment pool. It knows bytes, not
//! meaning.

use std::sync::atomic::Ordering::*;
use std::sync::atomic::fence;

use crate::writer::file;
use crate::writer::recording::is_open;
use crate::writer::segment_pool::{SEGMENTS, SegmentPool, set};
use crate::writer::signals::FaultsLetIn;
use leaktrace_core::format::entry::TableEntry;
use leaktrace_core::format::file_layout::{ENTRY_HEAD, PAYLOAD, ROOM, header, segment, usage};

/// The most bytes of text, or of another list, that an entry has room for beside its numbers and a short key.
pub const LONGEST_TEXT: usize = ROOM - ENTRY_HEAD - 64;

/// Returns the beginning of a text that an entry has no room for all of.
pub fn shortened(text: &str) -> &str {
    let end = (0..=text.len().min(LONGEST_TEXT)).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

/// Writes a table entry. `false`: no recording, no room, a signal handler on top of who writes one, or the
/// entry is larger than a segment.
pub fn append_entry(entry: &TableEntry<'_>) -> bool {
    if !is_open() {
        return false;
    }
    let _faults = FaultsLetIn::begin();
    let Some(mut pool) = SEGMENTS.lock() else { return false };
    // Asked again: a handler may have forked, and this be the child.
    if !is_open() {
        return false;
    }
    for _ in 0..3 {
        if pool.write_entry(entry) {
            return true;
        }
        // Else it would take a segment each time that somebody tries.
        if !fits_in_a_segment(entry) {
            return false;
        }
        if pool.is_lean && !pool.tables.is_empty() {
            if !pool.grow() {
                return false;
            }
            continue;
        }
        // Full (or none yet). A fresh one that is still no use cannot be written to.
        if !pool.tables.is_empty() && pool.tables_used == 0 {
            return false;
        }
        let Some(index) = pool.take(usage::TABLES, 0) else { return false };
        // Nobody reads the one before soon.
        if let Some(&full) = pool.tables.last() {
            file::evict_pages(full);
        }
        pool.tables.push(index);
        pool.tables_used = 0;
    }
    false
}

fn fits_in_a_segment(entry: &TableEntry<'_>) -> bool {
    let size = postcard::serialize_with_flavor(entry, postcard::ser_flavors::Size::default());
    size.is_ok_and(|size| size <= ROOM - ENTRY_HEAD)
}

impl SegmentPool {
    fn write_entry(&mut self, entry: &TableEntry<'_>) -> bool {
        let Some(&table) = self.tables.last() else { return false };
        let Some(base) = file::base(table) else { return false };
        let room = (self.space() - PAYLOAD).saturating_sub(self.tables_used);
        let Some(room) = room.checked_sub(ENTRY_HEAD) else { return false };
        // SAFETY: the rest of the payload of a segment that only the holder of this lock writes.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(base.add(PAYLOAD + self.tables_used), room + ENTRY_HEAD)
        };
        let (head, body) = bytes.split_at_mut(ENTRY_HEAD);
        let Ok(written) = postcard::to_slice(entry, body) else { return false };
        let (length, crc) = (written.len(), crc32fast::hash(written));
        head[..4].copy_from_slice(&(length as u32).to_le_bytes());
        head[4..].copy_from_slice(&crc.to_le_bytes());
        self.tables_used += (ENTRY_HEAD + length).next_multiple_of(8);
        self.tables_used = self.tables_used.min(ROOM);
        // The commit word: what lies before it is whole.
        set(table, segment::USED, self.tables_used as u64);
        true
    }
}

/// Returns how many bytes of entries there are.
pub fn table_length() -> usize {
    SEGMENTS.lock().map_or(0, |pool| pool.tables.len().saturating_sub(1) * ROOM + pool.tables_used)
}

/// Hands the committed bytes of every table segment to `read`, in the order of writing. For a reader in the same
/// process, whose memory they take one at a time.
pub fn each_table(mut read: impl FnMut(&[u8])) {
    let _faults = FaultsLetIn::begin();
    let Some(count) = SEGMENTS.lock().map(|pool| pool.tables.len()) else { return };
    let mut bytes = Vec::with_capacity(ROOM);
    for at in 0..count {
        let Some(index) = SEGMENTS.lock().and_then(|pool| pool.tables.get(at).copied()) else { return };
        let Some(base) = file::base(index) else { continue };
        let used = file::word(index, segment::USED).map_or(0, |w| w.load(Acquire) as usize).min(ROOM);
        bytes.clear();
        // SAFETY: committed table bytes never change; `bytes` has room for them.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(base.add(PAYLOAD), used) });
        if at + 1 < count {
            file::evict_pages(index);
        }
        read(&bytes);
    }
}

/// Writes `state`, the ledger after every event before `next`, as the newest checkpoint, and recycles the
/// event segments it covers unless `keep_events`. `false`: no room; the older checkpoint stays and no segment
/// is recycled.
pub fn checkpoint(state: &[u8], next: u64, keep_events: bool) -> bool {
    let _faults = FaultsLetIn::begin();
    let Some(mut pool) = SEGMENTS.lock() else { return false };
    if !is_open() {
        return false;
    }
    let generation = pool.generation + 1;
    let parts: Vec<&[u8]> = state.chunks(ROOM).collect();
    let mut taken = Vec::with_capacity(parts.len());
    for _ in &parts {
        match pool.take(usage::CHECKPOINT, generation) {
            Some(index) => taken.push(index),
            None => {
                taken.into_iter().for_each(|i| pool.give_back(i));
                return false;
            }
        }
    }
    for (i, (index, part)) in taken.iter().zip(&parts).enumerate() {
        let Some(base) = file::base(*index) else { return false };
        // SAFETY: a segment just taken: ROOM payload bytes that only we write, and `part` is no longer than
        // that.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), base.add(PAYLOAD), part.len()) };
        set(*index, segment::CRC, u64::from(crc32fast::hash(part)));
        set(*index, segment::NEXT, u64::from(taken.get(i + 1).copied().unwrap_or(0)));
        set(*index, segment::USED, part.len() as u64);
    }
    fence(SeqCst);
    set(0, header::CHECKPOINT, u64::from(taken.first().copied().unwrap_or(0)));
    set(0, header::GENERATION, generation);
    pool.generation = generation;
    let old = std::mem::replace(&mut pool.checkpoint, taken);
    old.into_iter().for_each(|i| pool.give_back(i));
    // Kept or not, what is drained to its end need not be read again.
    let (gone, rest): (Vec<_>, Vec<_>) =
        std::mem::take(&mut pool.events).into_iter().partition(|s| s.is_done() && s.last < next);
    pool.events = rest;
    for s in gone {
        match keep_events {
            true => file::evict_pages(s.index),
            false => pool.give_back(s.index),
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::{ALONE, recording};
    use leaktrace_core::format::reader;
    use leaktrace_core::format::tables::Tables;

    #[test]
    fn what_no_segment_has_room_for_takes_none_and_a_text_is_cut_off() {
        let _alone = ALONE.write();
        let folder = tempfile::tempdir().unwrap();
        let name = std::ffi::CString::new(folder.path().join("entries.ltrace").to_str().unwrap()).unwrap();
        recording::open(&name, std::process::id(), 0).unwrap();
        let taken = || SEGMENTS.lock().map(|pool| (pool.fresh, pool.tables.len(), pool.is_lean)).unwrap();
        let before = taken();
        let long = "\u{1F600}".repeat(ROOM / 4);
        assert!(!append_entry(&TableEntry::Label { id: 1, text: &long }));
        assert_eq!(taken(), before);

        let label = shortened(&long);
        let argv = format!("x{long}");
        let argv = shortened(&argv);
        assert!(label.len() > LONGEST_TEXT - 4 && argv.len() > LONGEST_TEXT - 4);
        assert!(append_entry(&TableEntry::Label { id: u32::MAX, text: label }));
        assert!(append_entry(&TableEntry::Meta { key: "python_packages", value: argv }));
        assert_eq!(shortened("short"), "short");
        let mut tables = Tables::default();
        each_table(|segment| reader::entries(segment, &mut tables).unwrap());
        assert_eq!(tables.labels[&u32::MAX], label);
        assert_eq!(tables.meta["python_packages"], argv);
    }
}
