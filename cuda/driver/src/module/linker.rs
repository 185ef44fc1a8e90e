//! The linker: takes anything and gives an image that loads.

use std::ffi::{c_char, c_void};

use crate::abi::pointers::{Handle, In, Out};
use crate::abi::status::*;
use crate::module::modules::check_file;
use crate::state::driver::Driver;

/// The image that every link yields: modules are never parsed.
static IMAGE: [u8; 16] = *b"simulated cubin\0";

fn check(driver: &Driver, state: Handle) -> Res {
    if driver.objects.contains(&(state as u64)) { Ok(()) } else { Err(INVALID_HANDLE) }
}

driver_api! {
    fn cuLinkCreate_v2(driver; _count: u32, _options: In<i32>, _values: In<Handle>, out: Out<Handle>) {
        let state = driver.new_handle();
        out.put(state)?;
        driver.objects.insert(state as u64);
        Ok(())
    }

    fn cuLinkAddData_v2(driver; state: Handle, _kind: i32, data: In<c_void>, _bytes: usize, _name:
        In<c_char>, _count: u32, _options: In<i32>, _values: In<Handle>) {
        if data.is_null() { Err(INVALID_VALUE) } else { check(driver, state) }
    }

    fn cuLinkAddFile_v2(driver; state: Handle, _kind: i32, path: In<c_char>, _count: u32, _options:
        In<i32>, _values: In<Handle>) {
        check_file(path)?;
        check(driver, state)
    }

    fn cuLinkComplete(driver; state: Handle, image: Out<*const c_void>, bytes: Out<usize>) {
        if image.is_null() {
            return Err(INVALID_VALUE);
        }
        image.put_opt(IMAGE.as_ptr().cast());
        bytes.put_opt(IMAGE.len());
        check(driver, state)
    }

    fn cuLinkDestroy(driver; state: Handle) {
        if driver.objects.remove(&(state as u64)) { Ok(()) } else { Err(INVALID_HANDLE) }
    }
}
