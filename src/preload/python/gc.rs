//! The state of CPython's cyclic garbage collector, read raw: whether it is running (a block that is freed
//! meanwhile was garbage that nothing but the collector would have freed), and where the rings of objects
//! begin. Changes nothing.
//!
//! CPython 3.8 to 3.13 keep that state in one structure without a name to look up. It is found by its shape:
//! a pointer to the array of generations stands right behind that array, so it points 72 bytes before itself.
//!
//! ```text
//!   generations: 3 × { next, prev, threshold | count }     9 words
//!   generation0 = &generations[0]                          1 word  ← found by this
//!   permanent: { next, prev, threshold | count }           3 words
//!   stats: 3 × { collections, collected, uncollectable }   9 words
//!   collecting                                             1 int
//! ```

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::python::interpreter::{self, Cpython, Interpreter};
use crate::python::memory::copy_pages;
use crate::thread_state::ThreadState;

/// `struct gc_generation`, in bytes, and how many there are.
pub const GENERATION: usize = 24;
pub const GENERATIONS: usize = 3;
/// From a generation to its count.
const COUNT: usize = 20;
/// From the generations to `collecting`.
pub const COLLECTING: usize = 22 * 8;
/// Far more than the part of the interpreter's state that comes before the collector's.
const SEARCHED: u64 = 64 << 10;
/// More collections than any process lives to see: what is larger is no count.
const MANY: u64 = 1 << 40;

/// True while the collector runs. Asked by the thread that frees, which holds the GIL if the collector does.
#[inline(always)]
pub fn collecting(thread: &ThreadState) -> bool {
    // Up to 3.10 the flag is freed with the interpreter.
    thread
        .read_section(|| {
            let generations = interpreter::cpython()?.generations.load(Ordering::Relaxed);
            let flag: *const AtomicI32 = ptr::with_exposed_provenance(generations + COLLECTING);
            // SAFETY: an aligned `int` of the interpreter's state, which is not freed during a read section.
            (generations != 0).then(|| unsafe { (*flag).load(Ordering::Relaxed) } == 1)
        })
        .flatten()
        .unwrap_or(false)
}

/// Returns a count that changes whenever an object is made that the collector watches. Of all threads.
#[inline(always)]
pub fn objects(cpython: &Cpython) -> u32 {
    let generations = cpython.generations.load(Ordering::Relaxed);
    let count: *const AtomicI32 = ptr::with_exposed_provenance(generations + COUNT);
    // SAFETY: as in `collecting`: within a read section.
    if generations == 0 { 0 } else { unsafe { (*count).load(Ordering::Relaxed) as u32 } }
}

/// Looks for the collector's state, once. With the GIL held, so that no collection is under way.
pub fn find(python: &Interpreter) {
    let (Some(cpython), Some(objects)) = (interpreter::cpython(), &python.api.objects) else { return };
    if cpython.generations.load(Ordering::Relaxed) != 0 {
        return;
    }
    // SAFETY: returns the main interpreter's state, which is alive.
    let main = unsafe { (objects.functions.PyInterpreterState_Main)() };
    // 3.8 keeps it in the runtime's state, later ones in the interpreter's.
    let found = [main.addr() as u64, objects.runtime].into_iter().find_map(|start| {
        let index = generations(copy_pages(start, SEARCHED).all(), start)?;
        Some(start as usize + index * 8)
    });
    cpython.generations.store(found.unwrap_or(0), Ordering::Release);
}

/// Returns the index of the generations' first word in a copy of what lies at `start`.
fn generations(words: &[u64], start: u64) -> Option<usize> {
    const WORDS: usize = 9;
    let is_shape = |&i: &usize| {
        let lists = [0, 1, 3, 4, 6, 7, WORDS + 1, WORDS + 2];
        words[i + WORDS] == start + i as u64 * 8
            && lists.iter().all(|at| words[i + at] != 0 && words[i + at].is_multiple_of(8))
            && words[i + 13..i + 22].iter().all(|&count| count < MANY)
            && words[i + 22] as c_int == 0
    };
    (0..words.len().saturating_sub(22)).find(is_shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_by_its_shape() {
        let start = 0x7000_0000;
        let mut words = vec![0x1_u64; 500];
        let at = |i: usize| start + i as u64 * 8;
        assert_eq!(generations(&words, start), None);
        let g = 100;
        for list in 0..4 {
            let i = g + list * 3 + usize::from(list == 3);
            (words[i], words[i + 1], words[i + 2]) = (at(i), at(i), 700);
        }
        words[g + 9] = at(g);
        words[g + 22] = 0;
        assert_eq!(generations(&words, start), Some(g));
        words[g + 13] = u64::MAX;
        assert_eq!(generations(&words, start), None);
        assert_eq!(generations(&words[..g + 15], start), None);
    }
}
