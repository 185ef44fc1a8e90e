//! Libraries and kernels: modules that belong to no context.

use std::ffi::{c_char, c_void};

use crate::abi::pointers::{Addr, Handle, In, Out};
use crate::abi::status::*;
use crate::module::functions::{attribute_of, set_attribute};
use crate::module::modules::{check_file, put_functions, put_variable};

driver_api! {
    fn cuLibraryLoadData(driver; out: Out<Handle>, code: In<c_void>, _jit: In<i32>, _jit_values:
        In<Handle>, _jit_count: u32, _options: In<i32>, _values: In<Handle>, _count: u32) {
        if code.is_null() { Err(INVALID_VALUE) } else { driver.load_library(out) }
    }

    fn cuLibraryLoadFromFile(driver; out: Out<Handle>, path: In<c_char>, _jit: In<i32>, _jit_values:
        In<Handle>, _jit_count: u32, _options: In<i32>, _values: In<Handle>, _count: u32) {
        check_file(path)?;
        driver.load_library(out)
    }

    fn cuLibraryUnload(driver; library: Handle) { driver.unload(library) }

    fn cuLibraryGetKernel(driver; out: Out<Handle>, library: Handle, name: In<c_char>) {
        out.put(driver.function(library, &name.text()?)?)
    }

    fn cuLibraryGetKernelCount(driver; out: Out<u32>, library: Handle) {
        out.put(driver.module(library)?.functions.len() as u32)
    }

    fn cuLibraryEnumerateKernels(driver; out: Out<Handle>, room: u32, library: Handle) {
        put_functions(driver, out, room, library)
    }

    /// The library itself serves as its module in every context.
    fn cuLibraryGetModule(driver, owner; out: Out<Handle>, library: Handle) {
        driver.load_code(library, owner)?;
        out.put(library)
    }

    fn cuLibraryGetGlobal(driver, owner; address: Out<Addr>, bytes: Out<usize>, library: Handle, name:
        In<c_char>) {
        put_variable(driver, owner, address, bytes, library, name)
    }

    fn cuLibraryGetManaged(driver, owner; address: Out<Addr>, bytes: Out<usize>, library: Handle, name:
        In<c_char>) {
        put_variable(driver, owner, address, bytes, library, name)
    }

    fn cuKernelGetFunction(driver, owner; out: Out<Handle>, kernel: Handle) {
        let library = driver.kernel(kernel)?.module;
        driver.load_code(library, owner)?;
        out.put(kernel)
    }

    fn cuKernelGetLibrary(driver; out: Out<Handle>, kernel: Handle) {
        out.put(driver.kernel(kernel)?.module)
    }

    fn cuKernelGetName(driver; out: Out<*const c_char>, kernel: Handle) {
        out.put(driver.kernel(kernel)?.name.as_ptr())
    }

    fn cuKernelGetAttribute(driver; out: Out<i32>, attribute: i32, kernel: Handle, device: i32) {
        driver.device(device)?;
        out.put(attribute_of(driver, attribute, kernel)?)
    }

    fn cuKernelSetAttribute(driver; attribute: i32, value: i32, kernel: Handle, device: i32) {
        driver.device(device)?;
        set_attribute(driver, attribute, value, kernel)
    }

}
