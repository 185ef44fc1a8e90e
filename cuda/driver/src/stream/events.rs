//! Events: recorded is completed.

use crate::abi::pointers::{Handle, Out, Stream};
use crate::abi::status::*;
use crate::state::driver::Driver;
use crate::state::truth_log::now_ns;
use crate::state::work::{Event, Op};

const NO_TIMING: u32 = 2;
/// Record or wait as a node of the graph, not as an edge.
const EXTERNAL: u32 = 1;

impl Driver {
    /// Records an event outside of any capture, which completes it.
    pub fn complete_event(&mut self, event: Handle) {
        if let Some(event) = self.events.get_mut(&event) {
            event.at_ns = Some(now_ns());
            event.capture = None;
        }
    }

    /// Refuses to answer for an event that a live capture recorded.
    fn check_completed(&mut self, event: Handle) -> Res {
        match self.event(event)?.capture.as_ref().map(|c| c.0) {
            Some(capture) if self.captures.contains_key(&capture) => {
                self.invalidate(capture);
                Err(CAPTURED_EVENT)
            }
            _ => Ok(()),
        }
    }
}

fn record(driver: &mut Driver, event: Handle, stream: Stream, flags: u32) -> Res {
    driver.event(event)?;
    driver.stream_owner(stream)?;
    match driver.capture_of(stream)? {
        Some(_) if flags & EXTERNAL != 0 => driver.record(stream, Op::Record(event)).map(drop),
        Some(key) => {
            let mark = driver.streams.get(&key).and_then(|s| Some((s.capture?, s.tail.clone())));
            driver.event(event)?.capture = mark;
            Ok(())
        }
        None => {
            driver.complete_event(event);
            Ok(())
        }
    }
}

driver_api! {
    fn cuEventCreate(driver, owner; out: Out<Handle>, flags: u32) {
        if flags > 7 {
            return Err(INVALID_VALUE);
        }
        let event = driver.new_handle();
        out.put(event)?;
        driver.events.insert(event, Event::new(owner.context, flags));
        Ok(())
    }

    fn cuEventDestroy_v2(driver; event: Handle) {
        driver.events.remove(&event).map(drop).ok_or(INVALID_HANDLE)
    }

    fn cuEventRecord(driver; event: Handle, stream: Stream) [cuEventRecord_ptsz] {
        record(driver, event, stream, 0)
    }

    fn cuEventRecordWithFlags(driver; event: Handle, stream: Stream, flags: u32)
        [cuEventRecordWithFlags_ptsz] {
        record(driver, event, stream, flags)
    }

    fn cuStreamWaitEvent(driver; stream: Stream, event: Handle, flags: u32) [cuStreamWaitEvent_ptsz] {
        driver.stream_owner(stream)?;
        let mark = driver.event(event)?.capture.clone();
        let mark = mark.filter(|m| driver.captures.contains_key(&m.0));
        match (mark, driver.capture_of(stream)?) {
            (Some((capture, nodes)), _) => driver.join_capture(stream, capture, nodes),
            (None, Some(_)) if flags & EXTERNAL != 0 => driver.record(stream, Op::Wait(event)).map(drop),
            (None, Some(key)) => {
                if let Some(capture) = driver.streams.get(&key).and_then(|s| s.capture) {
                    driver.invalidate(capture);
                }
                Err(CAPTURE_ISOLATION)
            }
            (None, None) => Ok(()),
        }
    }

    fn cuEventQuery(driver; event: Handle) { driver.check_completed(event) }

    fn cuEventSynchronize(driver; event: Handle) {
        driver.check_completed(event)?;
        let context = driver.event(event)?.context;
        if let Some(device) = driver.contexts.get(&context).map(|c| c.device) {
            driver.trim_pools_to_threshold(device);
        }
        Ok(())
    }

    fn cuEventElapsedTime(driver; out: Out<f32>, start: Handle, end: Handle) = cuEventElapsedTime_v2 {
        let mut time = |event| {
            let event = driver.event(event)?;
            event.at_ns.filter(|_| event.flags & NO_TIMING == 0).ok_or(INVALID_HANDLE)
        };
        let (start, end) = (time(start)?, time(end)?);
        out.put(((end as f64 - start as f64) / 1e6) as f32)
    }

    /// Records an event: everything in the context is complete.
    fn cuCtxRecordEvent(driver; _context: Handle, event: Handle) {
        driver.event(event)?;
        driver.complete_event(event);
        Ok(())
    }

}
