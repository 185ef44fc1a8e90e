//! Streams: everything in them completes at once.

use crate::abi::pointers::{Handle, Out, PER_THREAD, Stream};
use crate::abi::status::*;
use crate::state::device::Owner;
use crate::state::driver::Driver;
use crate::state::lookup::is_default;
use crate::state::work::StreamState;

const NON_BLOCKING: u32 = 1;

impl Driver {
    /// Returns a stream's key in the table. Each thread and context has its own per-thread default stream,
    /// made when it is first named; the legacy stream has none.
    pub fn stream_key(&mut self, stream: Stream) -> Res<Option<Handle>> {
        let owner = self.stream_owner(stream)?;
        if !is_default(stream) {
            return Ok(Some(stream.0));
        }
        if stream != PER_THREAD {
            return Ok(None);
        }
        // SAFETY: takes nothing and cannot fail. (glibc has a function for it from 2.30 on only.)
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as usize;
        let key = 1 << 63 | tid << 40 | owner.context & 0xff_ffff_ffff; // no handle has the top bit
        if !self.streams.contains_key(&key) {
            self.insert_stream(key, owner, 0, 0);
        }
        Ok(Some(key))
    }

    fn insert_stream(&mut self, key: Handle, owner: Owner, flags: u32, priority: i32) {
        let Owner { context, device } = owner;
        let id = self.new_id();
        let stream = StreamState { context, device, flags, priority, id, capture: None, tail: Vec::new() };
        self.streams.insert(key, stream);
    }

    pub fn add_stream(&mut self, out: Out<Handle>, owner: Owner, flags: u32, priority: i32) -> Res {
        if flags & !NON_BLOCKING != 0 {
            return Err(INVALID_VALUE);
        }
        let handle = self.new_handle();
        out.put(handle)?;
        self.insert_stream(handle, owner, flags, priority.clamp(-5, 0));
        Ok(())
    }
}

driver_api! {
    fn cuStreamCreate(driver, owner; out: Out<Handle>, flags: u32) {
        driver.add_stream(out, owner, flags, 0)
    }

    fn cuStreamCreateWithPriority(driver, owner; out: Out<Handle>, flags: u32, priority: i32) {
        driver.add_stream(out, owner, flags, priority)
    }

    fn cuStreamDestroy_v2(driver; stream: Stream) {
        let state = driver.streams.remove(&stream.0).filter(|_| !is_default(stream)).ok_or(INVALID_HANDLE)?;
        if let Some(capture) = state.capture {
            driver.drop_capture_of(stream.0, capture);
        }
        Ok(())
    }

    /// Synchronisation: forbidden in a capture; pools fall back to their thresholds.
    fn cuStreamSynchronize(driver; stream: Stream) [cuStreamSynchronize_ptsz] {
        driver.refuse_if_capturing(stream)?;
        let device = driver.stream_owner(stream)?.device;
        driver.trim_pools_to_threshold(device);
        Ok(())
    }

    fn cuStreamQuery(driver; stream: Stream) [cuStreamQuery_ptsz] { driver.refuse_if_capturing(stream) }

    fn cuStreamGetCtx(driver; stream: Stream, out: Out<Handle>) [cuStreamGetCtx_ptsz] {
        out.put(driver.stream_owner(stream)?.context)
    }

    fn cuStreamGetCtx_v2(driver; stream: Stream, out: Out<Handle>, green: Out<Handle>)
        [cuStreamGetCtx_v2_ptsz] {
        let context = driver.stream_owner(stream)?.context;
        let of_green = driver.green_of(context);
        green.put_opt(of_green.unwrap_or(0));
        out.put(if of_green.is_some() && !green.is_null() { 0 } else { context })
    }

    fn cuStreamGetDevice(driver; stream: Stream, out: Out<i32>) [cuStreamGetDevice_ptsz] {
        out.put(driver.stream_owner(stream)?.device)
    }

    fn cuStreamGetPriority(driver; stream: Stream, out: Out<i32>) [cuStreamGetPriority_ptsz] {
        driver.stream_owner(stream)?;
        out.put(driver.streams.get(&stream.0).map_or(0, |s| s.priority))
    }

    fn cuStreamGetFlags(driver; stream: Stream, out: Out<u32>) [cuStreamGetFlags_ptsz] {
        driver.stream_owner(stream)?;
        out.put(driver.streams.get(&stream.0).map_or(0, |s| s.flags))
    }

    fn cuStreamGetId(driver; stream: Stream, out: Out<u64>) [cuStreamGetId_ptsz] {
        let owner = driver.stream_owner(stream)?;
        let key = driver.stream_key(stream)?;
        let own = key.and_then(|k| driver.streams.get(&k)).map(|s| s.id);
        out.put(own.unwrap_or(owner.context as u64 >> 4))
    }

    fn cuStreamGetAttribute(driver; stream: Stream, _attribute: i32, out: Out<[u64; 8]>)
        [cuStreamGetAttribute_ptsz] {
        driver.stream_owner(stream)?;
        out.put([0; 8])
    }

}
