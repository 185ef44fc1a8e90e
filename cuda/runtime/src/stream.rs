//! Streams, and host functions in their order.

use crate::abi::{DevPtr, Event, Handle, Stream};
use crate::driver::D;
use crate::error::Code;
use std::ffi::c_void;

export! {
    device fn cudaStreamCreate(out: *mut Stream) {
        D.stream_create(out, 0)
    }

    device fn cudaStreamDestroy(stream: Stream) {
        // The default streams are not a program's to destroy.
        if stream.addr() <= 2 { Err(Code(400)) } else { D.stream_destroy(stream) }
    }
}

forward! {
    device fn cudaStreamCreateWithFlags(out: *mut Stream, flags: u32) => stream_create;
    device fn cudaStreamCreateWithPriority(out: *mut Stream, flags: u32, priority: i32) =>
        stream_create_priority;
    device fn cudaCtxResetPersistingL2Cache() => ctx_reset_l2;
}

export_streams! {
    device fn cudaStreamAttachMemAsync [cudaStreamAttachMemAsync_ptsz] (via; stream: Stream, at: Handle,
        bytes: usize, flags: u32) {
        via.stream_attach(stream, at as DevPtr, bytes, flags)
    }
}

forward_streams! {
    device fn cudaStreamGetPriority [cudaStreamGetPriority_ptsz] (stream: Stream, out: *mut i32) =>
        stream_priority;
    device fn cudaStreamGetFlags [cudaStreamGetFlags_ptsz] (stream: Stream, out: *mut u32) =>
        stream_flags;
    device fn cudaStreamGetId [cudaStreamGetId_ptsz] (stream: Stream, out: *mut u64) => stream_id;
    device fn cudaStreamGetDevice [cudaStreamGetDevice_ptsz] (stream: Stream, out: *mut i32) =>
        stream_device;
    device fn cudaStreamQuery [cudaStreamQuery_ptsz] (stream: Stream) => stream_query;
    device fn cudaStreamSynchronize [cudaStreamSynchronize_ptsz] (stream: Stream) => stream_synchronize;
    device fn cudaStreamWaitEvent [cudaStreamWaitEvent_ptsz] (stream: Stream, event: Event, flags: u32) =>
        stream_wait;
    device fn cudaStreamAddCallback [cudaStreamAddCallback_ptsz] (stream: Stream, callback: Handle, data:
        Handle, flags: u32) => stream_callback;
    device fn cudaLaunchHostFunc [cudaLaunchHostFunc_ptsz] (stream: Stream, function: Handle, data:
        Handle) => host_func;
    device fn cudaStreamGetAttribute [cudaStreamGetAttribute_ptsz] (stream: Stream, attribute: i32, value:
        Handle) => stream_attribute;
    device fn cudaStreamSetAttribute [cudaStreamSetAttribute_ptsz] (stream: Stream, attribute: i32, value:
        *const c_void) => stream_set_attribute;
    device fn cudaStreamCopyAttributes [cudaStreamCopyAttributes_ptsz] (to: Stream, from: Stream) =>
        stream_copy_attributes;
}
