//! Python's strings, read out of its own memory. Knows the layout of `str` and `bytes`, not what they are
//! for.

use crate::python::layout::Layout;
use crate::python::memory::read;
use crate::python::offsets::{BYTES_DATA, STR_LENGTH, STR_STATE};

/// Longer names and paths are cut here.
const LONGEST: usize = 4096;

/// Copies the text of a `str`; what is no character (a lone surrogate, an unknown form) becomes `\u{FFFD}`.
///
/// # Safety
/// `object` is null or a live `str` of the CPython of this layout, or of a class that is derived from `str`.
pub unsafe fn text(layout: &Layout, object: *const u8) -> String {
    if object.is_null() {
        return String::new();
    }
    // SAFETY: a live, immutable `str`: its head says how long it is and in which form; a compact one holds
    // its characters itself, right behind the head. Behind that of another (a derived class's) lies their address; null, or
    // a form of 0: they were not made yet.
    unsafe {
        let length = read::<usize>(object, layout.head + STR_LENGTH).min(LONGEST);
        let form = read::<u32>(object, layout.head + STR_STATE) >> layout.str_form;
        let (kind, compact, ascii) = (form & 7, form >> 3 & 1 == 1, form >> 4 & 1 == 1);
        let data = match (compact, ascii) {
            (true, true) => object.add(layout.str_ascii),
            (true, false) => object.add(layout.str_compact),
            (false, _) => read(object, layout.str_compact),
        };
        if data.is_null() || kind == 0 {
            return "\u{FFFD}".into();
        }
        let character = |i: usize| match kind {
            1 => read::<u8>(data, i) as u32,
            2 => read::<u16>(data, 2 * i) as u32,
            _ => read::<u32>(data, 4 * i),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::layout::{Release, choose};

    /// A `str`: its length, its form, and what lies behind its head of so many bytes.
    fn string(length: u64, form: u64, head: usize, behind: &[u8]) -> Vec<u8> {
        let mut object = vec![0u8; head];
        object[16 + STR_LENGTH..][..8].copy_from_slice(&length.to_le_bytes());
        object[16 + STR_STATE..][..8].copy_from_slice(&(form << 2).to_le_bytes());
        object.extend(behind);
        object
    }

    #[test]
    fn a_string_of_a_derived_class_is_read_where_its_characters_lie() {
        for minor in [8, 11, 12] {
            let layout = choose(Release { minor, free_threaded: false }, None).unwrap();
            // SAFETY: a `str` as that version makes it, as far as it is read.
            let read = |object: Vec<u8>| unsafe { text(&layout, object.as_ptr()) };
            let (short, long) = (layout.str_ascii, layout.str_compact);
            assert_eq!(read(string(4, 0b11_001, short, b"a.py")), "a.py");
            assert_eq!(read(string(2, 0b01_010, long, &[0x3c, 0x4e, b'b', 0])), "\u{4e3c}b");
            let address = |data: &[u8]| data.as_ptr().expose_provenance().to_le_bytes();
            assert_eq!(read(string(4, 0b10_001, long, &address(b"a.py"))), "a.py");
            let wide: Vec<u8> = [0x1F600u32, 98].into_iter().flat_map(u32::to_le_bytes).collect();
            assert_eq!(read(string(2, 0b00_100, long, &address(&wide))), "\u{1F600}b");
            assert_eq!(read(string(2, 0b00_000, long, &address(&wide))), "\u{FFFD}");
            assert_eq!(read(string(2, 0b00_001, long, &[0; 8])), "\u{FFFD}");
        }
    }
}
