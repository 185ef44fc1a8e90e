//! Functions: attributes and names.

use std::ffi::c_char;

use crate::abi::pointers::{Handle, Out};
use crate::abi::status::*;
use crate::state::driver::Driver;

const DYNAMIC_SHARED: i32 = 8;
const CARVE_OUT: i32 = 9;
/// The last documented attribute.
const LAST: i32 = 15;

/// Returns an attribute of a function, by its documented number.
pub fn attribute_of(driver: &Driver, attribute: i32, function: Handle) -> Res<i32> {
    let kernel = driver.kernel(function)?;
    Ok(match attribute {
        0 => 1024,                               // threads per block
        4 => 32,                                 // registers
        5 | 6 => driver.cc.0 * 10 + driver.cc.1, // PTX and binary version
        DYNAMIC_SHARED | CARVE_OUT => kernel.settings[(attribute - DYNAMIC_SHARED) as usize],
        1..=3 | 7 | 10..=LAST => 0,
        _ => return Err(INVALID_VALUE),
    })
}

pub fn set_attribute(driver: &mut Driver, attribute: i32, value: i32, function: Handle) -> Res {
    let most = driver.attribute(97, 0)?;
    let kernel = driver.kernels.get_mut(&function).ok_or(INVALID_HANDLE)?;
    match attribute {
        DYNAMIC_SHARED if value > most || value < 0 => return Err(INVALID_VALUE),
        DYNAMIC_SHARED | CARVE_OUT => kernel.settings[(attribute - DYNAMIC_SHARED) as usize] = value,
        10..=LAST => {}
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

driver_api! {
    fn cuFuncGetAttribute(driver; out: Out<i32>, attribute: i32, function: Handle) {
        out.put(attribute_of(driver, attribute, function)?)
    }

    fn cuFuncSetAttribute(driver; function: Handle, attribute: i32, value: i32) {
        set_attribute(driver, attribute, value, function)
    }

    fn cuFuncGetModule(driver; out: Out<Handle>, function: Handle) {
        out.put(driver.kernel(function)?.module)
    }

    fn cuFuncGetName(driver; out: Out<*const c_char>, function: Handle) {
        out.put(driver.kernel(function)?.name.as_ptr())
    }

    fn cuFuncIsLoaded(driver; out: Out<i32>, function: Handle) {
        driver.kernel(function)?;
        out.put(1)
    }

}
