//! Functions: attributes and names.

use std::ffi::c_char;

use crate::abi::{Handle, Out};
use crate::error::*;
use crate::state::{Core, with};

const DYNAMIC_SHARED: i32 = 8;
const CARVE_OUT: i32 = 9;
/// The last documented one.
const LAST: i32 = 15;

pub fn get(core: &Core, attribute: i32, function: Handle) -> Res<i32> {
    let kernel = core.kernels.get(&function).ok_or(INVALID_HANDLE)?;
    Ok(match attribute {
        0 => 1024,                           // threads per block
        4 => 32,                             // registers
        5 | 6 => core.cc.0 * 10 + core.cc.1, // PTX and binary version
        DYNAMIC_SHARED | CARVE_OUT => kernel.settings[(attribute - DYNAMIC_SHARED) as usize],
        1..=3 | 7 | 10..=LAST => 0,
        _ => return Err(INVALID_VALUE),
    })
}

pub fn set(core: &mut Core, attribute: i32, value: i32, function: Handle) -> Res {
    let most = core.attribute(97, 0)?;
    let kernel = core.kernels.get_mut(&function).ok_or(INVALID_HANDLE)?;
    match attribute {
        DYNAMIC_SHARED if value > most || value < 0 => return Err(INVALID_VALUE),
        DYNAMIC_SHARED | CARVE_OUT => kernel.settings[(attribute - DYNAMIC_SHARED) as usize] = value,
        10..=LAST => {}
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncGetAttribute(out: Out<i32>, attribute: i32, function: Handle) -> Status {
    distinct!(cuFuncGetAttribute);
    with(|core| out.put(get(core, attribute, function)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetAttribute(function: Handle, attribute: i32, value: i32) -> Status {
    distinct!(cuFuncSetAttribute);
    with(|core| set(core, attribute, value, function))
}

fn known(function: Handle) -> Status {
    with(|core| core.kernels.get(&function).map(drop).ok_or(INVALID_HANDLE))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetCacheConfig(function: Handle, _config: i32) -> Status {
    distinct!(cuFuncSetCacheConfig);
    known(function)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetSharedMemConfig(function: Handle, _config: i32) -> Status {
    distinct!(cuFuncSetSharedMemConfig);
    known(function)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncGetModule(out: Out<Handle>, function: Handle) -> Status {
    distinct!(cuFuncGetModule);
    with(|core| out.put(core.kernels.get(&function).ok_or(INVALID_HANDLE)?.module))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncGetName(out: Out<*const c_char>, function: Handle) -> Status {
    distinct!(cuFuncGetName);
    with(|core| out.put(core.kernels.get(&function).ok_or(INVALID_HANDLE)?.name.as_ptr()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncGetParamInfo(function: Handle, _: usize, _: Out<usize>, _: Out<usize>) -> Status {
    distinct!(cuFuncGetParamInfo);
    match known(function) {
        SUCCESS => INVALID_VALUE, // no parameters are known
        status => status,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncIsLoaded(out: Out<i32>, function: Handle) -> Status {
    distinct!(cuFuncIsLoaded);
    with(|core| {
        core.kernels.get(&function).ok_or(INVALID_HANDLE)?;
        out.put(1)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncLoad(function: Handle) -> Status {
    distinct!(cuFuncLoad);
    known(function)
}
