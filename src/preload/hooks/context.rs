//! What ends memory without naming it (contexts), and captures, during which the driver must not be asked anything.

use crate::hooks::Status;
use crate::hooks::driver_queries;
use crate::hooks::pool;
use crate::hooks::real;
use crate::hooks::record;
use cudarc::driver::sys::{CUcontext, CUdevice, CUgraph, CUgraphNode, CUstream};
use leaktrace_core::format::event::{Event, EventKind, NO_DEVICE};
use std::ffi::c_void;

/// `cuCtxDestroy(CUcontext context)`
pub unsafe extern "C" fn destroy<const ROW: usize, const SLOT: usize>(context: CUcontext) -> Status {
    let real = real!(ROW, SLOT, fn(CUcontext));
    // SAFETY: the caller's own argument.
    ends(NO_DEVICE, driver_queries::context_ends(context), || unsafe { real(context) }, || true)
}

/// `cuDevicePrimaryCtxReset(CUdevice device)`
pub unsafe extern "C" fn reset_primary<const ROW: usize, const SLOT: usize>(device: CUdevice) -> Status {
    let real = real!(ROW, SLOT, fn(CUdevice));
    // SAFETY: the caller's own argument.
    ends(device as u8, driver_queries::primary_context_ends(device), || unsafe { real(device) }, || true)
}

/// `cuDevicePrimaryCtxRelease(CUdevice device)`
pub unsafe extern "C" fn release_primary<const ROW: usize, const SLOT: usize>(device: CUdevice) -> Status {
    let real = real!(ROW, SLOT, fn(CUdevice));
    // Only the last reference ends it.
    let last = || !driver_queries::primary_context_active(device);
    // SAFETY: the caller's own argument.
    ends(device as u8, driver_queries::primary_context_may_end(device), || unsafe { real(device) }, last)
}

/// `cuGreenCtxDestroy(CUgreenCtx context)`: a part of a device under a context of its own.
pub unsafe extern "C" fn destroy_green<const ROW: usize, const SLOT: usize>(green: *mut c_void) -> Status {
    let real = real!(ROW, SLOT, fn(*mut c_void));
    // SAFETY: the caller's own argument.
    ends(NO_DEVICE, driver_queries::green_context_ends(green), || unsafe { real(green) }, || true)
}

/// A call that ends a context if it succeeds and `last` says so.
fn ends(
    device: u8,
    ending: driver_queries::Ending,
    real: impl FnOnce() -> Status,
    last: impl FnOnce() -> bool,
) -> Status {
    let mut ended = false;
    let event = Event { device, context: ending.number, ..Event::new(EventKind::ContextEnd) };
    let status = record::ending(real, || {
        ended = last();
        ended.then_some(event)
    });
    driver_queries::context_ended(ending, ended);
    status
}

/// `cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)`
pub unsafe extern "C" fn begin_capture<const ROW: usize, const SLOT: usize>(
    stream: CUstream,
    mode: u32,
) -> Status {
    let real = real!(ROW, SLOT, fn(CUstream, u32));
    driver_queries::capture_begins();
    // SAFETY: the caller's own arguments.
    let status = unsafe { real(stream, mode) };
    if status != 0 {
        driver_queries::capture_ends();
    }
    status
}

/// `cuStreamBeginCapture(CUstream stream)`, before CUDA 10.1
pub unsafe extern "C" fn begin_capture_v1<const ROW: usize, const SLOT: usize>(stream: CUstream) -> Status {
    let real = real!(ROW, SLOT, fn(CUstream));
    driver_queries::capture_begins();
    // SAFETY: the caller's own argument.
    let status = unsafe { real(stream) };
    if status != 0 {
        driver_queries::capture_ends();
    }
    status
}

/// `cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges,
/// size_t count, CUstreamCaptureMode mode)`
pub unsafe extern "C" fn begin_capture_to_graph<const ROW: usize, const SLOT: usize>(
    stream: CUstream,
    graph: CUgraph,
    after: *const CUgraphNode,
    edges: *const c_void,
    count: usize,
    mode: u32,
) -> Status {
    let real = real!(ROW, SLOT, fn(CUstream, CUgraph, *const CUgraphNode, *const c_void, usize, u32));
    driver_queries::capture_begins();
    // SAFETY: the caller's own arguments.
    let status = unsafe { real(stream, graph, after, edges, count, mode) };
    if status != 0 {
        driver_queries::capture_ends();
    }
    status
}

/// `cuStreamEndCapture(CUstream stream, CUgraph *graph)`
pub unsafe extern "C" fn end_capture<const ROW: usize, const SLOT: usize>(
    stream: CUstream,
    graph: *mut CUgraph,
) -> Status {
    let real = real!(ROW, SLOT, fn(CUstream, *mut CUgraph));
    let captured = pool::captured(ROW, stream);
    // SAFETY: the caller's own arguments.
    let status = unsafe { real(stream, graph) };
    // A failed call may have ended it or not.
    if captured && !pool::captured(ROW, stream) {
        driver_queries::capture_ends();
    }
    status
}
