//! What ends memory without naming it (contexts), and captures, during which the driver must not be asked
//! anything.

use cudarc::driver::sys::{CUcontext, CUdevice, CUgraph, CUgraphNode, CUstream};
use leaktrace_core::format::event::{Event, EventKind, NO_DEVICE};

use crate::analysis::captured;
use crate::hooks::{Arg, Call, Handle, Status, devices, driver_queries, graph, hooks, pool};
use crate::shield::shield;
use crate::state;

hooks! {
    /// `cuCtxDestroy(CUcontext context)`
    fn destroy(context: CUcontext) => |call| {
        record_end(call, NO_DEVICE, driver_queries::context_ends(context), || true)
    };

    /// `cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)`: learns which context it is, so that
    /// nothing else has to take a reference to ask.
    fn retain_primary(context: Arg<CUcontext>, device: CUdevice) => |call| {
        call.call_then(|| driver_queries::learn_primary_context(device, context.handle()))
    };

    /// `cuDevicePrimaryCtxReset(CUdevice device)`
    fn reset_primary(device: CUdevice) => |call| {
        record_end(call, device as u8, driver_queries::primary_context_ends(device), || true)
    };

    /// `cuDevicePrimaryCtxRelease(CUdevice device)`. Only the last reference ends it.
    fn release_primary(device: CUdevice) => |call| {
        let was_last = || !driver_queries::primary_context_active(device);
        record_end(call, device as u8, driver_queries::primary_context_may_end(device), was_last)
    };

    /// `cuGreenCtxDestroy(CUgreenCtx context)`: a part of a device under a context of its own.
    fn destroy_green(green: Handle) => |call| {
        record_end(call, NO_DEVICE, driver_queries::green_context_ends(green), || true)
    };

    /// `cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)`
    fn begin_capture(stream: CUstream, mode: u32) => |call| begin(call);

    /// `cuStreamBeginCapture(CUstream stream)`, before CUDA 10.1
    fn begin_capture_v1(stream: CUstream) => |call| begin(call);

    /// `cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *after, const
    /// CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)`
    fn begin_capture_to_graph(
        stream: CUstream,
        graph: CUgraph,
        after: Arg<CUgraphNode>,
        edges: Handle,
        count: usize,
        mode: u32,
    ) => |call| begin(call);

    /// `cuStreamEndCapture(CUstream stream, CUgraph *graph)`
    fn end_capture(stream: CUstream, made: Arg<CUgraph>) => |call| {
        let id = call.id;
        let captured = pool::is_capturing(id, stream);
        let status = call.pass();
        // A failed call may have ended it or not.
        if captured && !pool::is_capturing(id, stream) {
            driver_queries::capture_ends();
            graph::captured(if status == 0 { made.handle() as usize } else { 0 });
            if state::is_recording() {
                shield(devices::describe_seen);
            }
        }
        status
    };
}

/// Records that a call ended a context, if it succeeds and `ended` says so.
fn record_end<R: FnOnce() -> Status>(
    call: Call<R>,
    device: u8,
    ending: driver_queries::Ending,
    ended: impl FnOnce() -> bool,
) -> Status {
    let mut over = false;
    let event = Event { device, context: ending.number, ..Event::new(EventKind::ContextEnd) };
    let status = call.record_release(|| {
        over = ended();
        over.then_some(event)
    });
    driver_queries::context_ended(ending, over);
    status
}

/// Counts a capture from before the call that begins it.
fn begin<R: FnOnce() -> Status>(call: Call<R>) -> Status {
    driver_queries::capture_begins();
    let status = call.pass();
    if status == 0 {
        captured::begin();
    } else {
        driver_queries::capture_ends();
    }
    status
}
