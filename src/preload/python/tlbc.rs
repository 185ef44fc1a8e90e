//! Thread-local bytecode (`co_tlbc`) of free-threaded CPython 3.14 and later: each thread but the first runs a copy of its own of a
//! function's instructions, which it specialises without a lock. Turns the address of an instruction into its offset. Knows
//! neither lines nor stacks.
//!
//! A code object leads to an array of its copies. While a thread is outside of the interpreter, calling the driver,
//! another one may grow that array, and the old one is given back. So it is read by the kernel, once for a code object:
//! the answer is kept by the thread.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::coverage_gaps;
use crate::python::interpreter::Cpython;
use crate::python::layout::Copies;
use crate::python::memory::{self, Unmapped, read};
use crate::thread_state;

/// From the array, which begins with how many there are, to the first.
const FIRST: usize = size_of::<usize>();

/// Returns where a copy begins; `word` reads a word at an address that may be wrong.
pub fn begin(
    array: usize,
    index: usize,
    word: impl Fn(usize) -> Result<usize, Unmapped>,
) -> Result<usize, Unmapped> {
    // That no thread's copy is in its place is said by a zero.
    if index >= word(array)? {
        return Err(Unmapped);
    }
    word(array + FIRST + size_of::<usize>() * index)
}

/// Returns how far an instruction lies behind the first of its code, in bytes; 0 where that is not known.
///
/// # Safety
/// `frame` is a living frame of the calling thread, `code` its code object, both of this CPython.
#[inline(never)]
pub unsafe fn offset(cpython: &Cpython, frame: *const u8, code: *const u8, instr: u64) -> u32 {
    let layout = &cpython.layout;
    let Some(Copies { array, index }) = layout.copies else { return 0 };
    // SAFETY: a code object, alive as its frame is; its instructions are two bytes each.
    let size = 2 * unsafe { read::<u64>(code, layout.size()) };
    let offset_from = |begin: u64| {
        // Before the first instruction the pointer may lie in front of it.
        let behind = instr.wrapping_add(2).wrapping_sub(begin);
        (behind < size + 2).then(|| (behind as u32).saturating_sub(2))
    };
    // The first thread runs the code object's own, and all do where copies are switched off.
    if let Some(offset) = offset_from(code.addr() as u64 + layout.code_size as u64) {
        return offset;
    }
    let (thread, epoch) = (thread_state::current(), thread_state::epoch());
    if let Some(offset) = thread.remembered(code.addr() as u64, epoch).and_then(offset_from) {
        return offset;
    }
    // SAFETY: fields of a frame and of a code object that are alive.
    let (array, index) = unsafe { (read::<usize>(code, array), read::<u32>(frame, index)) };
    let found = begin(array, index as usize, memory::kernel_word);
    match found.map(|begin| (begin as u64, offset_from(begin as u64))) {
        Ok((begin, Some(offset))) => {
            thread.remember(code.addr() as u64, epoch, begin);
            offset
        }
        _ => {
            report(cpython);
            0
        }
    }
}

/// Reports, once, that lines are wrong.
#[cold]
fn report(cpython: &Cpython) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if !REPORTED.swap(true, Ordering::Relaxed) {
        coverage_gaps::report(&format!(
            "{}: the copies of bytecode that threads run cannot be read; outside of the main thread, lines may be those of \
             their functions, and steps from loops missing",
            cpython.name()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_of_copies() {
        let words = [3_usize, 0x1000, 0x2000, 0];
        let word = |at: usize| words.get(at / 8).copied().ok_or(Unmapped);
        assert!(matches!(begin(0, 1, word), Ok(0x2000)));
        assert!(matches!(begin(0, 2, word), Ok(0)));
        assert!(begin(0, 3, word).is_err());
        assert!(begin(0, usize::MAX, word).is_err());
        assert!(begin(64, 0, word).is_err());
    }
}
