//! Owners of paths: paths that part in a collection have one owner, which is then named once for all of them.

use std::collections::HashMap;

use super::values::Assigned;
use super::{GcRoot, HeapGraph, Node, Nodes, Owner, Retention, Root, Step, Wanted, words};
use crate::int_map::IntMap;

/// Paths of a group that are put in words, to see what they have in common.
const EXAMPLES: usize = 12;
/// Paths part where less than this share of them goes the same way: the variable that holds one tensor of the cause
/// beside the list that has all others does not hide the list's name.
const SAME_WAY: f64 = 0.9;
/// The same where only one goes another way, and so many this one.
const FEW_PATHS: u32 = 3;
/// Nor do they part where most go so few ways, each of them taken by so many: the variables of a namespace that have a
/// list each.
const FEW_WAYS: u32 = 3;
const MANY_PATHS: u32 = 5;
const MOST: f64 = 0.75;
/// How the name ends of a type whose objects take in whatever is appended to them, as lists do.
const QUEUE: &str = "deque";
/// Shapes of a group's paths that are told apart.
const SHAPES: usize = 8;

/// The path to one block: the root's own node first, the block last.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// The index into what was wanted.
    pub wanted: usize,
    pub cause: u32,
    pub root: Root,
    pub nodes: Vec<Node>,
}

/// What would have to drop the blocks.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Owning {
    Node(Node),
    Name(Root),
}

/// Paths with one owner.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub cause: u32,
    pub owner: Owning,
    /// The step of every path at which they part, if they do so in a collection.
    pub parting: Option<usize>,
    /// The owner is the head of a linked list.
    pub linked: bool,
    pub paths: Vec<Path>,
}

impl Group {
    /// Returns the number of blocks that another group holds too.
    pub fn shared(&self, other: &Group) -> usize {
        let mine: std::collections::HashSet<usize> = self.paths.iter().map(|p| p.wanted).collect();
        other.paths.iter().filter(|p| mine.contains(&p.wanted)).count()
    }

    /// Adds a path that another search found. It leads to the owner as the others do: they part at the same step.
    pub fn add(&mut self, mut path: Path) {
        if let (Owning::Node(owner), Some(first)) = (&self.owner, self.paths.first()) {
            let at = |path: &Path| path.nodes.iter().position(|node| node == owner);
            if let Some((own, others)) = at(&path).zip(at(first)) {
                path.nodes.splice(..=own, first.nodes[..=others].iter().copied());
                path.root = first.root.clone();
            }
        }
        self.paths.push(path);
    }
}

/// The paths of a cause: how many lead through each node, and how many through each reference.
#[derive(Default)]
struct Onward {
    nodes: IntMap<u64, u32>,
    references: HashMap<(Node, Node), u32>,
    /// Of each node the references that many paths lead through: how many they are, and how many paths.
    wide: IntMap<u64, (u32, u32)>,
}

impl Onward {
    fn add(&mut self, from: Node, to: Node) {
        *self.nodes.entry(from).or_default() += 1;
        *self.references.entry((from, to)).or_default() += 1;
    }

    /// Counts the references that many paths lead through, when all paths were added.
    fn find_wide(&mut self) {
        for (&(from, _), &paths) in self.references.iter().filter(|(_, paths)| **paths >= MANY_PATHS) {
            let (ways, all) = self.wide.entry(from).or_default();
            (*ways, *all) = (*ways + 1, *all + paths);
        }
    }

    /// Returns whether a path that goes from one node to the next leaves most others there.
    fn parts(&self, from: Node, to: Node) -> bool {
        let all = self.nodes.get(&from).copied().unwrap_or(0);
        let paths = self.references.get(&(from, to)).copied().unwrap_or(0);
        let (ways, wide) = self.wide.get(&from).copied().unwrap_or_default();
        let few_ways = paths >= MANY_PATHS && ways <= FEW_WAYS && f64::from(wide) >= MOST * f64::from(all);
        let all_but_one = paths >= FEW_PATHS && all - paths <= 1;
        f64::from(paths) < SAME_WAY * f64::from(all) && !few_ways && !all_but_one
    }
}

/// Puts the paths of each cause into groups, in the order of what was wanted.
pub(super) fn groups(graph: &mut impl HeapGraph, wanted: &[Wanted], paths: Vec<Path>) -> Vec<Group> {
    let mut onward: HashMap<u32, Onward> = HashMap::new();
    for path in &paths {
        let of_cause = onward.entry(wanted[path.wanted].cause).or_default();
        path.nodes.windows(2).for_each(|pair| of_cause.add(pair[0], pair[1]));
    }
    onward.values_mut().for_each(Onward::find_wide);
    let mut owners: Vec<(Option<usize>, bool)> = Vec::with_capacity(paths.len());
    for path in &paths {
        let of_cause = onward.get(&path.cause);
        let parts = |i: usize| of_cause.is_some_and(|o| o.parts(path.nodes[i], path.nodes[i + 1]));
        let parting = (0..path.nodes.len().saturating_sub(1)).filter(|&i| parts(i)).find(|&i| {
            let holder = i.checked_sub(1).map(|h| path.nodes[h]);
            graph.is_collection(holder, path.nodes[i])
        });
        owners.push((parting.or_else(|| keeper(graph, path)), parting.is_some()));
    }
    join_collections(graph, &paths, &mut owners);
    let chains = Chains::of(graph, &paths, &owners);
    let mut groups: Vec<Group> = Vec::new();
    let mut by_node: HashMap<(u32, Node), usize> = HashMap::new();
    let mut by_name: HashMap<(u32, Node, String), usize> = HashMap::new();
    for (path, (at, parts)) in paths.into_iter().zip(owners) {
        let cause = path.cause;
        let head = at.and_then(|at| chains.head(graph, &path, at));
        let parting = head.or(at.filter(|_| parts));
        let owner =
            head.or(at).map_or_else(|| Owning::Name(path.root.clone()), |i| Owning::Node(path.nodes[i]));
        let fresh = groups.len();
        let at = match &owner {
            Owning::Node(node) => *by_node.entry((cause, *node)).or_insert(fresh),
            Owning::Name(root) => {
                *by_name.entry((cause, root.node, words::origin(&root.origin))).or_insert(fresh)
            }
        };
        match groups.get_mut(at) {
            Some(group) => group.paths.push(path),
            None => groups.push(Group { cause, owner, parting, linked: head.is_some(), paths: vec![path] }),
        }
    }
    groups
}

/// Gives paths that part nowhere the owner of those of other causes: what one collection holds has one owner, also where
/// a single block of a cause was found in it.
fn join_collections(graph: &mut impl HeapGraph, paths: &[Path], owners: &mut [(Option<usize>, bool)]) {
    let mut collections = Nodes::default();
    for (path, at) in
        paths.iter().zip(&*owners).filter_map(|(path, (at, parts))| Some((path, at.filter(|_| *parts)?)))
    {
        collections.insert(path.nodes[at], ());
    }
    for (path, owner) in paths.iter().zip(owners).filter(|(_, (_, parts))| !parts) {
        let known =
            |&i: &usize| collections.contains_key(&path.nodes[i]) && !graph.is_namespace(path.nodes[i]);
        if let Some(at) = (0..path.nodes.len().saturating_sub(1)).find(known) {
            *owner = (Some(at), true);
        }
    }
}

/// Returns what would have to drop the block of a single path: what holds the first tensor on it. `None`: the root.
fn keeper(graph: &mut impl HeapGraph, path: &Path) -> Option<usize> {
    let first = (0..path.nodes.len()).find(|&i| graph.has_graph(path.nodes[i]));
    first.unwrap_or_else(|| path.nodes.len().saturating_sub(2)).checked_sub(1)
}

/// The linked lists that owners are nodes of, by their heads: whoever has the head has them all.
struct Chains(Nodes);

/// Nodes of one sort in a row that make a linked list.
const LINKED: usize = 4;
/// Nodes between that of a linked list and what it has: an object with a dict of its own, or an exception's traceback and frame.
const MOST_BETWEEN: usize = 4;
/// Types of which calls make rows.
const OF_CALLS: [&str; 2] = ["traceback", "frame"];

impl Chains {
    fn of(graph: &mut impl HeapGraph, paths: &[Path], owners: &[(Option<usize>, bool)]) -> Chains {
        let mut heads = Nodes::default();
        for (path, at) in paths.iter().zip(owners).filter_map(|(path, (at, _))| Some((path, (*at)?))) {
            let head = rows(graph, path, at).find(|&(_, length)| length >= LINKED);
            let head = head.map(|(head, _)| path.nodes[head]);
            if let Some(head) = head.filter(|&head| !OF_CALLS.contains(&graph.type_name(head).as_str())) {
                heads.insert(head, ());
            }
        }
        Chains(heads)
    }

    /// Returns the place of the head of the linked list that a node of a path is in.
    fn head(&self, graph: &mut impl HeapGraph, path: &Path, at: usize) -> Option<usize> {
        if self.0.is_empty() {
            return None;
        }
        rows(graph, path, at).map(|(head, _)| head).find(|&head| self.0.contains_key(&path.nodes[head]))
    }
}

/// Returns the rows that the node at a place is in, and those somewhat before it: what a node of a linked list has need not be
/// the tensor itself. Collections in each other are none there.
fn rows(graph: &mut impl HeapGraph, path: &Path, at: usize) -> impl Iterator<Item = (usize, usize)> {
    (at.saturating_sub(MOST_BETWEEN)..=at).rev().filter_map(move |node| {
        let holder = node.checked_sub(1).map(|holder| path.nodes[holder]);
        let is_node = node == at || !graph.is_collection(holder, path.nodes[node]);
        is_node.then(|| chain(graph, path, node))
    })
}

/// Returns where the row of nodes like the one at a place begins, and their number. Between two there may be one more,
/// an object's own dict: always of one sort too.
fn chain(graph: &mut impl HeapGraph, path: &Path, at: usize) -> (usize, usize) {
    let mut best = (at, 1);
    for stride in [1, 2] {
        let (mut head, mut length) = (at, 1);
        while let Some(before) = head.checked_sub(stride) {
            let mut alike = |i: usize| graph.sort(path.nodes[i]) == graph.sort(path.nodes[i + stride]);
            // What lies between them has none of its kind before the first.
            if !alike(before) || (stride == 2 && length > 1 && !alike(before + 1)) {
                break;
            }
            (head, length) = (before, length + 1);
        }
        if length > best.1 {
            best = (head, length);
        }
    }
    best
}

/// Puts a group in words. Paths that lead on through objects of different types are told apart, and a dict's keys from its
/// values.
pub(super) fn owners(graph: &mut impl HeapGraph, group: &Group) -> Vec<(Owner, Option<Assigned>)> {
    let mut shapes: Vec<(Vec<u64>, Vec<&Path>)> = Vec::new();
    let parting = group.parting.and_then(|at| group.paths.first()?.nodes.get(at).copied());
    let keys = parting.and_then(|node| graph.keys(node)).unwrap_or_default();
    for path in &group.paths {
        // The last is the block itself.
        let onward = path.nodes.iter().rev().skip(1).rev().skip(group.parting.map_or(0, |i| i + 1));
        let mut shape: Vec<u64> = onward.map(|&node| graph.sort(node)).collect();
        shape.dedup();
        if let Owning::Node(head) = group.owner
            && group.linked
        {
            // Wherever in the list.
            let node = graph.sort(head);
            shape.retain(|sort| *sort != node);
            shape.dedup();
        }
        let is_key = |at: usize| path.nodes.get(at + 1).is_some_and(|node| keys.contains_key(node));
        shape.push(u64::from(group.parting.is_some_and(is_key)));
        match shapes.iter_mut().find(|(known, _)| *known == shape) {
            Some((_, paths)) => paths.push(path),
            None => shapes.push((shape, vec![path])),
        }
    }
    // Very many shapes are one crowd.
    if shapes.len() > SHAPES {
        shapes = vec![(Vec::new(), group.paths.iter().collect())];
    }
    shapes.into_iter().map(|(_, paths)| owner(graph, group, &paths)).collect()
}

/// Returns some of the paths, spread evenly and at no fixed distance: every second one may lead to another attribute.
fn examples<'a>(paths: &'a [&Path]) -> impl Iterator<Item = &'a Path> {
    // Multiples of the golden ratio's fraction, of a path's number in so many.
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let few = paths.len() <= EXAMPLES;
    (0..paths.len().min(EXAMPLES) as u64).filter_map(move |n| {
        let spread = (u128::from(n.wrapping_mul(GOLDEN)) * paths.len() as u128) >> 64;
        paths.get(if few { n as usize } else { spread as usize }).copied()
    })
}

fn owner(graph: &mut impl HeapGraph, group: &Group, paths: &[&Path]) -> (Owner, Option<Assigned>) {
    let examples: Vec<Vec<Step>> = examples(paths).map(|p| graph.steps(&p.nodes)).collect();
    let origin = paths.first().map_or_else(String::new, |p| words::origin(&p.root.origin));
    let words = words::paths(&examples, group.parting, group.linked);
    // The lists of one dict, or of one object of a package's, are one cause: its name stands for all of them.
    let outermost = group.parting.and_then(|at| Some(outermost(graph, paths.first()?, at)));
    let named = if outermost == group.parting {
        words.owner
    } else {
        words::paths(&examples, outermost, group.linked).owner
    };
    let name = origin.len() + named;
    let blocks = paths.iter().map(|p| p.wanted).collect();
    let node = match group.owner {
        Owning::Node(node) if group.parting.is_some() => node,
        _ => 0,
    };
    let first = if node == 0 { None } else { graph.first(node) }.unwrap_or(0);
    let hold = hold_of(graph, group.parting, paths);
    let assigned = match (hold, paths, &examples[..]) {
        (hold, [path, more @ ..], [steps, ..])
            if hold.is_unbounded() && (more.is_empty() || group.parting.is_some()) =>
        {
            Assigned::of(&path.root.origin, steps, group.parting)
        }
        _ => None,
    };
    let places = match outermost.filter(|_| node != 0).zip(paths.first()) {
        Some((at, path)) => {
            let holder = at.checked_sub(1).map(|i| path.nodes[i]);
            let is_limited = matches!(hold, Retention::Limited { .. });
            let room = graph.bound(holder, path.nodes[at]);
            let room = room.or_else(|| is_limited.then(|| super::values::limit(graph, path, at)).flatten());
            room.map(|(_, most)| most).or_else(|| graph.length(path.nodes[at])).unwrap_or(0)
        }
        None => 0,
    };
    let path = origin + &words.text;
    (Owner { path, name, hold, node, first, places, cause: group.cause, blocks }, assigned)
}

/// Returns the place of the outermost of the collections, and objects of packages, in each other that the collection at
/// a place is in.
fn outermost(graph: &mut impl HeapGraph, path: &Path, at: usize) -> usize {
    let within = |&i: &usize| {
        let (holder, node) = (i.checked_sub(1).map(|h| path.nodes[h]), path.nodes[i]);
        let is_collection = graph.is_collection(holder, node) && !graph.is_namespace(node);
        is_collection || graph.is_of_package(holder, node)
    };
    (0..at).rev().take_while(within).last().unwrap_or(at)
}

/// Returns whether a group's owner can take in more for ever.
pub(super) fn hold(graph: &mut impl HeapGraph, group: &Group) -> Retention {
    hold_of(graph, group.parting, &group.paths.iter().collect::<Vec<_>>())
}

/// The same for some of its paths, which part at a step.
fn hold_of(graph: &mut impl HeapGraph, parting: Option<usize>, paths: &[&Path]) -> Retention {
    let (mut bounded, mut entries, mut max_entries): (Vec<Node>, u64, u64) = (Vec::new(), 0, 0);
    let mut is_limited = false;
    for path in examples(paths) {
        match path.root.origin {
            GcRoot::Cycle(_) => return Retention::Unreachable,
            GcRoot::Foreign(_) => return Retention::Unknown,
            // One more for each tensor that gets such a gradient, or such a hook.
            GcRoot::GradientCycle | GcRoot::HookCycle(_) => return Retention::Unbounded,
            GcRoot::Global(_) | GcRoot::Local { .. } => {}
        }
        // A bound above the parting, or on one of many paths only, bounds nothing.
        let mut onward = parting.unwrap_or(0)..path.nodes.len();
        let holder = |i: usize| i.checked_sub(1).map(|holder| path.nodes[holder]);
        let mut found =
            onward.clone().find_map(|i| Some((path.nodes[i], graph.bound(holder(i), path.nodes[i])?)));
        if parting.is_some() && found.is_none() {
            found = onward.find_map(|i| {
                let is_one = graph.is_collection(holder(i), path.nodes[i]);
                is_one.then(|| super::values::limit(graph, path, i)).flatten().map(|l| (path.nodes[i], l))
            });
            is_limited |= found.is_some();
        }
        let Some((node, bound)) = found else {
            let is_list = parting
                .map(|at| path.nodes[at])
                .is_some_and(|node| graph.first(node).is_some() || graph.type_name(node).ends_with(QUEUE));
            return if is_list { Retention::Appended } else { Retention::Unbounded };
        };
        if !bounded.contains(&node) {
            bounded.push(node);
            (entries, max_entries) = (entries.saturating_add(bound.0), max_entries.saturating_add(bound.1));
        }
    }
    match is_limited {
        true => Retention::Limited { entries, limit: max_entries },
        false => Retention::Bounded { entries, max_entries },
    }
}
