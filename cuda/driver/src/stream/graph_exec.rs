//! Executable graphs: a launch goes through the nodes once, in order, and is done.

use std::ffi::c_char;
use std::sync::Arc;

use crate::abi::pointers::{Handle, In, Out, Stream};
use crate::abi::records::{InstantiateParams, UpdateResult};
use crate::abi::status::*;
use crate::state::driver::{Driver, lock};
use crate::state::work::{Exec, Op, allocations};
use crate::stream::copy3d::copy;
use crate::stream::memset::memset;

const FREE_ON_LAUNCH: u64 = 1;

/// Collects the graph's operations in order, with those of child graphs in their place.
fn operations(driver: &mut Driver, graph: Handle, into: &mut Vec<Op>) -> Res {
    let graph = driver.graph(graph)?;
    let order = graph.order().ok_or(INVALID_VALUE)?;
    let ops: Vec<Op> = order.iter().filter_map(|n| graph.nodes.get(n).cloned()).collect();
    for op in ops {
        match op {
            Op::Child(child) => operations(driver, child, into)?,
            op => into.push(op),
        }
    }
    Ok(())
}

fn instantiate(driver: &mut Driver, out: Out<Handle>, graph: Handle, flags: u64) -> Res {
    let mut ops = Vec::new();
    operations(driver, graph, &mut ops)?;
    let node_count = driver.graph(graph)?.nodes.len();
    let memory = allocations(&ops);
    if memory.iter().any(|&at| driver.is_instantiated(at)) {
        return Err(INVALID_VALUE);
    }
    for at in memory {
        driver.retain_graph_memory(at);
    }
    let exec = driver.new_handle();
    driver.execs.insert(exec, Exec { ops: Arc::new(ops), node_count, flags });
    out.put(exec)
}

/// Does one node's work. The lock is not held: host functions run inline.
fn run(op: &Op) -> Res {
    match op {
        Op::Copy(shape) => copy(shape, None),
        Op::Set(node) => memset(node, None),
        Op::Host(node) => {
            if let Some(function) = node.fn_ {
                // SAFETY: the program's function, called with the program's pointer, as documented.
                unsafe { function(node.userData) };
            }
            Ok(())
        }
        Op::Record(event) => {
            lock()?.complete_event(*event);
            Ok(())
        }
        Op::Alloc(at) => lock()?.start_graph_block(*at),
        Op::Free(at) => lock()?.end_block("cuGraphLaunch", *at),
        Op::Kernel(_) => {
            lock()?.launched();
            Ok(())
        }
        Op::Child(_) | Op::Empty | Op::Wait(_) | Op::Other(_) => Ok(()),
    }
}

/// Does the work of all nodes. A launch that fails leaves no memory behind.
fn run_all(ops: &[Op]) -> Res {
    for (done, op) in ops.iter().enumerate() {
        run(op).inspect_err(|_| {
            if let Ok(mut driver) = lock() {
                for at in allocations(&ops[..done]) {
                    let _ = driver.end_block("cuGraphLaunch", at);
                }
            }
        })?;
    }
    Ok(())
}

/// Takes over the parameters of a graph with the same number of nodes and the same memory nodes.
fn update(driver: &mut Driver, exec: Handle, graph: Handle) -> Res<bool> {
    let mut ops = Vec::new();
    operations(driver, graph, &mut ops)?;
    let node_count = driver.graph(graph)?.nodes.len();
    let exec = driver.exec(exec)?;
    if exec.node_count != node_count || allocations(&*exec.ops) != allocations(&ops) {
        return Ok(false);
    }
    exec.ops = Arc::new(ops);
    Ok(true)
}

/// `CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED`
const TOPOLOGY: i32 = 2;

driver_api! {
    fn cuGraphInstantiateWithFlags(driver; out: Out<Handle>, graph: Handle, flags: u64) {
        instantiate(driver, out, graph, flags)
    }

    /// The older form: the error node and a log come back too.
    fn cuGraphInstantiate_v2(driver; out: Out<Handle>, graph: Handle, bad_node: Out<Handle>, log:
        Out<c_char>, room: usize) = cuGraphInstantiate {
        bad_node.put_opt(0);
        if room > 0 {
            log.put_opt(0);
        }
        instantiate(driver, out, graph, 0)
    }

    fn cuGraphInstantiateWithParams(driver; out: Out<Handle>, graph: Handle, params:
        Out<InstantiateParams>) [cuGraphInstantiateWithParams_ptsz] {
        let mut given = params.get()?;
        let done = instantiate(driver, out, graph, given.flags);
        given.bad_node = 0;
        given.result = i32::from(done.is_err());
        params.put(given)?;
        done
    }

    fn cuGraphExecGetFlags(driver; exec: Handle, out: Out<u64>) {
        out.put(driver.exec(exec)?.flags)
    }

    fn cuGraphLaunch(; exec: Handle, stream: Stream) [cuGraphLaunch_ptsz] {
        let ops = {
            let driver = &mut *lock()?;
            driver.stream_owner(stream)?;
            let exec = driver.exec(exec)?;
            let (ops, flags) = (exec.ops.clone(), exec.flags);
            if driver.record(stream, Op::Other(4))? {
                return Ok(());
            }
            for at in allocations(&*ops) {
                if driver.blocks.contains_key(&at) {
                    if flags & FREE_ON_LAUNCH == 0 {
                        return Err(INVALID_VALUE); // still allocated from the launch before
                    }
                    driver.end_block("cuGraphLaunch", at)?;
                }
            }
            ops
        };
        run_all(&ops)
    }

    fn cuGraphExecDestroy(driver; exec: Handle) {
        let exec = driver.execs.remove(&exec).ok_or(INVALID_VALUE)?;
        for at in allocations(&*exec.ops) {
            driver.release_graph_memory(at);
        }
        Ok(())
    }

    fn cuGraphExecUpdate_v2(driver; exec: Handle, graph: Handle, out: Out<UpdateResult>) {
        let done = update(driver, exec, graph)?;
        out.put_opt(UpdateResult { result: if done { 0 } else { TOPOLOGY }, bad_node: 0, bad_from: 0 });
        if done { Ok(()) } else { Err(GRAPH_EXEC_UPDATE_FAILURE) }
    }

    fn cuGraphExecUpdate(driver; exec: Handle, graph: Handle, bad: Out<Handle>, result: Out<i32>) {
        let done = update(driver, exec, graph)?;
        bad.put_opt(0);
        result.put_opt(if done { 0 } else { TOPOLOGY });
        if done { Ok(()) } else { Err(GRAPH_EXEC_UPDATE_FAILURE) }
    }

    fn cuGraphNodeGetEnabled(driver; exec: Handle, node: Handle, out: Out<u32>) {
        driver.exec(exec)?;
        driver.graph_of(node)?;
        out.put(1)
    }

    fn cuGraphDebugDotPrint(driver; graph: Handle, path: In<c_char>, _flags: u32) {
        let graph = driver.graph(graph)?;
        let mut text = String::from("digraph {\n");
        for (from, to) in &graph.edges {
            text += &format!("  n{from:x} -> n{to:x};\n");
        }
        std::fs::write(path.text()?, text + "}\n").map_err(|_| OPERATING_SYSTEM)
    }
}
