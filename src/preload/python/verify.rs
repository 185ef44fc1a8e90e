//! Whether the stack of a thread is what the layout says: read by the kernel, where a wrong address is an
//! error and no crash. Looks, and changes nothing.

use crate::python::interpreter::Cpython;
use crate::python::layout::{Copies, Kind, Layout, SHIM_OWNER};
use crate::python::memory::{Unmapped, checked_word};
use crate::python::offsets::TYPE_BASE;
use crate::python::tlbc;

/// A stack is not what the layout says.
pub struct Contradicts;

impl From<Unmapped> for Contradicts {
    fn from(_: Unmapped) -> Contradicts {
        Contradicts
    }
}

/// The most classes that one is derived from, each from the next.
const DEEPEST: usize = 32;

/// Returns whether an object is of a type, or of a class that is derived from it: a program may name the files of code that it
/// makes by strings of its own class.
fn is_a(
    layout: &Layout,
    object: usize,
    of: usize,
    word: impl Fn(usize) -> Result<usize, Unmapped>,
) -> Result<bool, Unmapped> {
    let mut kind = word(object + layout.object_type())?;
    for _ in 0..DEEPEST {
        if kind == of || kind == 0 {
            break;
        }
        // The one whose memory it continues, of several.
        kind = word(kind + layout.of_type(TYPE_BASE))?;
    }
    Ok(kind == of)
}

/// Compares the frames of a thread with the layout; false if there is no frame.
pub fn confirms(cpython: &Cpython, thread: usize) -> Result<bool, Contradicts> {
    let layout = &cpython.layout;
    // SAFETY: only in a sandbox is it read directly; then the layout has passed every other check.
    let word = |address: usize| unsafe { checked_word(address) };
    let mut frame = word(thread + layout.thread_frame)?;
    if let (Some(at), true) = (layout.cframe, frame != 0) {
        frame = word(frame + at)?;
    }
    let mut seen = false;
    for _ in 0..64 {
        if frame == 0 {
            break;
        }
        let back = word(frame + layout.frame_back)?;
        let byte = |at: usize| word(frame + at).map(|word| word as u8);
        let shim = layout.kind.has_shims() && byte(layout.frame_flag)? >= SHIM_OWNER;
        if !shim {
            let code = word(frame + layout.frame_code)? & !7;
            let is = |at: usize, of: usize| is_a(layout, word(at)?, of, word);
            let instr = word(frame + layout.frame_instr)?;
            let inside = match layout.kind {
                Kind::Object => (-1..1 << 28).contains(&(instr as i32)),
                _ => {
                    let size = 2 * word(code + layout.size())?;
                    // One unit before the first instruction is "not begun".
                    let is_in =
                        |begin: usize| (begin.wrapping_sub(2)..begin.wrapping_add(size)).contains(&instr);
                    is_in(code + layout.code_size)
                        || match layout.copies {
                            Some(Copies { array, index }) => {
                                let index = word(frame + index)? as u32 as usize;
                                is_in(tlbc::begin(word(code + array)?, index, word)?)
                            }
                            None => false,
                        }
                }
            };
            let right = inside
                && word(code + layout.object_type())? == cpython.code_type
                && is(code + layout.code_file, cpython.str_type)?
                && is(code + layout.code_name, cpython.str_type)?
                && is(code + layout.code_lines, cpython.bytes_type)?;
            if !right {
                return Err(Contradicts);
            }
            seen = true;
        }
        frame = back;
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::layout::{Release, choose};
    use std::collections::HashMap;

    #[test]
    fn an_object_is_of_its_class_and_of_what_that_is_derived_from() {
        let layout = choose(Release { minor: 11, free_threaded: false }, None).unwrap();
        let (text, number, any) = (0x1000, 0x2000, 0x3000);
        let base = |class: usize, base: usize| (class + TYPE_BASE, base);
        let of = |object: usize, class: usize| (object + 8, class);
        let bases =
            [base(any, 0), base(text, any), base(number, any), base(0x4000, text), base(0x5000, 0x4000)];
        let objects =
            [of(0x10, text), of(0x20, 0x5000), of(0x30, number), of(0x40, 0x6000), of(0x50, 0x7000)];
        let circle = [base(0x7000, 0x7000)];
        let words: HashMap<usize, usize> = bases.into_iter().chain(objects).chain(circle).collect();
        let is_text = |object| is_a(&layout, object, text, |at| words.get(&at).copied().ok_or(Unmapped)).ok();
        assert_eq!([0x10, 0x20, 0x30, 0x50].map(is_text), [true, true, false, false].map(Some));
        assert_eq!(is_text(0x40), None, "no class lies there");
    }
}
