//! Graphs with memory in them. An allocation node has its address from the beginning, but its memory only from a launch
//! on; whose line it was is known where the node was made. What an executable graph will do is read from the graph when
//! it is instantiated, however it was built.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use crate::coverage_gaps;
use crate::hooks::Status;
use crate::hooks::driver_queries;
use crate::hooks::pool;
use crate::hooks::real;
use crate::hooks::record;
use crate::hooks::stored;
use cudarc::driver::sys::{CUgraph, CUgraphExec, CUgraphNode, CUstream};
use leaktrace_core::format::event::{Event, EventKind};

/// The part of `CUDA_MEM_ALLOC_NODE_PARAMS` behind the pool's properties.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AllocParams {
    kind: u32,
    handle_types: u32,
    location_kind: u32,
    location: i32,
    windows: u64,
    most: usize,
    usage: u16,
    reserved: [u8; 54],
    access: u64,
    access_count: usize,
    bytes: usize,
    address: u64,
}
const _: () = assert!(size_of::<AllocParams>() == 120);

/// `CU_GRAPH_NODE_TYPE_…`
const CHILD: u32 = 4;
const ALLOC: u32 = 10;
const FREE: u32 = 11;
/// Graphs in graphs, at most.
const DEPTH: u32 = 16;

/// A node that allocates or frees was ever seen to be made: else no graph needs a look.
static MEMORY_NODES: AtomicBool = AtomicBool::new(false);

/// Executable graphs that allocate or free, by handle; 0: a free place.
const MOST: usize = 1024;
static EXECS: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];

/// A node was made, in a graph or by capturing a stream.
pub fn node_made() {
    MEMORY_NODES.store(true, Release);
}

/// `cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
/// CUDA_MEM_ALLOC_NODE_PARAMS *params)`
pub unsafe extern "C" fn add_alloc_node<const ROW: usize, const SLOT: usize>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    params: *mut AllocParams,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *mut AllocParams));
    // SAFETY: the caller's own arguments; on success the parameters hold the address.
    record::planned(ROW, || unsafe { real(node, graph, after, count, params) }, || unsafe { plan(params) })
}

/// `CUgraphNodeParams`: the type, then the parameters of that type.
#[repr(C)]
pub struct NodeParams {
    kind: u32,
    reserved: [u32; 3],
    alloc: AllocParams,
}

/// `cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, CUgraphNodeParams *params)`
pub unsafe extern "C" fn add_node<const ROW: usize, const SLOT: usize>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    params: *mut NodeParams,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *mut NodeParams));
    // SAFETY: the caller's own arguments; on success the parameters hold the address.
    record::planned(
        ROW,
        || unsafe { real(node, graph, after, count, params) },
        || unsafe { plan_any(params) },
    )
}

/// The same with `const CUgraphEdgeData *edges` after the dependencies.
pub unsafe extern "C" fn add_node_v2<const ROW: usize, const SLOT: usize>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    edges: *const c_void,
    count: usize,
    params: *mut NodeParams,
) -> Status {
    let real = real!(
        ROW,
        SLOT,
        fn(*mut CUgraphNode, CUgraph, *const CUgraphNode, *const c_void, usize, *mut NodeParams)
    );
    record::planned(
        ROW,
        // SAFETY: the caller's own arguments.
        || unsafe { real(node, graph, after, edges, count, params) },
        // SAFETY: on success the parameters hold the address.
        || unsafe { plan_any(params) },
    )
}

/// # Safety
/// `params` is null or what a successful call filled.
unsafe fn plan(params: *const AllocParams) -> Option<(u64, u64, u8)> {
    node_made();
    // SAFETY: the caller's promise.
    (!params.is_null()).then(|| unsafe {
        let at = (&raw const (*params).address).read_unaligned();
        let bytes = (&raw const (*params).bytes).read_unaligned();
        (at, bytes as u64, (&raw const (*params).location).read_unaligned() as u8)
    })
}

/// # Safety
/// As for [`plan`].
unsafe fn plan_any(params: *const NodeParams) -> Option<(u64, u64, u8)> {
    // SAFETY: the caller's promise; only an allocation node's parameters are read as such.
    unsafe {
        match params.is_null() || (&raw const (*params).kind).read_unaligned() != ALLOC {
            true => {
                node_made();
                None
            }
            false => plan(&raw const (*params).alloc),
        }
    }
}

/// `cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log, size_t size)`, before CUDA 12
pub unsafe extern "C" fn instantiate<const ROW: usize, const SLOT: usize>(
    exec: *mut CUgraphExec,
    graph: CUgraph,
    error: *mut CUgraphNode,
    log: *mut c_void,
    size: usize,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUgraphExec, CUgraph, *mut CUgraphNode, *mut c_void, usize));
    // SAFETY: the caller's own arguments; on success `exec` was written.
    record::unnoted(
        || unsafe { real(exec, graph, error, log, size) },
        || unsafe { look(stored(exec.cast()), graph) },
    )
}

/// `cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)`, from CUDA 12 on also
/// `cuGraphInstantiate`
pub unsafe extern "C" fn instantiate_with_flags<const ROW: usize, const SLOT: usize>(
    exec: *mut CUgraphExec,
    graph: CUgraph,
    flags: u64,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUgraphExec, CUgraph, u64));
    // SAFETY: the caller's own arguments; on success `exec` was written.
    record::unnoted(|| unsafe { real(exec, graph, flags) }, || unsafe { look(stored(exec.cast()), graph) })
}

/// `cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)`
pub unsafe extern "C" fn instantiate_with_params<const ROW: usize, const SLOT: usize>(
    exec: *mut CUgraphExec,
    graph: CUgraph,
    params: *mut c_void,
) -> Status {
    let real = real!(ROW, SLOT, fn(*mut CUgraphExec, CUgraph, *mut c_void));
    // SAFETY: the caller's own arguments; on success `exec` was written.
    record::unnoted(|| unsafe { real(exec, graph, params) }, || unsafe { look(stored(exec.cast()), graph) })
}

/// `cuGraphLaunch(CUgraphExec exec, CUstream stream)`
pub unsafe extern "C" fn launch<const ROW: usize, const SLOT: usize>(
    exec: CUgraphExec,
    stream: CUstream,
) -> Status {
    let real = real!(ROW, SLOT, fn(CUgraphExec, CUstream));
    // On a stream that is being captured it becomes a node of that graph.
    if place(exec as usize).is_none() || pool::captured(ROW, stream) {
        // SAFETY: the caller's own arguments.
        return unsafe { real(exec, stream) };
    }
    // SAFETY: as above.
    record::launched(ROW, exec as u64, || unsafe { real(exec, stream) })
}

/// `cuGraphExecDestroy(CUgraphExec exec)`
pub unsafe extern "C" fn exec_destroy<const ROW: usize, const SLOT: usize>(exec: CUgraphExec) -> Status {
    let real = real!(ROW, SLOT, fn(CUgraphExec));
    if let Some(at) = place(exec as usize) {
        // Before the call: another thread may be given the same handle at once.
        EXECS[at].store(0, Release);
        record::mark(&Event { address: exec as u64, ..Event::new(EventKind::GraphEnd) });
    }
    // SAFETY: the caller's own argument.
    unsafe { real(exec) }
}

fn place(exec: usize) -> Option<usize> {
    if !MEMORY_NODES.load(Acquire) || exec == 0 {
        return None;
    }
    EXECS.iter().position(|known| known.load(Acquire) == exec)
}

/// Notes what an executable graph will allocate and free.
fn look(exec: usize, graph: CUgraph) {
    if !MEMORY_NODES.load(Acquire) || exec == 0 {
        return;
    }
    let mut nodes = Vec::new();
    gather(graph, DEPTH, &mut nodes);
    if nodes.is_empty() {
        return;
    }
    let free = |place: &&AtomicUsize| place.compare_exchange(0, exec, AcqRel, Acquire).is_ok();
    if EXECS.iter().find(free).is_none() {
        return coverage_gaps::name(
            "more than 1024 graphs with memory nodes at a time: what the others allocate is not seen",
        );
    }
    for node in nodes {
        record::pair(&node, &Event { address: exec as u64, ..Event::new(EventKind::GraphExec) });
    }
}

/// The allocation and free nodes of a graph, its child graphs' among them.
fn gather(graph: CUgraph, depth: u32, into: &mut Vec<Event>) {
    for node in driver_queries::graph_nodes(graph) {
        match driver_queries::node_kind(node) {
            Some(ALLOC) => {
                let mut params = std::mem::MaybeUninit::<AllocParams>::zeroed();
                if driver_queries::alloc_node(node, params.as_mut_ptr().cast()) {
                    // SAFETY: all zero is valid, and the driver filled it.
                    let params = unsafe { params.assume_init() };
                    into.push(Event {
                        address: params.address,
                        size: params.bytes as u64,
                        device: params.location as u8,
                        ..Event::new(EventKind::GraphNode)
                    });
                }
            }
            Some(FREE) => {
                if let Some(address) = driver_queries::free_node(node) {
                    into.push(Event { address, context: 1, ..Event::new(EventKind::GraphNode) });
                }
            }
            Some(CHILD) if depth > 0 => {
                if let Some(child) = driver_queries::child_graph(node) {
                    gather(child, depth - 1, into);
                }
            }
            _ => {}
        }
    }
}
