//! Ids of code objects. An address means a code object only while that lives: CPython gives the memory of a
//! dead one to the next, so its deallocator is watched, and the address forgotten before the memory is free.

use std::borrow::Cow;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::hash::content;
use crate::lock::{Mutex, Rank};
use crate::numbering::{Numbering, Refused};
use crate::python::interpreter::Cpython;
use crate::python::memory::read;
use crate::python::offsets::TYPE_DEALLOC;
use crate::python::packages;
use crate::python::strings;
use crate::python::walk::Found;
use crate::thread_state;
use crate::writer::entries::LONGEST_TEXT;
use leaktrace_core::format::entry::TableEntry;
use leaktrace_core::frameworks;
use leaktrace_core::int_map::{IntMap, int_map};
use leaktrace_core::symbols::lines;

pub struct Codes {
    /// The living ones, by their addresses.
    ids: IntMap<u64, Id>,
    /// All, by what they say: the same source compiled again is the same code.
    contents: Numbering,
}

pub static CODES: Mutex<Codes> =
    Mutex::new(Rank::Codes, Codes { ids: int_map(), contents: Numbering::new() });

/// A code object's number, whether it is a framework's whose innermost frames are left out of stacks, and whether it is
/// the interpreter's own, which is no function of anybody.
#[derive(Clone, Copy)]
pub struct Id {
    pub number: u32,
    pub folds: bool,
    pub is_interpreters: bool,
}

/// What became of a frame's code.
pub enum Numbered {
    Id(Id),
    /// It is no code object.
    None,
    Refused(Refused),
}

/// Returns the id of a frame's code, which is described on first sight.
pub fn id(found: &Found) -> Numbered {
    // SAFETY: a frame of the calling thread holds it.
    if !unsafe { found.cpython.is_code(found.code) } {
        return Numbered::None;
    }
    let address = found.code as u64;
    if let Some(id) = CODES.lock().and_then(|codes| codes.ids.get(&address).copied()) {
        return Numbered::Id(id);
    }
    let layout = &found.cpython.layout;
    // SAFETY: the frame keeps the code object alive, and that its strings; all of them are immutable.
    let (file, name, first_line, lines) = unsafe {
        let file = strings::text(layout, read(found.code, layout.code_file));
        let name = strings::text(layout, read(found.code, layout.code_name));
        // A larger line table is left out: every line is then that of the `def`.
        let lines = strings::bytes(layout, read(found.code, layout.code_lines), room_for_lines(&file, &name));
        (file, name, read::<i32>(found.code, layout.code_first_line), lines)
    };
    let unnumbered = without_numbers(&file);
    let key = content(&[unnumbered.as_bytes(), name.as_bytes(), &first_line.to_le_bytes(), lines]);
    let bytes = file.len() + name.len() + lines.len();
    let entry =
        |id| TableEntry::Code { id, file: &file, name: &name, first_line, encoding: layout.lines, lines };
    // From 3.13 on, what runs between a class that is called and its `__init__`.
    let is_interpreters = file == "__init__" && name == file;
    let folds = frameworks::is_folded(&file) && !packages::ownership().is_own_file(&file);
    let Some(mut codes) = CODES.lock() else { return Numbered::Refused(Refused::NotWritten) };
    match codes.contents.id(key, bytes, entry) {
        Ok(number) => {
            let id = Id { number, folds, is_interpreters };
            mark(address);
            codes.ids.insert(address, id);
            Numbered::Id(id)
        }
        Err(refused) => Numbered::Refused(refused),
    }
}

/// Returns the offset by which a frame is described: that of the first instruction at its place in the source. CPython 3.11 and
/// 3.12 call from elsewhere once they have specialised an instruction.
pub fn place(found: &Found) -> u32 {
    let layout = &found.cpython.layout;
    // SAFETY: the frame keeps the code object alive, and that its table; both are immutable.
    let table = unsafe { strings::bytes(layout, read(found.code, layout.code_lines), usize::MAX) };
    lines::first_of_place(layout.lines, table, found.offset)
}

/// Returns the bytes that an entry has left for a line table.
fn room_for_lines(file: &str, name: &str) -> usize {
    LONGEST_TEXT.saturating_sub(file.len() + name.len())
}

/// Returns the file of code that a program made at run time without the numbers in it: the file that each new
/// function, cell or graph gets a number of its own in (`<generated_17>`, `<eval_with_key>.4`). Any other file as it
/// is.
fn without_numbers(file: &str) -> Cow<'_, str> {
    if !file.starts_with('<') {
        return file.into();
    }
    let is_number = |part: &str| {
        let hexadecimal = part.strip_prefix("0x").filter(|digits| !digits.is_empty());
        hexadecimal.map_or(!part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()), |digits| {
            digits.bytes().all(|b| b.is_ascii_hexdigit())
        })
    };
    let parts = file.split_inclusive(|c: char| !c.is_ascii_alphanumeric()).map(|part| {
        let end = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).len();
        if is_number(&part[..end]) { &part[end..] } else { part }
    });
    parts.collect::<String>().into()
}

/// A Bloom filter of the addresses that ever had an id, with one bit each: an address whose bit is not set
/// never had one.
static MARKS: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];

fn bit_of(address: u64) -> (&'static AtomicU64, u64) {
    let hash = (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 46;
    (&MARKS[hash as usize >> 6 & 4095], 1 << (hash & 63))
}

fn mark(address: u64) {
    let (word, bit) = bit_of(address);
    word.fetch_or(bit, Ordering::Relaxed);
}

static ORIGINAL: AtomicUsize = AtomicUsize::new(0);

/// The word that holds the deallocator of `PyCode_Type`.
fn deallocator(cpython: &Cpython) -> &'static AtomicUsize {
    let slot = cpython.code_type + cpython.layout.of_type(TYPE_DEALLOC);
    // SAFETY: the slot of a static type object: writable data for as long as the interpreter's library, an
    // aligned word that others read whole.
    unsafe { AtomicUsize::from_ptr(std::ptr::with_exposed_provenance_mut(slot)) }
}

/// Puts our deallocator before the one of `PyCode_Type`, if it is not there.
pub fn watch_deallocation(cpython: &Cpython) {
    let (slot, ours) = (deallocator(cpython), deallocate as *const () as usize);
    let original = slot.load(Ordering::Acquire);
    if original != 0 && original != ours {
        // First, so that our function never runs without it.
        ORIGINAL.store(original, Ordering::Release);
        let _ = slot.compare_exchange(original, ours, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Takes our deallocator away again, unless somebody has put another before it.
pub fn unwatch_deallocation(cpython: &Cpython) {
    let (slot, ours) = (deallocator(cpython), deallocate as *const () as usize);
    let original = ORIGINAL.load(Ordering::Acquire);
    if original != 0 {
        let _ = slot.compare_exchange(ours, original, Ordering::AcqRel, Ordering::Relaxed);
    }
}

unsafe extern "C" fn deallocate(code: *mut c_void) {
    let address = code.addr() as u64;
    let (word, bit) = bit_of(address);
    // The thread that marked this code held it by a frame; that reference was dropped since, so the mark is
    // visible.
    if word.load(Ordering::Relaxed) & bit != 0
        && CODES.lock().is_none_or(|mut codes| codes.ids.remove(&address).is_some())
    {
        // Before the memory is free: whoever runs other code there hashes with a later epoch.
        thread_state::forget_stacks();
    }
    // SAFETY: what stood in the slot before us, a `destructor`, called as CPython would have.
    unsafe {
        let original: unsafe extern "C" fn(*mut c_void) =
            std::mem::transmute(ORIGINAL.load(Ordering::Acquire));
        original(code);
    }
}

/// In a forked child, whose recording names no code yet.
pub fn after_fork_child() {
    let Some(mut codes) = CODES.lock() else { return };
    codes.ids.clear();
    codes.contents.clear();
}

#[cfg(test)]
mod tests {
    use super::{room_for_lines, without_numbers};
    use leaktrace_core::format::entry::{LineTable, TableEntry};
    use leaktrace_core::format::file_layout::{ENTRY_HEAD, ROOM};

    #[test]
    fn the_largest_line_table_that_is_taken_fits_in_an_entry() {
        for (file, name) in
            [("", ""), ("a.py", "f"), (&*"\u{1F600}".repeat(4096), &*"\u{1F600}".repeat(4096))]
        {
            let lines = vec![0x80; room_for_lines(file, name)];
            assert!(lines.len() > 90_000);
            let (id, first_line, encoding) = (u32::MAX, i32::MIN, LineTable::Locations);
            let entry = TableEntry::Code { id, file, name, first_line, encoding, lines: &lines };
            assert!(postcard::to_stdvec(&entry).unwrap().len() <= ROOM - ENTRY_HEAD);
        }
    }

    #[test]
    fn code_made_at_run_time_is_known_without_its_number() {
        for (one, other) in [
            ("<generated_17>", "<generated_18>"),
            ("<eval_with_key>.4", "<eval_with_key>.123"),
            ("<template-0x7f00aa>", "<template-0x7f11bb>"),
        ] {
            assert_eq!(without_numbers(one), without_numbers(other));
        }
        for other in ["<generated_x1>", "<ipython-input-3-1a2b3c>", "<string>", "/tmp/cell_3.py"] {
            assert_ne!(without_numbers("<generated_17>"), without_numbers(other));
        }
        assert_ne!(without_numbers("<ipython-input-3-1a2b>"), without_numbers("<ipython-input-4-5c6d>"));
        assert_ne!(without_numbers("/tmp/cell_3.py"), without_numbers("/tmp/cell_4.py"));
    }
}
