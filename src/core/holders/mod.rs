//! Who holds it: the shortest named ways from what a program can name to the blocks of a cause, and what to call them.
//!
//! ```text
//!  roots ─▶ search (breadth first, cheap edges before autograd graphs) ─▶ group (one owner, many blocks) ─▶ words
//!                └─ what no root reaches ─▶ garbage (cycles; held from C)
//! ```
//!
//! Pure: objects are numbers here, and what they hold is asked of a [`World`]. It knows no interpreter, no memory and no
//! clock, and it keeps nothing alive because it has nothing but numbers.

mod garbage;
mod group;
mod search;
#[cfg(test)]
mod tests;
mod words;

use std::cmp::Reverse;

use crate::format::entry::Retention;
use crate::int_map::IntMap;
use group::{Group, Path};
use search::Search;

/// An object, or a block: an address that no other has.
pub type Node = u64;

/// A set of nodes.
pub type Nodes = IntMap<u64, ()>;

/// What a program can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    pub node: Node,
    pub origin: Origin,
}

/// The name that a way begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `__main__.trainer`
    Global(String),
    /// A variable of a function that is running.
    Local { function: String, name: String },
    /// Nothing that has a name holds it, but something does.
    Foreign(String),
    /// Nothing holds it but itself: the members of the cycle.
    Cycle(Vec<String>),
}

/// How one object holds the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A detail of the implementation: an instance's dict, a cell, a tensor's storage.
    Through,
    Attribute(String),
    /// The place in a sequence.
    Index(usize),
    /// A dict's key as it is written.
    Key(String),
    /// It *is* the key.
    AsKey,
    /// One of many without a number: in a set, a deque.
    Element,
    /// A variable of a function that is suspended, or that an exception remembers.
    Local {
        function: String,
        name: String,
    },
    Closure(String),
    Default(String),
    /// Anything else, in a word or two.
    Named(String),
    /// A leaf's gradient.
    Gradient,
    /// From a tensor into its autograd graph, to the node of that name.
    Graph(String),
    /// On to another node of the graph.
    Next(String),
    /// What a node of the graph has saved.
    Saved,
}

/// The objects of a process.
pub trait World {
    /// Appends what `holders` hold: (index of the holder, what it holds). With `graphs` also what is held by way of autograd
    /// graphs.
    fn held(&mut self, holders: &[Node], graphs: bool, found: &mut Vec<(u32, Node)>);
    /// What can be named, by rank; `None` after the last. The first [`OWN`] ranks are the program's own names.
    fn roots(&mut self, rank: usize) -> Option<Vec<Root>>;
    /// How each of `way` holds the next.
    fn steps(&mut self, way: &[Node]) -> Vec<Step>;
    /// Whether it is a collection of like things: many ways that part here are one owner. What holds it tells: an object's
    /// own dict is none.
    fn is_collection(&mut self, holder: Option<Node>, node: Node) -> bool;
    /// How many entries a collection has, and how many it can ever have, where it lets go of the others by itself.
    fn bound(&mut self, node: Node) -> Option<(u64, u64)>;
    /// Whether it may begin an autograd graph.
    fn has_graph(&mut self, node: Node) -> bool;
    /// Every object that the cyclic collector knows and `reached` does not, with its reference count. `None`: not to be had.
    fn strays(&mut self, reached: &dyn Fn(Node) -> bool) -> Option<Vec<(Node, i64)>>;
    /// Appends what the cyclic collector would count as references of `holder`.
    fn references(&mut self, holder: Node, found: &mut Vec<Node>);
    fn type_name(&mut self, node: Node) -> String;
    /// What sort of object it is: a number that objects of one type share. Nodes of autograd graphs are of one sort.
    fn sort(&mut self, node: Node) -> u64;
    /// The time is up.
    fn is_late(&self) -> bool;
}

/// Ranks of roots that are the program's own.
pub const OWN: usize = 2;
/// Independent owners that are looked for.
const OWNERS: usize = 3;
/// A further owner is one only if it holds this share of what an earlier one holds.
const SHARE: f64 = 0.5;
/// What holds less than this share of a cause is not named where something else holds more.
const CRUMBS: f64 = 0.05;

/// A block to be looked for; blocks of one cause are named together.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub block: Node,
    pub cause: u32,
}

/// Who holds some of the blocks of a cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub path: String,
    /// The part of `path`, in bytes, that names what would have to let go: paths that begin alike have one owner.
    pub name: usize,
    pub hold: Retention,
    pub cause: u32,
    /// Indices into what was wanted.
    pub blocks: Vec<usize>,
}

/// Orders the holders of a finding, the first to be named first: lasting ones before those that may only have had the blocks
/// at the moment of the search (C++ code, an expression being evaluated), then by blocks, then by bytes.
pub fn listing_order(hold: Retention, blocks: u64, bytes: u64) -> (bool, Reverse<u64>, Reverse<u64>) {
    (hold == Retention::Unknown, Reverse(blocks), Reverse(bytes))
}

/// Said of what neither Python nor an autograd graph was seen to hold.
pub const UNSEEN: &str =
    "held by C or C++ code only: no Python object and no autograd graph was found to hold it";

/// Looks for the owners of `wanted`. What was not reached before the time was up has none.
pub fn find(world: &mut impl World, wanted: &[Wanted]) -> Vec<Owner> {
    let mut search = Search::new(wanted.iter().map(|w| w.block), Nodes::default(), Vec::new());
    let complete = search.run(world, usize::MAX);
    let mut groups = group::groups(world, wanted, search.paths(wanted));
    let mut owners: Vec<Owner> = groups.iter().flat_map(|g| group::owners(world, g)).collect();
    if complete && !search.is_done() {
        owners.extend(garbage::owners(world, wanted, &mut search));
    }
    drop(search);
    more_owners(world, wanted, &mut groups, &mut owners);
    without_crumbs(owners)
}

/// Other ways to the same blocks, once each owner that is known is thought away.
fn more_owners(world: &mut impl World, wanted: &[Wanted], groups: &mut Vec<Group>, owners: &mut Vec<Owner>) {
    let mut without: Vec<Root> = Vec::new();
    let mut blocked = Nodes::default();
    for _ in 1..OWNERS {
        let fresh = groups.len();
        for group in groups.iter() {
            match group.owner {
                group::Owning::Node(node) => drop(blocked.insert(node, ())),
                group::Owning::Name(ref root) => without.push(root.clone()),
            }
        }
        let again = groups.iter().flat_map(|g| &g.paths).map(|p| wanted[p.wanted].block);
        let mut search = Search::new(again, blocked.clone(), without.clone());
        if world.is_late() || search.is_done() {
            return;
        }
        search.run(world, OWN);
        let paths: Vec<Path> = search.paths(wanted);
        let found = group::groups(world, wanted, paths);
        for group in found {
            let most =
                |g: &&Group| g.cause == group.cause && group.shared(g) as f64 >= SHARE * g.paths.len() as f64;
            if groups[..fresh].iter().any(|g| most(&g)) {
                owners.extend(group::owners(world, &group));
                groups.push(group);
            }
        }
        if groups.len() == fresh {
            return;
        }
    }
}

fn without_crumbs(owners: Vec<Owner>) -> Vec<Owner> {
    let most = |cause: u32| owners.iter().filter(|o| o.cause == cause).map(|o| o.blocks.len()).max();
    let keeps = |o: &&Owner| o.blocks.len() as f64 >= CRUMBS * most(o.cause).unwrap_or(0) as f64;
    owners.iter().filter(keeps).cloned().collect()
}
