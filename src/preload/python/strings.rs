//! Python's strings, read out of its own memory. Knows the layout of `str` and `bytes`, not what they are
//! for.

use crate::python::interpreter::Cpython;
use crate::python::layout::Layout;
use crate::python::memory::read;
use crate::python::offsets::{BYTES_DATA, STR_LENGTH, STR_STATE};

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
    let layout = &cpython.layout;
    // SAFETY: a live, immutable `str`: its head says how long it is and in which form; a compact one holds
    // its characters itself, right behind the head.
    unsafe {
        let length = read::<usize>(object, layout.head + STR_LENGTH).min(LONGEST);
        let form = read::<u32>(object, layout.head + STR_STATE) >> layout.str_form;
        let (kind, compact, ascii) = (form & 7, form >> 3 & 1 == 1, form >> 4 & 1 == 1);
        if !compact {
            return "\u{FFFD}".into();
        }
        let data = if ascii { layout.str_ascii } else { layout.str_compact };
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
/// `object` is null or a live `bytes` of the CPython of this layout, which outlives the slice.
pub unsafe fn bytes<'a>(layout: &Layout, object: *const u8, most: usize) -> &'a [u8] {
    if object.is_null() {
        return &[];
    }
    // SAFETY: a live, immutable `bytes`: as many bytes as its size says lie behind its head.
    unsafe {
        let length = read::<usize>(object, layout.size());
        if length > most {
            &[]
        } else {
            std::slice::from_raw_parts(object.add(layout.head + BYTES_DATA), length)
        }
    }
}
