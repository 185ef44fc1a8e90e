//! Initialisation and devices.

use std::ffi::c_char;

use crate::abi::{Handle, In, Out, put_text};
use crate::error::*;
use crate::poolapi::live;
use crate::state::{Core, initialise, with};

/// CUDA 13.0.
const VERSION: i32 = 13000;

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: u32) -> Status {
    distinct!(cuInit);
    if flags != 0 {
        return INVALID_VALUE;
    }
    initialise().into()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDriverGetVersion(out: Out<i32>) -> Status {
    distinct!(cuDriverGetVersion);
    out.put(VERSION).into()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetCount(out: Out<i32>) -> Status {
    distinct!(cuDeviceGetCount);
    with(|core| out.put(core.devices.len() as i32))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGet(out: Out<i32>, ordinal: i32) -> Status {
    distinct!(cuDeviceGet);
    with(|core| {
        core.device(ordinal)?;
        out.put(ordinal)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetName(out: Out<c_char>, room: i32, device: i32) -> Status {
    distinct!(cuDeviceGetName);
    with(|core| {
        core.device(device)?;
        put_text(out, room, "Simulated GPU")
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceTotalMem_v2(out: Out<usize>, device: i32) -> Status {
    distinct!(cuDeviceTotalMem_v2);
    with(|core| {
        core.device(device)?;
        out.put(core.memory as usize)
    })
}

fn uuid(core: &mut Core, device: i32) -> Res<[u8; 16]> {
    let mut uuid = *b"simulated-gpu\0\0\0";
    uuid[15] = core.device(device)?.number as u8;
    Ok(uuid)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetUuid(out: Out<[u8; 16]>, device: i32) -> Status {
    distinct!(cuDeviceGetUuid);
    with(|core| out.put(uuid(core, device)?))
}

alias! { cuDeviceGetUuid_v2 = cuDeviceGetUuid(out: Out<[u8; 16]>, device: i32); }

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetLuid(_: Out<[u8; 8]>, _: Out<u32>, _: i32) -> Status {
    distinct!(cuDeviceGetLuid);
    NOT_SUPPORTED // a Windows matter
}

fn bus_id(number: u32) -> String {
    format!("0000:{:02X}:00.0", number + 1)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetPCIBusId(out: Out<c_char>, room: i32, device: i32) -> Status {
    distinct!(cuDeviceGetPCIBusId);
    with(|core| {
        let text = bus_id(core.device(device)?.number);
        put_text(out, room, &text)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetByPCIBusId(out: Out<i32>, text: In<c_char>) -> Status {
    distinct!(cuDeviceGetByPCIBusId);
    with(|core| {
        let wanted = text.text()?.to_ascii_uppercase();
        let wanted = wanted.strip_suffix(".0").unwrap_or(&wanted);
        let found = core.devices.iter().position(|d| {
            let full = bus_id(d.number);
            let full = full.trim_end_matches(".0");
            full == wanted || full.strip_prefix("0000:") == Some(wanted)
        });
        out.put(found.ok_or(INVALID_DEVICE)? as i32)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetDefaultMemPool(out: Out<Handle>, device: i32) -> Status {
    distinct!(cuDeviceGetDefaultMemPool);
    with(|core| out.put(core.device(device)?.default_pool))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetMemPool(out: Out<Handle>, device: i32) -> Status {
    distinct!(cuDeviceGetMemPool);
    with(|core| out.put(core.device(device)?.pool))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceSetMemPool(device: i32, pool: Handle) -> Status {
    distinct!(cuDeviceSetMemPool);
    with(|core| {
        if live(core, pool)?.own()?.device != device {
            return Err(INVALID_VALUE);
        }
        core.device(device)?.pool = pool;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetTexture1DLinearMaxWidth(out: Out<usize>, _: i32, _: u32, device: i32) -> Status {
    distinct!(cuDeviceGetTexture1DLinearMaxWidth);
    with(|core| {
        core.device(device)?;
        out.put(1 << 28)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetNvSciSyncAttributes(_: Out<u64>, _: i32, _: i32) -> Status {
    distinct!(cuDeviceGetNvSciSyncAttributes);
    NOT_SUPPORTED
}
