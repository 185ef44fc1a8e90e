//! Texture and surface objects, and tensor maps: made and ended, never read.

use std::ffi::c_void;

use crate::abi::pointers::{In, Out};
use crate::abi::status::*;
use crate::state::driver::Driver;

fn create(driver: &mut Driver, out: Out<u64>, resource: In<c_void>) -> Res {
    if resource.is_null() {
        return Err(INVALID_VALUE);
    }
    let object = driver.new_handle() as u64;
    out.put(object)?;
    driver.objects.insert(object);
    Ok(())
}

fn destroy(driver: &mut Driver, object: u64) -> Res {
    if driver.objects.remove(&object) { Ok(()) } else { Err(INVALID_VALUE) }
}

driver_api! {
    fn cuTexObjectCreate(driver, _owner; out: Out<u64>, resource: In<c_void>) { create(driver, out, resource) }

    fn cuTexObjectDestroy(driver; object: u64) { destroy(driver, object) }

    fn cuSurfObjectCreate(driver, _owner; out: Out<u64>, resource: In<c_void>) { create(driver, out, resource) }

    fn cuSurfObjectDestroy(driver; object: u64) { destroy(driver, object) }

    /// A `CUtensorMap` is 128 opaque bytes. Whatever it is made of, here they are zero: the other arguments
    /// are not looked at.
    fn cuTensorMapEncodeTiled(; out: Out<[u64; 16]>) { out.put([0; 16]) }

    fn cuTensorMapEncodeIm2col(; out: Out<[u64; 16]>) { out.put([0; 16]) }

    fn cuTensorMapEncodeIm2colWide(; out: Out<[u64; 16]>) { out.put([0; 16]) }

    fn cuTensorMapReplaceAddress(; out: Out<[u64; 16]>) { out.get().map(drop) }
}
