//! Graphs.

use crate::abi::{Copy3DParams, DevPtr, Dim3, Graph, GraphExec, Handle, Node, Stream};
use crate::driver::D;
use crate::error::Code;
use crate::{copy_shaped, modules, state};
use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};

/// cudaMemAllocNodeParams: the driver's struct is the same, and so is the place of the answer.
#[repr(C)]
pub struct AllocParams {
    pool: [u8; 88],
    access: *const c_void,
    accesses: usize,
    bytes: usize,
    pointer: Handle,
}

/// cudaKernelNodeParams.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelParams {
    function: *const c_void,
    grid: Dim3,
    block: Dim3,
    shared: u32,
    args: *mut Handle,
    extra: *mut Handle,
}

/// CUDA_KERNEL_NODE_PARAMS: the same, with a kernel in a function's place and a context.
#[repr(C)]
pub struct DriverKernelParams {
    params: KernelParams,
    kernel: Handle,
    context: Handle,
}
const _: () = assert!(size_of::<DriverKernelParams>() == 72);

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
        let copy = copy_shaped::the_box(params)?;
        D.graph_add_memcpy(out, graph, after, count, &copy, state::primary(state::current_device())?)
    }

    device fn cudaGraphCreate(out: *mut Graph, flags: u32) {
        D.graph_create(out, flags)
    }

    device fn cudaGraphDestroy(graph: Graph) {
        D.graph_destroy(graph)
    }

    device fn cudaGraphClone(out: *mut Graph, graph: Graph) {
        D.graph_clone(out, graph)
    }

    device fn cudaGraphGetNodes(graph: Graph, nodes: *mut Node, count: *mut usize) {
        D.graph_nodes(graph, nodes, count)
    }

    device fn cudaGraphGetRootNodes(graph: Graph, nodes: *mut Node, count: *mut usize) {
        D.graph_roots(graph, nodes, count)
    }

    device fn cudaGraphNodeGetType(node: Node, out: *mut i32) {
        D.graph_node_type(node, out)
    }

    /// CUDA 13 has the edges' data before the count.
    device fn cudaGraphNodeGetDependencies(node: Node, nodes: *mut Node, third: Handle, fourth: *mut usize) {
        if state::major() >= 13 {
            D.graph_node_dependencies_edges(node, nodes, third, fourth)
        } else {
            D.graph_node_dependencies(node, nodes, third.cast())
        }
    }

    /// CUDA 13 has the edges' data before the count.
    device fn cudaGraphAddDependencies(graph: Graph, from: *const Node, to: *const Node, fourth: usize, fifth: usize) {
        D.graph_add_dependencies(graph, from, to, if state::major() >= 13 { fifth } else { fourth })
    }

    device fn cudaGraphDestroyNode(node: Node) {
        D.graph_destroy_node(node)
    }

    device fn cudaGraphAddEmptyNode(out: *mut Node, graph: Graph, after: *const Node, count: usize) {
        D.graph_add_empty(out, graph, after, count)
    }

    device fn cudaGraphAddHostNode(out: *mut Node, graph: Graph, after: *const Node, count: usize,
        params: *const c_void) {
        D.graph_add_host(out, graph, after, count, params)
    }

    device fn cudaGraphAddChildGraphNode(out: *mut Node, graph: Graph, after: *const Node, count: usize,
        child: Graph) {
        D.graph_add_child(out, graph, after, count, child)
    }

    device fn cudaGraphAddMemAllocNode(out: *mut Node, graph: Graph, after: *const Node, count: usize,
        params: *mut AllocParams) {
        if params.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        D.graph_add_alloc(out, graph, after, count, params.cast())
    }

    device fn cudaGraphAddMemFreeNode(out: *mut Node, graph: Graph, after: *const Node, count: usize,
        pointer: Handle) {
        D.graph_add_free(out, graph, after, count, pointer as DevPtr)
    }

    device fn cudaGraphInstantiateWithFlags(out: *mut GraphExec, graph: Graph, flags: u64) {
        D.graph_instantiate(out, graph, flags)
    }

    device fn cudaGraphInstantiate(out: *mut GraphExec, graph: Graph, flags: u64) {
        D.graph_instantiate(out, graph, flags)
    }

    device fn cudaGraphExecDestroy(exec: GraphExec) {
        D.graph_exec_destroy(exec)
    }

    device fn cudaGraphExecUpdate(exec: GraphExec, graph: Graph, result: Handle) {
        D.graph_exec_update(exec, graph, result)
    }

    device fn cudaGraphDebugDotPrint(graph: Graph, path: *const c_char, flags: u32) {
        D.graph_dot(graph, path, flags)
    }

    device fn cudaDeviceGraphMemTrim(device: i32) {
        D.graph_mem_trim(device)
    }

    device fn cudaDeviceGetGraphMemAttribute(device: i32, attribute: i32, value: Handle) {
        D.graph_mem_attribute(device, attribute, value)
    }

    device fn cudaDeviceSetGraphMemAttribute(device: i32, attribute: i32, value: Handle) {
        D.graph_set_mem_attribute(device, attribute, value)
    }

    device fn cudaGraphRetainUserObject(graph: Graph, object: Handle, count: u32, flags: u32) {
        D.graph_retain_object(graph, object, count, flags)
    }

    device fn cudaGraphReleaseUserObject(graph: Graph, object: Handle, count: u32) {
        D.graph_release_object(graph, object, count)
    }

    device fn cudaUserObjectCreate(out: *mut Handle, pointer: Handle, destroy: Handle, count: u32, flags: u32) {
        D.object_create(out, pointer, destroy, count, flags)
    }

    device fn cudaUserObjectRetain(object: Handle, count: u32) {
        D.object_retain(object, count)
    }

    device fn cudaUserObjectRelease(object: Handle, count: u32) {
        D.object_release(object, count)
    }
}

export_streams! {
    device fn cudaGraphUpload [cudaGraphUpload_ptsz] (via; exec: GraphExec, stream: Stream) {
        via.graph_upload(exec, stream)
    }

    device fn cudaGraphLaunch [cudaGraphLaunch_ptsz] (via; exec: GraphExec, stream: Stream) {
        via.graph_launch(exec, stream)
    }
}
