//! Graphs: nodes and edges.

use crate::abi::pointers::{Handle, In, Out};
use crate::abi::records::EdgeData;
use crate::abi::status::*;
use crate::state::driver::Driver;
use crate::state::work::{Graph, Op, allocations};

impl Driver {
    pub fn add_node(&mut self, graph: Handle, op: Op, after: &[Handle]) -> Res<Handle> {
        let node = self.new_handle();
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

    pub fn end_graph(&mut self, graph: Handle) {
        let Some(graph) = self.graphs.remove(&graph) else { return };
        for at in allocations(graph.nodes.values()) {
            self.release_graph_memory(at);
        }
        for op in graph.nodes.into_values() {
            if let Op::Child(child) = op {
                self.end_graph(child);
            }
        }
    }
}

/// Copies a graph. Documented: one with memory nodes cannot be cloned, nor be another's child unless it is
/// moved there.
pub fn clone_graph(driver: &mut Driver, graph: Handle) -> Res<Graph> {
    let original = driver.graph(graph)?.clone();
    if original.has_memory_nodes() {
        return Err(INVALID_VALUE);
    }
    let mut copy = Graph::default();
    for (old, op) in original.nodes {
        let new = driver.new_handle();
        let op = match op {
            Op::Child(child) => {
                let twin = clone_graph(driver, child)?;
                let handle = driver.new_handle();
                driver.graphs.insert(handle, twin);
                Op::Child(handle)
            }
            op => op,
        };
        copy.nodes.insert(new, op);
        copy.cloned_from.insert(old, new);
    }
    let ours = |n: &Handle| copy.cloned_from.get(n).copied();
    copy.edges = original.edges.iter().filter_map(|(a, b)| Some((ours(a)?, ours(b)?))).collect();
    Ok(copy)
}

/// Writes a list by the documented two steps: without room for it only the count, then as much as there is
/// room for.
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

/// Writes the nodes before (or after) a node.
fn neighbours(
    driver: &mut Driver,
    node: Handle,
    out: Out<Handle>,
    data: Out<EdgeData>,
    count: Out<usize>,
    before: bool,
) -> Res {
    let edges = &driver.graph_of(node)?.edges;
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
}

fn put_edges(
    driver: &mut Driver,
    graph: Handle,
    from: Out<Handle>,
    to: Out<Handle>,
    data: Out<EdgeData>,
    count: Out<usize>,
) -> Res {
    let (a, b): (Vec<_>, Vec<_>) = driver.graph(graph)?.edges.iter().copied().unzip();
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
}

fn add_dependencies(
    driver: &mut Driver,
    graph: Handle,
    from: In<Handle>,
    to: In<Handle>,
    count: usize,
) -> Res {
    let edges: Vec<_> = from.list(count)?.into_iter().zip(to.list(count)?).collect();
    let graph = driver.graph(graph)?;
    if edges.iter().any(|(a, b)| a == b || !graph.nodes.contains_key(a) || !graph.nodes.contains_key(b)) {
        return Err(INVALID_VALUE);
    }
    graph.edges.extend(edges);
    Ok(())
}

fn remove_dependencies(
    driver: &mut Driver,
    graph: Handle,
    from: In<Handle>,
    to: In<Handle>,
    count: usize,
) -> Res {
    let graph = driver.graph(graph)?;
    if graph.has_memory_nodes() {
        return Err(INVALID_VALUE); // documented
    }
    for edge in from.list(count)?.into_iter().zip(to.list(count)?) {
        graph.edges.remove(&edge);
    }
    Ok(())
}

driver_api! {
    fn cuGraphCreate(driver; out: Out<Handle>, flags: u32) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        let handle = driver.new_handle();
        out.put(handle)?;
        driver.graphs.insert(handle, Graph::default());
        Ok(())
    }

    fn cuGraphDestroy(driver; graph: Handle) {
        driver.graph(graph)?;
        driver.end_graph(graph);
        Ok(())
    }

    fn cuGraphClone(driver; out: Out<Handle>, graph: Handle) {
        let copy = clone_graph(driver, graph)?;
        let handle = driver.new_handle();
        out.put(handle)?;
        driver.graphs.insert(handle, copy);
        Ok(())
    }

    fn cuGraphNodeFindInClone(driver; out: Out<Handle>, original: Handle, graph: Handle) {
        out.put(*driver.graph(graph)?.cloned_from.get(&original).ok_or(INVALID_VALUE)?)
    }

    fn cuGraphGetNodes(driver; graph: Handle, out: Out<Handle>, count: Out<usize>) {
        list(out, count, &driver.graph(graph)?.nodes.keys().copied().collect::<Vec<_>>())
    }

    fn cuGraphGetRootNodes(driver; graph: Handle, out: Out<Handle>, count: Out<usize>) {
        let graph = driver.graph(graph)?;
        let roots = graph.nodes.keys().filter(|n| !graph.edges.iter().any(|e| e.1 == **n));
        list(out, count, &roots.copied().collect::<Vec<_>>())
    }

    fn cuGraphGetEdges_v2(driver; graph: Handle, from: Out<Handle>, to: Out<Handle>, data: Out<EdgeData>,
        count: Out<usize>) {
        put_edges(driver, graph, from, to, data, count)
    }

    fn cuGraphGetEdges(driver; graph: Handle, from: Out<Handle>, to: Out<Handle>, count: Out<usize>) {
        put_edges(driver, graph, from, to, Out::NONE, count)
    }

    fn cuGraphNodeGetDependencies(driver; node: Handle, out: Out<Handle>, count: Out<usize>) {
        neighbours(driver, node, out, Out::NONE, count, true)
    }

    fn cuGraphNodeGetDependencies_v2(driver; node: Handle, out: Out<Handle>, data: Out<EdgeData>, count:
        Out<usize>) {
        neighbours(driver, node, out, data, count, true)
    }

    fn cuGraphNodeGetDependentNodes(driver; node: Handle, out: Out<Handle>, count: Out<usize>) {
        neighbours(driver, node, out, Out::NONE, count, false)
    }

    fn cuGraphNodeGetDependentNodes_v2(driver; node: Handle, out: Out<Handle>, data: Out<EdgeData>, count:
        Out<usize>) {
        neighbours(driver, node, out, data, count, false)
    }

    fn cuGraphAddDependencies(driver; graph: Handle, from: In<Handle>, to: In<Handle>, count: usize) {
        add_dependencies(driver, graph, from, to, count)
    }

    fn cuGraphRemoveDependencies(driver; graph: Handle, from: In<Handle>, to: In<Handle>, count: usize) {
        remove_dependencies(driver, graph, from, to, count)
    }

    fn cuGraphAddDependencies_v2(driver; graph: Handle, from: In<Handle>, to: In<Handle>, _data:
        In<EdgeData>, count: usize) {
        add_dependencies(driver, graph, from, to, count)
    }

    fn cuGraphRemoveDependencies_v2(driver; graph: Handle, from: In<Handle>, to: In<Handle>, _data:
        In<EdgeData>, count: usize) {
        remove_dependencies(driver, graph, from, to, count)
    }
}
