//! Initialisation and devices.

use std::ffi::{CStr, c_char};

use crate::abi::pointers::{Handle, In, Out, put_text};
use crate::abi::status::*;
use crate::state::driver::initialise;

/// The driver version: CUDA 13.0.
pub const VERSION: i32 = 13000;

/// Returns the UUID of a device, by its physical number.
pub fn uuid(number: u32) -> [u8; 16] {
    let mut uuid = *b"simulated-gpu\0\0\0";
    uuid[15] = number as u8;
    uuid
}

/// Returns the number of a device's PCI bus, by its physical number.
pub fn bus(number: u32) -> u32 {
    number + 1
}

fn bus_id(number: u32) -> String {
    format!("0000:{:02X}:00.0", bus(number))
}

/// The attributes that `CUdevprop` has, in its order.
const PROPERTIES: [i32; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];

fn put_text_of(
    code: i32,
    out: Out<*const c_char>,
    pick: impl Fn((&'static CStr, &'static CStr)) -> &'static CStr,
) -> Res {
    match describe(code) {
        Some(both) => out.put(pick(both).as_ptr()),
        None => {
            out.put_opt(std::ptr::null());
            Err(INVALID_VALUE)
        }
    }
}

driver_api! {
    fn cuGetErrorName(; code: i32, out: Out<*const c_char>) { put_text_of(code, out, |both| both.0) }

    fn cuGetErrorString(; code: i32, out: Out<*const c_char>) { put_text_of(code, out, |both| both.1) }

    fn cuInit(; flags: u32) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        initialise()
    }

    fn cuDriverGetVersion(; out: Out<i32>) { out.put(VERSION) }

    fn cuDeviceGetCount(driver; out: Out<i32>) { out.put(driver.devices.len() as i32) }

    fn cuDeviceGet(driver; out: Out<i32>, ordinal: i32) {
        driver.device(ordinal)?;
        out.put(ordinal)
    }

    fn cuDeviceGetName(driver; out: Out<c_char>, room: i32, device: i32) {
        driver.device(device)?;
        put_text(out, room, "Simulated GPU")
    }

    fn cuDeviceTotalMem_v2(driver; out: Out<usize>, device: i32) {
        driver.device(device)?;
        out.put(driver.memory as usize)
    }

    fn cuDeviceGetUuid(driver; out: Out<[u8; 16]>, device: i32) = cuDeviceGetUuid_v2 {
        out.put(uuid(driver.device(device)?.number))
    }

    fn cuDeviceGetPCIBusId(driver; out: Out<c_char>, room: i32, device: i32) {
        let text = bus_id(driver.device(device)?.number);
        put_text(out, room, &text)
    }

    fn cuDeviceGetByPCIBusId(driver; out: Out<i32>, text: In<c_char>) {
        let wanted = text.text()?.to_ascii_uppercase();
        let wanted = wanted.strip_suffix(".0").unwrap_or(&wanted);
        let found = driver.devices.iter().position(|d| {
            let full = bus_id(d.number);
            let full = full.trim_end_matches(".0");
            full == wanted || full.strip_prefix("0000:") == Some(wanted)
        });
        out.put(found.ok_or(INVALID_DEVICE)? as i32)
    }

    fn cuDeviceGetDefaultMemPool(driver; out: Out<Handle>, device: i32) {
        out.put(driver.device(device)?.default_pool)
    }

    fn cuDeviceGetMemPool(driver; out: Out<Handle>, device: i32) { out.put(driver.device(device)?.pool) }

    fn cuDeviceSetMemPool(driver; device: i32, pool: Handle) {
        if driver.pool(pool)?.local()?.device != device {
            return Err(INVALID_VALUE);
        }
        driver.device(device)?.pool = pool;
        Ok(())
    }

    fn cuDeviceGetTexture1DLinearMaxWidth(driver; out: Out<usize>, _unused: i32, _unused2: u32, device: i32) {
        driver.device(device)?;
        out.put(1 << 28)
    }

    fn cuDeviceGetAttribute(driver; out: Out<i32>, attribute: i32, device: i32) {
        driver.device(device)?;
        out.put(driver.attribute(attribute, device)?)
    }

    fn cuDeviceComputeCapability(driver; major: Out<i32>, minor: Out<i32>, device: i32) {
        driver.device(device)?;
        major.put(driver.cc.0)?;
        minor.put(driver.cc.1)
    }

    fn cuDeviceGetProperties(driver; out: Out<[i32; 14]>, device: i32) {
        driver.device(device)?;
        let mut record = [0; 14];
        for (slot, attribute) in record.iter_mut().zip(PROPERTIES) {
            *slot = driver.attribute(attribute, device)?;
        }
        out.put(record)
    }

    fn cuDeviceCanAccessPeer(driver; out: Out<i32>, device: i32, peer: i32) {
        driver.device(device)?;
        driver.device(peer)?;
        out.put((device != peer).into())
    }

    fn cuDeviceGetP2PAttribute(driver; out: Out<i32>, attribute: i32, from: i32, to: i32) {
        driver.device(from)?;
        driver.device(to)?;
        match (attribute, from == to) {
            (_, true) => Err(INVALID_DEVICE),
            (1, _) => out.put(0),     // performance rank
            (2..=4, _) => out.put(1), // access, native atomics, array access
            (5, _) => out.put(0),     // partial native atomics
            _ => Err(INVALID_VALUE),
        }
    }

    fn cuDeviceGetExecAffinitySupport(driver; out: Out<i32>, _kind: i32, device: i32) {
        driver.device(device)?;
        out.put(0)
    }

}
