//! Executable graphs: a launch goes through the nodes once, in order, and is done.

use std::ffi::c_char;
use std::sync::Arc;

use crate::abi::{Addr, Handle, In, Out, Stream};
use crate::copy3d::copy;
use crate::error::*;
use crate::fill::fill;
use crate::node::Op;
use crate::params::{
    Copy3D, HostNode, InstantiateParams, KernelNode, KernelNodeV1, MemsetNode, UpdateResult,
};
use crate::state::{Core, enter, with};

pub struct Exec {
    ops: Arc<Vec<Op>>,
    /// How many nodes its graph had: an update must match.
    shape: usize,
    flags: u64,
}

const FREE_ON_LAUNCH: u64 = 1;

/// The graph's operations in order, children's within.
fn operations(core: &mut Core, graph: Handle, into: &mut Vec<Op>) -> Res {
    let graph = core.graph(graph)?;
    let order = graph.order().ok_or(INVALID_VALUE)?;
    let ops: Vec<Op> = order.iter().filter_map(|n| graph.nodes.get(n).cloned()).collect();
    for op in ops {
        match op {
            Op::Child(child) => operations(core, child, into)?,
            op => into.push(op),
        }
    }
    Ok(())
}

fn memory(ops: &[Op]) -> Vec<Addr> {
    ops.iter().filter_map(|op| if let Op::Alloc(at) = op { Some(*at) } else { None }).collect()
}

fn instantiate(core: &mut Core, out: Out<Handle>, graph: Handle, flags: u64) -> Res {
    let mut ops = Vec::new();
    operations(core, graph, &mut ops)?;
    let shape = core.graph(graph)?.nodes.len();
    let memory = memory(&ops);
    if memory.iter().any(|&at| core.is_instantiated(at)) {
        return Err(INVALID_VALUE);
    }
    for at in memory {
        core.own_graph_memory(at);
    }
    let exec = core.handle();
    core.execs.insert(exec, Exec { ops: Arc::new(ops), shape, flags });
    out.put(exec)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphInstantiateWithFlags(out: Out<Handle>, graph: Handle, flags: u64) -> Status {
    distinct!(cuGraphInstantiateWithFlags);
    with(|core| instantiate(core, out, graph, flags))
}

/// The older form: the error node and a log come back too.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphInstantiate_v2(
    out: Out<Handle>,
    graph: Handle,
    bad_node: Out<Handle>,
    log: Out<c_char>,
    room: usize,
) -> Status {
    distinct!(cuGraphInstantiate_v2);
    with(|core| {
        bad_node.put_opt(0);
        if room > 0 {
            log.put_opt(0);
        }
        instantiate(core, out, graph, 0)
    })
}

alias! {
    cuGraphInstantiate =
        cuGraphInstantiate_v2(out: Out<Handle>, graph: Handle, bad: Out<Handle>, log: Out<c_char>, room: usize);
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphInstantiateWithParams(
    out: Out<Handle>,
    graph: Handle,
    params: Out<InstantiateParams>,
) -> Status {
    distinct!(cuGraphInstantiateWithParams);
    with(|core| {
        let mut given = params.get()?;
        let done = instantiate(core, out, graph, given.flags);
        given.bad_node = 0;
        given.result = i32::from(done.is_err());
        params.put(given)?;
        done
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecGetFlags(exec: Handle, out: Out<u64>) -> Status {
    distinct!(cuGraphExecGetFlags);
    with(|core| out.put(core.execs.get(&exec).ok_or(INVALID_VALUE)?.flags))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphUpload(exec: Handle, stream: Stream) -> Status {
    distinct!(cuGraphUpload);
    with(|core| {
        core.stream_place(stream)?;
        core.execs.get(&exec).map(drop).ok_or(INVALID_VALUE)
    })
}

/// One node's work. The lock is not held: host functions run inline.
fn perform(op: &Op) -> Res {
    match op {
        Op::Copy(shape) => copy(shape, None),
        Op::Set(node) => fill(node, None),
        Op::Host(node) => {
            if let Some(function) = node.function {
                // SAFETY: the program's function, called with the program's pointer, as documented.
                unsafe { function(node.data) };
            }
            Ok(())
        }
        Op::Record(event) => {
            enter()?.happened(*event);
            Ok(())
        }
        Op::Alloc(at) => enter()?.begin_graph_memory(*at),
        Op::Free(at) => enter()?.end("cuGraphLaunch", *at),
        Op::Kernel(_) => {
            enter()?.launched();
            Ok(())
        }
        Op::Child(_) | Op::Empty | Op::Wait(_) | Op::Other(_) => Ok(()),
    }
}

/// A launch that cannot go on leaves no memory behind.
fn perform_all(ops: &[Op]) -> Res {
    for (done, op) in ops.iter().enumerate() {
        perform(op).inspect_err(|_| {
            if let Ok(mut core) = enter() {
                for at in memory(&ops[..done])
                    .into_iter()
                    .filter(|at| core.blocks.contains_key(at))
                    .collect::<Vec<_>>()
                {
                    let _ = core.end("cuGraphLaunch", at);
                }
            }
        })?;
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphLaunch(exec: Handle, stream: Stream) -> Status {
    distinct!(cuGraphLaunch);
    let run = || {
        let ops = {
            let core = &mut *enter()?;
            core.stream_place(stream)?;
            let exec = core.execs.get(&exec).ok_or(INVALID_VALUE)?;
            let (ops, flags) = (exec.ops.clone(), exec.flags);
            if core.record(stream, Op::Other(4))? {
                return Ok(());
            }
            for at in memory(&ops) {
                if core.blocks.contains_key(&at) {
                    if flags & FREE_ON_LAUNCH == 0 {
                        return Err(INVALID_VALUE); // still allocated from the launch before
                    }
                    core.end("cuGraphLaunch", at)?;
                }
            }
            ops
        };
        perform_all(&ops)
    };
    Status::from(run())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecDestroy(exec: Handle) -> Status {
    distinct!(cuGraphExecDestroy);
    with(|core| {
        let exec = core.execs.remove(&exec).ok_or(INVALID_VALUE)?;
        for at in memory(&exec.ops) {
            core.disown_graph_memory(at);
        }
        Ok(())
    })
}

/// Takes a graph's parameters over, if it has the same number of nodes and no memory nodes.
fn update(core: &mut Core, exec: Handle, graph: Handle) -> Res<bool> {
    let mut ops = Vec::new();
    operations(core, graph, &mut ops)?;
    let shape = core.graph(graph)?.nodes.len();
    let exec = core.execs.get_mut(&exec).ok_or(INVALID_VALUE)?;
    if exec.shape != shape || memory(&exec.ops) != memory(&ops) {
        return Ok(false);
    }
    exec.ops = Arc::new(ops);
    Ok(true)
}

/// `CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED`
const TOPOLOGY: i32 = 2;

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecUpdate_v2(exec: Handle, graph: Handle, out: Out<UpdateResult>) -> Status {
    distinct!(cuGraphExecUpdate_v2);
    with(|core| {
        let done = update(core, exec, graph)?;
        out.put_opt(UpdateResult { result: if done { 0 } else { TOPOLOGY }, bad_node: 0, bad_from: 0 });
        if done { Ok(()) } else { Err(GRAPH_EXEC_UPDATE_FAILURE) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecUpdate(
    exec: Handle,
    graph: Handle,
    bad: Out<Handle>,
    result: Out<i32>,
) -> Status {
    distinct!(cuGraphExecUpdate);
    with(|core| {
        let done = update(core, exec, graph)?;
        bad.put_opt(0);
        result.put_opt(if done { 0 } else { TOPOLOGY });
        if done { Ok(()) } else { Err(GRAPH_EXEC_UPDATE_FAILURE) }
    })
}

/// Changes to one node of an executable graph are accepted and have no effect: the next update brings them.
macro_rules! exec_changes {
    ($($name:ident($params:ty $(, $more:ident: $more_ty:ty)?);)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(exec: Handle, node: Handle, _params: $params $(, $more: $more_ty)?) -> Status {
            distinct!($name);
            with(|core| {
                core.execs.get(&exec).ok_or(INVALID_VALUE)?;
                core.graph_of(node).map(drop)
            })
        }
    )*};
}
exec_changes! {
    cuGraphExecKernelNodeSetParams(In<KernelNodeV1>);
    cuGraphExecKernelNodeSetParams_v2(In<KernelNode>);
    cuGraphExecMemcpyNodeSetParams(In<Copy3D>, _context: Handle);
    cuGraphExecMemsetNodeSetParams(In<MemsetNode>, _context: Handle);
    cuGraphExecHostNodeSetParams(In<HostNode>);
    cuGraphExecChildGraphNodeSetParams(Handle);
    cuGraphExecEventRecordNodeSetEvent(Handle);
    cuGraphExecEventWaitNodeSetEvent(Handle);
    cuGraphNodeSetEnabled(u32);
    cuGraphExecNodeSetParams(Handle);
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphNodeGetEnabled(exec: Handle, node: Handle, out: Out<u32>) -> Status {
    distinct!(cuGraphNodeGetEnabled);
    with(|core| {
        core.execs.get(&exec).ok_or(INVALID_VALUE)?;
        core.graph_of(node)?;
        out.put(1)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDebugDotPrint(graph: Handle, path: In<c_char>, _flags: u32) -> Status {
    distinct!(cuGraphDebugDotPrint);
    with(|core| {
        let graph = core.graph(graph)?;
        let mut text = String::from("digraph {\n");
        for (from, to) in &graph.edges {
            text += &format!("  n{from:x} -> n{to:x};\n");
        }
        std::fs::write(path.text()?, text + "}\n").map_err(|_| OPERATING_SYSTEM)
    })
}

per_thread! {
    cuGraphLaunch_ptsz = cuGraphLaunch(exec: Handle, stream: Stream);
    cuGraphUpload_ptsz = cuGraphUpload(exec: Handle, stream: Stream);
    cuGraphInstantiateWithParams_ptsz =
        cuGraphInstantiateWithParams(out: Out<Handle>, graph: Handle, params: Out<InstantiateParams>);
}
