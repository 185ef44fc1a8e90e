//! What a framework's C++ objects hold, recognised by the names of their types. Knows how the C++ ABI finds the type of an
//! object; it knows no layout of a version, and nothing of Python's objects.
//!
//! A framework's arrays lead to blocks in one of two ways. PyTorch's tensors are parts of graphs that are searched like
//! Python's objects ([`torch`]). The handles of all others lead to blocks alone: a row of [`HANDLES`] each.
//!
//! All of it is read by the kernel: threads without the GIL may change and free such objects at any time. Words that are
//! found are compared, and never followed as pointers.

pub mod containers;
mod jax;
mod pointers;
mod tensorflow;
pub mod torch;

use crate::machine;
use crate::python::memory::{self, is_plausible};
use leaktrace_core::holders::{Node, Nodes};
use leaktrace_core::int_map::IntMap;

/// A holder's index, and an object that it holds or that is to be searched.
pub type Item = (u32, Node);
/// A holder's index, and the words of the object behind its head.
pub type Object = (u32, Vec<u64>);

/// A type of Python's whose objects lead to blocks, and what makes the finder of these.
pub struct HandleType {
    pub name: &'static str,
    /// Whether what its objects stand for in C++ may hold them in turn.
    pub may_hold_itself: bool,
    pub finder: fn() -> Box<dyn Handles>,
}

pub const HANDLES: [HandleType; 5] = [
    HandleType {
        name: "StorageBase",
        may_hold_itself: true,
        finder: || Box::new(pointers::Pointers { steps: 1, words: 8 }),
    },
    HandleType {
        name: "Buffer",
        may_hold_itself: false,
        finder: || Box::new(pointers::Pointers { steps: 1, words: 1 }),
    },
    HandleType {
        name: "_ndarray_base",
        may_hold_itself: false,
        finder: || Box::new(pointers::Pointers { steps: 2, words: 8 }),
    },
    HandleType { name: "ArrayImpl", may_hold_itself: false, finder: || Box::<jax::Arrays>::default() },
    HandleType {
        name: "EagerTensor",
        may_hold_itself: false,
        finder: || Box::<tensorflow::Tensors>::default(),
    },
];

/// The types of what a framework's allocator, where that is made of Python's objects, knows its blocks by: it holds none.
pub const RECORDS: [&str; 3] =
    ["cupy.cuda.memory.SingleDeviceMemoryPool", "cupy.cuda.memory._Arena", "cupy.cuda.memory._Chunk"];

/// Finds what a framework's handles hold.
pub trait Handles {
    /// Finds the blocks of some handles.
    fn find(&mut self, objects: &[Object], blocks: &Nodes, found: &mut Vec<Item>);
}

/// The classes of C++ objects, by their tables of virtual functions. A class is known by the names of an object's type and of
/// what that is derived from.
struct Classes<C> {
    known: IntMap<u64, Option<C>>,
    named: fn(&[String]) -> Option<C>,
}

impl<C: Copy> Classes<C> {
    fn new(named: fn(&[String]) -> Option<C>) -> Classes<C> {
        Classes { known: IntMap::default(), named }
    }

    /// Returns the classes of the objects at these addresses; `None` for what is none of them.
    fn of(&mut self, addresses: &[u64]) -> Vec<Option<C>> {
        let plausible = addresses.iter().filter(|address| is_plausible(**address));
        let tables = memory::copy(&plausible.map(|&address| (address, 1)).collect::<Vec<_>>());
        let mut read = 0..;
        let mut class = |address| {
            let at = is_plausible(address).then(|| read.next()).flatten()?;
            self.of_table(tables.get(at)[0])
        };
        addresses.iter().map(|&address| class(address)).collect()
    }

    fn of_table(&mut self, table: u64) -> Option<C> {
        if !is_plausible(table) {
            return None;
        }
        *self.known.entry(table).or_insert_with(|| (self.named)(&type_names(table)))
    }
}

/// Returns the mangled name of the type that a table of virtual functions belongs to, and those of what it is derived from, as
/// far as each has one base. The word before the table leads to the type's description, whose second word is the name
/// (Itanium C++ ABI).
fn type_names(table: u64) -> Vec<String> {
    const DEEPEST: usize = 8;
    let mut names = Vec::new();
    let mut description = memory::copy(&[(table - 8, 1)]).get(0)[0];
    while let Some((name, base)) = described(description).filter(|_| names.len() < DEEPEST) {
        names.push(name);
        description = base;
    }
    names
}

/// Returns the name in a type's description, and the word behind it: the description of its base, if it has one.
fn described(description: u64) -> Option<(String, u64)> {
    if !is_plausible(description) {
        return None;
    }
    let words = memory::copy(&[(description + 8, 1), (description + 16, 1)]);
    let name = words.get(0)[0];
    let text = (0x1_0000..machine::ADDRESS_END).contains(&name).then(|| memory::c_string(name))?;
    Some((text, words.get(1)[0]))
}
