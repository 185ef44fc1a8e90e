//! Streams, and host functions in their order.

use crate::abi::{DevPtr, Event, Handle, Stream};
use crate::driver::D;
use crate::error::Code;
use std::ffi::c_void;

export! {
    device fn cudaStreamCreate(out: *mut Stream) {
        D.stream_create(out, 0)
    }

    device fn cudaStreamCreateWithFlags(out: *mut Stream, flags: u32) {
        D.stream_create(out, flags)
    }

    device fn cudaStreamCreateWithPriority(out: *mut Stream, flags: u32, priority: i32) {
        D.stream_create_priority(out, flags, priority)
    }

    device fn cudaStreamDestroy(stream: Stream) {
        // The default streams are not a program's to destroy.
        if stream.addr() <= 2 { Err(Code(400)) } else { D.stream_destroy(stream) }
    }

    device fn cudaCtxResetPersistingL2Cache() {
        D.ctx_reset_l2()
    }
}

export_streams! {
    device fn cudaStreamGetPriority [cudaStreamGetPriority_ptsz] (via; stream: Stream, out: *mut i32) {
        via.stream_priority(stream, out)
    }

    device fn cudaStreamGetFlags [cudaStreamGetFlags_ptsz] (via; stream: Stream, out: *mut u32) {
        via.stream_flags(stream, out)
    }

    device fn cudaStreamGetId [cudaStreamGetId_ptsz] (via; stream: Stream, out: *mut u64) {
        via.stream_id(stream, out)
    }

    device fn cudaStreamGetDevice [cudaStreamGetDevice_ptsz] (via; stream: Stream, out: *mut i32) {
        via.stream_device(stream, out)
    }

    device fn cudaStreamQuery [cudaStreamQuery_ptsz] (via; stream: Stream) {
        via.stream_query(stream)
    }

    device fn cudaStreamSynchronize [cudaStreamSynchronize_ptsz] (via; stream: Stream) {
        via.stream_synchronize(stream)
    }

    device fn cudaStreamWaitEvent [cudaStreamWaitEvent_ptsz] (via; stream: Stream, event: Event, flags: u32) {
        via.stream_wait(stream, event, flags)
    }

    device fn cudaStreamAddCallback [cudaStreamAddCallback_ptsz] (via; stream: Stream, callback: Handle,
        data: Handle, flags: u32) {
        via.stream_callback(stream, callback, data, flags)
    }

    device fn cudaLaunchHostFunc [cudaLaunchHostFunc_ptsz] (via; stream: Stream, function: Handle, data: Handle) {
        via.host_func(stream, function, data)
    }

    device fn cudaStreamAttachMemAsync [cudaStreamAttachMemAsync_ptsz] (via; stream: Stream, at: Handle,
        bytes: usize, flags: u32) {
        via.stream_attach(stream, at as DevPtr, bytes, flags)
    }

    device fn cudaStreamGetAttribute [cudaStreamGetAttribute_ptsz] (via; stream: Stream, attribute: i32,
        value: Handle) {
        via.stream_attribute(stream, attribute, value)
    }

    device fn cudaStreamSetAttribute [cudaStreamSetAttribute_ptsz] (via; stream: Stream, attribute: i32,
        value: *const c_void) {
        via.stream_set_attribute(stream, attribute, value)
    }

    device fn cudaStreamCopyAttributes [cudaStreamCopyAttributes_ptsz] (via; to: Stream, from: Stream) {
        via.stream_copy_attributes(to, from)
    }
}
