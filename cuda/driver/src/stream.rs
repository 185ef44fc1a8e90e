//! Streams: everything in them completes at once.

use crate::abi::{Handle, LEGACY, Out, PER_THREAD, Stream};
use crate::context::current;
use crate::error::*;
use crate::state::{Core, Here, here, with};

pub struct StreamState {
    pub context: Handle,
    pub device: i32,
    pub flags: u32,
    pub priority: i32,
    pub id: u64,
    /// The capture it takes part in, and the nodes that its next one will depend on.
    pub capture: Option<u64>,
    pub tail: Vec<Handle>,
}

impl StreamState {
    fn new(core: &mut Core, at: Here, flags: u32, priority: i32) -> StreamState {
        let id = core.handle() as u64 >> 4;
        StreamState {
            context: at.context,
            device: at.device,
            flags,
            priority,
            id,
            capture: None,
            tail: Vec::new(),
        }
    }
}

const NON_BLOCKING: u32 = 1;

fn is_default(stream: Stream) -> bool {
    stream.0 == 0 || stream == LEGACY || stream == PER_THREAD
}

impl Core {
    /// Where work in a stream runs: its own context, or the current one for a default stream.
    pub fn stream_place(&self, stream: Stream) -> Res<Here> {
        if is_default(stream) {
            return current(self);
        }
        let state = self.streams.get(&stream.0).ok_or(INVALID_HANDLE)?;
        Ok(Here { context: state.context, device: state.device })
    }

    /// The table's key for a stream: each thread and context has its own per-thread default stream, made when it is
    /// first named. The legacy stream has none.
    pub fn stream_key(&mut self, stream: Stream) -> Res<Option<Handle>> {
        let at = self.stream_place(stream)?;
        if !is_default(stream) {
            return Ok(Some(stream.0));
        }
        if stream != PER_THREAD {
            return Ok(None);
        }
        // SAFETY: takes nothing and cannot fail. (glibc has a function for it from 2.30 on only.)
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as usize;
        let key = 1 << 63 | tid << 40 | at.context & 0xff_ffff_ffff; // no handle has the top bit
        if !self.streams.contains_key(&key) {
            let state = StreamState::new(self, at, 0, 0);
            self.streams.insert(key, state);
        }
        Ok(Some(key))
    }
}

impl Core {
    pub fn add_stream(&mut self, out: Out<Handle>, at: Here, flags: u32, priority: i32) -> Res {
        if flags & !NON_BLOCKING != 0 {
            return Err(INVALID_VALUE);
        }
        let handle = self.handle();
        out.put(handle)?;
        let state = StreamState::new(self, at, flags, priority.clamp(-5, 0));
        self.streams.insert(handle, state);
        Ok(())
    }
}

fn create(out: Out<Handle>, flags: u32, priority: i32) -> Status {
    here(|core, at| core.add_stream(out, at, flags, priority))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamCreate(out: Out<Handle>, flags: u32) -> Status {
    distinct!(cuStreamCreate);
    create(out, flags, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamCreateWithPriority(out: Out<Handle>, flags: u32, priority: i32) -> Status {
    distinct!(cuStreamCreateWithPriority);
    create(out, flags, priority)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(stream: Stream) -> Status {
    distinct!(cuStreamDestroy_v2);
    with(|core| {
        let state = core.streams.remove(&stream.0).filter(|_| !is_default(stream)).ok_or(INVALID_HANDLE)?;
        if let Some(capture) = state.capture {
            core.forget_stream(stream.0, capture);
        }
        Ok(())
    })
}

/// Synchronisation: forbidden in a capture; pools fall back to their thresholds.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: Stream) -> Status {
    distinct!(cuStreamSynchronize);
    with(|core| {
        core.refuse_captured(stream)?;
        let device = core.stream_place(stream)?.device;
        core.settle_pools(device);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamQuery(stream: Stream) -> Status {
    distinct!(cuStreamQuery);
    with(|core| core.refuse_captured(stream))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamGetCtx(stream: Stream, out: Out<Handle>) -> Status {
    distinct!(cuStreamGetCtx);
    with(|core| out.put(core.stream_place(stream)?.context))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamGetCtx_v2(stream: Stream, out: Out<Handle>, green: Out<Handle>) -> Status {
    distinct!(cuStreamGetCtx_v2);
    with(|core| {
        let context = core.stream_place(stream)?.context;
        let of_green = core.green_of(context);
        green.put_opt(of_green.unwrap_or(0));
        out.put(if of_green.is_some() && !green.is_null() { 0 } else { context })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamGetDevice(stream: Stream, out: Out<i32>) -> Status {
    distinct!(cuStreamGetDevice);
    with(|core| out.put(core.stream_place(stream)?.device))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamGetPriority(stream: Stream, out: Out<i32>) -> Status {
    distinct!(cuStreamGetPriority);
    with(|core| {
        core.stream_place(stream)?;
        out.put(core.streams.get(&stream.0).map_or(0, |s| s.priority))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamGetFlags(stream: Stream, out: Out<u32>) -> Status {
    distinct!(cuStreamGetFlags);
    with(|core| {
        core.stream_place(stream)?;
        out.put(core.streams.get(&stream.0).map_or(0, |s| s.flags))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamGetId(stream: Stream, out: Out<u64>) -> Status {
    distinct!(cuStreamGetId);
    with(|core| {
        let at = core.stream_place(stream)?;
        let key = core.stream_key(stream)?;
        let own = key.and_then(|k| core.streams.get(&k)).map(|s| s.id);
        out.put(own.unwrap_or(at.context as u64 >> 4))
    })
}

/// Attributes are taken and not kept; what is read is their default, zero.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSetAttribute(stream: Stream, _attribute: i32, _value: Handle) -> Status {
    distinct!(cuStreamSetAttribute);
    with(|core| core.stream_place(stream).map(drop))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamGetAttribute(stream: Stream, _attribute: i32, out: Out<[u64; 8]>) -> Status {
    distinct!(cuStreamGetAttribute);
    with(|core| {
        core.stream_place(stream)?;
        out.put([0; 8])
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamCopyAttributes(to: Stream, from: Stream) -> Status {
    distinct!(cuStreamCopyAttributes);
    with(|core| core.stream_place(to).and(core.stream_place(from)).map(drop))
}

per_thread! {
    cuStreamSynchronize_ptsz = cuStreamSynchronize(stream: Stream);
    cuStreamQuery_ptsz = cuStreamQuery(stream: Stream);
    cuStreamGetCtx_ptsz = cuStreamGetCtx(stream: Stream, out: Out<Handle>);
    cuStreamGetCtx_v2_ptsz = cuStreamGetCtx_v2(stream: Stream, out: Out<Handle>, green: Out<Handle>);
    cuStreamGetDevice_ptsz = cuStreamGetDevice(stream: Stream, out: Out<i32>);
    cuStreamGetPriority_ptsz = cuStreamGetPriority(stream: Stream, out: Out<i32>);
    cuStreamGetFlags_ptsz = cuStreamGetFlags(stream: Stream, out: Out<u32>);
    cuStreamGetId_ptsz = cuStreamGetId(stream: Stream, out: Out<u64>);
    cuStreamSetAttribute_ptsz = cuStreamSetAttribute(stream: Stream, attribute: i32, value: Handle);
    cuStreamGetAttribute_ptsz = cuStreamGetAttribute(stream: Stream, attribute: i32, out: Out<[u64; 8]>);
    cuStreamCopyAttributes_ptsz = cuStreamCopyAttributes(to: Stream, from: Stream);
}
