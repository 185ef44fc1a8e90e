//! The state of CPython's cyclic garbage collector, read raw: whether it is running (a block that is freed
//! meanwhile was garbage that nothing but the collector would have freed), and where the lists of objects
//! begin. Changes nothing.
//!
//! Up to 3.13 CPython keeps that state in one structure without a name to look up. It is found by its shape: a
//! pointer to the array of generations stands right behind that array, so it points 72 bytes before itself.
//!
//! ```text
//!   generations: 3 × { next, prev, threshold | count }     9 words
//!   generation0 = &generations[0]                          1 word  ← found by this
//!   permanent: { next, prev, threshold | count }           3 words
//!   stats: 3 × { collections, collected, uncollectable }   9 words
//!   collecting                                             1 int
//! ```
//!
//! From 3.14 on the pointer is elsewhere, and the interpreter says where `collecting` is; the generations lie a
//! known way before it, and must be rings. So they do in a free-threaded build, and hold nothing: that collector asks
//! the allocator for the objects.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::coverage_gaps;
use crate::python::api::ObjectApi;
use crate::python::interpreter::{self, Cpython, Interpreter};
use crate::python::memory::{self, copy_pages};
use crate::thread_state::ThreadState;

/// `struct gc_generation`, in bytes, and how many there are.
pub const GENERATION: usize = 24;
pub const GENERATIONS: usize = 3;
/// From a generation to its count.
const COUNT: usize = 20;
/// Far more than the part of the interpreter's state that comes before the collector's.
const SEARCHED: u64 = 64 << 10;
/// More collections than any process lives to see: what is larger is no count.
const MANY: u64 = 1 << 40;

/// True while the collector runs. Asked by the thread that frees, which holds the GIL if the collector does; without a
/// GIL, what others free meanwhile counts too.
#[inline(always)]
pub fn collecting(thread: &ThreadState) -> bool {
    // Up to 3.10 the flag is freed with the interpreter.
    thread
        .read_section(|| {
            let flag = interpreter::cpython()?.collecting.load(Ordering::Relaxed);
            let flag: *const AtomicI32 = ptr::with_exposed_provenance(flag);
            // SAFETY: an aligned `int` of the interpreter's state, which is not freed during a read section.
            (!flag.is_null()).then(|| unsafe { (*flag).load(Ordering::Relaxed) } == 1)
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

/// Looks for the collector's state, once; that it is not found is a coverage gap. With the GIL held.
pub fn find(python: &Interpreter) {
    let Some(cpython) = interpreter::cpython() else { return };
    if cpython.collecting.load(Ordering::Relaxed) != 0 {
        return;
    }
    match python.api.objects.as_ref().and_then(|objects| search(cpython, objects)) {
        Some(generations) => {
            let flag = generations + cpython.layout.collector.after_generations;
            if !cpython.layout.is_free_threaded() {
                cpython.generations.store(generations, Ordering::Release);
            }
            cpython.collecting.store(flag, Ordering::Release);
        }
        None => coverage_gaps::report(&format!(
            "{}: runs of the garbage collector are not seen; garbage that waits for it may be taken for no leak",
            cpython.name()
        )),
    }
}

/// Returns the address of the first generation.
fn search(cpython: &Cpython, objects: &ObjectApi) -> Option<usize> {
    // SAFETY: returns the main interpreter's state, which is alive.
    let main = unsafe { (objects.functions.PyInterpreterState_Main)() }.addr();
    let collector = cpython.layout.collector;
    if let Some(at) = collector.collecting {
        let generations = (main + at).checked_sub(collector.after_generations)?;
        let are_expected = match cpython.layout.is_free_threaded() {
            true => are_empty(generations as u64, collector.after_generations),
            false => are_rings(generations as u64, collector.after_generations),
        };
        return are_expected.then_some(generations);
    }
    // 3.8 keeps it in the runtime's state, later ones in the interpreter's.
    [main as u64, objects.runtime].into_iter().find_map(|start| {
        let index = generations(copy_pages(start, SEARCHED).all(), start)?;
        Some(start as usize + index * 8)
    })
}

/// True if the three generations and the permanent one, which lie at an address, are rings, and what lies so
/// far behind them is a flag.
fn are_rings(generations: u64, flag: usize) -> bool {
    let heads: Vec<u64> = (0..=GENERATIONS as u64).map(|i| generations + i * GENERATION as u64).collect();
    let read = memory::copy(&heads.iter().map(|&head| (head, 2)).collect::<Vec<_>>());
    // The low bits of a link are marks.
    let links = |i: usize, at: usize| read.get(i)[at] & !3;
    let ends: Vec<(u64, usize)> =
        (0..heads.len()).flat_map(|i| [(links(i, 0), 2), (links(i, 1), 2)]).collect();
    let ends = memory::copy(&ends);
    let is_ring =
        |(i, &head): (usize, &u64)| ends.get(2 * i)[1] & !3 == head && ends.get(2 * i + 1)[0] & !3 == head;
    heads.iter().enumerate().all(is_ring) && is_flag(generations + flag as u64)
}

/// True if the three generations that lie at an address have thresholds and no objects, and what lies so far behind them
/// is a flag.
fn are_empty(generations: u64, flag: usize) -> bool {
    let read = memory::copy(&[(generations, GENERATIONS * GENERATION / 8)]);
    let is_empty = |generation: &[u64]| generation[..2] == [0, 0];
    read.get(0).chunks(GENERATION / 8).all(is_empty)
        && read.get(0).iter().any(|&word| word != 0)
        && is_flag(generations + flag as u64)
}

/// True if an `int` is 0 or 1.
fn is_flag(address: u64) -> bool {
    let word = memory::copy(&[(address & !7, 1)]).get(0)[0];
    (0..=1).contains(&(word as c_int))
}

/// Returns the index of the generations' first word in a copy of what lies at `start`.
fn generations(words: &[u64], start: u64) -> Option<usize> {
    const WORDS: usize = 9;
    let is_shape = |&i: &usize| {
        let lists = [0, 1, 3, 4, 6, 7, WORDS + 1, WORDS + 2];
        words[i + WORDS] == start + i as u64 * 8
            && lists.iter().all(|at| words[i + at] != 0 && words[i + at].is_multiple_of(8))
            && words[i + 13..i + 22].iter().all(|&count| count < MANY)
            && (0..=1).contains(&(words[i + 22] as c_int))
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

    #[test]
    fn rings_where_an_interpreter_says_they_are() {
        let mut memory = [0_u64; 40];
        let at = |i: usize| memory.as_ptr().expose_provenance() as u64 + i as u64 * 8;
        let all: Vec<u64> = (0..40).map(at).collect();
        for head in [4, 7, 10, 13] {
            (memory[head], memory[head + 1]) = (all[head], all[head]);
        }
        // The youngest holds an object, whose link is marked.
        (memory[4], memory[5]) = (all[20] | 1, all[20]);
        (memory[20], memory[21]) = (all[4], all[4] | 2);
        // The flag is no part of the rings.
        assert!(are_rings(all[4], 168));
        for other in [all[3], all[5], all[7], 0, 8, u64::MAX - 800] {
            assert!(!are_rings(other, 168), "{other:#x}");
        }
        memory[4 + 21] = 2;
        assert!(!are_rings(std::hint::black_box(&memory).as_ptr().addr() as u64 + 32, 168));
    }
}
