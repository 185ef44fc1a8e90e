//! Objects of Python's that C++ objects keep: what TensorFlow's tapes have recorded. Which objects those are is known; how they
//! keep what they have, in tables and closures, is not: their memory is followed from one piece that `malloc` gave to the next,
//! and each word that is the address of an object of Python's counts.

use super::{Item, Object, type_names};
use crate::python::memory::{self, is_plausible};
use leaktrace_core::holders::Nodes;
use leaktrace_core::int_map::IntMap;

/// The types of such objects.
pub const CONTAINERS: [&str; 2] = ["tfe.Tape", "tfe.ForwardAccumulator"];

/// How many pieces of memory may lie between such an object and what it keeps: the tape, its table, a row, a function, what the
/// function has.
const DEEPEST: usize = 8;
/// The words of the largest piece that is read, and of all that are in a search.
const LARGEST: u64 = 1 << 17;
const MOST: usize = 1 << 22;

#[derive(Default)]
pub struct Containers {
    /// The words read so far.
    read: usize,
    /// Whether an address is that of a table of virtual functions: what has one may lead to all there is, but for the tape
    /// itself.
    tables: IntMap<u64, bool>,
}

impl Containers {
    /// Finds what containers keep, of the `objects` that there are.
    pub fn find(&mut self, containers: &[Object], objects: &Nodes, found: &mut Vec<Item>) {
        let mut seen = Nodes::default();
        let words =
            containers.iter().flat_map(|(holder, words)| words.iter().map(move |&word| (*holder, word)));
        let mut next: Vec<Item> = words.collect();
        for depth in 0..DEEPEST {
            next.retain(|&(_, word)| is_piece(word) && seen.insert(word, ()).is_none());
            let heads = memory::copy(&next.iter().map(|&(_, at)| (at - 8, 2)).collect::<Vec<_>>());
            let mut pieces = Vec::new();
            for (i, &(holder, at)) in next.iter().enumerate() {
                let (head, first) = (heads.get(i)[0], heads.get(i)[1]);
                // The word before it is its size, if `malloc` made it.
                let words = ((head & !7) / 8).saturating_sub(1);
                let mut leads_away = || depth > 0 && self.is_table(first);
                if head & 8 == 0 && (3..=LARGEST).contains(&words) && !leads_away() {
                    pieces.push((holder, at, words as usize));
                }
            }
            self.read += pieces.iter().map(|(_, _, words)| words).sum::<usize>();
            if pieces.is_empty() || self.read > MOST {
                return;
            }
            let copies = memory::copy(&pieces.iter().map(|&(_, at, words)| (at, words)).collect::<Vec<_>>());
            next.clear();
            for (i, &(holder, ..)) in pieces.iter().enumerate() {
                for &word in copies.get(i) {
                    match objects.contains_key(&word) {
                        true => found.push((holder, word)),
                        false => next.push((holder, word)),
                    }
                }
            }
        }
    }

    fn is_table(&mut self, word: u64) -> bool {
        is_plausible(word) && *self.tables.entry(word).or_insert_with(|| !type_names(word).is_empty())
    }
}

/// Returns whether a word may be the address of what `malloc` gave.
fn is_piece(word: u64) -> bool {
    word.is_multiple_of(16) && is_plausible(word)
}
