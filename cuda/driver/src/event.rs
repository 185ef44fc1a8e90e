//! Events: recorded is completed.

use crate::abi::{Handle, Out, Stream};
use crate::error::*;
use crate::node::Op;
use crate::state::{Core, here, with};
use crate::truth::now_ns;

pub struct Event {
    pub context: Handle,
    flags: u32,
    at_ns: Option<u64>,
    /// Recorded in a capture: which, and after which nodes.
    pub capture: Option<(u64, Vec<Handle>)>,
}

impl Event {
    pub fn new(context: Handle, flags: u32) -> Event {
        Event { context, flags, at_ns: None, capture: None }
    }
}

const NO_TIMING: u32 = 2;
/// Record or wait as a node of the graph, not as an edge.
const EXTERNAL: u32 = 1;

impl Core {
    pub fn event(&mut self, event: Handle) -> Res<&mut Event> {
        self.events.get_mut(&event).ok_or(INVALID_HANDLE)
    }

    pub fn happened(&mut self, event: Handle) {
        if let Some(event) = self.events.get_mut(&event) {
            event.at_ns = Some(now_ns());
            event.capture = None;
        }
    }

    /// An event that a live capture recorded cannot be asked about.
    fn completed(&mut self, event: Handle) -> Res {
        match self.event(event)?.capture.as_ref().map(|c| c.0) {
            Some(capture) if self.captures.contains_key(&capture) => {
                self.invalidate(capture);
                Err(CAPTURED_EVENT)
            }
            _ => Ok(()),
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventCreate(out: Out<Handle>, flags: u32) -> Status {
    distinct!(cuEventCreate);
    here(|core, at| {
        if flags > 7 {
            return Err(INVALID_VALUE);
        }
        let event = core.handle();
        out.put(event)?;
        core.events.insert(event, Event::new(at.context, flags));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(event: Handle) -> Status {
    distinct!(cuEventDestroy_v2);
    with(|core| core.events.remove(&event).map(drop).ok_or(INVALID_HANDLE))
}

fn record(event: Handle, stream: Stream, flags: u32) -> Status {
    with(|core| {
        core.event(event)?;
        core.stream_place(stream)?;
        match core.capture_of(stream)? {
            Some(_) if flags & EXTERNAL != 0 => core.record(stream, Op::Record(event)).map(drop),
            Some(key) => {
                let mark = core.streams.get(&key).and_then(|s| Some((s.capture?, s.tail.clone())));
                core.event(event)?.capture = mark;
                Ok(())
            }
            None => {
                core.happened(event);
                Ok(())
            }
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: Handle, stream: Stream) -> Status {
    distinct!(cuEventRecord);
    record(event, stream, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecordWithFlags(event: Handle, stream: Stream, flags: u32) -> Status {
    distinct!(cuEventRecordWithFlags);
    record(event, stream, flags)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(stream: Stream, event: Handle, flags: u32) -> Status {
    distinct!(cuStreamWaitEvent);
    with(|core| {
        core.stream_place(stream)?;
        let mark = core.event(event)?.capture.clone();
        let mark = mark.filter(|m| core.captures.contains_key(&m.0));
        match (mark, core.capture_of(stream)?) {
            (Some((capture, nodes)), _) => core.join_capture(stream, capture, nodes),
            (None, Some(_)) if flags & EXTERNAL != 0 => core.record(stream, Op::Wait(event)).map(drop),
            (None, Some(key)) => {
                if let Some(capture) = core.streams.get(&key).and_then(|s| s.capture) {
                    core.invalidate(capture);
                }
                Err(CAPTURE_ISOLATION)
            }
            (None, None) => Ok(()),
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(event: Handle) -> Status {
    distinct!(cuEventQuery);
    with(|core| core.completed(event))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(event: Handle) -> Status {
    distinct!(cuEventSynchronize);
    with(|core| {
        core.completed(event)?;
        let context = core.event(event)?.context;
        if let Some(device) = core.contexts.get(&context).map(|c| c.device) {
            core.settle_pools(device);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventElapsedTime(out: Out<f32>, start: Handle, end: Handle) -> Status {
    distinct!(cuEventElapsedTime);
    with(|core| {
        let mut time = |event| {
            let event = core.event(event)?;
            event.at_ns.filter(|_| event.flags & NO_TIMING == 0).ok_or(INVALID_HANDLE)
        };
        let (start, end) = (time(start)?, time(end)?);
        out.put(((end as f64 - start as f64) / 1e6) as f32)
    })
}

alias! { cuEventElapsedTime_v2 = cuEventElapsedTime(out: Out<f32>, start: Handle, end: Handle); }

/// Everything in a context is complete, so recording and waiting for all of it is recording and nothing.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxRecordEvent(_context: Handle, event: Handle) -> Status {
    distinct!(cuCtxRecordEvent);
    with(|core| {
        core.event(event)?;
        core.happened(event);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxWaitEvent(_context: Handle, event: Handle) -> Status {
    distinct!(cuCtxWaitEvent);
    with(|core| core.event(event).map(drop))
}

per_thread! {
    cuEventRecord_ptsz = cuEventRecord(event: Handle, stream: Stream);
    cuEventRecordWithFlags_ptsz = cuEventRecordWithFlags(event: Handle, stream: Stream, flags: u32);
    cuStreamWaitEvent_ptsz = cuStreamWaitEvent(stream: Stream, event: Handle, flags: u32);
}
