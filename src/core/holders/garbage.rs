//! Objects that no root reaches: held by something that is no Python object, or by nothing but themselves.
//! They are told apart as the cyclic collector does it: references among them are taken off the reference
//! counts, and what has some left is held from outside.

use std::rc::Rc;

use super::search::Search;
use super::{GcRoot, HeapGraph, Node, Owner, Path, Retention, Root, Step, UNSEEN, Wanted, group, words};
use crate::int_map::IntMap;

/// The most unreachable objects that are examined.
const MOST: usize = 400_000;
/// The members of a cycle that are named.
const MEMBERS: usize = 6;
/// The objects that are looked at, in all, to see which tensors have a graph that leads back to them.
const MOST_IN_GRAPHS: usize = 100_000;

/// The unreachable objects and the references among them, by number.
struct Unreachable {
    nodes: Vec<Node>,
    numbers: Rc<IntMap<u64, u32>>,
    edges: Vec<Vec<u32>>,
    counts: Vec<i64>,
}

/// Returns the owners of what `search` has not reached though it saw everything.
pub(super) fn owners(graph: &mut impl HeapGraph, wanted: &[Wanted], search: &mut Search) -> Vec<Owner> {
    let lost: Vec<usize> = (0..wanted.len()).filter(|&i| search.is_missing(wanted[i].block)).collect();
    let Some(unreachable) = Unreachable::gather(graph, search) else { return Vec::new() };
    let foreign = (0..unreachable.nodes.len()).filter(|&i| unreachable.counts[i] > 0);
    let foreign = foreign.map(|i| unreachable.nodes[i]).map(|node| {
        let known = graph.name_foreign(node);
        let origin = known.map_or_else(|| GcRoot::Foreign(graph.type_name(node)), GcRoot::Global);
        Root { node, origin }
    });
    // A tensor is often held by its own C++ part, for the sake of a view of it, and so is a storage; whose that is shows when all
    // others were asked.
    let (tensors, foreign): (Vec<Root>, Vec<Root>) =
        foreign.collect::<Vec<_>>().into_iter().partition(|root| graph.may_hold_itself(root.node));
    if !search.walk_from(graph, foreign) {
        return Vec::new();
    }
    let cyclic = unreachable.in_cycles(|node| !search.has(node));
    let cycles =
        cyclic.iter().map(|&i| Root { node: unreachable.nodes[i], origin: GcRoot::Cycle(Vec::new()) });
    for roots in [cycles.collect(), tensors] {
        if !search.is_done() && !search.walk_from(graph, roots) {
            return Vec::new();
        }
    }
    let mut paths = Vec::new();
    let mut unseen: Vec<Owner> = Vec::new();
    let mut cycles = NativeCycles::new(unreachable.numbers.clone());
    for &i in &lost {
        match search.path(i, &wanted[i]) {
            Some(mut path) => {
                if let Some(origin) = cycles.origin(graph, &path) {
                    // Every leaf and gradient of the graph is in such a cycle, and every tensor that a hook keeps.
                    (path.root.origin, path.root.node) = (origin, 0);
                    path.nodes.clear();
                }
                if path.root.origin == GcRoot::Cycle(Vec::new()) {
                    path.root.origin = GcRoot::Cycle(unreachable.cycle(graph, path.root.node));
                    // Which member it hangs on says nothing more.
                    path.root.node = 0;
                    path.nodes.clear();
                }
                paths.push(path);
            }
            None => match unseen.iter_mut().find(|o| o.cause == wanted[i].cause) {
                Some(owner) => owner.blocks.push(i),
                None => unseen.push(Owner {
                    path: UNSEEN.to_owned(),
                    name: UNSEEN.len(),
                    hold: Retention::Unknown,
                    node: 0,
                    first: 0,
                    places: 0,
                    cause: wanted[i].cause,
                    blocks: vec![i],
                }),
            },
        }
    }
    let groups = group::groups(graph, wanted, paths);
    groups.iter().flat_map(|g| group::owners(graph, g)).map(|(owner, _)| owner).chain(unseen).collect()
}

/// Which objects that only C++ refers to keep themselves, by way of autograd graphs.
struct NativeCycles {
    unreachable: Rc<IntMap<u64, u32>>,
    known: IntMap<u64, bool>,
    looked_at: usize,
}

impl NativeCycles {
    fn new(unreachable: Rc<IntMap<u64, u32>>) -> NativeCycles {
        NativeCycles { unreachable, known: IntMap::default(), looked_at: 0 }
    }

    /// Returns what such a cycle is, if what a path begins with is in one. After [`MOST_IN_GRAPHS`] objects no other is examined.
    fn origin(&mut self, graph: &mut impl HeapGraph, path: &Path) -> Option<GcRoot> {
        if !matches!(path.root.origin, GcRoot::Foreign(_)) {
            return None;
        }
        let is_tensor = graph.has_graph(path.root.node);
        let keeps = match self.known.get(&path.root.node) {
            Some(&keeps) => keeps,
            None if self.looked_at >= MOST_IN_GRAPHS => false,
            None => {
                let keeps = if is_tensor {
                    self.by_gradient(graph, &path.root)
                } else {
                    self.by_hook(graph, path.root.node)
                };
                self.known.insert(path.root.node, keeps);
                keeps
            }
        };
        if !keeps {
            return None;
        }
        if is_tensor {
            return Some(GcRoot::GradientCycle);
        }
        // Up to the first tensor: that has the graph.
        let tensor = path.nodes.iter().position(|&node| graph.has_graph(node))?;
        let mut steps = graph.steps(&path.nodes[..=tensor]);
        if graph.is_collection(None, path.root.node) {
            // Which of the hooks it is says nothing more.
            steps.remove(0);
        }
        Some(GcRoot::HookCycle(words::reference(&steps)))
    }

    /// Returns whether a tensor's gradient has a graph that leads back to it.
    fn by_gradient(&mut self, graph: &mut impl HeapGraph, root: &Root) -> bool {
        let Some(tensor) = graph.native(root.node) else { return false };
        let way = self.way(graph, vec![root.clone()], Rc::default(), tensor);
        way.is_some_and(|nodes| graph.steps(&nodes).contains(&Step::Gradient))
    }

    /// Returns whether a hook, or a dict of hooks, keeps the node of a graph that refers to it.
    fn by_hook(&mut self, graph: &mut impl HeapGraph, hook: Node) -> bool {
        let mut held = Vec::new();
        graph.references(hook, &mut held);
        let held = held.into_iter().filter(|node| self.unreachable.contains_key(node));
        let roots = held.map(|node| Root { node, origin: GcRoot::Cycle(Vec::new()) }).collect();
        self.way(graph, roots, self.unreachable.clone(), hook).is_some()
    }

    /// Returns the nodes of the shortest path from one of the roots to what is wanted, through C++ objects and `objects`.
    fn way(
        &mut self,
        graph: &mut impl HeapGraph,
        roots: Vec<Root>,
        objects: Rc<IntMap<u64, u32>>,
        wanted: Node,
    ) -> Option<Vec<Node>> {
        let mut search = Search::within(objects, wanted);
        search.walk_from(graph, roots);
        self.looked_at += search.reached();
        search.path(0, &Wanted { block: wanted, ..Wanted::default() }).map(|path| path.nodes)
    }
}

impl Unreachable {
    fn gather(graph: &mut impl HeapGraph, search: &Search) -> Option<Unreachable> {
        let all = graph.unreachable_objects(&|node| search.has(node))?;
        if all.len() > MOST || graph.is_late() {
            return None;
        }
        let numbers: IntMap<u64, u32> = all.iter().zip(0..).map(|(&(node, _), i)| (node, i)).collect();
        let mut counts: Vec<i64> = all.iter().map(|&(_, count)| count).collect();
        let mut edges = Vec::with_capacity(all.len());
        let mut found = Vec::new();
        for &(node, _) in &all {
            found.clear();
            graph.references(node, &mut found);
            let among: Vec<u32> = found.iter().filter_map(|n| numbers.get(n).copied()).collect();
            among.iter().for_each(|&n| counts[n as usize] -= 1);
            edges.push(among);
        }
        let nodes = all.into_iter().map(|(node, _)| node).collect();
        Some(Unreachable { nodes, numbers: Rc::new(numbers), edges, counts })
    }

    /// Returns the numbers of those that are in a cycle of nodes that `may` be in one (Tarjan's algorithm,
    /// without recursion).
    fn in_cycles(&self, may: impl Fn(Node) -> bool) -> Vec<usize> {
        const NEW: u32 = u32::MAX;
        let n = self.nodes.len();
        let (mut index, mut low) = (vec![NEW; n], vec![0u32; n]);
        let mut open = vec![false; n];
        let (mut stack, mut path, mut count) = (Vec::new(), Vec::<(usize, usize)>::new(), 0);
        let mut cyclic = Vec::new();
        for start in (0..n).filter(|&i| may(self.nodes[i])) {
            if index[start] != NEW {
                continue;
            }
            path.push((start, 0));
            while let Some(&mut (node, ref mut at)) = path.last_mut() {
                if *at == 0 {
                    (index[node], low[node], open[node]) = (count, count, true);
                    count += 1;
                    stack.push(node);
                }
                if let Some(&next) = self.edges[node].get(*at) {
                    *at += 1;
                    let next = next as usize;
                    if !may(self.nodes[next]) {
                    } else if index[next] == NEW {
                        path.push((next, 0));
                    } else if open[next] {
                        low[node] = low[node].min(index[next]);
                    }
                    continue;
                }
                // A node without references must not begin again.
                path.pop();
                if let Some(&(above, _)) = path.last() {
                    low[above] = low[above].min(low[node]);
                }
                if low[node] == index[node] {
                    let from = stack.iter().rposition(|&s| s == node).unwrap_or(0);
                    let part = stack.split_off(from);
                    let itself = self.edges[node].contains(&(node as u32));
                    part.iter().for_each(|&p| open[p] = false);
                    if part.len() > 1 || itself {
                        cyclic.extend(part);
                    }
                }
            }
        }
        cyclic
    }

    /// Returns the members of the shortest cycle through a node, each by its type and how it refers to the next one.
    fn cycle(&self, graph: &mut impl HeapGraph, node: Node) -> Vec<String> {
        let Some(&start) = self.numbers.get(&node) else { return Vec::new() };
        let mut from: IntMap<u64, u32> = IntMap::default();
        let mut front = vec![start];
        'search: while !front.is_empty() {
            let mut next = Vec::new();
            for &holder in &front {
                for &held in &self.edges[holder as usize] {
                    if held == start {
                        from.insert(u64::from(start), holder);
                        break 'search;
                    }
                    if let hashbrown::hash_map::Entry::Vacant(v) = from.entry(u64::from(held)) {
                        v.insert(holder);
                        next.push(held);
                    }
                }
            }
            front = next;
        }
        let mut members = vec![start];
        let mut at = from.get(&u64::from(start)).copied();
        while let Some(i) = at.filter(|&i| i != start && members.len() < 64) {
            members.push(i);
            at = from.get(&u64::from(i)).copied();
        }
        members[1..].reverse();
        let mut nodes: Vec<Node> = members.iter().map(|&i| self.nodes[i as usize]).collect();
        // A dict or a cell in between is a detail of the implementation.
        let mut is_plain =
            |node: &Node| !matches!(graph.type_name(*node).as_str(), "dict" | "cell" | "tuple" | "list");
        let first = nodes.iter().position(&mut is_plain);
        nodes.rotate_left(first.unwrap_or(0));
        let mut named: Vec<usize> =
            (0..nodes.len()).filter(|&at| first.is_none() || is_plain(&nodes[at])).collect();
        // It ends where it began.
        named.push(nodes.len());
        nodes.push(nodes[0]);
        let steps = graph.steps(&nodes);
        let mut plain: Vec<String> = named
            .windows(2)
            .map(|pair| graph.type_name(nodes[pair[0]]) + &words::reference(&steps[pair[0]..pair[1]]))
            .collect();
        plain.push(graph.type_name(nodes[0]));
        if plain.len() > MEMBERS {
            plain.truncate(MEMBERS);
            plain.push("…".into());
        }
        plain
    }
}
