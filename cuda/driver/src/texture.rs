//! Texture and surface objects, and tensor maps: made and ended, never read.

use std::ffi::c_void;

use crate::abi::{In, Out};
use crate::error::*;
use crate::state::{here, with};

fn create(out: Out<u64>, resource: In<c_void>) -> Status {
    here(|core, _| {
        if resource.is_null() {
            return Err(INVALID_VALUE);
        }
        let object = core.handle() as u64;
        out.put(object)?;
        core.objects.insert(object);
        Ok(())
    })
}

fn destroy(object: u64) -> Status {
    with(|core| if core.objects.remove(&object) { Ok(()) } else { Err(INVALID_VALUE) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuTexObjectCreate(
    out: Out<u64>,
    resource: In<c_void>,
    _: In<c_void>,
    _: In<c_void>,
) -> Status {
    distinct!(cuTexObjectCreate);
    create(out, resource)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuTexObjectDestroy(object: u64) -> Status {
    distinct!(cuTexObjectDestroy);
    destroy(object)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuSurfObjectCreate(out: Out<u64>, resource: In<c_void>) -> Status {
    distinct!(cuSurfObjectCreate);
    create(out, resource)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuSurfObjectDestroy(object: u64) -> Status {
    distinct!(cuSurfObjectDestroy);
    destroy(object)
}

/// A `CUtensorMap` is 128 opaque bytes; whatever it is made of, ours are zero. The other arguments are not looked at.
fn encode(out: Out<[u64; 16]>) -> Status {
    out.put([0; 16]).into()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuTensorMapEncodeTiled(out: Out<[u64; 16]>) -> Status {
    distinct!(cuTensorMapEncodeTiled);
    encode(out)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuTensorMapEncodeIm2col(out: Out<[u64; 16]>) -> Status {
    distinct!(cuTensorMapEncodeIm2col);
    encode(out)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuTensorMapEncodeIm2colWide(out: Out<[u64; 16]>) -> Status {
    distinct!(cuTensorMapEncodeIm2colWide);
    encode(out)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuTensorMapReplaceAddress(out: Out<[u64; 16]>, _at: u64) -> Status {
    distinct!(cuTensorMapReplaceAddress);
    if out.is_null() { INVALID_VALUE } else { SUCCESS }
}
