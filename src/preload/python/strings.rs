//! Python's strings, read out of its own memory. Knows the layout of `str` and `bytes`, not what they are
//! for.

use crate::python::interpreter::Cpython;
use crate::python::memory::read;
use crate::python::offsets::{BYTES_DATA, STR_LENGTH, STR_STATE, VAR_SIZE};

/// Longer names and paths are cut here.
const LONGEST: usize = 4096;

/// Copies the text of a `str`; what is no character (a lone surrogate, an unknown form) becomes `\u{FFFD}`.
///
/// # Safety
/// `object` is null or a live `str` of this CPython.
pub unsafe fn text(cpython: &Cpython, object: *const u8) -> String {
    if object.is_null() {
        return String::new();
    }
    // SAFETY: a live, immutable `str`: its head says how long it is and in which form; a compact one holds
    // its characters itself, right behind the head.
    unsafe {
        let length = read::<usize>(object, STR_LENGTH).min(LONGEST);
        let state = read::<u32>(object, STR_STATE);
        let (kind, compact, ascii) = (state >> 2 & 7, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
        if !compact {
            return "\u{FFFD}".into();
        }
        let data = if ascii { cpython.layout.str_ascii } else { cpython.layout.str_compact };
        let character = |i: usize| match kind {
            1 => read::<u8>(object, data + i) as u32,
            2 => read::<u16>(object, data + 2 * i) as u32,
            _ => read::<u32>(object, data + 4 * i),
        };
        (0..length).map(|i| char::from_u32(character(i)).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    }
}

/// Returns the contents of a `bytes`; nothing if there are more than `most`.
///
/// # Safety
/// `object` is null or a live `bytes` of CPython, which outlives the slice.
pub unsafe fn bytes<'a>(object: *const u8, most: usize) -> &'a [u8] {
    if object.is_null() {
        return &[];
    }
    // SAFETY: a live, immutable `bytes`: `VAR_SIZE` bytes lie behind its head.
    unsafe {
        let length = read::<usize>(object, VAR_SIZE);
        if length > most { &[] } else { std::slice::from_raw_parts(object.add(BYTES_DATA), length) }
    }
}
