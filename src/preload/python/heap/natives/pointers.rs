//! Handles that lead to the address of their memory through other objects: buffers of `cuda.core` point to it, arrays of CuPy's
//! to an object that points to its owner. Knows no layout of a version.

use super::{Handles, Item, Object};
use crate::python::memory::{self, is_plausible};
use leaktrace_core::holders::Nodes;

/// How many objects lie on the way, and how many words of each are looked at.
pub struct Pointers {
    pub steps: usize,
    pub words: usize,
}

impl Handles for Pointers {
    fn find(&mut self, objects: &[Object], blocks: &Nodes, found: &mut Vec<Item>) {
        let of_object = |(holder, words): &Object| {
            let plausible = words.iter().copied().filter(|word| is_plausible(*word));
            plausible.map(|word| (*holder, word)).collect::<Vec<Item>>()
        };
        let mut at: Vec<Item> = objects.iter().flat_map(of_object).collect();
        for _ in 0..self.steps {
            let ranges: Vec<(u64, usize)> = at.iter().map(|&(_, object)| (object, self.words)).collect();
            let copies = memory::copy(&ranges);
            let mut next = Vec::new();
            for (i, &(holder, _)) in at.iter().enumerate() {
                for &word in copies.get(i) {
                    if blocks.contains_key(&word) {
                        found.push((holder, word));
                    } else if is_plausible(word) {
                        next.push((holder, word));
                    }
                }
            }
            at = next;
        }
    }
}
