//! The search itself: breadth first from the roots, those of one rank (see [`HeapGraph::roots`]) after those of another. Within a rank
//! the autograd graphs come last, and only for what is still missing: paths through them are long.

use std::rc::Rc;

use super::{HeapGraph, Node, Nodes, Path, Root, Wanted};
use crate::int_map::IntMap;

/// Objects that are asked at once; the time is checked in between.
const BATCH: usize = 2048;
/// Marks a root in `from`, not a node.
const ROOT: u32 = 1 << 31;

pub(super) struct Search {
    numbers: IntMap<u64, u32>,
    nodes: Vec<Node>,
    /// The number of the node or root that each was reached from.
    from: Vec<u32>,
    roots: Vec<Root>,
    /// Nodes that may begin a graph and were not asked for it yet.
    graphs: Vec<u32>,
    missing: Nodes,
    blocked: Nodes,
    without: Vec<Root>,
    /// Whether what is wanted may hold more of it: it is no block.
    passes: bool,
    /// The only objects that are reached beside those of C++, if not all are.
    within: Option<Rc<IntMap<u64, u32>>>,
}

impl Search {
    /// Makes a search for `wanted` that passes through nothing `blocked` and begins at none of the roots
    /// `without`.
    pub fn new(wanted: impl Iterator<Item = Node>, blocked: Nodes, without: Vec<Root>) -> Search {
        Search {
            numbers: IntMap::default(),
            nodes: Vec::new(),
            from: Vec::new(),
            roots: Vec::new(),
            graphs: Vec::new(),
            missing: wanted.map(|block| (block, ())).collect(),
            blocked,
            without,
            passes: false,
            within: None,
        }
    }

    /// Makes a search for objects that passes through nothing `blocked`.
    pub fn for_objects(wanted: impl Iterator<Item = Node>, blocked: Nodes) -> Search {
        Search { passes: true, ..Search::new(wanted, blocked, Vec::new()) }
    }

    /// Makes a search for an object that one of C++ holds. It passes through C++ objects, and through no others but these.
    pub fn within(objects: Rc<IntMap<u64, u32>>, wanted: Node) -> Search {
        let one = std::iter::once(wanted);
        Search { within: Some(objects), ..Search::for_objects(one, Nodes::default()) }
    }

    pub fn is_done(&self) -> bool {
        self.missing.is_empty()
    }

    pub fn is_missing(&self, block: Node) -> bool {
        self.missing.contains_key(&block)
    }

    /// Returns how many nodes were reached.
    pub fn reached(&self) -> usize {
        self.nodes.len()
    }

    pub fn has(&self, node: Node) -> bool {
        self.numbers.contains_key(&node)
    }

    /// Walks from the roots of the first `ranks` ranks. `false`: the time was up before all was seen.
    pub fn run(&mut self, graph: &mut impl HeapGraph, ranks: usize) -> bool {
        for rank in 0..ranks {
            let Some(roots) = graph.roots(rank) else { return true };
            let roots = roots.into_iter().filter(|r| !self.without.contains(r)).collect();
            if !self.walk_from(graph, roots) {
                return false;
            }
            if self.is_done() {
                return true;
            }
        }
        true
    }

    /// Walks from some roots, first without graphs, then through them. `false`: the time was up.
    pub fn walk_from(&mut self, graph: &mut impl HeapGraph, roots: Vec<Root>) -> bool {
        if !self.walk_without_graphs(graph, roots) {
            return false;
        }
        let front = std::mem::take(&mut self.graphs);
        self.walk(graph, front, true)
    }

    pub fn walk_without_graphs(&mut self, graph: &mut impl HeapGraph, roots: Vec<Root>) -> bool {
        let mut front = Vec::new();
        for root in roots {
            let number = self.roots.len() as u32 | ROOT;
            if let Some(new) = self.reach(graph, root.node, number, false) {
                self.roots.push(root);
                front.extend(new);
            }
        }
        self.walk(graph, front, false)
    }

    fn walk(&mut self, graph: &mut impl HeapGraph, mut front: Vec<u32>, graphs: bool) -> bool {
        let mut found = Vec::new();
        while !front.is_empty() && !self.is_done() {
            let mut next = Vec::new();
            for batch in front.chunks(BATCH) {
                if graph.is_late() {
                    return false;
                }
                let holders: Vec<Node> = batch.iter().map(|&n| self.nodes[n as usize]).collect();
                found.clear();
                graph.references_from(&holders, graphs, &mut found);
                for &(holder, node) in &found {
                    let may = |all: &Rc<IntMap<_, _>>| {
                        graph.is_native(node)
                            || (all.contains_key(&node)
                                && (!self.is_missing(node) || graph.is_native(holders[holder as usize])))
                    };
                    if !self.within.as_ref().is_none_or(may) {
                        continue;
                    }
                    let from = batch[holder as usize];
                    next.extend(self.reach(graph, node, from, graphs).flatten());
                }
            }
            front = next;
        }
        true
    }

    /// Adds a node. `None`: it was reached before; `Some(None)`: it is a block, where a path ends.
    fn reach(
        &mut self,
        graph: &mut impl HeapGraph,
        node: Node,
        from: u32,
        graphs: bool,
    ) -> Option<Option<u32>> {
        if self.blocked.contains_key(&node)
            || self.numbers.contains_key(&node)
            || self.nodes.len() as u32 >= ROOT - 1
        {
            return None;
        }
        let number = self.nodes.len() as u32;
        self.numbers.insert(node, number);
        self.nodes.push(node);
        self.from.push(from);
        if self.missing.remove(&node).is_some() && !self.passes {
            return Some(None);
        }
        if !graphs && graph.has_graph(node) {
            self.graphs.push(number);
        }
        Some(Some(number))
    }

    /// Returns the paths to those of `wanted` that were reached.
    pub fn paths(&self, wanted: &[Wanted]) -> Vec<Path> {
        let path = |(i, w): (usize, &Wanted)| self.path(i, w);
        wanted.iter().enumerate().filter_map(path).collect()
    }

    pub fn path(&self, wanted: usize, w: &Wanted) -> Option<Path> {
        let mut number = *self.numbers.get(&w.block)?;
        let mut nodes = Vec::new();
        while number & ROOT == 0 {
            nodes.push(self.nodes[number as usize]);
            number = self.from[number as usize];
        }
        nodes.reverse();
        let root = self.roots[(number & !ROOT) as usize].clone();
        Some(Path { wanted, cause: w.cause, root, nodes })
    }
}
