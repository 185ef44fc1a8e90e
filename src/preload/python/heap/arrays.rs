//! What JAX's arrays hold, recognised by the names of C++ types alone: an array of Python's has one of IFRT's, that has
//! PJRT's buffers, one for each device, and each of those a plugin's handle, by which a block is known. It knows no
//! layout of a version: each is found by its words.
//!
//! No other words are followed: some of them chain all arrays there are.

use super::cpp::{Item, type_name};
use crate::python::memory::{self, is_plausible};
use leaktrace_core::holders::Nodes;
use leaktrace_core::int_map::IntMap;

/// `xla::ifrt::PjRtArray`, `xla::PjRtCApiBuffer`
const ARRAY: &str = "N3xla4ifrt9PjRtArrayE";
const BUFFER: &str = "N3xla14PjRtCApiBufferE";

/// Words of them that are read: those that matter are in the first half (0.8.3 to 0.11.2).
const ARRAY_WORDS: usize = 48;
const BUFFER_WORDS: usize = 16;
/// The most devices of one array.
const DEVICES: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Array,
    Buffer,
    Other,
}

#[derive(Default)]
pub struct Arrays {
    /// Classes by tables of virtual functions.
    classes: IntMap<u64, Class>,
    /// The word of Python's object in which IFRT's array was found.
    array_at: Option<usize>,
}

impl Arrays {
    /// Finds the blocks of arrays, each a holder's index and the words of the object behind its head.
    pub fn find(&mut self, objects: &[(u32, Vec<u64>)], blocks: &Nodes, found: &mut Vec<Item>) {
        if objects.is_empty() {
            return;
        }
        let mut arrays = Vec::new();
        let unknown: Vec<&(u32, Vec<u64>)> = match self.array_at {
            Some(at) => {
                arrays.extend(objects.iter().filter_map(|(holder, words)| Some((*holder, *words.get(at)?))));
                Vec::new()
            }
            None => objects.iter().collect(),
        };
        for (holder, words) in unknown {
            let at = self.classes_of(words).iter().position(|class| *class == Class::Array);
            self.array_at = self.array_at.or(at);
            arrays.extend(at.map(|at| (*holder, words[at])));
        }
        let addresses: Vec<u64> = arrays.iter().map(|&(_, array)| array).collect();
        let classes = self.classes_of(&addresses);
        let ranges: Vec<(u64, usize)> = addresses.iter().map(|&array| (array, ARRAY_WORDS)).collect();
        let bodies = memory::copy(&ranges);
        let mut buffers = Vec::new();
        for (i, &(holder, array)) in arrays.iter().enumerate().filter(|(i, _)| classes[*i] == Class::Array) {
            buffers.extend(self.buffers(array, bodies.get(i)).into_iter().map(|buffer| (holder, buffer)));
        }
        let ranges: Vec<(u64, usize)> = buffers.iter().map(|&(_, buffer)| (buffer, BUFFER_WORDS)).collect();
        let bodies = memory::copy(&ranges);
        for (i, &(holder, _)) in buffers.iter().enumerate() {
            let held = bodies.get(i).iter().find(|word| blocks.contains_key(*word));
            found.extend(held.map(|&block| (holder, block)));
        }
    }

    /// Returns the buffers of an array: a vector of shared pointers that may lie in it. Its first word is twice the
    /// length, and one more where they lie elsewhere.
    fn buffers(&mut self, array: u64, body: &[u64]) -> Vec<u64> {
        for (at, &tag) in body.iter().enumerate().filter(|(_, tag)| (2..2 * DEVICES).contains(*tag)) {
            let elsewhere = tag & 1 == 1;
            let first =
                if elsewhere { body.get(at + 1).copied().unwrap_or(0) } else { array + 8 * (at as u64 + 1) };
            if !is_plausible(first) {
                continue;
            }
            let pairs = memory::copy(&[(first, (tag >> 1) as usize * 2)]);
            let buffers: Vec<u64> = pairs.get(0).iter().step_by(2).copied().collect();
            if self.classes_of(&buffers).iter().all(|class| *class == Class::Buffer) {
                return buffers;
            }
        }
        Vec::new()
    }

    /// Returns the classes of the objects at these addresses.
    fn classes_of(&mut self, addresses: &[u64]) -> Vec<Class> {
        let plausible = addresses.iter().filter(|address| is_plausible(**address));
        let tables = memory::copy(&plausible.map(|&address| (address, 1)).collect::<Vec<_>>());
        let mut read = 0..;
        let mut class = |address| match is_plausible(address) {
            true => read.next().map_or(Class::Other, |i| self.class(tables.get(i)[0])),
            false => Class::Other,
        };
        addresses.iter().map(|&address| class(address)).collect()
    }

    fn class(&mut self, table: u64) -> Class {
        if !is_plausible(table) {
            return Class::Other;
        }
        *self.classes.entry(table).or_insert_with(|| match type_name(table).as_deref() {
            Some(ARRAY) => Class::Array,
            Some(BUFFER) => Class::Buffer,
            _ => Class::Other,
        })
    }
}
