//! Graphs with memory or training in them. An allocation node has its address from the beginning, but its memory only
//! from a launch on; whose line it was is known where the node was made. What an executable graph will allocate is
//! read from the graph when it is instantiated, however it was built. What it repeats of the training was seen when the
//! graph was captured.

use std::mem::{MaybeUninit, offset_of};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use cudarc::driver::sys::{
    CUDA_MEM_ALLOC_NODE_PARAMS_v2 as AllocParams, CUgraph, CUgraphExec, CUgraphNode, CUgraphNodeParams,
    CUstream,
};
use leaktrace_core::format::event::{Event, EventKind};
use leaktrace_core::steps::loops::Shown;

use crate::analysis::captured::{self, Captured};
use crate::analysis::step_boundaries;
use crate::coverage_gaps;
use crate::hooks::{Arg, Handle, driver_queries, events, hooks, pool, work};
use crate::shield::shield;

/// `CU_GRAPH_NODE_TYPE_…`
const CHILD: u32 = 4;
const ALLOC: u32 = 10;
const FREE: u32 = 11;
/// The deepest nesting of graphs in graphs that is looked at.
const MAX_DEPTH: u32 = 16;

/// A node that allocates or frees was ever seen to be made: else no graph needs a look.
static MEMORY_NODES: AtomicBool = AtomicBool::new(false);

/// Handles, each with a word that is not 0; handle 0: a free entry.
struct Handles<const N: usize>([(AtomicUsize, AtomicUsize); N]);

impl<const N: usize> Handles<N> {
    const fn new() -> Handles<N> {
        Handles([const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; N])
    }

    /// Returns the word of a handle, or 0.
    fn word(&self, handle: usize) -> usize {
        let known = self.0.iter().find(|entry| entry.0.load(Acquire) == handle);
        known.map_or(0, |entry| entry.1.load(Acquire))
    }

    /// Adds a handle; returns false where there is no room.
    fn add(&self, handle: usize, word: usize) -> bool {
        let take = |entry: &&(AtomicUsize, AtomicUsize)| {
            entry.0.compare_exchange(0, handle, AcqRel, Acquire).is_ok()
        };
        self.0.iter().find(take).map(|entry| entry.1.store(word, Release)).is_some()
    }

    /// Removes a handle.
    fn remove(&self, handle: usize) {
        if let Some(entry) = self.0.iter().find(|entry| entry.0.load(Acquire) == handle) {
            entry.1.store(0, Release);
            entry.0.store(0, Release);
        }
    }
}

/// Graphs that were captured with training in them, and what it was.
static GRAPHS: Handles<64> = Handles::new();
/// How often one had to make room: the next place to do so.
static REPLACED: AtomicUsize = AtomicUsize::new(0);
/// Executable graphs that allocate, free or train, and what they do: [`MEMORY`] and [`Captured`].
static EXECS: Handles<1024> = Handles::new();
/// Whether any ever did: else no launch needs a look.
static ANY_EXEC: AtomicBool = AtomicBool::new(false);
/// It allocates or frees.
const MEMORY: usize = captured::FREE_BIT;

/// Takes in that a capture ended and made this graph.
pub fn captured(graph: usize) {
    let what = captured::end();
    if graph == 0 {
        return;
    }
    // The handle may have been another graph's, and graphs end unseen: the latest are kept.
    GRAPHS.remove(graph);
    while !what.is_nothing() && !GRAPHS.add(graph, what.to_bits()) {
        GRAPHS.remove(GRAPHS.0[REPLACED.fetch_add(1, AcqRel) % GRAPHS.0.len()].0.load(Acquire));
    }
}

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
    ) => |call| call.call_then(|| instantiated(exec.handle(), graph));

    /// `cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)`; the
    /// headers of CUDA 12 call it `cuGraphInstantiate`
    fn instantiate_with_flags(exec: Arg<CUgraphExec>, graph: CUgraph, flags: u64) => |call| {
        call.call_then(|| instantiated(exec.handle(), graph))
    };

    /// `cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS
    /// *params)`
    fn instantiate_with_params(exec: Arg<CUgraphExec>, graph: CUgraph, params: Handle) => |call| {
        call.call_then(|| instantiated(exec.handle(), graph))
    };

    /// `cuGraphLaunch(CUgraphExec exec, CUstream stream)`. On a stream that is being captured it becomes a
    /// node of that graph.
    fn launch(exec: CUgraphExec, stream: CUstream) => |call| {
        work::show(Shown::Work);
        let does = if ANY_EXEC.load(Acquire) { EXECS.word(exec as usize) } else { 0 };
        if does == 0 || exec.is_null() || pool::is_capturing(call.id, stream) {
            return call.pass();
        }
        let status = if does & MEMORY != 0 { call.record_launch(exec as u64) } else { call.pass() };
        let what = Captured::from_bits(does);
        if status == 0 && !what.is_nothing() {
            shield(|| step_boundaries::launched(what));
        }
        status
    };

    /// `cuGraphExecDestroy(CUgraphExec exec)`
    fn exec_destroy(exec: CUgraphExec) => |call| {
        let does = if exec.is_null() { 0 } else { EXECS.word(exec as usize) };
        if does != 0 {
            // Before the call: another thread may be given the same handle at once.
            EXECS.remove(exec as usize);
        }
        if does & MEMORY != 0 {
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

/// Notes what an executable graph will do, and records what it will allocate and free.
fn instantiated(exec: u64, graph: CUgraph) {
    let training = GRAPHS.word(graph as usize);
    let mut nodes = Vec::new();
    if MEMORY_NODES.load(Acquire) {
        collect_memory_nodes(graph, MAX_DEPTH, &mut nodes);
    }
    let does = training | if nodes.is_empty() { 0 } else { MEMORY };
    if exec == 0 || does == 0 {
        return;
    }
    if !EXECS.add(exec as usize, does) {
        return coverage_gaps::report(
            "more than 1024 graphs at a time that allocate or train: what the others do is not seen",
        );
    }
    ANY_EXEC.store(true, Release);
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
