//! The search for holders: the shortest reference paths from what a program can name (the roots) to the
//! blocks of a cause, and what to call them.
//!
//! ```text
//!  roots ─▶ search (breadth first, cheap edges before autograd graphs) ─▶ group (one owner, many blocks) ─▶ words
//!                └─ what no root reaches ─▶ garbage (cycles; held from C)
//! ```
//!
//! Pure: objects are numbers here, and what they refer to is asked of a [`HeapGraph`]. It knows no
//! interpreter, no memory and no clock, and it keeps nothing alive because it has nothing but numbers.

pub mod assignments;
mod garbage;
mod group;
mod lasting;
mod recurrent_state;
mod search;
mod subsets;
#[cfg(test)]
mod tests;
mod values;
mod words;

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::format::entry::Retention;
use crate::int_map::IntMap;
use assignments::Assignments;
use group::{Group, Path};
use search::Search;
pub use words::are_alike;

/// An object, or a block: an address that no other has.
pub type Node = u64;

/// A set of nodes.
pub type Nodes = IntMap<u64, ()>;

/// An object that a program can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    pub node: Node,
    pub origin: GcRoot,
}

/// What a reference path begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GcRoot {
    /// `__main__.trainer`
    Global(String),
    /// A variable of a function that is running.
    Local { function: String, name: String },
    /// Something outside of Python's heap, which has no name here.
    Foreign(String),
    /// A reference cycle that nothing else refers to: its members, each with how it refers to the next.
    Cycle(Vec<String>),
    /// A tensor whose gradient has an autograd graph that leads back to it: see [`GRADIENT_CYCLE`].
    GradientCycle,
    /// A hook in an autograd graph that keeps the graph, and how it refers to what it keeps: see [`HOOK_CYCLE`].
    HookCycle(String),
}

/// How one object of a path refers to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// By a detail of the implementation: an instance's dict, a cell, a tensor's storage.
    Through,
    Attribute(String),
    /// By position in a sequence.
    Index(usize),
    /// By the name of a named tuple's field.
    Field(String),
    /// By a dict's key, as it is written.
    Key(String),
    /// As the key itself.
    AsKey,
    /// As one of many without a number: in a set, a deque.
    Element,
    /// By a variable of a function that is suspended, or that an exception remembers.
    Local {
        function: String,
        name: String,
    },
    Closure(String),
    Default(String),
    /// By anything else, in a word or two.
    Named(String),
    /// By a leaf's gradient.
    Gradient,
    /// From a tensor into its autograd graph, to the node of that name.
    Graph(String),
    /// On to another node of the graph.
    Next(String),
    /// By what a node of the graph has saved.
    Saved,
}

/// The objects of a process and their references.
pub trait HeapGraph {
    /// Appends the references from `holders`: (index of the holder, what it refers to). With `graphs` also
    /// those through autograd graphs.
    fn references_from(&mut self, holders: &[Node], graphs: bool, found: &mut Vec<(u32, Node)>);
    /// Returns the roots of a rank; `None` after the last. The first [`OWN_RANKS`] ranks are the program's
    /// own names.
    fn roots(&mut self, rank: usize) -> Option<Vec<Root>>;
    /// Returns the program's own roots by how long they last, the longest first: what a call has comes after what the calls
    /// have that led to it.
    fn roots_by_life(&mut self) -> Vec<Vec<Root>> {
        Vec::new()
    }
    /// Returns how each node of a reference path refers to the next.
    fn steps(&mut self, path: &[Node]) -> Vec<Step>;
    /// Returns whether a node is a collection of like things, so that paths which part there have one owner.
    /// Its `holder` decides it too: an object's own dict is none.
    fn is_collection(&mut self, holder: Option<Node>, node: Node) -> bool;
    /// Returns whether a collection has the variables of executed code: what they hold has nothing in common.
    fn is_namespace(&mut self, node: Node) -> bool;
    /// Returns whether a node is an object whose class is a package's, or the dict of its attributes. What such an
    /// object keeps in several places is its own affair.
    fn is_of_package(&mut self, holder: Option<Node>, node: Node) -> bool;
    /// Returns how many entries a collection has, and how many it can ever have, where it drops the others by
    /// itself, or has one for each of so many things. Its `holder` decides it too.
    fn bound(&mut self, holder: Option<Node>, node: Node) -> Option<(u64, u64)>;
    /// Returns the keys of a dict, where it is one.
    fn keys(&mut self, _: Node) -> Option<Nodes> {
        None
    }
    /// Returns how many entries a collection has, where that is known.
    fn length(&mut self, node: Node) -> Option<u64>;
    /// Returns the number that an object has as an attribute, or a function as a variable of its closure; of an attribute of that,
    /// or what a dict has by that key, if the path has several names. Without an object, that of a variable of the program's own
    /// modules, or of its functions that are running.
    fn number(&mut self, _: Option<Node>, _: &[String]) -> Option<u64> {
        None
    }
    /// Returns the name of a function.
    fn function(&mut self, _: Node) -> Option<String> {
        None
    }
    /// Returns the first entry of a list.
    fn first(&mut self, _: Node) -> Option<Node> {
        None
    }
    /// Returns the C++ tensor that an object of Python's stands for: what graphs refer to.
    fn native(&mut self, _: Node) -> Option<Node> {
        None
    }
    /// Returns whether a node is a C++ object: a tensor, or a node of an autograd graph.
    fn is_native(&mut self, _: Node) -> bool {
        false
    }
    /// Returns whether a node may begin an autograd graph.
    fn has_graph(&mut self, node: Node) -> bool;
    /// Returns whether an object's own C++ part may hold it.
    fn may_hold_itself(&mut self, node: Node) -> bool {
        self.has_graph(node)
    }
    /// Returns every object that the cyclic collector knows and `reached` does not, with its reference count.
    /// `None`: that cannot be had.
    fn unreachable_objects(&mut self, reached: &dyn Fn(Node) -> bool) -> Option<Vec<(Node, i64)>>;
    /// Appends what the cyclic collector counts as references from `holder`.
    fn references(&mut self, holder: Node, found: &mut Vec<Node>);
    fn type_name(&mut self, node: Node) -> String;
    /// Returns the name of an object that no other refers to, if it is known who keeps it: for ever, or as long as a loop runs.
    fn name_foreign(&mut self, _: Node) -> Option<String> {
        None
    }
    /// Returns what the source of the program assigns, where it can be read.
    fn assignments(&mut self) -> Option<&Assignments> {
        None
    }
    /// Returns the lengths that the source of the program keeps collections at, where it can be read.
    fn limits(&mut self) -> Option<&Assignments> {
        None
    }
    /// Returns a number that objects of one type share. Nodes of autograd graphs are of one type.
    fn sort(&mut self, node: Node) -> u64;
    /// Returns whether the time for the search is up.
    fn is_late(&self) -> bool;
}

/// The ranks of roots that are the program's own names.
pub const OWN_RANKS: usize = 2;
/// The independent owners that are searched for, and how many at most where the one that matters is not among them.
const MAX_OWNERS: usize = 3;
const MOST_OWNERS: usize = 8;
/// The share of an earlier owner's blocks that a further one must hold too: the parameters alone, where an optimizer has two
/// more for each.
const MIN_COMMON_SHARE: f64 = 0.3;
/// The share of the most blocks, and of the most bytes, that an owner has, below which another is not named.
const MIN_SHARE: f64 = 0.05;

/// A block to search for. Blocks of one cause are named together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    pub block: Node,
    pub bytes: u64,
    pub cause: u32,
    /// It is one of those that are replaced again and again: what the source says of its variable is of interest.
    pub renewed: bool,
}

/// Who holds some of the blocks of a cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub path: String,
    /// The bytes of `path` that name what would have to drop the blocks: paths that begin alike have one
    /// owner.
    pub name: usize,
    pub hold: Retention,
    /// The collection that has them; 0: there is no such.
    pub node: Node,
    /// The first entry of that, where it is a list; else 0.
    pub first: Node,
    /// How many entries the outermost collection has that it is in, or can have, if that is bounded or limited itself. Where that
    /// grows, nothing is bounded. 0: not known.
    pub places: u64,
    pub cause: u32,
    /// Indices into what was wanted.
    pub blocks: Vec<usize>,
}

impl Owner {
    /// Takes in another one, and is called by a path that stands for both, whose first `name` bytes are the owner's.
    fn take_in(&mut self, other: Owner, path: String, name: usize) {
        (self.path, self.name, self.node) = (path, name, 0);
        self.places = self.places.max(other.places);
        self.blocks.extend(other.blocks);
        self.blocks.sort_unstable();
        self.blocks.dedup();
    }
}

/// What a search has found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub owners: Vec<Owner>,
    /// Whether the time sufficed.
    pub in_time: bool,
    /// Whether the interpreter's garbage collection is known to be switched off.
    pub collector_is_off: bool,
}

/// What decides where a holder is listed.
pub struct Listed<'a> {
    pub hold: Retention,
    /// What would have to drop the blocks; the paths of one owner begin with it.
    pub name: &'a str,
    pub blocks: u64,
    pub bytes: u64,
    /// Whether it only refers to what another has: an optimizer, say, to the variables of a model.
    pub refers: bool,
}

/// How the path of what only C or C++ code refers to begins, or an expression: a comprehension's list that is being filled.
pub const EXPRESSION: &str = "held by C or C++ code, or by an expression under way: ";
/// The path of what a tensor's own gradient keeps: a backward pass that makes a graph of its own ties each leaf to its
/// gradient. All of that cycle is C++, so that no garbage collection finds it.
pub const GRADIENT_CYCLE: &str = "held by a reference cycle in C++, which garbage collection does not free: a tensor's `.grad` \
                                  has an autograd graph that leads back to the tensor";
/// How the path begins of what the hooks of an autograd graph keep where that leads back to the graph. The graph is C++.
pub const HOOK_CYCLE: &str = "held by a reference cycle in C++, which garbage collection does not free: an autograd graph's hook \
                              that keeps the graph";
/// What stands between a function and its variable in a path.
const LOCAL: &str = "() local `";
/// What has fewer blocks than this need not keep what grows, however large they are. An expression that has so many, and so many
/// times as many as any variable, keeps them.
const LEAST_KEPT: u64 = 4;
const TIMES_KEPT: u64 = 2;
/// What refers to blocks has far more of their bytes than another if it has more by this part.
const FAR_MORE: u64 = 4;

/// Sorts the holders of a finding, the first to be named first: lasting ones before those that may only have had the
/// blocks at the moment of the search (C++ code, an expression being evaluated that has few), then those whose owner has
/// more than a few blocks, then by the bytes of their owner, then those without a bound, then those that do not only refer
/// to what others have, then those that are no function's variables, then the owner found first: it is nearest to the
/// blocks.
pub fn sort_for_listing<T>(holders: &mut [T], listed: impl Fn(&T) -> Listed<'_>) {
    struct Named {
        name: String,
        blocks: u64,
        bytes: u64,
    }
    let mut owners: Vec<Named> = Vec::new();
    for holder in holders.iter().map(&listed) {
        // What only refers does so by several paths to the same ones, and is named first where it has far more.
        let has = |all: u64| if holder.refers { all - all / FAR_MORE } else { all };
        let (blocks, bytes) = (has(holder.blocks), has(holder.bytes));
        match owners.iter_mut().find(|owner| owner.name == holder.name) {
            Some(owner) if holder.refers => {
                (owner.blocks, owner.bytes) = (owner.blocks.max(blocks), owner.bytes.max(bytes));
            }
            Some(owner) => {
                owner.blocks = owner.blocks.saturating_add(blocks);
                owner.bytes = owner.bytes.saturating_add(bytes);
            }
            None => owners.push(Named { name: holder.name.to_owned(), blocks, bytes }),
        }
    }
    let is_expression = |name: &str| name.starts_with(EXPRESSION);
    let variables = owners.iter().filter(|owner| !is_expression(&owner.name)).map(|owner| owner.blocks);
    let keeps = LEAST_KEPT.max(TIMES_KEPT.saturating_mul(variables.max().unwrap_or(0)));
    holders.sort_by_cached_key(|holder| {
        let Listed { hold, name, blocks, bytes, refers } = listed(holder);
        let at = owners.iter().position(|owner| owner.name == name).unwrap_or(0);
        let transient = hold == Retention::Unknown && !(is_expression(name) && owners[at].blocks >= keeps);
        let few = owners[at].blocks < LEAST_KEPT;
        let bounded = !hold.is_unbounded();
        let is_local = name.contains(LOCAL);
        let has = (few, Reverse(owners[at].bytes));
        (transient, has, bounded, refers, is_local, at, Reverse(bytes), Reverse(blocks))
    });
}

/// The path of blocks that neither a Python object nor an autograd graph was seen to hold.
pub const UNSEEN: &str =
    "held by C or C++ code only: no Python object and no autograd graph was found to hold it";

/// Searches for the owners of `wanted`. What was not reached before the time was up has none.
pub fn find(graph: &mut impl HeapGraph, wanted: &[Wanted]) -> Found {
    let mut search = Search::new(wanted.iter().map(|w| w.block), Nodes::default(), Vec::new());
    let complete = search.run(graph, usize::MAX);
    let mut groups = group::groups(graph, wanted, search.paths(wanted));
    let mut garbage = Vec::new();
    if complete && !search.is_done() {
        garbage = garbage::owners(graph, wanted, &mut search);
    }
    drop(search);
    subsets::complete(graph, wanted, &mut groups);
    more_owners(graph, wanted, &mut groups);
    subsets::leave_out(graph, &mut groups);
    recurrent_state::leave_out_others(graph, &mut groups);
    lasting::rename(graph, &mut groups);
    let owners = groups.iter().flat_map(|g| group::owners(graph, g)).collect();
    let mut owners = values::tell_apart(graph, wanted, owners);
    owners.extend(garbage);
    Found {
        owners: without_minor(wanted, numbered(joined(owners))),
        in_time: complete && !graph.is_late(),
        collector_is_off: false,
    }
}

/// Searches for other paths to the same blocks, leaving out each owner that is known.
fn more_owners(graph: &mut impl HeapGraph, wanted: &[Wanted], groups: &mut Vec<Group>) {
    let mut without: Vec<Root> = Vec::new();
    let mut blocked = Nodes::default();
    for known in 1..MOST_OWNERS {
        if known >= MAX_OWNERS && !recurrent_state::is_missing(graph, groups) {
            return;
        }
        let fresh = groups.len();
        for group in groups.iter() {
            match group.owner {
                group::Owning::Node(node) => drop(blocked.insert(node, ())),
                group::Owning::Name(ref root) => without.push(root.clone()),
            }
        }
        let again = groups.iter().flat_map(|g| &g.paths).map(|p| wanted[p.wanted].block);
        let mut search = Search::new(again, blocked.clone(), without.clone());
        if graph.is_late() || search.is_done() {
            return;
        }
        search.run(graph, OWN_RANKS);
        let paths: Vec<Path> = search.paths(wanted);
        let found = group::groups(graph, wanted, paths);
        for group in found {
            let most = |g: &&Group| {
                g.cause == group.cause && group.shared(g) as f64 >= MIN_COMMON_SHARE * g.paths.len() as f64
            };
            if groups[..fresh].iter().any(|g| most(&g)) {
                groups.push(group);
            }
        }
        if groups.len() == fresh {
            return;
        }
    }
}

/// Joins the owners of a cause that differ in numbers of entries only: each of `trials[0].history[*]` and
/// `trials[1].history[*]` has a part of what `trials[*].history[*]` has.
fn joined(owners: Vec<Owner>) -> Vec<Owner> {
    let mut all: Vec<Owner> = Vec::new();
    for owner in owners {
        let alike = |o: &&mut Owner| {
            let same = o.cause == owner.cause && o.path != owner.path && o.hold == owner.hold;
            same && o.hold.is_unbounded() && words::are_alike(&o.path, &owner.path)
        };
        let Some(known) = all.iter_mut().find(alike) else {
            all.push(owner);
            continue;
        };
        let name = words::join(&known.path[..known.name], &owner.path[..owner.name]);
        let path = words::join(&known.path, &owner.path);
        known.take_in(owner, path, name.len());
    }
    all
}

/// Joins the owners of a cause whose names differ in numbers at their ends only, where they are many: the variables that a
/// program makes by number.
fn numbered(owners: Vec<Owner>) -> Vec<Owner> {
    let mut sets: Vec<Vec<Owner>> = Vec::new();
    let mut by_name: HashMap<(u32, String), usize> = HashMap::new();
    for owner in owners {
        let is_open = owner.hold.is_unbounded();
        let name = if is_open { words::unnumbered(&owner.path) } else { owner.path.clone() };
        let at = *by_name.entry((owner.cause, name)).or_insert(sets.len());
        match sets.get_mut(at).filter(|set| set.iter().all(|known| known.hold == owner.hold)) {
            Some(set) => set.push(owner),
            None => sets.push(vec![owner]),
        }
    }
    let join = |mut set: Vec<Owner>| {
        if set.len() <= words::NAMES {
            return set;
        }
        let whole = words::join_numbered(&set.iter().map(|o| o.path.as_str()).collect::<Vec<_>>());
        let names: Vec<&str> = set.iter().filter_map(|o| o.path.get(..o.name)).collect();
        let name = words::join_numbered(&names).len();
        let mut all = set.remove(0);
        set.into_iter().for_each(|owner| all.take_in(owner, whole.clone(), name));
        vec![all]
    };
    sets.into_iter().flat_map(join).collect()
}

fn without_minor(wanted: &[Wanted], owners: Vec<Owner>) -> Vec<Owner> {
    let blocks = |o: &Owner| o.blocks.len() as u64;
    let bytes = |o: &Owner| o.blocks.iter().fold(0, |sum: u64, &at| sum.saturating_add(wanted[at].bytes));
    let is_much = |owner: &Owner, has: &dyn Fn(&Owner) -> u64| {
        let most = owners.iter().filter(|o| o.cause == owner.cause).map(has).max().unwrap_or(0);
        has(owner) as f64 >= MIN_SHARE * most as f64
    };
    owners.iter().filter(|o| is_much(o, &blocks) || is_much(o, &bytes)).cloned().collect()
}
