//! Events.

use crate::abi::{Event, Stream};
use crate::driver::D;

export! {
    device fn cudaEventCreate(out: *mut Event) {
        D.event_create(out, 0)
    }

    device fn cudaEventCreateWithFlags(out: *mut Event, flags: u32) {
        D.event_create(out, flags)
    }

    device fn cudaEventDestroy(event: Event) {
        D.event_destroy(event)
    }

    device fn cudaEventQuery(event: Event) {
        D.event_query(event)
    }

    device fn cudaEventSynchronize(event: Event) {
        D.event_synchronize(event)
    }

    device fn cudaEventElapsedTime(milliseconds: *mut f32, start: Event, end: Event) {
        D.event_elapsed(milliseconds, start, end)
    }

    device fn cudaEventElapsedTime_v2(milliseconds: *mut f32, start: Event, end: Event) {
        D.event_elapsed(milliseconds, start, end)
    }
}

export_streams! {
    device fn cudaEventRecord [cudaEventRecord_ptsz] (via; event: Event, stream: Stream) {
        via.event_record(event, stream)
    }

    device fn cudaEventRecordWithFlags [cudaEventRecordWithFlags_ptsz] (via; event: Event, stream: Stream,
        flags: u32) {
        via.event_record_flags(event, stream, flags)
    }
}
