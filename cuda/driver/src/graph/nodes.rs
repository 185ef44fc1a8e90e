//! Graph nodes: how they are added and described.

use crate::abi::pointers::{Addr, Handle, In, Out};
use crate::abi::records::{
    AllocNode, AnyNode, Copy3D, HostNode, KernelNode, KernelNodeV1, MemsetNode, kernel_node,
};
use crate::abi::status::*;
use crate::graph::graphs::clone_graph;
use crate::state::device::Owner;
use crate::state::driver::Driver;
use crate::state::work::Op;

fn put_node(driver: &mut Driver, out: Out<Handle>, graph: Handle, after: &[Handle], op: Op) -> Res {
    if out.is_null() {
        return Err(INVALID_VALUE);
    }
    let memory = if let Op::Alloc(at) = op { Some(at) } else { None };
    let node = driver.add_node(graph, op, after).inspect_err(|_| {
        if let Some(at) = memory {
            driver.release_graph_memory(at);
        }
    })?;
    out.put(node)
}

fn widened(v1: KernelNodeV1) -> KernelNode {
    let grid = [v1.gridDimX, v1.gridDimY, v1.gridDimZ];
    let block = [v1.blockDimX, v1.blockDimY, v1.blockDimZ];
    kernel_node(v1.func as Handle, grid, block, v1.sharedMemBytes, v1.kernelParams, v1.extra)
}

/// Makes a child node of a copy of the graph as it is now.
fn child(driver: &mut Driver, graph: Handle) -> Res<Op> {
    let copy = clone_graph(driver, graph)?;
    let handle = driver.new_handle();
    driver.graphs.insert(handle, copy);
    Ok(Op::Child(handle))
}

/// Reserves an allocation node's address on its pool's device, and writes it into the parameters.
fn allocation(driver: &mut Driver, params: Out<AllocNode>) -> Res<Op> {
    let mut node = params.get()?;
    if node.bytes == 0 || node.pool.location.kind != 1 {
        return Err(INVALID_VALUE);
    }
    let device = node.pool.location.id;
    let context = driver.current().map_or(0, |owner| owner.context);
    node.at = driver.reserve_graph_memory(node.bytes as u64, Owner { context, device })?;
    params.put(node)?;
    Ok(Op::Alloc(node.at))
}

/// The offset of the union in `CUgraphNodeParams`.
const BODY: usize = 16;

/// Reads the parameters of a node of one kind.
fn read<T>(driver: &mut Driver, node: Handle, out: Out<T>, pick: impl Fn(&Op) -> Option<T>) -> Res {
    out.put(driver.graph_of(node)?.nodes.get(&node).and_then(pick).ok_or(INVALID_VALUE)?)
}

/// Replaces the parameters of a node by others of its kind.
fn write(driver: &mut Driver, node: Handle, op: Op) -> Res {
    let known = driver.graph_of(node)?.nodes.get_mut(&node).ok_or(INVALID_VALUE)?;
    if known.kind() != op.kind() {
        return Err(INVALID_VALUE);
    }
    *known = op;
    Ok(())
}

/// Functions that add one kind of node, from the parameters that follow the dependencies.
macro_rules! node_functions {
    ($($name:ident($($arg:ident: $type:ty)?) $op:expr;)*) => {$(driver_api! {
        fn $name(driver; out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, $($arg: $type)?) {
            let op = $op;
            put_node(driver, out, graph, &after.list(count)?, op)
        }
    })*};
}
node_functions! {
    cuGraphAddKernelNode(params: In<KernelNodeV1>) Op::Kernel(widened(params.get()?));
    cuGraphAddKernelNode_v2(params: In<KernelNode>) Op::Kernel(params.get()?);
    cuGraphAddMemcpyNode(params: In<Copy3D>) Op::Copy(Box::new(params.get()?));
    cuGraphAddMemsetNode(params: In<MemsetNode>) Op::Set(params.get()?);
    cuGraphAddHostNode(params: In<HostNode>) Op::Host(params.get()?);
    cuGraphAddEventRecordNode(event: Handle) Op::Record(event);
    cuGraphAddEventWaitNode(event: Handle) Op::Wait(event);
    cuGraphAddMemFreeNode(address: Addr) Op::Free(address);
    cuGraphAddExternalSemaphoresSignalNode() Op::Other(8);
    cuGraphAddExternalSemaphoresWaitNode() Op::Other(9);
    cuGraphAddBatchMemOpNode() Op::Other(12);
    cuGraphAddEmptyNode() Op::Empty;
}

macro_rules! parameters {
    ($($get:ident $set:ident $type:ty, $pattern:pat => $value:expr, $params:ident => $op:expr;)*) => {$(driver_api! {
        fn $get(driver; node: Handle, out: Out<$type>) {
            read(driver, node, out, |op| if let $pattern = op { Some($value) } else { None })
        }

        fn $set(driver; node: Handle, params: In<$type>) {
            let $params = params.get()?;
            write(driver, node, $op)
        }
    })*};
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

fn narrowed(v2: &KernelNode) -> KernelNodeV1 {
    // SAFETY: the first version's fields are the first fields of the second.
    unsafe { std::ptr::from_ref(v2).cast::<KernelNodeV1>().read() }
}

fn add_any(
    driver: &mut Driver,
    out: Out<Handle>,
    graph: Handle,
    after: &[Handle],
    params: Out<AnyNode>,
) -> Res {
    driver.graph(graph)?;
    let body = params.cast::<u8>().plus(BODY);
    let op = match params.get()?.kind {
        0 => Op::Kernel(body.cast().get()?),
        // flags, a reserved word, a context; then the copy
        1 => Op::Copy(Box::new(body.plus(16).cast().get()?)),
        2 => Op::Set(body.cast().get()?),
        3 => Op::Host(body.cast().get()?),
        4 => child(driver, body.cast().get()?)?,
        5 => Op::Empty,
        6 => Op::Wait(body.cast().get()?),
        7 => Op::Record(body.cast().get()?),
        10 => allocation(driver, body.cast())?,
        11 => Op::Free(body.cast().get()?),
        kind @ (8 | 9 | 12) => Op::Other(kind),
        13 => return Err(NOT_SUPPORTED), // conditional: kernels do not run, so no condition is ever set
        _ => return Err(INVALID_VALUE),
    };
    put_node(driver, out, graph, after, op)
}

driver_api! {
    fn cuGraphAddChildGraphNode(driver; out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize,
        nested: Handle) {
        driver.graph(graph)?;
        let op = child(driver, nested)?;
        put_node(driver, out, graph, &after.list(count)?, op)
    }

    fn cuGraphAddMemAllocNode(driver; out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize,
        params: Out<AllocNode>) {
        driver.graph(graph)?;
        let op = allocation(driver, params)?;
        put_node(driver, out, graph, &after.list(count)?, op)
    }

    fn cuGraphAddNode_v2(driver; out: Out<Handle>, graph: Handle, after: In<Handle>, _edges: In<[u8; 8]>,
        count: usize, params: Out<AnyNode>) {
        add_any(driver, out, graph, &after.list(count)?, params)
    }

    fn cuGraphAddNode(driver; out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params:
        Out<AnyNode>) {
        add_any(driver, out, graph, &after.list(count)?, params)
    }

    fn cuGraphNodeGetType(driver; node: Handle, out: Out<i32>) {
        out.put(driver.graph_of(node)?.nodes.get(&node).ok_or(INVALID_VALUE)?.kind())
    }

    fn cuGraphDestroyNode(driver; node: Handle) {
        let graph = driver.graph_of(node)?;
        if graph.has_memory_nodes() {
            return Err(INVALID_VALUE); // documented
        }
        let op = graph.nodes.remove(&node);
        graph.edges.retain(|e| e.0 != node && e.1 != node);
        if let Some(Op::Child(child)) = op {
            driver.end_graph(child);
        }
        Ok(())
    }

    fn cuGraphChildGraphNodeGetGraph(driver; node: Handle, out: Out<Handle>) {
        read(driver, node, out, |op| if let Op::Child(child) = op { Some(*child) } else { None })
    }

    fn cuGraphEventRecordNodeGetEvent(driver; node: Handle, out: Out<Handle>) {
        read(driver, node, out, |op| if let Op::Record(event) = op { Some(*event) } else { None })
    }

    fn cuGraphEventWaitNodeGetEvent(driver; node: Handle, out: Out<Handle>) {
        read(driver, node, out, |op| if let Op::Wait(event) = op { Some(*event) } else { None })
    }

    fn cuGraphEventRecordNodeSetEvent(driver; node: Handle, event: Handle) {
        write(driver, node, Op::Record(event))
    }

    fn cuGraphEventWaitNodeSetEvent(driver; node: Handle, event: Handle) {
        write(driver, node, Op::Wait(event))
    }

    fn cuGraphMemFreeNodeGetParams(driver; node: Handle, out: Out<Addr>) {
        read(driver, node, out, |op| if let Op::Free(at) = op { Some(*at) } else { None })
    }

    fn cuGraphMemAllocNodeGetParams(driver; node: Handle, out: Out<AllocNode>) {
        let Some(Op::Alloc(at)) = driver.graph_of(node)?.nodes.get(&node) else { return Err(INVALID_VALUE) };
        let at = *at;
        out.put(driver.allocation_params(at)?)
    }

    fn cuGraphKernelNodeGetAttribute(driver; node: Handle, _attribute: i32, out: Out<[u64; 8]>) {
        driver.graph_of(node)?;
        out.put([0; 8])
    }

}
