//! The linker: takes anything and gives an image that loads.

use std::ffi::{c_char, c_void};

use crate::abi::{Handle, In, Out};
use crate::error::*;
use crate::state::with;

/// What every link gives: modules are never parsed.
static IMAGE: [u8; 16] = *b"simulated cubin\0";

#[unsafe(no_mangle)]
pub extern "C" fn cuLinkCreate_v2(
    _count: u32,
    _options: In<i32>,
    _values: In<Handle>,
    out: Out<Handle>,
) -> Status {
    distinct!(cuLinkCreate_v2);
    with(|core| {
        let state = core.handle();
        out.put(state)?;
        core.objects.insert(state as u64);
        Ok(())
    })
}

fn known(state: Handle) -> Status {
    with(|core| if core.objects.contains(&(state as u64)) { Ok(()) } else { Err(INVALID_HANDLE) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLinkAddData_v2(
    state: Handle,
    _kind: i32,
    data: In<c_void>,
    _bytes: usize,
    _name: In<c_char>,
    _count: u32,
    _options: In<i32>,
    _values: In<Handle>,
) -> Status {
    distinct!(cuLinkAddData_v2);
    if data.is_null() { INVALID_VALUE } else { known(state) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLinkAddFile_v2(
    state: Handle,
    _kind: i32,
    path: In<c_char>,
    _count: u32,
    _options: In<i32>,
    _values: In<Handle>,
) -> Status {
    distinct!(cuLinkAddFile_v2);
    match crate::module::readable(path) {
        Ok(()) => known(state),
        Err(status) => status,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLinkComplete(state: Handle, image: Out<*const c_void>, bytes: Out<usize>) -> Status {
    distinct!(cuLinkComplete);
    if image.is_null() {
        return INVALID_VALUE;
    }
    image.put_opt(IMAGE.as_ptr().cast());
    bytes.put_opt(IMAGE.len());
    known(state)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLinkDestroy(state: Handle) -> Status {
    distinct!(cuLinkDestroy);
    with(|core| if core.objects.remove(&(state as u64)) { Ok(()) } else { Err(INVALID_HANDLE) })
}
