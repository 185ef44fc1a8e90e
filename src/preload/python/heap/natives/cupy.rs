//! What CuPy's arrays hold: each refers to a pointer object, and that to the one that owns the memory, by its bare address. It
//! knows no layout of a version.

use super::{Handles, Item, Object};
use crate::python::memory::{self, is_plausible};
use leaktrace_core::holders::Nodes;

pub struct Arrays;

/// From an array to the owner of its memory, and words of an object that are looked at on the way.
const STEPS: usize = 2;
const WORDS: usize = 8;

impl Handles for Arrays {
    fn find(&mut self, objects: &[Object], blocks: &Nodes, found: &mut Vec<Item>) {
        let of_object = |(holder, words): &Object| {
            let plausible = words.iter().copied().filter(|word| is_plausible(*word));
            plausible.map(|word| (*holder, word)).collect::<Vec<Item>>()
        };
        let mut at: Vec<Item> = objects.iter().flat_map(of_object).collect();
        for _ in 0..STEPS {
            let ranges: Vec<(u64, usize)> = at.iter().map(|&(_, object)| (object, WORDS)).collect();
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
