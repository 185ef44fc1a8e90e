//! What buffers of `cuda.core` hold: a pointer to the address of their memory. It knows no layout of a version.

use super::{Handles, Item, Object};
use crate::python::memory::{self, is_plausible};
use leaktrace_core::holders::Nodes;

pub struct Buffers;

impl Handles for Buffers {
    fn find(&mut self, objects: &[Object], blocks: &Nodes, found: &mut Vec<Item>) {
        let pointers = |(holder, words): &Object| {
            let plausible: Vec<u64> = words.iter().copied().filter(|word| is_plausible(*word)).collect();
            plausible.into_iter().map(|word| (*holder, word)).collect::<Vec<Item>>()
        };
        let pointers: Vec<Item> = objects.iter().flat_map(pointers).collect();
        let ranges: Vec<(u64, usize)> = pointers.iter().map(|&(_, pointer)| (pointer, 1)).collect();
        let copies = memory::copy(&ranges);
        for (i, &(holder, _)) in pointers.iter().enumerate() {
            found.extend(
                copies.get(i).first().filter(|word| blocks.contains_key(*word)).map(|&word| (holder, word)),
            );
        }
    }
}
