//! Copies of one range: they really move bytes, at most 64 MiB of them per call.

use crate::abi::{Addr, Handle, Stream};
use crate::context::current;
use crate::error::*;
use crate::fresh::SMALL_READ;
use crate::node::Op;
use crate::params::{Copy3D, End3D};
use crate::state::{Core, enter};

/// More than this per call would only commit the host's memory.
pub const MOST_BYTES: usize = 64 << 20;

/// What the function's name says about an address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Host,
    Device,
    /// Any: addresses are unified.
    Unified,
}
use Side::{Device, Host, Unified};

/// What is to be done once the lock is released.
pub enum Plan {
    Move,
    Zero,
}

impl Core {
    /// Decides on a copy and keeps account of what the host wrote.
    pub fn plan(&mut self, to: Addr, from: Addr, bytes: u64) -> Plan {
        let (to_device, from_device) = (self.is_device_only(to), self.is_device_only(from));
        let known = !from_device || self.fresh.covers(from, bytes);
        if to_device {
            if known { self.fresh.wrote(to, bytes) } else { self.fresh.forget(to, bytes) }
        }
        if from_device && !to_device && bytes <= SMALL_READ && !known { Plan::Zero } else { Plan::Move }
    }

    pub fn check(&self, at: Addr, side: Side, bytes: u64) -> Res {
        let bad = at == 0 || side == Device && !self.covered(at, bytes);
        if bad { Err(INVALID_VALUE) } else { Ok(()) }
    }
}

/// One end of a copy node for a plain range.
pub fn unified(at: Addr) -> End3D {
    End3D {
        x: 0,
        y: 0,
        z: 0,
        level: 0,
        kind: 4,
        host: 0,
        device: at,
        array: 0,
        context: 0,
        pitch: 0,
        height: 0,
    }
}

/// Moves (part of) a range, or zeroes it. The lock must not be held.
pub fn carry_out(plan: Plan, to: Addr, from: Addr, bytes: usize) {
    let bytes = bytes.min(MOST_BYTES);
    // SAFETY: device ranges were checked to be mapped; host ranges are the caller's by the CUDA contract.
    unsafe {
        match plan {
            Plan::Move => std::ptr::copy(from as *const u8, to as *mut u8, bytes),
            Plan::Zero => std::ptr::write_bytes(to as *mut u8, 0, bytes),
        }
    }
}

fn transfer(to: (Addr, Side), from: (Addr, Side), bytes: usize, stream: Option<Stream>) -> Status {
    let run = || {
        let plan = {
            let core = &mut *enter()?;
            match stream {
                Some(stream) => core.stream_place(stream)?,
                None => current(core)?,
            };
            if bytes == 0 {
                return Ok(());
            }
            if let Some(stream) = stream {
                let shape =
                    Copy3D { from: unified(from.0), to: unified(to.0), width: bytes, height: 1, depth: 1 };
                if core.record(stream, Op::Copy(Box::new(shape)))? {
                    return Ok(());
                }
            }
            core.check(to.0, to.1, bytes as u64)?;
            core.check(from.0, from.1, bytes as u64)?;
            core.plan(to.0, from.0, bytes as u64)
        };
        carry_out(plan, to.0, from.0, bytes);
        Ok(())
    };
    Status::from(run())
}

macro_rules! copies {
    ($($name:ident $to:ident $from:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(to: Addr, from: Addr, bytes: usize) -> Status {
            distinct!($name);
            transfer((to, $to), (from, $from), bytes, None)
        }
    )*};
}
copies! {
    cuMemcpy Unified Unified;
    cuMemcpyHtoD_v2 Device Host;
    cuMemcpyDtoH_v2 Host Device;
    cuMemcpyDtoD_v2 Device Device;
}

macro_rules! async_copies {
    ($($name:ident $to:ident $from:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(to: Addr, from: Addr, bytes: usize, stream: Stream) -> Status {
            distinct!($name);
            transfer((to, $to), (from, $from), bytes, Some(stream))
        }
    )*};
}
async_copies! {
    cuMemcpyAsync Unified Unified;
    cuMemcpyHtoDAsync_v2 Device Host;
    cuMemcpyDtoHAsync_v2 Host Device;
    cuMemcpyDtoDAsync_v2 Device Device;
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyPeer(
    to: Addr,
    _to_in: Handle,
    from: Addr,
    _from_in: Handle,
    bytes: usize,
) -> Status {
    distinct!(cuMemcpyPeer);
    transfer((to, Device), (from, Device), bytes, None)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyPeerAsync(
    to: Addr,
    _to_in: Handle,
    from: Addr,
    _from_in: Handle,
    bytes: usize,
    stream: Stream,
) -> Status {
    distinct!(cuMemcpyPeerAsync);
    transfer((to, Device), (from, Device), bytes, Some(stream))
}

/// The address of a byte in an array, `bytes` of which must follow.
fn in_array(array: Handle, offset: usize, bytes: usize) -> Res<Addr> {
    let core = enter()?;
    let array = core.arrays.get(&array).ok_or(INVALID_HANDLE)?;
    let end = offset.checked_add(bytes).ok_or(INVALID_VALUE)?;
    if end as u64 <= array.bytes { Ok(array.at + offset as u64) } else { Err(INVALID_VALUE) }
}

fn to_array(
    array: Handle,
    offset: usize,
    from: (Addr, Side),
    bytes: usize,
    stream: Option<Stream>,
) -> Status {
    match in_array(array, offset, bytes) {
        Ok(at) => transfer((at, Unified), from, bytes, stream),
        Err(status) => status,
    }
}

fn from_array(
    to: (Addr, Side),
    array: Handle,
    offset: usize,
    bytes: usize,
    stream: Option<Stream>,
) -> Status {
    match in_array(array, offset, bytes) {
        Ok(at) => transfer(to, (at, Unified), bytes, stream),
        Err(status) => status,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoA_v2(array: Handle, offset: usize, from: Addr, bytes: usize) -> Status {
    distinct!(cuMemcpyHtoA_v2);
    to_array(array, offset, (from, Host), bytes, None)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoA_v2(array: Handle, offset: usize, from: Addr, bytes: usize) -> Status {
    distinct!(cuMemcpyDtoA_v2);
    to_array(array, offset, (from, Device), bytes, None)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyAtoH_v2(to: Addr, array: Handle, offset: usize, bytes: usize) -> Status {
    distinct!(cuMemcpyAtoH_v2);
    from_array((to, Host), array, offset, bytes, None)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyAtoD_v2(to: Addr, array: Handle, offset: usize, bytes: usize) -> Status {
    distinct!(cuMemcpyAtoD_v2);
    from_array((to, Device), array, offset, bytes, None)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyAtoA_v2(
    to: Handle,
    to_at: usize,
    from: Handle,
    from_at: usize,
    bytes: usize,
) -> Status {
    distinct!(cuMemcpyAtoA_v2);
    match in_array(from, from_at, bytes) {
        Ok(at) => to_array(to, to_at, (at, Unified), bytes, None),
        Err(status) => status,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoAAsync_v2(
    array: Handle,
    offset: usize,
    from: Addr,
    bytes: usize,
    s: Stream,
) -> Status {
    distinct!(cuMemcpyHtoAAsync_v2);
    to_array(array, offset, (from, Host), bytes, Some(s))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyAtoHAsync_v2(
    to: Addr,
    array: Handle,
    offset: usize,
    bytes: usize,
    s: Stream,
) -> Status {
    distinct!(cuMemcpyAtoHAsync_v2);
    from_array((to, Host), array, offset, bytes, Some(s))
}

per_thread! {
    cuMemcpy_ptds = cuMemcpy(to: Addr, from: Addr, bytes: usize);
    cuMemcpyHtoD_v2_ptds = cuMemcpyHtoD_v2(to: Addr, from: Addr, bytes: usize);
    cuMemcpyDtoH_v2_ptds = cuMemcpyDtoH_v2(to: Addr, from: Addr, bytes: usize);
    cuMemcpyDtoD_v2_ptds = cuMemcpyDtoD_v2(to: Addr, from: Addr, bytes: usize);
    cuMemcpyAsync_ptsz = cuMemcpyAsync(to: Addr, from: Addr, bytes: usize, stream: Stream);
    cuMemcpyHtoDAsync_v2_ptsz = cuMemcpyHtoDAsync_v2(to: Addr, from: Addr, bytes: usize, stream: Stream);
    cuMemcpyDtoHAsync_v2_ptsz = cuMemcpyDtoHAsync_v2(to: Addr, from: Addr, bytes: usize, stream: Stream);
    cuMemcpyDtoDAsync_v2_ptsz = cuMemcpyDtoDAsync_v2(to: Addr, from: Addr, bytes: usize, stream: Stream);
    cuMemcpyPeer_ptds = cuMemcpyPeer(to: Addr, to_in: Handle, from: Addr, from_in: Handle, bytes: usize);
    cuMemcpyPeerAsync_ptsz =
        cuMemcpyPeerAsync(to: Addr, to_in: Handle, from: Addr, from_in: Handle, bytes: usize, stream: Stream);
    cuMemcpyHtoA_v2_ptds = cuMemcpyHtoA_v2(array: Handle, offset: usize, from: Addr, bytes: usize);
    cuMemcpyDtoA_v2_ptds = cuMemcpyDtoA_v2(array: Handle, offset: usize, from: Addr, bytes: usize);
    cuMemcpyAtoH_v2_ptds = cuMemcpyAtoH_v2(to: Addr, array: Handle, offset: usize, bytes: usize);
    cuMemcpyAtoD_v2_ptds = cuMemcpyAtoD_v2(to: Addr, array: Handle, offset: usize, bytes: usize);
    cuMemcpyAtoA_v2_ptds = cuMemcpyAtoA_v2(to: Handle, to_at: usize, from: Handle, from_at: usize, bytes: usize);
    cuMemcpyHtoAAsync_v2_ptsz =
        cuMemcpyHtoAAsync_v2(array: Handle, offset: usize, from: Addr, bytes: usize, s: Stream);
    cuMemcpyAtoHAsync_v2_ptsz =
        cuMemcpyAtoHAsync_v2(to: Addr, array: Handle, offset: usize, bytes: usize, s: Stream);
}
