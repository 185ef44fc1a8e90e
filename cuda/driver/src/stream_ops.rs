//! Work in streams other than copies and kernels: callbacks, waits, values written and waited for.

use std::ffi::c_void;

use crate::abi::{Addr, HostFn, Out, Stream, StreamFn};
use crate::copy::Side;
use crate::error::*;
use crate::node::Op;
use crate::params::HostNode;
use crate::state::{enter, with};

/// Runs inline, without the lock: callbacks may not call the driver, but other threads do.
#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchHostFunc(stream: Stream, function: Option<HostFn>, data: *mut c_void) -> Status {
    distinct!(cuLaunchHostFunc);
    let run = || {
        let call = function.ok_or(INVALID_VALUE)?;
        let captured = {
            let core = &mut *enter()?;
            core.stream_place(stream)?;
            core.record(stream, Op::Host(HostNode { function, data }))?
        };
        if !captured {
            // SAFETY: the program's function, called once with the program's pointer, as documented.
            unsafe { call(data) };
        }
        Ok(())
    };
    Status::from(run())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamAddCallback(
    stream: Stream,
    function: Option<StreamFn>,
    data: *mut c_void,
    flags: u32,
) -> Status {
    distinct!(cuStreamAddCallback);
    let run = || {
        let call = function.filter(|_| flags == 0).ok_or(INVALID_VALUE)?;
        {
            let core = &mut *enter()?;
            core.stream_place(stream)?;
            core.refuse_captured(stream)?;
        }
        // SAFETY: the program's function, called once with the program's pointer, as documented.
        unsafe { call(stream, 0, data) };
        Ok(())
    };
    Status::from(run())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamAttachMemAsync(
    stream: Stream,
    address: Addr,
    _bytes: usize,
    _flags: u32,
) -> Status {
    distinct!(cuStreamAttachMemAsync);
    with(|core| {
        core.stream_place(stream)?;
        core.find(address).map(drop).ok_or(INVALID_VALUE)
    })
}

/// Writes a value through a stream. A capture only notes it.
fn write_value(stream: Stream, at: Addr, value: u64, bytes: u64) -> Status {
    with(|core| {
        core.stream_place(stream)?;
        if !at.is_multiple_of(bytes) {
            return Err(INVALID_VALUE);
        }
        if core.record(stream, Op::Other(BATCH))? {
            return Ok(());
        }
        core.check(at, Side::Device, bytes)?;
        // SAFETY: checked to lie in live, mapped memory, and aligned.
        unsafe { std::ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), at as *mut u8, bytes as usize) };
        if core.is_device_only(at) {
            core.fresh.wrote(at, bytes);
        }
        Ok(())
    })
}

/// The node kind of batched memory operations.
const BATCH: i32 = 12;

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWriteValue32_v2(stream: Stream, at: Addr, value: u32, _flags: u32) -> Status {
    distinct!(cuStreamWriteValue32_v2);
    write_value(stream, at, value.into(), 4)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWriteValue64_v2(stream: Stream, at: Addr, value: u64, _flags: u32) -> Status {
    distinct!(cuStreamWriteValue64_v2);
    write_value(stream, at, value, 8)
}

/// A wait is over at once: whatever would have written the value has completed, or never will.
fn wait_value(stream: Stream, at: Addr, bytes: u64) -> Status {
    with(|core| {
        core.stream_place(stream)?;
        if core.record(stream, Op::Other(BATCH))? { Ok(()) } else { core.check(at, Side::Device, bytes) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitValue32_v2(stream: Stream, at: Addr, _value: u32, _flags: u32) -> Status {
    distinct!(cuStreamWaitValue32_v2);
    wait_value(stream, at, 4)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitValue64_v2(stream: Stream, at: Addr, _value: u64, _flags: u32) -> Status {
    distinct!(cuStreamWaitValue64_v2);
    wait_value(stream, at, 8)
}

/// `CUstreamBatchMemOpParams`: six words; operation, address, value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BatchOp {
    operation: i32,
    at: Addr,
    value: u64,
    rest: [u64; 3],
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBatchMemOp_v2(
    stream: Stream,
    count: u32,
    list: Out<BatchOp>,
    _flags: u32,
) -> Status {
    distinct!(cuStreamBatchMemOp_v2);
    for i in 0..count as usize {
        let op = match list.at(i) {
            Ok(op) => op,
            Err(status) => return status,
        };
        let status = match op.operation {
            1 => wait_value(stream, op.at, 4),
            2 => write_value(stream, op.at, op.value & 0xffff_ffff, 4),
            4 => wait_value(stream, op.at, 8),
            5 => write_value(stream, op.at, op.value, 8),
            3 | 6 => SUCCESS, // flush, barrier
            _ => INVALID_VALUE,
        };
        if status != SUCCESS {
            return status;
        }
    }
    SUCCESS
}

alias! {
    cuStreamWriteValue32 = cuStreamWriteValue32_v2(stream: Stream, at: Addr, value: u32, flags: u32);
    cuStreamWriteValue64 = cuStreamWriteValue64_v2(stream: Stream, at: Addr, value: u64, flags: u32);
    cuStreamWaitValue32 = cuStreamWaitValue32_v2(stream: Stream, at: Addr, value: u32, flags: u32);
    cuStreamWaitValue64 = cuStreamWaitValue64_v2(stream: Stream, at: Addr, value: u64, flags: u32);
    cuStreamBatchMemOp = cuStreamBatchMemOp_v2(stream: Stream, count: u32, list: Out<BatchOp>, flags: u32);
}

per_thread! {
    cuLaunchHostFunc_ptsz = cuLaunchHostFunc(stream: Stream, function: Option<HostFn>, data: *mut c_void);
    cuStreamAddCallback_ptsz =
        cuStreamAddCallback(stream: Stream, function: Option<StreamFn>, data: *mut c_void, flags: u32);
    cuStreamAttachMemAsync_ptsz = cuStreamAttachMemAsync(stream: Stream, at: Addr, bytes: usize, flags: u32);
    cuStreamWriteValue32_ptsz = cuStreamWriteValue32_v2(stream: Stream, at: Addr, value: u32, flags: u32);
    cuStreamWriteValue64_ptsz = cuStreamWriteValue64_v2(stream: Stream, at: Addr, value: u64, flags: u32);
    cuStreamWaitValue32_ptsz = cuStreamWaitValue32_v2(stream: Stream, at: Addr, value: u32, flags: u32);
    cuStreamWaitValue64_ptsz = cuStreamWaitValue64_v2(stream: Stream, at: Addr, value: u64, flags: u32);
    cuStreamBatchMemOp_ptsz = cuStreamBatchMemOp_v2(stream: Stream, count: u32, list: Out<BatchOp>, flags: u32);
    cuStreamWriteValue32_v2_ptsz = cuStreamWriteValue32_v2(stream: Stream, at: Addr, value: u32, flags: u32);
    cuStreamWriteValue64_v2_ptsz = cuStreamWriteValue64_v2(stream: Stream, at: Addr, value: u64, flags: u32);
    cuStreamWaitValue32_v2_ptsz = cuStreamWaitValue32_v2(stream: Stream, at: Addr, value: u32, flags: u32);
    cuStreamWaitValue64_v2_ptsz = cuStreamWaitValue64_v2(stream: Stream, at: Addr, value: u64, flags: u32);
    cuStreamBatchMemOp_v2_ptsz = cuStreamBatchMemOp_v2(stream: Stream, count: u32, list: Out<BatchOp>, flags: u32);
}
