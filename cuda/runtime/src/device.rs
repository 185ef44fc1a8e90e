//! Devices: which there are, which one a thread uses, limits, versions, the profiler switch.

use crate::driver::D;
use crate::error::Code;
use crate::{state, version};
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

export! {
    plain fn cudaDriverGetVersion(out: *mut i32) {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // Without a driver the version is 0, and that is no error.
        if D.driver_version(out).is_err() {
            *out = 0;
        }
        Ok(())
    }

    plain fn cudaRuntimeGetVersion(out: *mut i32) {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        *out = version::toolkit_version();
        Ok(())
    }

    plain fn cudaGetDeviceCount(out: *mut i32) {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // Where there is no driver there are 0 devices, whatever the error.
        *out = 0;
        state::init()?;
        D.device_count(out)?;
        if *out == 0 { Err(Code::NO_DEVICE) } else { Ok(()) }
    }

    init fn cudaSetDevice(device: i32) {
        state::valid(device)?;
        state::choose(device);
        state::make_current(device)
    }

    init fn cudaInitDevice(device: i32, _device_flags: u32, _flags: u32) {
        state::valid(device)?;
        state::primary(device).map(|_| ())
    }

    init fn cudaGetDevice(out: *mut i32) {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        *out = state::current_device();
        Ok(())
    }

    init fn cudaSetValidDevices(devices: *const i32, count: i32) {
        for at in 0..usize::try_from(count).map_err(|_| Code::INVALID_VALUE)? {
            state::valid(*devices.add(at))?;
        }
        Ok(())
    }

    init fn cudaChooseDevice(out: *mut i32, _wanted: *const c_void) {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        *out = 0;
        Ok(())
    }

    init fn cudaDeviceGetAttribute(out: *mut i32, attribute: i32, device: i32) {
        state::valid(device)?;
        D.device_attribute(out, attribute, device)
    }

    init fn cudaDeviceGetPCIBusId(text: *mut c_char, room: i32, device: i32) {
        state::valid(device)?;
        D.device_pci(text, room, device)
    }

    device fn cudaDeviceGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) {
        let (mut low, mut high) = (0, 0);
        D.ctx_priorities(&mut low, &mut high)?;
        if !least.is_null() {
            *least = low;
        }
        if !greatest.is_null() {
            *greatest = high;
        }
        Ok(())
    }

    init fn cudaDeviceReset() {
        let device = state::current_device();
        D.primary_reset(device)?;
        state::forget(device);
        state::choose(device);
        D.ctx_set(null_mut())
    }

    init fn cudaSetDeviceFlags(flags: u32) {
        D.primary_flags(state::current_device(), flags)
    }

    init fn cudaGetDeviceFlags(flags: *mut u32) {
        let mut active = 0;
        D.primary_state(state::current_device(), flags, &mut active)
    }

    /// Has no effect since the hardware lost the choice.
    device fn cudaDeviceSetSharedMemConfig(_config: i32) {
        Ok(())
    }

    device fn cudaDeviceGetSharedMemConfig(config: *mut i32) {
        if config.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        *config = 0;
        Ok(())
    }

    /// Has nothing to flush: all streams complete at once.
    device fn cudaDeviceFlushGPUDirectRDMAWrites(_target: i32, _scope: i32) {
        Ok(())
    }
}

forward! {
    init fn cudaDeviceGetByPCIBusId(out: *mut i32, text: *const c_char) => device_by_pci;
    device fn cudaDeviceSynchronize() => ctx_synchronize;
    /// Is the old name of `cudaDeviceSynchronize`.
    device fn cudaThreadSynchronize() => ctx_synchronize;
    device fn cudaDeviceSetLimit(limit: i32, value: usize) => ctx_set_limit;
    device fn cudaDeviceGetLimit(value: *mut usize, limit: i32) => ctx_limit;
    device fn cudaDeviceSetCacheConfig(config: i32) => ctx_set_cache;
    device fn cudaDeviceGetCacheConfig(config: *mut i32) => ctx_cache;
    device fn cudaProfilerStart() => profiler_start;
    device fn cudaProfilerStop() => profiler_stop;
}
