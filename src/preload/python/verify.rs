//! Whether the stack of a thread is what the layout says: read by the kernel, where a wrong address is an
//! error and no crash. Looks, and changes nothing.

use crate::python::copies;
use crate::python::interpreter::Cpython;
use crate::python::layout::{Copies, Kind, SHIM_OWNER};
use crate::python::memory::{Unmapped, checked_word};

/// A stack is not what the layout says.
pub struct Contradicts;

impl From<Unmapped> for Contradicts {
    fn from(_: Unmapped) -> Contradicts {
        Contradicts
    }
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
            let is = |object: usize, of: usize| word(object + layout.object_type()).map(|kind| kind == of);
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
                                is_in(copies::begin(word(code + array)?, index, word)?)
                            }
                            None => false,
                        }
                }
            };
            let right = inside
                && is(code, cpython.code_type)?
                && is(word(code + layout.code_file)?, cpython.str_type)?
                && is(word(code + layout.code_name)?, cpython.str_type)?
                && is(word(code + layout.code_lines)?, cpython.bytes_type)?;
            if !right {
                return Err(Contradicts);
            }
            seen = true;
        }
        frame = back;
    }
    Ok(seen)
}
