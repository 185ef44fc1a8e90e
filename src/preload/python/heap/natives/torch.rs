//! PyTorch's C++ objects, recognised by the names of their types: tensors, storages, autograd nodes. Knows
//! how the C++ ABI finds the type of an object, and no layout of a version: whether an object refers to a
//! tensor is found by its words.
//!
//! All of it is read by the kernel: threads without the GIL may change and free such objects at any time.
//! Words that are found are compared, and never followed as pointers.

use super::{Item, type_names};
use crate::python::memory::{self, is_plausible};
use leaktrace_core::holders::{Node, Nodes};
use leaktrace_core::int_map::IntMap;

/// What a C++ object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryClass {
    Tensor,
    Storage,
    /// The autograd part of a tensor.
    Meta,
    /// A node of an autograd graph, and the index of its name.
    Node(u32),
    /// What a node calls functions of Python's by, and in how many words.
    Hook(usize),
    Other,
}

impl MemoryClass {
    fn is_named(self, names: &[String], name: &str) -> bool {
        matches!(self, MemoryClass::Node(n) if names.get(n as usize).is_some_and(|known| known == name))
    }
}

/// A holder's index, its address, and a word that lies in it.
pub type Word = (u32, Node, u64);

/// How many words of a tensor, a storage or a tensor's autograd part hold the pointers that matter (in
/// PyTorch 2.0 to 2.15 the first nine are enough, for either ABI of strings and either size of reference
/// counts).
const HEAD: usize = 10;
/// How many words are read of a tensor that is made of others, one of them before it, and of how many words it is at least.
const COMPOSITE: usize = 65;
const SMALLEST: usize = 16;
/// How many words of a node are read first, one of them before it.
const NODE: usize = 65;
/// The bytes read of a node whose size is not known, beside those that all nodes have in common, and of any node at
/// most.
const OWN: usize = 384;
const LARGEST: usize = 4096;
/// The words in which an accumulator's leaf is looked for (PyTorch 2.11: it is behind the 80th).
const ACCUMULATOR: usize = 160;
/// The words of the longest vector that is searched.
const VECTOR: u64 = 2048;

/// The class of tensors.
const TENSOR: &str = "N3c1010TensorImplE";

/// An optimizer's attributes: the dict of its states by parameter, and the list of its groups of parameters, each a dict
/// with a list of them.
pub const STATES: &str = "state";
pub const GROUPS: &str = "param_groups";
pub const PARAMETERS: &str = "params";

/// The node that adds up a leaf's gradient, and holds the leaf.
const ACCUMULATE: &str = "AccumulateGrad";

#[derive(Default)]
pub struct Graph {
    /// Classes by tables of virtual functions.
    classes: IntMap<u64, MemoryClass>,
    names: Vec<String>,
    /// Those of tensors that are made of others: sparse ones have one of indices and one of values.
    composites: IntMap<u64, ()>,
    /// The tensors and nodes met so far.
    pub met: IntMap<u64, MemoryClass>,
    /// The tensors that others are made of.
    pub parts: Nodes,
    /// The words of a tensor in which its storage and its autograd part were found.
    storage_at: Option<usize>,
    meta_at: Option<usize>,
    /// How many words all nodes have in common, before those of their own kind. Some of the former are not in
    /// use and hold stale words, so only vectors count there.
    common: Option<usize>,
    /// A vector was met whose memory has its size before it, as glibc's `malloc` writes it: then every one has.
    sized: bool,
}

impl Graph {
    /// Returns the name of a node; empty for a tensor.
    pub fn name(&self, node: Node) -> &str {
        match self.met.get(&node) {
            Some(MemoryClass::Node(name)) => self.names.get(*name as usize).map_or("", String::as_str),
            _ => "",
        }
    }

    /// True once a storage was met: then tensors are read rightly.
    pub fn knows_storages(&self) -> bool {
        self.storage_at.is_some()
    }

    pub fn is_node(&self, node: Node) -> bool {
        matches!(self.met.get(&node), Some(MemoryClass::Node(_)))
    }

    /// Returns the classes of the objects at these addresses.
    pub fn classify(&mut self, addresses: &[u64]) -> Vec<MemoryClass> {
        let ranges: Vec<(u64, usize)> = addresses.iter().map(|&a| (a, 1)).collect();
        let copies = memory::copy(&ranges);
        (0..addresses.len()).map(|i| self.class(copies.get(i)[0])).collect()
    }

    /// Returns the class that a table of virtual functions belongs to.
    fn class(&mut self, table: u64) -> MemoryClass {
        if !is_plausible(table) {
            return MemoryClass::Other;
        }
        if let Some(&known) = self.classes.get(&table) {
            return known;
        }
        let names = type_names(table);
        let class = match names.first().map_or("", String::as_str) {
            TENSOR => MemoryClass::Tensor,
            "N3c1011StorageImplE" => MemoryClass::Storage,
            "N5torch8autograd12AutogradMetaE" | "N5torch8autograd22DifferentiableViewMetaE" => {
                MemoryClass::Meta
            }
            _ if names.iter().any(|name| name == TENSOR) => {
                self.composites.insert(table, ());
                MemoryClass::Tensor
            }
            name => match node_name(name) {
                Some(name) => {
                    self.names.push(name);
                    MemoryClass::Node(self.names.len() as u32 - 1)
                }
                None => {
                    let hook = HOOKS.iter().find(|(hook, _)| *hook == name);
                    hook.map_or(MemoryClass::Other, |&(_, words)| MemoryClass::Hook(words))
                }
            },
        };
        self.classes.insert(table, class);
        class
    }

    /// Finds what tensors hold: blocks and gradients, with `graphs` also nodes of the graph.
    pub fn tensors(&mut self, items: &[Item], graphs: bool, blocks: &Nodes, found: &mut Vec<Item>) {
        let heads: Vec<(u64, usize)> = items.iter().map(|&(_, tensor)| (tensor, HEAD)).collect();
        let heads = memory::copy(&heads);
        let is_composite = |i: &usize| self.composites.contains_key(&heads.get(*i)[0]);
        let composites: Vec<Item> = (0..items.len()).filter(is_composite).map(|i| items[i]).collect();
        let mut ranges = Vec::new();
        for (i, &(holder, tensor)) in items.iter().enumerate() {
            let known = self.storage_at.is_some() && self.meta_at.is_some();
            let wanted = |at: usize| !known || Some(at) == self.storage_at || Some(at) == self.meta_at;
            for (at, &word) in heads.get(i).iter().enumerate().skip(1) {
                if wanted(at) && is_plausible(word) {
                    ranges.push((holder, tensor, at, word));
                }
            }
        }
        let reads: Vec<(u64, usize)> = ranges.iter().map(|&(_, _, _, a)| (a, HEAD)).collect();
        let parts = memory::copy(&reads);
        let (mut deeper, mut owners) = (Vec::new(), Vec::new());
        for (i, &(holder, tensor, at, address)) in ranges.iter().enumerate() {
            let part = parts.get(i);
            match self.class(part[0]) {
                MemoryClass::Storage => {
                    self.storage_at.get_or_insert(at);
                    let held = part[1..].iter().find(|w| blocks.contains_key(*w));
                    found.extend(held.map(|&block| (holder, block)));
                }
                MemoryClass::Meta => {
                    self.meta_at.get_or_insert(at);
                    // It begins with a string, which may hold stale words.
                    let begin = if part[1] == address + 24 { 5 } else { 2 };
                    for &word in part[begin..].iter().filter(|w| is_plausible(**w)) {
                        deeper.push(word);
                        owners.push((holder, tensor));
                    }
                }
                _ => {}
            }
        }
        for (i, class) in self.classify(&deeper).into_iter().enumerate() {
            let (holder, tensor) = owners[i];
            if class.is_named(&self.names, ACCUMULATE) && self.common.is_none() {
                // It refers to the leaf that refers to it, in the first word of its own.
                self.common = [ACCUMULATOR, NODE].into_iter().find_map(|words| {
                    memory::copy(&[(deeper[i], words)]).get(0).iter().position(|w| *w == tensor)
                });
            }
            let own = match class {
                MemoryClass::Tensor => true,
                // The accumulator of a leaf is held by the graphs that lead to it, not by the leaf.
                MemoryClass::Node(name) => graphs && self.names[name as usize] != ACCUMULATE,
                _ => false,
            };
            if own {
                self.met.insert(deeper[i], class);
                found.push((holder, deeper[i]));
            }
        }
        if !composites.is_empty() {
            self.parts(&composites, found);
        }
    }

    /// Finds the tensors that others are made of.
    fn parts(&mut self, composites: &[Item], found: &mut Vec<Item>) {
        let ranges: Vec<(u64, usize)> =
            composites.iter().map(|&(_, tensor)| (tensor - 8, COMPOSITE)).collect();
        let copies = memory::copy(&ranges);
        let mut pointers = Vec::new();
        for (i, &(holder, tensor)) in composites.iter().enumerate() {
            // The word before it is its size, if `malloc` made it.
            let words = (copies.get(i)[0] & !7) as usize / 8;
            let own = if (SMALLEST..COMPOSITE).contains(&words) { words } else { COMPOSITE };
            let parts = copies.get(i)[..own].iter().skip(2).filter(|w| is_plausible(**w) && **w != tensor);
            pointers.extend(parts.map(|&part| (holder, part)));
        }
        let addresses: Vec<u64> = pointers.iter().map(|&(_, part)| part).collect();
        for (&(holder, part), class) in pointers.iter().zip(self.classify(&addresses)) {
            if class == MemoryClass::Tensor {
                self.met.insert(part, class);
                self.parts.insert(part, ());
                found.push((holder, part));
            }
        }
    }

    /// Finds what nodes of graphs hold: other nodes and tensors. Every word of theirs that may be an address goes
    /// to `words`, for a node may refer to an object of Python's from anywhere: one that is written in Python does
    /// so in its own part, and from PyTorch 2.13 on in that which all nodes have in common. Returns what may be
    /// the objects of their hooks.
    pub fn nodes(&mut self, items: &[Item], found: &mut Vec<Item>, words: &mut Vec<Word>) -> Vec<Item> {
        let ranges: Vec<(u64, usize)> = items.iter().map(|&(_, node)| (node - 8, NODE)).collect();
        let copies = memory::copy(&ranges);
        let mut bodies = Vec::new();
        let usual = OWN + 8 * self.common.unwrap_or(0);
        for (i, &(holder, node)) in items.iter().enumerate() {
            // An accumulator has its leaf and nothing else of its own; its size is never known.
            let is_accumulator =
                self.met.get(&node).is_some_and(|class| class.is_named(&self.names, ACCUMULATE));
            if let Some(common) = self.common.filter(|_| is_accumulator) {
                let leaf = memory::copy(&[(node + 8 * common as u64, 1)]).get(0)[0];
                bodies.push((holder, node, [vec![0; common], vec![leaf]].concat()));
                continue;
            }
            let mut body = copies.get(i).to_vec();
            if body[1] == 0 {
                // The mapping ends before the last word.
                body = memory::copy(&[(node - 8, 1 + HEAD * 2)]).get(0).to_vec();
            }
            // The word before it is its size, if `malloc` made it.
            let size = (body[0] & !7) as usize;
            let size =
                if size.is_multiple_of(16) && (96..=LARGEST).contains(&size) { size - 8 } else { usual };
            if size > (body.len() - 1) * 8 && body.len() == NODE {
                let whole = memory::copy(&[(node - 8, 1 + size / 8)]);
                // Beyond the end of a node whose size is not known there may be no memory.
                if whole.get(0)[1] != 0 {
                    body = whole.get(0).to_vec();
                }
            }
            body.truncate(1 + size / 8);
            bodies.push((holder, node, body.split_off(1)));
        }
        for (holder, node, body) in &bodies {
            words.extend(body.iter().filter(|w| is_plausible(**w)).map(|&word| (*holder, *node, word)));
        }
        let hooks = self.bodies(&bodies, found);
        let ranges: Vec<(u64, usize)> = hooks.iter().map(|&(_, hook, words)| (hook - 8, 2 + words)).collect();
        let copies = memory::copy(&ranges);
        let of_hook = |(i, &(holder, _, words)): (usize, &(u32, Node, usize))| {
            let hook = copies.get(i);
            // The word before it is its size, if `malloc` made it: what lies behind a small one is not its own.
            let own = if hook[0] & !7 == LARGE_HOOK { words } else { words.min(FEW) };
            hook.iter().skip(2).take(own).map(move |&object| (holder, object)).collect::<Vec<Item>>()
        };
        hooks.iter().enumerate().flat_map(of_hook).collect()
    }

    /// Finds what contexts of functions written in Python hold: they have no words in common with nodes.
    pub fn contexts(&mut self, bodies: &[(u32, Node, Vec<u64>)], found: &mut Vec<Item>) {
        let common = self.common.replace(0);
        self.bodies(bodies, found);
        self.common = common;
    }

    /// Finds pointers to nodes and tensors in some stretches of memory, and in the vectors that lie there. Returns those to
    /// hooks, with the numbers of their words.
    fn bodies(&mut self, bodies: &[(u32, Node, Vec<u64>)], found: &mut Vec<Item>) -> Vec<(u32, Node, usize)> {
        let mut pointers = Vec::new();
        let mut vectors = Vec::new();
        for (holder, itself, body) in bodies {
            let own = body.get(self.common.unwrap_or(0)..).unwrap_or_default();
            for &word in own.iter().filter(|w| is_plausible(**w) && **w != *itself) {
                pointers.push((*holder, word));
            }
            for three in body.windows(3) {
                let (begin, end, room) = (three[0], three[1], three[2]);
                let long = end.wrapping_sub(begin) / 8;
                let is = [begin, end].into_iter().all(is_plausible) && begin < end && end <= room;
                if is && long <= VECTOR && room - begin < 1 << 24 {
                    vectors.push((*holder, *itself, begin, long as usize, room - begin));
                }
            }
        }
        // Three words that only look like a vector lead to whatever lies between two objects.
        let heads: Vec<(u64, usize)> = vectors.iter().map(|&(_, _, begin, _, _)| (begin - 8, 1)).collect();
        let heads = memory::copy(&heads);
        let has_size: Vec<bool> =
            vectors.iter().enumerate().map(|(i, v)| is_chunk(heads.get(i)[0], v.4)).collect();
        self.sized |= has_size.contains(&true);
        let mut real = has_size.into_iter().map(|has_size| has_size || !self.sized);
        vectors.retain(|_| real.next() == Some(true));
        let reads: Vec<(u64, usize)> = vectors.iter().map(|&(_, _, begin, long, _)| (begin, long)).collect();
        let copies = memory::copy(&reads);
        for (i, &(holder, itself, ..)) in vectors.iter().enumerate() {
            let plausible = copies.get(i).iter().filter(|w| is_plausible(**w) && **w != itself);
            pointers.extend(plausible.map(|&word| (holder, word)));
        }
        pointers.sort_unstable();
        pointers.dedup();
        let addresses: Vec<u64> = pointers.iter().map(|&(_, word)| word).collect();
        let mut hooks = Vec::new();
        for (&(holder, word), class) in pointers.iter().zip(self.classify(&addresses)) {
            match class {
                MemoryClass::Tensor | MemoryClass::Node(_) => {
                    self.met.insert(word, class);
                    found.push((holder, word));
                }
                MemoryClass::Hook(words) => hooks.push((holder, word, words)),
                _ => {}
            }
        }
        hooks
    }
}

/// Returns whether a word is what glibc's `malloc` writes before memory of so many bytes: the size of both in units of 16
/// bytes, or one unit more where the rest was too small to be of use, and three flags.
fn is_chunk(word: u64, bytes: u64) -> bool {
    let least = (bytes + 8).next_multiple_of(16).max(32);
    (word & !7).checked_sub(least).is_some_and(|more| more <= 16)
}

/// The nodes that PyTorch has beside those whose names end in `Backward` and a number, and the one that stands for a function
/// written in C++, whose class is its argument.
const NODES: [&str; 9] = [
    "PyNode",
    ACCUMULATE,
    "CopySlices",
    "CopyBackwards",
    "Scatter",
    "Gather",
    "GraphRoot",
    "Error",
    "DelayedError",
];
const OF_FUNCTION: &str = "CppNode";

/// The hooks of nodes, and in how many words behind the table of virtual functions they refer to objects of Python's: to a
/// dict of functions; to how a tensor is packed and unpacked and to what it was packed to, which from PyTorch 2.15 on takes three
/// words each.
const HOOKS: [(&str, usize); 4] = [
    ("N5torch8autograd23PyFunctionTensorPreHookE", 1),
    ("N5torch8autograd17PyFunctionPreHookE", 1),
    ("N5torch8autograd18PyFunctionPostHookE", 1),
    ("N5torch8autograd20PySavedVariableHooksE", 9),
];
/// The bytes that `malloc` takes for the larger form of the last, and the words that any other has.
const LARGE_HOOK: u64 = 96;
const FEW: usize = 3;

/// Returns the name of a node: `N5torch8autograd9generated12MulBackward0E` → `MulBackward0`; of a function written in C++
/// the function's: `N5torch8autograd7CppNodeIN6vision8RoIAlignEEE` → `RoIAlign`.
fn node_name(mangled: &str) -> Option<String> {
    let (last, rest) = names(mangled.strip_prefix("N5torch8autograd")?)?;
    if let Some(function) = rest.strip_prefix('I').filter(|_| last == OF_FUNCTION) {
        let (name, _) = names(function.strip_prefix('N').unwrap_or(function))?;
        return Some(name.to_owned());
    }
    let is = rest.starts_with('E')
        && (NODES.contains(&last)
            || last.trim_end_matches(|c: char| c.is_ascii_digit()).ends_with("Backward")
            || mangled.contains("9generated"));
    is.then(|| last.to_owned())
}

/// Returns the last of the names, each behind its length, that a mangled name goes on with, and what follows it.
fn names(mangled: &str) -> Option<(&str, &str)> {
    let (mut last, mut rest) = ("", mangled);
    while let Some(digits) = rest.find(|c: char| !c.is_ascii_digit()).filter(|n| *n > 0) {
        let length: usize = rest[..digits].parse().ok()?;
        last = rest.get(digits..digits + length)?;
        rest = rest.get(digits + length..)?;
    }
    Some((last, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_known_by_the_names_of_their_types() {
        for (mangled, name) in [
            ("N5torch8autograd9generated12MulBackward0E", Some("MulBackward0")),
            ("N5torch8autograd13CopyBackwardsE", Some("CopyBackwards")),
            ("N5torch8autograd14AccumulateGradE", Some("AccumulateGrad")),
            ("N5torch8autograd6PyNodeE", Some("PyNode")),
            (
                "N5torch8autograd7CppNodeIN6vision3ops12_GLOBAL__N_116RoIAlignFunctionEEE",
                Some("RoIAlignFunction"),
            ),
            ("N5torch8autograd7CppNodeI6MyReluEE", Some("MyRelu")),
            ("N5torch8autograd12AutogradMetaE", None),
            ("N3c1010TensorImplE", None),
            ("N5torch8autograd99X", None),
        ] {
            assert_eq!(node_name(mangled).as_deref(), name, "{mangled}");
        }
    }
}
