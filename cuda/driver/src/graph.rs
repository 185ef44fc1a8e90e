//! Graphs: nodes and edges, kept as books.

use std::collections::{BTreeMap, BTreeSet};

use crate::abi::{Addr, Handle, In, Out};
use crate::error::*;
use crate::node::Op;
use crate::params::EdgeData;
use crate::state::{Core, with};

#[derive(Default, Clone)]
pub struct Graph {
    /// In the order they were made.
    pub nodes: BTreeMap<Handle, Op>,
    /// from → to
    pub edges: BTreeSet<(Handle, Handle)>,
    /// A clone: original node → ours.
    pub from: BTreeMap<Handle, Handle>,
}

impl Graph {
    /// The nodes in an order that respects the edges, or none if there is a cycle.
    pub fn order(&self) -> Option<Vec<Handle>> {
        let mut missing: BTreeMap<Handle, usize> = self.nodes.keys().map(|&n| (n, 0)).collect();
        for edge in &self.edges {
            *missing.get_mut(&edge.1)? += 1;
        }
        let mut ready: BTreeSet<Handle> = missing.iter().filter(|m| *m.1 == 0).map(|m| *m.0).collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(node) = ready.pop_first() {
            order.push(node);
            for &(_, next) in self.edges.range((node, 0)..=(node, usize::MAX)) {
                let count = missing.get_mut(&next)?;
                *count -= 1;
                if *count == 0 {
                    ready.insert(next);
                }
            }
        }
        (order.len() == self.nodes.len()).then_some(order)
    }

    pub fn has_memory(&self) -> bool {
        self.nodes.values().any(|op| matches!(op, Op::Alloc(_) | Op::Free(_)))
    }

    pub fn memory(&self) -> impl Iterator<Item = Addr> {
        self.nodes.values().filter_map(|op| if let Op::Alloc(at) = op { Some(*at) } else { None })
    }
}

impl Core {
    pub fn graph(&mut self, graph: Handle) -> Res<&mut Graph> {
        self.graphs.get_mut(&graph).ok_or(INVALID_VALUE)
    }

    pub fn add_node(&mut self, graph: Handle, op: Op, after: &[Handle]) -> Res<Handle> {
        let node = self.handle();
        if matches!(op, Op::Free(at) if !self.is_graph_memory(at)) {
            return Err(INVALID_VALUE);
        }
        let graph = self.graph(graph)?;
        let freed_twice = |at| graph.nodes.values().any(|o| matches!(o, Op::Free(a) if *a == at));
        if after.iter().any(|n| !graph.nodes.contains_key(n)) || matches!(op, Op::Free(at) if freed_twice(at))
        {
            return Err(INVALID_VALUE);
        }
        graph.nodes.insert(node, op);
        graph.edges.extend(after.iter().map(|&n| (n, node)));
        Ok(node)
    }

    /// The graph a node is in. (Node handles are unique in the process.)
    pub fn graph_of(&mut self, node: Handle) -> Res<&mut Graph> {
        self.graphs.values_mut().find(|g| g.nodes.contains_key(&node)).ok_or(INVALID_VALUE)
    }

    pub fn end_graph(&mut self, graph: Handle) {
        let Some(graph) = self.graphs.remove(&graph) else { return };
        for at in graph.memory().collect::<Vec<_>>() {
            self.disown_graph_memory(at);
        }
        for op in graph.nodes.into_values() {
            if let Op::Child(child) = op {
                self.end_graph(child);
            }
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphCreate(out: Out<Handle>, flags: u32) -> Status {
    distinct!(cuGraphCreate);
    with(|core| {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        let handle = core.handle();
        out.put(handle)?;
        core.graphs.insert(handle, Graph::default());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroy(graph: Handle) -> Status {
    distinct!(cuGraphDestroy);
    with(|core| {
        core.graph(graph)?;
        core.end_graph(graph);
        Ok(())
    })
}

/// Documented: a graph with memory nodes cannot be cloned, nor be another's child unless it is moved there.
pub fn copied(core: &mut Core, graph: Handle) -> Res<Graph> {
    let original = core.graph(graph)?.clone();
    if original.has_memory() {
        return Err(INVALID_VALUE);
    }
    let mut copy = Graph::default();
    for (old, op) in original.nodes {
        let new = core.handle();
        let op = match op {
            Op::Child(child) => {
                let twin = copied(core, child)?;
                let handle = core.handle();
                core.graphs.insert(handle, twin);
                Op::Child(handle)
            }
            op => op,
        };
        copy.nodes.insert(new, op);
        copy.from.insert(old, new);
    }
    let ours = |n: &Handle| copy.from.get(n).copied();
    copy.edges = original.edges.iter().filter_map(|(a, b)| Some((ours(a)?, ours(b)?))).collect();
    Ok(copy)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphClone(out: Out<Handle>, graph: Handle) -> Status {
    distinct!(cuGraphClone);
    with(|core| {
        let copy = copied(core, graph)?;
        let handle = core.handle();
        out.put(handle)?;
        core.graphs.insert(handle, copy);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphNodeFindInClone(out: Out<Handle>, original: Handle, graph: Handle) -> Status {
    distinct!(cuGraphNodeFindInClone);
    with(|core| out.put(*core.graph(graph)?.from.get(&original).ok_or(INVALID_VALUE)?))
}

/// Writes a list by the documented two-step: no room given, only the count; what does not fit is left out.
fn list(out: Out<Handle>, count: Out<usize>, items: &[Handle]) -> Res {
    if out.is_null() {
        return count.put(items.len());
    }
    let room = count.get()?;
    for i in 0..room {
        out.put_at(i, items.get(i).copied().unwrap_or(0))?;
    }
    count.put(room.min(items.len()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphGetNodes(graph: Handle, out: Out<Handle>, count: Out<usize>) -> Status {
    distinct!(cuGraphGetNodes);
    with(|core| list(out, count, &core.graph(graph)?.nodes.keys().copied().collect::<Vec<_>>()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphGetRootNodes(graph: Handle, out: Out<Handle>, count: Out<usize>) -> Status {
    distinct!(cuGraphGetRootNodes);
    with(|core| {
        let graph = core.graph(graph)?;
        let roots = graph.nodes.keys().filter(|n| !graph.edges.iter().any(|e| e.1 == **n));
        list(out, count, &roots.copied().collect::<Vec<_>>())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphGetEdges_v2(
    graph: Handle,
    from: Out<Handle>,
    to: Out<Handle>,
    data: Out<EdgeData>,
    count: Out<usize>,
) -> Status {
    distinct!(cuGraphGetEdges_v2);
    with(|core| {
        let (a, b): (Vec<_>, Vec<_>) = core.graph(graph)?.edges.iter().copied().unzip();
        if from.is_null() != to.is_null() {
            return Err(INVALID_VALUE);
        }
        let room = if from.is_null() { 0 } else { count.get()? };
        list(from, count, &a)?;
        if !to.is_null() {
            count.put(room)?;
            list(to, count, &b)?;
        }
        for i in 0..if data.is_null() { 0 } else { room } {
            data.put_at(i, [0; 8])?;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphGetEdges(
    graph: Handle,
    from: Out<Handle>,
    to: Out<Handle>,
    count: Out<usize>,
) -> Status {
    distinct!(cuGraphGetEdges);
    cuGraphGetEdges_v2(graph, from, to, Out::NONE, count)
}

/// The nodes before (or after) a node.
fn neighbours(
    node: Handle,
    out: Out<Handle>,
    data: Out<EdgeData>,
    count: Out<usize>,
    before: bool,
) -> Status {
    with(|core| {
        let edges = &core.graph_of(node)?.edges;
        let found: Vec<Handle> = edges
            .iter()
            .filter_map(|&(a, b)| match before {
                true => (b == node).then_some(a),
                false => (a == node).then_some(b),
            })
            .collect();
        list(out, count, &found)?;
        for i in 0..if data.is_null() { 0 } else { found.len() } {
            data.put_at(i, [0; 8])?;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphNodeGetDependencies(node: Handle, out: Out<Handle>, count: Out<usize>) -> Status {
    distinct!(cuGraphNodeGetDependencies);
    neighbours(node, out, Out::NONE, count, true)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphNodeGetDependencies_v2(
    node: Handle,
    out: Out<Handle>,
    data: Out<EdgeData>,
    count: Out<usize>,
) -> Status {
    distinct!(cuGraphNodeGetDependencies_v2);
    neighbours(node, out, data, count, true)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphNodeGetDependentNodes(node: Handle, out: Out<Handle>, count: Out<usize>) -> Status {
    distinct!(cuGraphNodeGetDependentNodes);
    neighbours(node, out, Out::NONE, count, false)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphNodeGetDependentNodes_v2(
    node: Handle,
    out: Out<Handle>,
    data: Out<EdgeData>,
    count: Out<usize>,
) -> Status {
    distinct!(cuGraphNodeGetDependentNodes_v2);
    neighbours(node, out, data, count, false)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddDependencies(
    graph: Handle,
    from: In<Handle>,
    to: In<Handle>,
    count: usize,
) -> Status {
    distinct!(cuGraphAddDependencies);
    with(|core| {
        let edges: Vec<_> = from.list(count)?.into_iter().zip(to.list(count)?).collect();
        let graph = core.graph(graph)?;
        if edges.iter().any(|(a, b)| a == b || !graph.nodes.contains_key(a) || !graph.nodes.contains_key(b)) {
            return Err(INVALID_VALUE);
        }
        graph.edges.extend(edges);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphRemoveDependencies(
    graph: Handle,
    from: In<Handle>,
    to: In<Handle>,
    count: usize,
) -> Status {
    distinct!(cuGraphRemoveDependencies);
    with(|core| {
        let graph = core.graph(graph)?;
        if graph.has_memory() {
            return Err(INVALID_VALUE); // documented
        }
        for edge in from.list(count)?.into_iter().zip(to.list(count)?) {
            graph.edges.remove(&edge);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddDependencies_v2(
    graph: Handle,
    from: In<Handle>,
    to: In<Handle>,
    _data: In<EdgeData>,
    count: usize,
) -> Status {
    distinct!(cuGraphAddDependencies_v2);
    cuGraphAddDependencies(graph, from, to, count)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphRemoveDependencies_v2(
    graph: Handle,
    from: In<Handle>,
    to: In<Handle>,
    _data: In<EdgeData>,
    count: usize,
) -> Status {
    distinct!(cuGraphRemoveDependencies_v2);
    cuGraphRemoveDependencies(graph, from, to, count)
}
