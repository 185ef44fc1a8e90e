//! What ends memory without naming it (contexts), and captures, during which the driver must not be asked anything.

use super::{Status, pool, real};
use crate::preload::{driver, note};
use crate::trace::record::{Event, Kind, NO_DEVICE};
use cudarc::driver::sys::{CUcontext, CUdevice, CUgraph, CUgraphNode, CUstream};
use std::ffi::c_void;

/// `cuCtxDestroy(CUcontext context)`
pub unsafe extern "C" fn destroy<const ROW: usize, const SLOT: usize>(context: CUcontext) -> Status {
    let real = real!(ROW, SLOT, fn(CUcontext));
    let number = driver::context_number(context);
    // SAFETY: the caller's own argument.
    note::ending(|| unsafe { real(context) }, || Some(ended(NO_DEVICE, number)))
}

/// `cuDevicePrimaryCtxReset(CUdevice device)`
pub unsafe extern "C" fn reset_primary<const ROW: usize, const SLOT: usize>(device: CUdevice) -> Status {
    let real = real!(ROW, SLOT, fn(CUdevice));
    let number = driver::primary_context_number(device);
    // SAFETY: the caller's own argument.
    note::ending(|| unsafe { real(device) }, || Some(ended(device as u8, number)))
}

/// `cuDevicePrimaryCtxRelease(CUdevice device)`
pub unsafe extern "C" fn release_primary<const ROW: usize, const SLOT: usize>(device: CUdevice) -> Status {
    let real = real!(ROW, SLOT, fn(CUdevice));
    let number = driver::primary_context_number(device);
    // SAFETY: the caller's own argument.
    note::ending(
        || unsafe { real(device) },
        // Only the last reference ends it.
        || (!driver::primary_context_active(device)).then(|| ended(device as u8, number)),
    )
}

/// `cuGreenCtxDestroy(CUgreenCtx context)`: a part of a device under a context of its own.
pub unsafe extern "C" fn destroy_green<const ROW: usize, const SLOT: usize>(green: *mut c_void) -> Status {
    let real = real!(ROW, SLOT, fn(*mut c_void));
    let number = driver::green_context_number(green);
    // SAFETY: the caller's own argument.
    note::ending(|| unsafe { real(green) }, || (number != 0).then(|| ended(NO_DEVICE, number)))
}

fn ended(device: u8, context: u8) -> Event {
    Event { device, context, ..Event::new(Kind::ContextEnd) }
}

/// `cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)`
pub unsafe extern "C" fn begin_capture<const ROW: usize, const SLOT: usize>(
    stream: CUstream,
    mode: u32,
) -> Status {
    let real = real!(ROW, SLOT, fn(CUstream, u32));
    driver::capture_begins();
    // SAFETY: the caller's own arguments.
    let status = unsafe { real(stream, mode) };
    if status != 0 {
        driver::capture_ends();
    }
    status
}

/// `cuStreamBeginCapture(CUstream stream)`, before CUDA 10.1
pub unsafe extern "C" fn begin_capture_v1<const ROW: usize, const SLOT: usize>(stream: CUstream) -> Status {
    let real = real!(ROW, SLOT, fn(CUstream));
    driver::capture_begins();
    // SAFETY: the caller's own argument.
    let status = unsafe { real(stream) };
    if status != 0 {
        driver::capture_ends();
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
    driver::capture_begins();
    // SAFETY: the caller's own arguments.
    let status = unsafe { real(stream, graph, after, edges, count, mode) };
    if status != 0 {
        driver::capture_ends();
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
        driver::capture_ends();
    }
    status
}
