//! Graphs.

use crate::abi::{
    Copy3DParams, DevPtr, DriverKernelParams, Graph, GraphExec, Handle, KernelParams, Node, Stream,
};
use crate::driver::D;
use crate::error::Code;
use crate::{copy_shaped, modules, state, version};
use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};

/// cudaMemAllocNodeParams, which the driver's struct equals, the address it writes back included.
#[repr(C)]
pub struct AllocParams {
    pool: [u8; 88],
    access: *const c_void,
    accesses: usize,
    bytes: usize,
    pointer: Handle,
}

/// cudaGraphExecUpdateResultInfo
#[repr(C)]
struct UpdateResult {
    result: i32,
    node: Handle,
    from: Handle,
}

export! {
    device fn cudaGraphAddKernelNode(out: *mut Node, graph: Graph, after: *const Node, count: usize,
        params: *const KernelParams) {
        let Some(params) = params.as_ref() else { return Err(Code::INVALID_VALUE) };
        let kernel = modules::kernel(params.function)?;
        let params = KernelParams { function: null(), ..*params };
        let node = DriverKernelParams { params, kernel, context: null_mut() };
        D.graph_add_kernel(out, graph, after, count, &node)
    }

    /// The parameters are the driver's own.
    device fn cudaGraphAddMemsetNode(out: *mut Node, graph: Graph, after: *const Node, count: usize,
        params: *const c_void) {
        D.graph_add_memset(out, graph, after, count, params, state::primary(state::current_device())?)
    }

    device fn cudaGraphAddMemcpyNode(out: *mut Node, graph: Graph, after: *const Node, count: usize,
        params: *const Copy3DParams) {
        let copy = copy_shaped::box_copy(params)?;
        D.graph_add_memcpy(out, graph, after, count, &copy, state::primary(state::current_device())?)
    }

    /// CUDA 13 has the edges' data before the count.
    device fn cudaGraphNodeGetDependencies(node: Node, nodes: *mut Node, third: Handle, fourth: *mut usize) {
        if version::major() >= 13 {
            D.graph_node_dependencies_edges(node, nodes, third, fourth)
        } else {
            D.graph_node_dependencies(node, nodes, third.cast())
        }
    }

    /// CUDA 13 has the edges' data before the count.
    device fn cudaGraphAddDependencies(graph: Graph, from: *const Node, to: *const Node, fourth: usize, fifth: usize) {
        D.graph_add_dependencies(graph, from, to, if version::major() >= 13 { fifth } else { fourth })
    }

    device fn cudaGraphAddMemAllocNode(out: *mut Node, graph: Graph, after: *const Node, count: usize,
        params: *mut AllocParams) {
        if params.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        D.graph_add_alloc(out, graph, after, count, params.cast())
    }

    /// Up to CUDA 11 the place of an error stood where the flags are now.
    device fn cudaGraphInstantiate(out: *mut GraphExec, graph: Graph, flags: u64) {
        D.graph_instantiate(out, graph, if version::major() >= 12 { flags } else { 0 })
    }

    /// CUDA 12 has one record where there was room for a node and for a result.
    device fn cudaGraphExecUpdate(exec: GraphExec, graph: Graph, third: Handle, fourth: *mut i32) {
        if version::major() >= 12 {
            return D.graph_exec_update(exec, graph, third);
        }
        let mut said = UpdateResult { result: 0, node: null_mut(), from: null_mut() };
        let done = D.graph_exec_update(exec, graph, (&raw mut said).cast());
        if !third.is_null() {
            third.cast::<Handle>().write(said.node);
        }
        if !fourth.is_null() {
            fourth.write(said.result);
        }
        done
    }

    device fn cudaGraphAddMemFreeNode(out: *mut Node, graph: Graph, after: *const Node, count: usize,
        pointer: Handle) {
        D.graph_add_free(out, graph, after, count, pointer as DevPtr)
    }
}

forward! {
    device fn cudaGraphCreate(out: *mut Graph, flags: u32) => graph_create;
    device fn cudaGraphDestroy(graph: Graph) => graph_destroy;
    device fn cudaGraphClone(out: *mut Graph, graph: Graph) => graph_clone;
    device fn cudaGraphGetNodes(graph: Graph, nodes: *mut Node, count: *mut usize) => graph_nodes;
    device fn cudaGraphGetRootNodes(graph: Graph, nodes: *mut Node, count: *mut usize) => graph_roots;
    device fn cudaGraphNodeGetType(node: Node, out: *mut i32) => graph_node_type;
    device fn cudaGraphDestroyNode(node: Node) => graph_destroy_node;
    device fn cudaGraphAddEmptyNode(out: *mut Node, graph: Graph, after: *const Node, count: usize) =>
        graph_add_empty;
    device fn cudaGraphAddHostNode(out: *mut Node, graph: Graph, after: *const Node, count: usize, params:
        *const c_void) => graph_add_host;
    device fn cudaGraphAddChildGraphNode(out: *mut Node, graph: Graph, after: *const Node, count: usize,
        child: Graph) => graph_add_child;
    device fn cudaGraphInstantiateWithFlags(out: *mut GraphExec, graph: Graph, flags: u64) =>
        graph_instantiate;
    device fn cudaGraphExecDestroy(exec: GraphExec) => graph_exec_destroy;
    device fn cudaGraphDebugDotPrint(graph: Graph, path: *const c_char, flags: u32) => graph_dot;
    device fn cudaDeviceGraphMemTrim(device: i32) => graph_mem_trim;
    device fn cudaDeviceGetGraphMemAttribute(device: i32, attribute: i32, value: Handle) =>
        graph_mem_attribute;
    device fn cudaDeviceSetGraphMemAttribute(device: i32, attribute: i32, value: Handle) =>
        graph_set_mem_attribute;
    device fn cudaGraphRetainUserObject(graph: Graph, object: Handle, count: u32, flags: u32) =>
        graph_retain_object;
    device fn cudaGraphReleaseUserObject(graph: Graph, object: Handle, count: u32) =>
        graph_release_object;
    device fn cudaUserObjectCreate(out: *mut Handle, pointer: Handle, destroy: Handle, count: u32, flags:
        u32) => object_create;
    device fn cudaUserObjectRetain(object: Handle, count: u32) => object_retain;
    device fn cudaUserObjectRelease(object: Handle, count: u32) => object_release;
}

forward_streams! {
    device fn cudaGraphUpload [cudaGraphUpload_ptsz] (exec: GraphExec, stream: Stream) => graph_upload;
    device fn cudaGraphLaunch [cudaGraphLaunch_ptsz] (exec: GraphExec, stream: Stream) => graph_launch;
}
