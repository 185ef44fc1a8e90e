//! What JAX's arrays hold, recognised by the names of C++ types alone: an array of Python's has one of IFRT's, that has
//! PJRT's buffers, one for each device, and each of those a plugin's handle, by which a block is known. It knows no
//! layout of a version: each is found by its words.
//!
//! No other words are followed: some of them chain all arrays there are.

use super::{Classes, Handles, Item, Object};
use crate::python::memory::{self, is_plausible};
use leaktrace_core::holders::Nodes;

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
}

pub struct Arrays {
    classes: Classes<Class>,
    /// The word of Python's object in which IFRT's array was found.
    array_at: Option<usize>,
}

impl Default for Arrays {
    fn default() -> Arrays {
        let named = |names: &[String]| match names.first()?.as_str() {
            ARRAY => Some(Class::Array),
            BUFFER => Some(Class::Buffer),
            _ => None,
        };
        Arrays { classes: Classes::new(named), array_at: None }
    }
}

impl Handles for Arrays {
    fn find(&mut self, objects: &[Object], blocks: &Nodes, found: &mut Vec<Item>) {
        let mut arrays = Vec::new();
        let unknown: Vec<&Object> = match self.array_at {
            Some(at) => {
                arrays.extend(objects.iter().filter_map(|(holder, words)| Some((*holder, *words.get(at)?))));
                Vec::new()
            }
            None => objects.iter().collect(),
        };
        for (holder, words) in unknown {
            let at = self.classes.of(words).iter().position(|class| *class == Some(Class::Array));
            self.array_at = self.array_at.or(at);
            arrays.extend(at.map(|at| (*holder, words[at])));
        }
        let addresses: Vec<u64> = arrays.iter().map(|&(_, array)| array).collect();
        let classes = self.classes.of(&addresses);
        let ranges: Vec<(u64, usize)> = addresses.iter().map(|&array| (array, ARRAY_WORDS)).collect();
        let bodies = memory::copy(&ranges);
        let mut buffers = Vec::new();
        for (i, &(holder, array)) in
            arrays.iter().enumerate().filter(|(i, _)| classes[*i] == Some(Class::Array))
        {
            buffers.extend(self.buffers(array, bodies.get(i)).into_iter().map(|buffer| (holder, buffer)));
        }
        let ranges: Vec<(u64, usize)> = buffers.iter().map(|&(_, buffer)| (buffer, BUFFER_WORDS)).collect();
        let bodies = memory::copy(&ranges);
        for (i, &(holder, _)) in buffers.iter().enumerate() {
            let held = bodies.get(i).iter().find(|word| blocks.contains_key(*word));
            found.extend(held.map(|&block| (holder, block)));
        }
    }
}

impl Arrays {
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
            if self.classes.of(&buffers).iter().all(|class| *class == Some(Class::Buffer)) {
                return buffers;
            }
        }
        Vec::new()
    }
}
