//! What TensorFlow's tensors hold, recognised by the names of C++ types alone: a tensor of Python's has a handle, that has
//! the buffer with a block's address, and those of its copies on other devices. A variable is a handle, too, whose buffer
//! has the variable's object, which has its own buffer. It knows no layout of a version: each is found by its words.
//!
//! No other words are followed: some of them lead to devices and contexts, and by these to all there is.

use super::{Classes, Handles, Item, Object};
use crate::python::memory::{self, is_plausible};
use leaktrace_core::holders::Nodes;

/// `tensorflow::TensorHandle`, `tensorflow::Var`
const HANDLE: &str = "N10tensorflow12TensorHandleE";
const VARIABLE: &str = "N10tensorflow3VarE";
/// `tensorflow::TensorBuffer`, from which every kind of buffer is derived.
const BUFFER: &str = "N10tensorflow12TensorBufferE";
/// The elements of a variable's own buffer.
const RESOURCE: &str = "14ResourceHandle";

/// Words of them that are read: those that matter are in the first half (2.21).
const HANDLE_WORDS: usize = 64;
const BUFFER_WORDS: usize = 6;
const RESOURCE_WORDS: usize = 32;
const VARIABLE_WORDS: usize = 24;
/// The word of a buffer that is the address of its elements: the first behind those that all counted objects have.
const ELEMENTS: usize = 2;
/// Words of a node of a hash table of copies, and the most buckets and copies.
const COPY_WORDS: usize = 24;
const BUCKETS: u64 = 1024;
const COPIES: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Handle,
    Buffer,
    /// A buffer of a variable's.
    Resource,
    Variable,
}

pub struct Tensors {
    classes: Classes<Class>,
    /// The word of Python's object in which the handle was found.
    handle_at: Option<usize>,
}

impl Default for Tensors {
    fn default() -> Tensors {
        let named = |names: &[String]| match names.first()?.as_str() {
            HANDLE => Some(Class::Handle),
            VARIABLE => Some(Class::Variable),
            name if names.iter().any(|name| name == BUFFER) => Some(match name.contains(RESOURCE) {
                true => Class::Resource,
                false => Class::Buffer,
            }),
            _ => None,
        };
        Tensors { classes: Classes::new(named), handle_at: None }
    }
}

impl Handles for Tensors {
    fn find(&mut self, objects: &[Object], blocks: &Nodes, found: &mut Vec<Item>) {
        let mut handles = Vec::new();
        for (holder, words) in objects {
            let at = self.handle_at.or_else(|| {
                self.handle_at =
                    self.classes.of(words).iter().position(|class| *class == Some(Class::Handle));
                self.handle_at
            });
            handles.extend(at.and_then(|at| Some((*holder, *words.get(at)?))));
        }
        let handles = self.only(handles, |class| class == Class::Handle);
        let mut buffers = self.buffers_in(&handles, HANDLE_WORDS);
        let copies = copies_of(&handles);
        buffers.extend(self.buffers_in(&copies, COPY_WORDS));
        // What variables have.
        let resources = self.only(buffers.clone(), |class| class == Class::Resource);
        let elements: Vec<Item> = read(&resources, BUFFER_WORDS, |words| vec![words[ELEMENTS]]);
        let variables = read(&elements, RESOURCE_WORDS, <[u64]>::to_vec);
        let variables = self.only(variables, |class| class == Class::Variable);
        buffers.extend(self.buffers_in(&variables, VARIABLE_WORDS));
        // A part leads to the whole.
        buffers.extend(self.buffers_in(&buffers.clone(), BUFFER_WORDS));
        buffers.sort_unstable();
        buffers.dedup();
        let addresses = read(&buffers, BUFFER_WORDS, |words| vec![words[ELEMENTS]]);
        found.extend(addresses.into_iter().filter(|(_, address)| blocks.contains_key(address)));
    }
}

impl Tensors {
    /// Returns the buffers that some words of objects lead to.
    fn buffers_in(&mut self, objects: &[Item], words: usize) -> Vec<Item> {
        let all = read(objects, words, <[u64]>::to_vec);
        self.only(all, |class| matches!(class, Class::Buffer | Class::Resource))
    }

    /// Returns those of the objects that are of a class.
    fn only(&mut self, objects: Vec<Item>, is: impl Fn(Class) -> bool) -> Vec<Item> {
        let addresses: Vec<u64> = objects.iter().map(|&(_, address)| address).collect();
        let classes = self.classes.of(&addresses);
        objects
            .into_iter()
            .zip(classes)
            .filter(|(_, class)| class.is_some_and(&is))
            .map(|(object, _)| object)
            .collect()
    }
}

/// Reads objects; `wanted` chooses from the words of each.
fn read(objects: &[Item], words: usize, wanted: impl Fn(&[u64]) -> Vec<u64>) -> Vec<Item> {
    let ranges: Vec<(u64, usize)> = objects.iter().map(|&(_, address)| (address, words)).collect();
    let copies = memory::copy(&ranges);
    let each = objects.iter().enumerate();
    each.flat_map(|(i, &(holder, _))| wanted(copies.get(i)).into_iter().map(move |word| (holder, word)))
        .filter(|(_, word)| *word != 0)
        .collect()
}

/// Returns the nodes of the hash tables that lie in handles: buckets, how many, the first node, how many.
fn copies_of(handles: &[Item]) -> Vec<Item> {
    let mut nodes = read(handles, HANDLE_WORDS, |words| {
        let tables = words.windows(4).filter(|four| {
            is_plausible(four[0])
                && (1..BUCKETS).contains(&four[1])
                && is_plausible(four[2])
                && (1..COPIES).contains(&four[3])
        });
        tables.map(|four| four[2]).collect()
    });
    // Each leads to the next.
    let mut latest = nodes.clone();
    for _ in 1..COPIES {
        latest = read(&latest, 1, <[u64]>::to_vec);
        latest.retain(|(_, node)| is_plausible(*node));
        if latest.is_empty() {
            break;
        }
        nodes.extend(&latest);
    }
    nodes
}
