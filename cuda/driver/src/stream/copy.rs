//! Copies of one range: they really move bytes, at most 64 MiB of them per call.

use crate::abi::pointers::{Addr, Handle, Stream};
use crate::abi::records::{Copy3D, End3D};
use crate::abi::status::*;
use crate::state::driver::{Driver, lock};
use crate::state::host_writes::SMALL_READ;
use crate::state::work::Op;

/// The most bytes that a call really moves: more would only commit the host's memory.
pub const MAX_BYTES: usize = 64 << 20;

/// `CU_MEMORYTYPE_UNIFIED`
const UNIFIED: i32 = 4;

/// What a function's name says about an address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Host,
    Device,
    /// Any: addresses are unified.
    Unified,
}
use Side::{Device, Host, Unified};

/// How a copy is done, once the lock is released.
#[derive(Clone, Copy)]
pub enum Method {
    Move,
    /// Every byte gets this value: nothing computed what is read.
    Fill(u8),
}

impl Driver {
    /// Decides how a copy is done, and keeps account of what the host wrote.
    pub fn copy_method(&mut self, to: Addr, from: Addr, bytes: u64) -> Method {
        let (to_device, from_device) = (self.is_device_only(to), self.is_device_only(from));
        let known = !from_device || self.host_writes.contains(from, bytes);
        if to_device {
            if known { self.host_writes.insert(to, bytes) } else { self.host_writes.remove(to, bytes) }
        }
        match from_device && !to_device && bytes <= SMALL_READ && !known {
            true => Method::Fill(if bytes == 1 { self.flag_reads.next() } else { 0 }),
            false => Method::Move,
        }
    }

    /// Checks an address that a copy is given.
    pub fn check(&self, at: Addr, side: Side, bytes: u64) -> Res {
        let bad = at == 0 || side == Device && !self.covered(at, bytes);
        if bad { Err(INVALID_VALUE) } else { Ok(()) }
    }
}

/// Returns one end of a copy node for a plain range.
fn unified(at: Addr) -> End3D {
    End3D { kind: UNIFIED, device: at, ..End3D::default() }
}

/// Moves a range, or fills it, up to the limit. The lock must not be held.
pub fn copy_bytes(method: Method, to: Addr, from: Addr, bytes: usize) {
    let bytes = bytes.min(MAX_BYTES);
    // SAFETY: device ranges were checked to be mapped; host ranges are the caller's by the CUDA contract.
    unsafe {
        match method {
            Method::Move => std::ptr::copy(from as *const u8, to as *mut u8, bytes),
            Method::Fill(value) => std::ptr::write_bytes(to as *mut u8, value, bytes),
        }
    }
}

fn copy_range(to: (Addr, Side), from: (Addr, Side), bytes: usize, stream: Option<Stream>) -> Res {
    let method = {
        let driver = &mut *lock()?;
        match stream {
            Some(stream) => driver.stream_owner(stream)?,
            None => driver.current()?,
        };
        if bytes == 0 {
            return Ok(());
        }
        if let Some(stream) = stream {
            let shape =
                Copy3D { from: unified(from.0), to: unified(to.0), width: bytes, height: 1, depth: 1 };
            if driver.record(stream, Op::Copy(Box::new(shape)))? {
                return Ok(());
            }
        }
        driver.check(to.0, to.1, bytes as u64)?;
        driver.check(from.0, from.1, bytes as u64)?;
        driver.copy_method(to.0, from.0, bytes as u64)
    };
    copy_bytes(method, to.0, from.0, bytes);
    Ok(())
}

/// Returns the address of a byte in an array, `bytes` of which must follow.
fn in_array(array: Handle, offset: usize, bytes: usize) -> Res<(Addr, Side)> {
    let driver = lock()?;
    let array = driver.array(array)?;
    let end = offset.checked_add(bytes).ok_or(INVALID_VALUE)?;
    if end as u64 <= array.bytes { Ok((array.at + offset as u64, Unified)) } else { Err(INVALID_VALUE) }
}

driver_api! {
    fn cuMemcpy(; to: Addr, from: Addr, bytes: usize) [cuMemcpy_ptds] {
        copy_range((to, Unified), (from, Unified), bytes, None)
    }

    fn cuMemcpyHtoD_v2(; to: Addr, from: Addr, bytes: usize) [cuMemcpyHtoD_v2_ptds] {
        copy_range((to, Device), (from, Host), bytes, None)
    }

    fn cuMemcpyDtoH_v2(; to: Addr, from: Addr, bytes: usize) [cuMemcpyDtoH_v2_ptds] {
        copy_range((to, Host), (from, Device), bytes, None)
    }

    fn cuMemcpyDtoD_v2(; to: Addr, from: Addr, bytes: usize) [cuMemcpyDtoD_v2_ptds] {
        copy_range((to, Device), (from, Device), bytes, None)
    }

    fn cuMemcpyAsync(; to: Addr, from: Addr, bytes: usize, stream: Stream) [cuMemcpyAsync_ptsz] {
        copy_range((to, Unified), (from, Unified), bytes, Some(stream))
    }

    fn cuMemcpyHtoDAsync_v2(; to: Addr, from: Addr, bytes: usize, stream: Stream)
        [cuMemcpyHtoDAsync_v2_ptsz] {
        copy_range((to, Device), (from, Host), bytes, Some(stream))
    }

    fn cuMemcpyDtoHAsync_v2(; to: Addr, from: Addr, bytes: usize, stream: Stream)
        [cuMemcpyDtoHAsync_v2_ptsz] {
        copy_range((to, Host), (from, Device), bytes, Some(stream))
    }

    fn cuMemcpyDtoDAsync_v2(; to: Addr, from: Addr, bytes: usize, stream: Stream)
        [cuMemcpyDtoDAsync_v2_ptsz] {
        copy_range((to, Device), (from, Device), bytes, Some(stream))
    }

    fn cuMemcpyPeer(; to: Addr, _to_in: Handle, from: Addr, _from_in: Handle, bytes: usize)
        [cuMemcpyPeer_ptds] {
        copy_range((to, Device), (from, Device), bytes, None)
    }

    fn cuMemcpyPeerAsync(; to: Addr, _to_in: Handle, from: Addr, _from_in: Handle, bytes: usize, stream:
        Stream) [cuMemcpyPeerAsync_ptsz] {
        copy_range((to, Device), (from, Device), bytes, Some(stream))
    }

    fn cuMemcpyHtoA_v2(; array: Handle, offset: usize, from: Addr, bytes: usize) [cuMemcpyHtoA_v2_ptds] {
        copy_range(in_array(array, offset, bytes)?, (from, Host), bytes, None)
    }

    fn cuMemcpyDtoA_v2(; array: Handle, offset: usize, from: Addr, bytes: usize) [cuMemcpyDtoA_v2_ptds] {
        copy_range(in_array(array, offset, bytes)?, (from, Device), bytes, None)
    }

    fn cuMemcpyAtoH_v2(; to: Addr, array: Handle, offset: usize, bytes: usize) [cuMemcpyAtoH_v2_ptds] {
        copy_range((to, Host), in_array(array, offset, bytes)?, bytes, None)
    }

    fn cuMemcpyAtoD_v2(; to: Addr, array: Handle, offset: usize, bytes: usize) [cuMemcpyAtoD_v2_ptds] {
        copy_range((to, Device), in_array(array, offset, bytes)?, bytes, None)
    }

    fn cuMemcpyAtoA_v2(; to: Handle, to_at: usize, from: Handle, from_at: usize, bytes: usize)
        [cuMemcpyAtoA_v2_ptds] {
        let from = in_array(from, from_at, bytes)?;
        copy_range(in_array(to, to_at, bytes)?, from, bytes, None)
    }

    fn cuMemcpyHtoAAsync_v2(; array: Handle, offset: usize, from: Addr, bytes: usize, s: Stream)
        [cuMemcpyHtoAAsync_v2_ptsz] {
        copy_range(in_array(array, offset, bytes)?, (from, Host), bytes, Some(s))
    }

    fn cuMemcpyAtoHAsync_v2(; to: Addr, array: Handle, offset: usize, bytes: usize, s: Stream)
        [cuMemcpyAtoHAsync_v2_ptsz] {
        copy_range((to, Host), in_array(array, offset, bytes)?, bytes, Some(s))
    }
}
