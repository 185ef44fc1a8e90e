//! Graph nodes: what each stands for, and the calls that add and describe them.

use crate::abi::{Addr, Handle, In, Out};
use crate::context::current;
use crate::error::*;
use crate::graph::copied;
use crate::params::{AllocNode, AnyNode, Copy3D, HostNode, KernelNode, KernelNodeV1, MemsetNode};
use crate::state::{Core, Here, with};

#[derive(Clone)]
pub enum Op {
    Kernel(KernelNode),
    Copy(Box<Copy3D>),
    Set(MemsetNode),
    Host(HostNode),
    Child(Handle),
    Empty,
    Wait(Handle),
    Record(Handle),
    Alloc(Addr),
    Free(Addr),
    /// A kind that is only counted.
    Other(i32),
}

impl Op {
    fn kind(&self) -> i32 {
        match self {
            Op::Kernel(_) => 0,
            Op::Copy(_) => 1,
            Op::Set(_) => 2,
            Op::Host(_) => 3,
            Op::Child(_) => 4,
            Op::Empty => 5,
            Op::Wait(_) => 6,
            Op::Record(_) => 7,
            Op::Alloc(_) => 10,
            Op::Free(_) => 11,
            Op::Other(kind) => *kind,
        }
    }
}

fn add(out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, op: Op) -> Status {
    with(|core| put_node(core, out, graph, &after.list(count)?, op))
}

fn put_node(core: &mut Core, out: Out<Handle>, graph: Handle, after: &[Handle], op: Op) -> Res {
    if out.is_null() {
        return Err(INVALID_VALUE);
    }
    let memory = if let Op::Alloc(at) = op { Some(at) } else { None };
    let node = core.add_node(graph, op, after).inspect_err(|_| {
        if let Some(at) = memory {
            core.disown_graph_memory(at);
        }
    })?;
    out.put(node)
}

macro_rules! node_calls {
    ($($name:ident($arg:ident: $ty:ty $(, $ignored:ident: $ignored_ty:ty)?) $op:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            out: Out<Handle>,
            graph: Handle,
            after: In<Handle>,
            count: usize,
            $arg: $ty,
            $($ignored: $ignored_ty,)?
        ) -> Status {
            distinct!($name);
            let op = || -> Res<Op> { Ok($op) };
            match op() {
                Ok(op) => add(out, graph, after, count, op),
                Err(status) => status,
            }
        }
    )*};
}
node_calls! {
    cuGraphAddKernelNode(params: In<KernelNodeV1>) Op::Kernel(widened(params.get()?));
    cuGraphAddKernelNode_v2(params: In<KernelNode>) Op::Kernel(params.get()?);
    cuGraphAddMemcpyNode(params: In<Copy3D>, _context: Handle) Op::Copy(Box::new(params.get()?));
    cuGraphAddMemsetNode(params: In<MemsetNode>, _context: Handle) Op::Set(params.get()?);
    cuGraphAddHostNode(params: In<HostNode>) Op::Host(params.get()?);
    cuGraphAddEventRecordNode(event: Handle) Op::Record(event);
    cuGraphAddEventWaitNode(event: Handle) Op::Wait(event);
    cuGraphAddMemFreeNode(address: Addr) Op::Free(address);
    cuGraphAddExternalSemaphoresSignalNode(_params: In<u64>) Op::Other(8);
    cuGraphAddExternalSemaphoresWaitNode(_params: In<u64>) Op::Other(9);
    cuGraphAddBatchMemOpNode(_params: In<u64>) Op::Other(12);
}

fn widened(v1: KernelNodeV1) -> KernelNode {
    let KernelNodeV1 { function, grid, block, shared, arguments, extra } = v1;
    KernelNode { function, grid, block, shared, arguments, extra, ..KernelNode::default() }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddEmptyNode(
    out: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
) -> Status {
    distinct!(cuGraphAddEmptyNode);
    add(out, graph, after, count, Op::Empty)
}

/// The node gets a copy of the child as it is now.
fn child(core: &mut Core, graph: Handle) -> Res<Op> {
    let copy = copied(core, graph)?;
    let handle = core.handle();
    core.graphs.insert(handle, copy);
    Ok(Op::Child(handle))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddChildGraphNode(
    out: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
    nested: Handle,
) -> Status {
    distinct!(cuGraphAddChildGraphNode);
    with(|core| {
        core.graph(graph)?;
        let op = child(core, nested)?;
        put_node(core, out, graph, &after.list(count)?, op)
    })
}

/// Reserves the node's address on its pool's device, and says it.
fn allocation(core: &mut Core, params: Out<AllocNode>) -> Res<Op> {
    let mut node = params.get()?;
    if node.bytes == 0 || node.pool.location.kind != 1 {
        return Err(INVALID_VALUE);
    }
    let device = node.pool.location.id;
    let context = current(core).map_or(0, |at| at.context);
    node.at = core.reserve_graph_memory(node.bytes as u64, Here { context, device })?;
    params.put(node)?;
    Ok(Op::Alloc(node.at))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddMemAllocNode(
    out: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
    params: Out<AllocNode>,
) -> Status {
    distinct!(cuGraphAddMemAllocNode);
    with(|core| {
        core.graph(graph)?;
        let op = allocation(core, params)?;
        put_node(core, out, graph, &after.list(count)?, op)
    })
}

/// Where the union of `CUgraphNodeParams` starts, in bytes.
const BODY: usize = 16;

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddNode_v2(
    out: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    _edges: In<[u8; 8]>,
    count: usize,
    params: Out<AnyNode>,
) -> Status {
    distinct!(cuGraphAddNode_v2);
    with(|core| {
        core.graph(graph)?;
        let body = params.cast::<u8>().plus(BODY);
        let op = match params.get()?.kind {
            0 => Op::Kernel(body.cast().get()?),
            // flags, a reserved word, a context; then the copy
            1 => Op::Copy(Box::new(body.plus(16).cast().get()?)),
            2 => Op::Set(body.cast().get()?),
            3 => Op::Host(body.cast().get()?),
            4 => child(core, body.cast().get()?)?,
            5 => Op::Empty,
            6 => Op::Wait(body.cast().get()?),
            7 => Op::Record(body.cast().get()?),
            10 => allocation(core, body.cast())?,
            11 => Op::Free(body.cast().get()?),
            kind @ (8 | 9 | 12) => Op::Other(kind),
            13 => return Err(NOT_SUPPORTED), // conditional: kernels do not run, so no condition is ever set
            _ => return Err(INVALID_VALUE),
        };
        put_node(core, out, graph, &after.list(count)?, op)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddNode(
    out: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
    params: Out<AnyNode>,
) -> Status {
    distinct!(cuGraphAddNode);
    cuGraphAddNode_v2(out, graph, after, In::NONE, count, params)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphNodeGetType(node: Handle, out: Out<i32>) -> Status {
    distinct!(cuGraphNodeGetType);
    with(|core| out.put(core.graph_of(node)?.nodes.get(&node).ok_or(INVALID_VALUE)?.kind()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroyNode(node: Handle) -> Status {
    distinct!(cuGraphDestroyNode);
    with(|core| {
        let graph = core.graph_of(node)?;
        if graph.has_memory() {
            return Err(INVALID_VALUE); // documented
        }
        let op = graph.nodes.remove(&node);
        graph.edges.retain(|e| e.0 != node && e.1 != node);
        if let Some(Op::Child(child)) = op {
            core.end_graph(child);
        }
        Ok(())
    })
}

/// Reads one kind of node's parameters.
fn read<T>(node: Handle, out: Out<T>, pick: impl Fn(&Op) -> Option<T>) -> Status {
    with(|core| out.put(core.graph_of(node)?.nodes.get(&node).and_then(pick).ok_or(INVALID_VALUE)?))
}

/// Replaces one kind of node's parameters.
fn write(node: Handle, op: Res<Op>) -> Status {
    with(|core| {
        let op = op?;
        let slot = core.graph_of(node)?.nodes.get_mut(&node).ok_or(INVALID_VALUE)?;
        if slot.kind() != op.kind() {
            return Err(INVALID_VALUE);
        }
        *slot = op;
        Ok(())
    })
}

macro_rules! parameters {
    ($($get:ident $set:ident $ty:ty, $pattern:pat => $value:expr, $params:ident => $op:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $get(node: Handle, out: Out<$ty>) -> Status {
            distinct!($get);
            read(node, out, |op| if let $pattern = op { Some($value) } else { None })
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $set(node: Handle, params: In<$ty>) -> Status {
            distinct!($set);
            write(node, params.get().map(|$params| $op))
        }
    )*};
}
parameters! {
    cuGraphKernelNodeGetParams_v2 cuGraphKernelNodeSetParams_v2 KernelNode,
        Op::Kernel(k) => *k, p => Op::Kernel(p);
    cuGraphKernelNodeGetParams cuGraphKernelNodeSetParams KernelNodeV1,
        Op::Kernel(k) => narrowed(k), p => Op::Kernel(widened(p));
    cuGraphMemcpyNodeGetParams cuGraphMemcpyNodeSetParams Copy3D, Op::Copy(c) => **c, p => Op::Copy(Box::new(p));
    cuGraphMemsetNodeGetParams cuGraphMemsetNodeSetParams MemsetNode, Op::Set(s) => *s, p => Op::Set(p);
    cuGraphHostNodeGetParams cuGraphHostNodeSetParams HostNode, Op::Host(h) => *h, p => Op::Host(p);
}

fn narrowed(k: &KernelNode) -> KernelNodeV1 {
    let &KernelNode { function, grid, block, shared, arguments, extra, .. } = k;
    KernelNodeV1 { function, grid, block, shared, arguments, extra }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphChildGraphNodeGetGraph(node: Handle, out: Out<Handle>) -> Status {
    distinct!(cuGraphChildGraphNodeGetGraph);
    read(node, out, |op| if let Op::Child(child) = op { Some(*child) } else { None })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphEventRecordNodeGetEvent(node: Handle, out: Out<Handle>) -> Status {
    distinct!(cuGraphEventRecordNodeGetEvent);
    read(node, out, |op| if let Op::Record(event) = op { Some(*event) } else { None })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphEventWaitNodeGetEvent(node: Handle, out: Out<Handle>) -> Status {
    distinct!(cuGraphEventWaitNodeGetEvent);
    read(node, out, |op| if let Op::Wait(event) = op { Some(*event) } else { None })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphEventRecordNodeSetEvent(node: Handle, event: Handle) -> Status {
    distinct!(cuGraphEventRecordNodeSetEvent);
    write(node, Ok(Op::Record(event)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphEventWaitNodeSetEvent(node: Handle, event: Handle) -> Status {
    distinct!(cuGraphEventWaitNodeSetEvent);
    write(node, Ok(Op::Wait(event)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphMemFreeNodeGetParams(node: Handle, out: Out<Addr>) -> Status {
    distinct!(cuGraphMemFreeNodeGetParams);
    read(node, out, |op| if let Op::Free(at) = op { Some(*at) } else { None })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphMemAllocNodeGetParams(node: Handle, out: Out<AllocNode>) -> Status {
    distinct!(cuGraphMemAllocNodeGetParams);
    with(|core| {
        let Some(Op::Alloc(at)) = core.graph_of(node)?.nodes.get(&node) else { return Err(INVALID_VALUE) };
        let at = *at;
        out.put(core.graph_memory.get(&at).ok_or(INVALID_VALUE)?.params(at))
    })
}

/// Kernel attributes are taken and not kept.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphKernelNodeSetAttribute(node: Handle, _attribute: i32, _value: Handle) -> Status {
    distinct!(cuGraphKernelNodeSetAttribute);
    with(|core| core.graph_of(node).map(drop))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphKernelNodeGetAttribute(node: Handle, _attribute: i32, out: Out<[u64; 8]>) -> Status {
    distinct!(cuGraphKernelNodeGetAttribute);
    with(|core| {
        core.graph_of(node)?;
        out.put([0; 8])
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphKernelNodeCopyAttributes(to: Handle, from: Handle) -> Status {
    distinct!(cuGraphKernelNodeCopyAttributes);
    with(|core| {
        core.graph_of(to)?;
        core.graph_of(from).map(drop)
    })
}
