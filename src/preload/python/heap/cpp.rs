//! PyTorch's C++ objects, recognised by the names of their types: tensors, storages, autograd nodes. No layout of a version
//! is known here but how the C++ ABI finds the type of an object; everything else is "a word in it leads to a tensor".
//!
//! All of it is read through the kernel: threads without the GIL may change and free such objects at any time. What is found
//! is a number to compare, never a pointer to follow.

use crate::python::heap::peek;
use crate::python::heap::peek::is_plausible;
use leaktrace_core::holders::{Node, Nodes};
use leaktrace_core::ledger::Map;

/// What a C++ object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryClass {
    Tensor,
    Storage,
    /// What a tensor knows of autograd.
    Meta,
    /// A node of an autograd graph; its name's number.
    Node(u32),
    Other,
}

impl MemoryClass {
    fn is_named(self, names: &[String], name: &str) -> bool {
        matches!(self, MemoryClass::Node(n) if names.get(n as usize).is_some_and(|known| known == name))
    }
}

/// Where something is held: the holder's index, and the object or the place to look in.
pub type Item = (u32, Node);

/// Words of a tensor, a storage and a tensor's autograd part in which the pointers lie that matter (2.0 to 2.15: the first
/// nine are enough, whatever the ABI of strings and the size of the reference counts).
const HEAD: usize = 10;
/// Words of a node that are read first, one before it among them.
const NODE: usize = 65;
/// Bytes of a node whose size is not known, and the most of any.
const USUAL: usize = 384;
const LARGEST: usize = 4096;
/// The longest vector that is looked through, in words.
const VECTOR: u64 = 2048;

#[derive(Default)]
pub struct Cpp {
    /// Types by their tables of virtual functions.
    classes: Map<MemoryClass>,
    names: Vec<String>,
    /// What was met, tensors and nodes.
    pub met: Map<MemoryClass>,
    /// In which words of a tensor its storage and its autograd part were found.
    storage_at: Option<usize>,
    meta_at: Option<usize>,
    /// Words that every node has, before those of its own kind. Among the former lies room that is not in use, with old words
    /// in it: only vectors count there.
    common: Option<usize>,
}

impl Cpp {
    pub fn name(&self, node: Node) -> &str {
        match self.met.get(&node) {
            Some(MemoryClass::Node(name)) => self.names.get(*name as usize).map_or("", String::as_str),
            _ => "",
        }
    }

    /// A storage was met: PyTorch is what we take it for.
    pub fn knows_storages(&self) -> bool {
        self.storage_at.is_some()
    }

    pub fn is_node(&self, node: Node) -> bool {
        matches!(self.met.get(&node), Some(MemoryClass::Node(_)))
    }

    /// The classes of the objects at these addresses.
    pub fn classify(&mut self, addresses: &[u64]) -> Vec<MemoryClass> {
        let places: Vec<(u64, usize)> = addresses.iter().map(|&a| (a, 1)).collect();
        let seen = peek::read(&places);
        (0..addresses.len()).map(|i| self.class(seen.get(i)[0])).collect()
    }

    /// The class that a table of virtual functions belongs to.
    fn class(&mut self, table: u64) -> MemoryClass {
        if !is_plausible(table) {
            return MemoryClass::Other;
        }
        if let Some(&known) = self.classes.get(&table) {
            return known;
        }
        let name = type_name(table).unwrap_or_default();
        let class = match name.as_str() {
            "N3c1010TensorImplE" => MemoryClass::Tensor,
            "N3c1011StorageImplE" => MemoryClass::Storage,
            "N5torch8autograd12AutogradMetaE" | "N5torch8autograd22DifferentiableViewMetaE" => {
                MemoryClass::Meta
            }
            name => match node_name(name) {
                Some(name) => {
                    self.names.push(name);
                    MemoryClass::Node(self.names.len() as u32 - 1)
                }
                None => MemoryClass::Other,
            },
        };
        self.classes.insert(table, class);
        class
    }

    /// What tensors hold: (holder, block), (holder, gradient), with `graphs` also (holder, node of the graph).
    pub fn tensors(&mut self, items: &[Item], graphs: bool, blocks: &Nodes, found: &mut Vec<Item>) {
        let heads: Vec<(u64, usize)> = items.iter().map(|&(_, tensor)| (tensor, HEAD)).collect();
        let heads = peek::read(&heads);
        let mut places = Vec::new();
        for (i, &(holder, tensor)) in items.iter().enumerate() {
            let known = self.storage_at.is_some() && self.meta_at.is_some();
            let wanted = |at: usize| !known || Some(at) == self.storage_at || Some(at) == self.meta_at;
            for (at, &word) in heads.get(i).iter().enumerate().skip(1) {
                if wanted(at) && is_plausible(word) {
                    places.push((holder, tensor, at, word));
                }
            }
        }
        let reads: Vec<(u64, usize)> = places.iter().map(|&(_, _, _, a)| (a, HEAD)).collect();
        let parts = peek::read(&reads);
        let (mut deeper, mut owners) = (Vec::new(), Vec::new());
        for (i, &(holder, tensor, at, address)) in places.iter().enumerate() {
            let part = parts.get(i);
            match self.class(part[0]) {
                MemoryClass::Storage => {
                    self.storage_at.get_or_insert(at);
                    let held = part[1..].iter().find(|w| blocks.contains_key(*w));
                    found.extend(held.map(|&block| (holder, block)));
                }
                MemoryClass::Meta => {
                    self.meta_at.get_or_insert(at);
                    // It begins with a string, which may have unused room inside it.
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
            if class.is_named(&self.names, "AccumulateGrad") && self.common.is_none() {
                // It knows the leaf that knows it, in the first word of its own.
                let body = peek::read(&[(deeper[i], NODE)]);
                self.common = body.get(0).iter().position(|w| *w == tensor);
            }
            let own = match class {
                MemoryClass::Tensor => true,
                // The accumulator of a leaf is not the leaf's own: it is the graphs' that lead to it.
                MemoryClass::Node(name) => graphs && self.names[name as usize] != "AccumulateGrad",
                _ => false,
            };
            if own {
                self.met.insert(deeper[i], class);
                found.push((holder, deeper[i]));
            }
        }
    }

    /// What nodes of graphs hold: other nodes, tensors; and every other word of theirs that may be an address.
    pub fn nodes(&mut self, items: &[Item], found: &mut Vec<Item>, words: &mut Vec<Item>) {
        let places: Vec<(u64, usize)> = items.iter().map(|&(_, node)| (node - 8, NODE)).collect();
        let seen = peek::read(&places);
        let mut bodies = Vec::new();
        for (i, &(holder, node)) in items.iter().enumerate() {
            let mut body = seen.get(i).to_vec();
            if body[1] == 0 {
                // Near the end of a mapping.
                body = peek::read(&[(node - 8, 1 + HEAD * 2)]).get(0).to_vec();
            }
            // The allocator's own word before it says how large it is, if it is the allocator's.
            let size = (body[0] & !7) as usize;
            let size =
                if size.is_multiple_of(16) && (96..=LARGEST).contains(&size) { size - 8 } else { USUAL };
            if size > (body.len() - 1) * 8 && body.len() == NODE {
                body = peek::read(&[(node - 8, 1 + size / 8)]).get(0).to_vec();
            }
            body.truncate(1 + size / 8);
            bodies.push((holder, node, body.split_off(1)));
        }
        self.bodies(&bodies, found, words);
    }

    /// What lies in contexts of functions written in Python: none of a node's words stand before their own.
    pub fn contexts(&mut self, bodies: &[(u32, Node, Vec<u64>)], found: &mut Vec<Item>) {
        let common = self.common.replace(0);
        self.bodies(bodies, found, &mut Vec::new());
        self.common = common;
    }

    /// What lies in some stretches of memory: pointers to nodes and tensors, and vectors of what has such.
    fn bodies(&mut self, bodies: &[(u32, Node, Vec<u64>)], found: &mut Vec<Item>, words: &mut Vec<Item>) {
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
                    vectors.push((*holder, *itself, begin, long as usize));
                }
            }
        }
        let reads: Vec<(u64, usize)> = vectors.iter().map(|&(_, _, begin, long)| (begin, long)).collect();
        let seen = peek::read(&reads);
        for (i, &(holder, itself, ..)) in vectors.iter().enumerate() {
            let plausible = seen.get(i).iter().filter(|w| is_plausible(**w) && **w != itself);
            pointers.extend(plausible.map(|&word| (holder, word)));
        }
        pointers.sort_unstable();
        pointers.dedup();
        let addresses: Vec<u64> = pointers.iter().map(|&(_, word)| word).collect();
        for (&(holder, word), class) in pointers.iter().zip(self.classify(&addresses)) {
            match class {
                MemoryClass::Tensor | MemoryClass::Node(_) => {
                    self.met.insert(word, class);
                    found.push((holder, word));
                }
                _ => words.push((holder, word)),
            }
        }
    }
}

/// The mangled name of the type that a table of virtual functions belongs to: the word before it leads to the type's
/// description, whose second word is the name (Itanium C++ ABI).
fn type_name(table: u64) -> Option<String> {
    let description = *peek::read(&[(table - 8, 1)]).get(0).first()?;
    if !is_plausible(description) {
        return None;
    }
    let name = *peek::read(&[(description + 8, 1)]).get(0).first()?;
    (0x1_0000..1 << 47).contains(&name).then(|| peek::text(name))
}

/// `N5torch8autograd9generated12MulBackward0E` → `MulBackward0`: what is in that namespace and is no other class we know is
/// taken for a node.
fn node_name(mangled: &str) -> Option<String> {
    let mut rest = mangled.strip_prefix("N5torch8autograd")?;
    let mut last = "";
    while let Some(digits) = rest.find(|c: char| !c.is_ascii_digit()).filter(|n| *n > 0) {
        let length: usize = rest[..digits].parse().ok()?;
        last = rest.get(digits..digits + length)?;
        rest = rest.get(digits + length..)?;
    }
    let known = ["PyNode", "AccumulateGrad", "CopySlices", "GraphRoot", "Error", "DelayedError"];
    let is = rest.starts_with('E')
        && (known.contains(&last)
            || last.trim_end_matches(|c: char| c.is_ascii_digit()).ends_with("Backward")
            || mangled.contains("9generated"));
    is.then(|| last.to_owned())
}
