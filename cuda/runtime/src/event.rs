//! Events.

use crate::abi::{Event, Stream};
use crate::driver::D;

export! {
    device fn cudaEventCreate(out: *mut Event) {
        D.event_create(out, 0)
    }
}

forward! {
    device fn cudaEventCreateWithFlags(out: *mut Event, flags: u32) => event_create;
    device fn cudaEventDestroy(event: Event) => event_destroy;
    device fn cudaEventQuery(event: Event) => event_query;
    device fn cudaEventSynchronize(event: Event) => event_synchronize;
    device fn cudaEventElapsedTime(milliseconds: *mut f32, start: Event, end: Event) => event_elapsed;
    device fn cudaEventElapsedTime_v2(milliseconds: *mut f32, start: Event, end: Event) => event_elapsed;
}

forward_streams! {
    device fn cudaEventRecord [cudaEventRecord_ptsz] (event: Event, stream: Stream) => event_record;
    device fn cudaEventRecordWithFlags [cudaEventRecordWithFlags_ptsz] (event: Event, stream: Stream,
        flags: u32) => event_record_flags;
}
