//! Work in streams other than copies and kernels: callbacks, waits, values written and waited for.

use std::ffi::c_void;

use crate::abi::pointers::{Addr, HostFn, In, Stream, StreamFn};
use crate::abi::records::{BatchOp, HostNode};
use crate::abi::status::*;
use crate::state::driver::{Driver, lock};
use crate::state::work::Op;
use crate::stream::copy::Side;

/// Writes a value through a stream. A capture only counts it.
fn write_value(driver: &mut Driver, stream: Stream, at: Addr, value: u64, bytes: u64) -> Res {
    driver.stream_owner(stream)?;
    if !at.is_multiple_of(bytes) {
        return Err(INVALID_VALUE);
    }
    if driver.record(stream, Op::Other(BATCH))? {
        return Ok(());
    }
    driver.check(at, Side::Device, bytes)?;
    // SAFETY: checked to lie in live, mapped memory, and aligned.
    unsafe { std::ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), at as *mut u8, bytes as usize) };
    if driver.is_device_only(at) {
        driver.host_writes.insert(at, bytes);
    }
    Ok(())
}

/// The node kind of batched memory operations.
const BATCH: i32 = 12;

/// A wait is over at once: whatever would have written the value has completed, or never will.
fn wait_value(driver: &mut Driver, stream: Stream, at: Addr, bytes: u64) -> Res {
    driver.stream_owner(stream)?;
    if driver.record(stream, Op::Other(BATCH))? { Ok(()) } else { driver.check(at, Side::Device, bytes) }
}

driver_api! {
    /// Runs inline, without the lock: callbacks may not call the driver, but other threads do.
    fn cuLaunchHostFunc(; stream: Stream, function: Option<HostFn>, data: *mut c_void)
        [cuLaunchHostFunc_ptsz] {
        let call = function.ok_or(INVALID_VALUE)?;
        let captured = {
            let driver = &mut *lock()?;
            driver.stream_owner(stream)?;
            driver.record(stream, Op::Host(HostNode { fn_: function, userData: data }))?
        };
        if !captured {
            // SAFETY: the program's function, called once with the program's pointer, as documented.
            unsafe { call(data) };
        }
        Ok(())
    }

    fn cuStreamAddCallback(; stream: Stream, function: Option<StreamFn>, data: *mut c_void, flags: u32)
        [cuStreamAddCallback_ptsz] {
        let call = function.filter(|_| flags == 0).ok_or(INVALID_VALUE)?;
        {
            let driver = &mut *lock()?;
            driver.stream_owner(stream)?;
            driver.refuse_if_capturing(stream)?;
        }
        // SAFETY: the program's function, called once with the program's pointer, as documented.
        unsafe { call(stream, 0, data) };
        Ok(())
    }

    fn cuStreamWriteValue32_v2(driver; stream: Stream, at: Addr, value: u32, _flags: u32) =
        cuStreamWriteValue32 [cuStreamWriteValue32_ptsz cuStreamWriteValue32_v2_ptsz] {
        write_value(driver, stream, at, value.into(), 4)
    }

    fn cuStreamWriteValue64_v2(driver; stream: Stream, at: Addr, value: u64, _flags: u32) =
        cuStreamWriteValue64 [cuStreamWriteValue64_ptsz cuStreamWriteValue64_v2_ptsz] {
        write_value(driver, stream, at, value, 8)
    }

    fn cuStreamWaitValue32_v2(driver; stream: Stream, at: Addr, _value: u32, _flags: u32) =
        cuStreamWaitValue32 [cuStreamWaitValue32_ptsz cuStreamWaitValue32_v2_ptsz] {
        wait_value(driver, stream, at, 4)
    }

    fn cuStreamWaitValue64_v2(driver; stream: Stream, at: Addr, _value: u64, _flags: u32) =
        cuStreamWaitValue64 [cuStreamWaitValue64_ptsz cuStreamWaitValue64_v2_ptsz] {
        wait_value(driver, stream, at, 8)
    }

    fn cuStreamBatchMemOp_v2(driver; stream: Stream, count: u32, list: In<BatchOp>, _flags: u32) =
        cuStreamBatchMemOp [cuStreamBatchMemOp_ptsz cuStreamBatchMemOp_v2_ptsz] {
        for op in list.list(count as usize)? {
            match op.operation {
                1 => wait_value(driver, stream, op.at, 4)?,
                2 => write_value(driver, stream, op.at, op.value & 0xffff_ffff, 4)?,
                4 => wait_value(driver, stream, op.at, 8)?,
                5 => write_value(driver, stream, op.at, op.value, 8)?,
                3 | 6 => {} // flush, barrier
                _ => return Err(INVALID_VALUE),
            }
        }
        Ok(())
    }
}
