//! What the program's functions that are running have on their evaluation stacks: the iterator of a loop has no other
//! name.

use crate::python::heap::Heap;
use crate::python::layout::MARKS;
use crate::python::memory::{self, word};
use crate::python::offsets::{OB_TYPE, TYPE_ITERNEXT, VAR_SIZE};
use crate::python::packages;
use crate::python::thread_frames;
use leaktrace_core::holders::Node;
use leaktrace_core::int_map::IntMap;

/// The most places of a stack that are looked at: a loop within many others has its iterator that high.
const MOST_PLACES: usize = 32;

impl Heap<'_> {
    /// Returns the function that has an iterator on its stack.
    pub fn loop_of(&mut self, object: Node) -> Option<String> {
        // SAFETY: a living object, and its type.
        if unsafe { word(word(object, OB_TYPE), TYPE_ITERNEXT) } == 0 {
            return None;
        }
        if self.stacks.is_none() {
            self.stacks = Some(self.read_stacks());
        }
        self.stacks.as_ref()?.get(&object).cloned()
    }

    /// Returns which function has an address on its stack. How high a stack is does not show while it is used, and above it
    /// are remains: the words are compared with the addresses of living objects, and no more.
    fn read_stacks(&self) -> IntMap<u64, String> {
        let mut stacks = IntMap::default();
        let Some(first) = self.cpython.layout.frame_variables else { return stacks };
        let of = |thread| {
            // SAFETY: the state of a living thread, and the GIL is held.
            unsafe { self.cpython.frames(thread) }
        };
        let frames: Vec<_> = thread_frames::threads(self.python).into_iter().flat_map(of).collect();
        for frame in &frames {
            // SAFETY: a frame keeps its code alive.
            let (file, function) = unsafe { self.cpython.names(frame.code) };
            if !packages::ownership().is_own_file(&file) {
                continue;
            }
            let places = first + 8 * self.variable_names(frame.code).len();
            let from = frame.address + places as u64;
            let words = if self.cpython.frames_are_objects() {
                // SAFETY: a living frame: the number of its places.
                let all = first as u64 + 8 * unsafe { word(frame.address, VAR_SIZE) };
                (frame.address + all).saturating_sub(from) as usize / 8
            } else {
                // Frames lie one behind the other.
                let next = frames.iter().map(|other| other.address).filter(|&other| other >= from).min();
                next.map_or(MOST_PLACES, |next| (next - from) as usize / 8)
            };
            for &word in memory::copy(&[(from, words.min(MOST_PLACES))]).all() {
                if memory::is_plausible(word & !MARKS) {
                    stacks.entry(word & !MARKS).or_insert_with(|| function.clone());
                }
            }
        }
        stacks
    }
}
