//! Stream capture.

use crate::abi::{Graph, Node, Stream};
use crate::version;
use std::ffi::c_void;

type NodeList = *mut *const Node;

forward! {
    device fn cudaThreadExchangeStreamCaptureMode(mode: *mut i32) => capture_mode;
}

export_streams! {
    /// Three arguments up to CUDA 12, seven since.
    device fn cudaStreamGetCaptureInfo [cudaStreamGetCaptureInfo_ptsz] (via; stream: Stream, status: *mut i32,
        id: *mut u64, graph: *mut Graph, after: NodeList, edges: *mut *const c_void, count: *mut usize) {
        if version::major() >= 13 {
            via.capture_info_edges(stream, status, id, graph, after, edges, count)
        } else {
            let none = std::ptr::null_mut();
            via.capture_info(stream, status, id, none, none.cast(), none.cast())
        }
    }

    device fn cudaStreamUpdateCaptureDependencies_v2 [cudaStreamUpdateCaptureDependencies_v2_ptsz] (via;
        stream: Stream, after: *mut Node, edges: *const c_void, count: usize, flags: u32) {
        via.capture_update_edges(stream, after, edges, count, flags)
    }

    /// CUDA 13 put the edges before the count.
    device fn cudaStreamUpdateCaptureDependencies [cudaStreamUpdateCaptureDependencies_ptsz] (via; stream: Stream,
        after: *mut Node, third: usize, fourth: usize, flags: u32) {
        if version::major() >= 13 {
            via.capture_update_edges(stream, after, third as *const c_void, fourth, flags)
        } else {
            via.capture_update(stream, after, third, fourth as u32)
        }
    }
}

forward_streams! {
    device fn cudaStreamBeginCapture [cudaStreamBeginCapture_ptsz] (stream: Stream, mode: i32) =>
        capture_begin;
    device fn cudaStreamBeginCaptureToGraph [cudaStreamBeginCaptureToGraph_ptsz] (stream: Stream, graph:
        Graph, after: *const Node, edges: *const c_void, count: usize, mode: i32) => capture_begin_to;
    device fn cudaStreamEndCapture [cudaStreamEndCapture_ptsz] (stream: Stream, out: *mut Graph) =>
        capture_end;
    device fn cudaStreamIsCapturing [cudaStreamIsCapturing_ptsz] (stream: Stream, status: *mut i32) =>
        capture_status;
    device fn cudaStreamGetCaptureInfo_v2 [cudaStreamGetCaptureInfo_v2_ptsz] (stream: Stream, status: *mut
        i32, id: *mut u64, graph: *mut Graph, after: NodeList, count: *mut usize) => capture_info;
    device fn cudaStreamGetCaptureInfo_v3 [cudaStreamGetCaptureInfo_v3_ptsz] (stream: Stream, status: *mut
        i32, id: *mut u64, graph: *mut Graph, after: NodeList, edges: *mut *const c_void, count: *mut
        usize) => capture_info_edges;
}
