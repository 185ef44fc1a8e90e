//! Copies of plain ranges, between devices, and to and from a program's device variables.

use crate::abi::{DevPtr, Handle, Stream};
use crate::driver::{D, Via};
use crate::error::{Code, Outcome};
use crate::{modules, state};
use std::ffi::c_void;

// cudaMemcpyKind.
const HOST_TO_HOST: i32 = 0;
pub const HOST_TO_DEVICE: i32 = 1;
pub const DEVICE_TO_HOST: i32 = 2;
const DEVICE_TO_DEVICE: i32 = 3;
const UNKNOWN: i32 = 4;

unsafe fn now(via: Via, to: Handle, from: *const c_void, bytes: usize, kind: i32) -> Outcome {
    if bytes == 0 {
        return Ok(());
    }
    match kind {
        HOST_TO_DEVICE => via.copy_h2d(to as DevPtr, from, bytes),
        DEVICE_TO_HOST => via.copy_d2h(to, from as DevPtr, bytes),
        DEVICE_TO_DEVICE => via.copy_d2d(to as DevPtr, from as DevPtr, bytes),
        HOST_TO_HOST | UNKNOWN => via.copy(to as DevPtr, from as DevPtr, bytes),
        _ => Err(Code(21)),
    }
}

unsafe fn later(
    via: Via,
    to: Handle,
    from: *const c_void,
    bytes: usize,
    kind: i32,
    stream: Stream,
) -> Outcome {
    if bytes == 0 {
        return Ok(());
    }
    match kind {
        HOST_TO_DEVICE => via.copy_h2d_async(to as DevPtr, from, bytes, stream),
        DEVICE_TO_HOST => via.copy_d2h_async(to, from as DevPtr, bytes, stream),
        DEVICE_TO_DEVICE => via.copy_d2d_async(to as DevPtr, from as DevPtr, bytes, stream),
        HOST_TO_HOST | UNKNOWN => via.copy_async(to as DevPtr, from as DevPtr, bytes, stream),
        _ => Err(Code(21)),
    }
}

/// Returns the address of `bytes` at `offset` in a device variable.
unsafe fn within(symbol: *const c_void, bytes: usize, offset: usize) -> Result<u64, Code> {
    let (at, size) = modules::variable(symbol)?;
    match offset.checked_add(bytes) {
        Some(end) if end <= size => Ok(at + offset as u64),
        _ => Err(Code::INVALID_VALUE),
    }
}

export_streams! {
    device fn cudaMemcpy [cudaMemcpy_ptds] (via; to: Handle, from: *const c_void, bytes: usize, kind: i32) {
        now(via, to, from, bytes, kind)
    }

    device fn cudaMemcpyAsync [cudaMemcpyAsync_ptsz] (via; to: Handle, from: *const c_void, bytes: usize, kind: i32,
        stream: Stream) {
        later(via, to, from, bytes, kind, stream)
    }

    device fn cudaMemcpyToSymbol [cudaMemcpyToSymbol_ptds] (via; symbol: *const c_void, from: *const c_void,
        bytes: usize, offset: usize, kind: i32) {
        now(via, within(symbol, bytes, offset)? as Handle, from, bytes, kind)
    }

    device fn cudaMemcpyFromSymbol [cudaMemcpyFromSymbol_ptds] (via; to: Handle, symbol: *const c_void, bytes: usize,
        offset: usize, kind: i32) {
        now(via, to, within(symbol, bytes, offset)? as *const c_void, bytes, kind)
    }

    device fn cudaMemcpyToSymbolAsync [cudaMemcpyToSymbolAsync_ptsz] (via; symbol: *const c_void,
        from: *const c_void, bytes: usize, offset: usize, kind: i32, stream: Stream) {
        later(via, within(symbol, bytes, offset)? as Handle, from, bytes, kind, stream)
    }

    device fn cudaMemcpyFromSymbolAsync [cudaMemcpyFromSymbolAsync_ptsz] (via; to: Handle, symbol: *const c_void,
        bytes: usize, offset: usize, kind: i32, stream: Stream) {
        later(via, to, within(symbol, bytes, offset)? as *const c_void, bytes, kind, stream)
    }
}

export! {
    device fn cudaMemcpyPeer(to: Handle, to_device: i32, from: *const c_void, from_device: i32, bytes: usize) {
        let (there, here) = (state::primary(to_device)?, state::primary(from_device)?);
        D.copy_peer(to as DevPtr, there, from as DevPtr, here, bytes)
    }
}

export_streams! {
    device fn cudaMemcpyPeerAsync [cudaMemcpyPeerAsync_ptsz] (via; to: Handle, to_device: i32, from: *const c_void,
        from_device: i32, bytes: usize, stream: Stream) {
        let (there, here) = (state::primary(to_device)?, state::primary(from_device)?);
        via.copy_peer_async(to as DevPtr, there, from as DevPtr, here, bytes, stream)
    }
}
