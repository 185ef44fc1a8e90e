//! Graphs with memory in them. An allocation node has its address from the beginning, but its memory only
//! from a launch on; whose line it was is known where the node was made. What an executable graph will do is
//! read from the graph when it is instantiated, however it was built.

use std::mem::{MaybeUninit, offset_of};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use cudarc::driver::sys::{
    CUDA_MEM_ALLOC_NODE_PARAMS_v2 as AllocParams, CUgraph, CUgraphExec, CUgraphNode, CUgraphNodeParams,
    CUstream,
};
use leaktrace_core::format::event::{Event, EventKind};

use crate::coverage_gaps;
use crate::hooks::{Arg, Handle, driver_queries, events, hooks, pool};

/// `CU_GRAPH_NODE_TYPE_…`
const CHILD: u32 = 4;
const ALLOC: u32 = 10;
const FREE: u32 = 11;
/// The deepest nesting of graphs in graphs that is looked at.
const MAX_DEPTH: u32 = 16;

/// A node that allocates or frees was ever seen to be made: else no graph needs a look.
static MEMORY_NODES: AtomicBool = AtomicBool::new(false);

/// Executable graphs that allocate or free, by handle; 0: a free entry.
static EXECS: [AtomicUsize; 1024] = [const { AtomicUsize::new(0) }; 1024];

/// Notes that a node which allocates or frees was made, in a graph or by capturing a stream.
pub fn note_memory_node() {
    MEMORY_NODES.store(true, Release);
}

hooks! {
    /// `cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
    /// CUDA_MEM_ALLOC_NODE_PARAMS *params)`
    fn add_alloc_node(
        node: Arg<CUgraphNode>,
        graph: CUgraph,
        after: Arg<CUgraphNode>,
        count: usize,
        params: Arg<AllocParams>,
    ) => |call| call.record_graph_node(|| {
        note_memory_node();
        allocation(params)
    });

    /// `cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
    /// CUgraphNodeParams *params)`
    fn add_node(
        node: Arg<CUgraphNode>,
        graph: CUgraph,
        after: Arg<CUgraphNode>,
        count: usize,
        params: Arg<CUgraphNodeParams>,
    ) => |call| call.record_graph_node(|| allocation_of_any(params));

    /// `cuGraphAddNode` with `const CUgraphEdgeData *edges` after the dependencies
    fn add_node_v2(
        node: Arg<CUgraphNode>,
        graph: CUgraph,
        after: Arg<CUgraphNode>,
        edges: Handle,
        count: usize,
        params: Arg<CUgraphNodeParams>,
    ) => |call| call.record_graph_node(|| allocation_of_any(params));

    /// `cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log, size_t size)`
    fn instantiate(
        exec: Arg<CUgraphExec>,
        graph: CUgraph,
        error: Arg<CUgraphNode>,
        log: Handle,
        size: usize,
    ) => |call| call.call_then(|| record_memory_nodes(exec.handle(), graph));

    /// `cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)`; the
    /// headers of CUDA 12 call it `cuGraphInstantiate`
    fn instantiate_with_flags(exec: Arg<CUgraphExec>, graph: CUgraph, flags: u64) => |call| {
        call.call_then(|| record_memory_nodes(exec.handle(), graph))
    };

    /// `cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS
    /// *params)`
    fn instantiate_with_params(exec: Arg<CUgraphExec>, graph: CUgraph, params: Handle) => |call| {
        call.call_then(|| record_memory_nodes(exec.handle(), graph))
    };

    /// `cuGraphLaunch(CUgraphExec exec, CUstream stream)`. On a stream that is being captured it becomes a
    /// node of that graph.
    fn launch(exec: CUgraphExec, stream: CUstream) => |call| {
        if entry_of(exec).is_none() || pool::is_capturing(call.id, stream) {
            return call.pass();
        }
        call.record_launch(exec as u64)
    };

    /// `cuGraphExecDestroy(CUgraphExec exec)`
    fn exec_destroy(exec: CUgraphExec) => |call| {
        if let Some(entry) = entry_of(exec) {
            // Before the call: another thread may be given the same handle at once.
            entry.store(0, Release);
            events::append_shielded(&Event { address: exec as u64, ..Event::new(EventKind::GraphEnd) });
        }
        call.pass()
    };
}

/// Address, bytes and device of an allocation node.
fn allocation(params: Arg<AllocParams>) -> Option<(u64, u64, u8)> {
    (!params.is_null()).then(|| {
        let bytes: usize = params.field(offset_of!(AllocParams, bytesize));
        let device: i32 = params.field(offset_of!(AllocParams, poolProps.location.id));
        (params.field(offset_of!(AllocParams, dptr)), bytes as u64, device as u8)
    })
}

/// [`allocation`] of a node of any type; only an allocation node's parameters are read as such.
fn allocation_of_any(params: Arg<CUgraphNodeParams>) -> Option<(u64, u64, u8)> {
    note_memory_node();
    let kind: u32 = params.field(offset_of!(CUgraphNodeParams, type_));
    if params.is_null() || kind != ALLOC {
        return None;
    }
    let params = params.0.cast::<u8>().wrapping_add(offset_of!(CUgraphNodeParams, __bindgen_anon_1));
    allocation(Arg(params.cast()))
}

fn entry_of(exec: CUgraphExec) -> Option<&'static AtomicUsize> {
    if !MEMORY_NODES.load(Acquire) || exec.is_null() {
        return None;
    }
    EXECS.iter().find(|known| known.load(Acquire) == exec as usize)
}

/// Records what an executable graph will allocate and free.
fn record_memory_nodes(exec: u64, graph: CUgraph) {
    if !MEMORY_NODES.load(Acquire) || exec == 0 {
        return;
    }
    let mut nodes = Vec::new();
    collect_memory_nodes(graph, MAX_DEPTH, &mut nodes);
    if nodes.is_empty() {
        return;
    }
    let take = |entry: &AtomicUsize| entry.compare_exchange(0, exec as usize, AcqRel, Acquire).is_ok();
    if !EXECS.iter().any(take) {
        return coverage_gaps::report(
            "more than 1024 graphs with memory nodes at a time: what the others allocate is not seen",
        );
    }
    for node in nodes {
        events::append_pair(&node, &Event { address: exec, ..Event::new(EventKind::GraphExec) });
    }
}

/// Collects the allocation and free nodes of a graph, its child graphs' among them.
fn collect_memory_nodes(graph: CUgraph, depth: u32, into: &mut Vec<Event>) {
    for node in driver_queries::graph_nodes(graph) {
        match driver_queries::node_kind(node) {
            Some(ALLOC) => {
                let mut params = MaybeUninit::<AllocParams>::zeroed();
                if driver_queries::alloc_node(node, params.as_mut_ptr().cast())
                    && let Some((address, size, device)) = allocation(Arg(params.as_mut_ptr()))
                {
                    into.push(Event { address, size, device, ..Event::new(EventKind::GraphNode) });
                }
            }
            Some(FREE) => {
                if let Some(address) = driver_queries::free_node(node) {
                    into.push(Event { address, context: 1, ..Event::new(EventKind::GraphNode) });
                }
            }
            Some(CHILD) if depth > 0 => {
                if let Some(child) = driver_queries::child_graph(node) {
                    collect_memory_nodes(child, depth - 1, into);
                }
            }
            _ => {}
        }
    }
}
