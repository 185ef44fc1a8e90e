//! Attributes of kernels, and the addresses of device variables.

use crate::abi::Handle;
use crate::driver::D;
use crate::error::Code;
use crate::modules;
use std::ffi::c_void;

/// cudaFuncAttributes.
#[repr(C)]
pub struct FunctionAttributes {
    shared: usize,
    constant: usize,
    local: usize,
    threads: i32,
    registers: i32,
    ptx: i32,
    binary: i32,
    cache_ca: i32,
    dynamic_shared: i32,
    carveout: i32,
    cluster_must_be_set: i32,
    cluster: [i32; 3],
    cluster_policy: i32,
    non_portable_cluster: i32,
    reserved: [i32; 16],
}
const _: () = assert!(size_of::<FunctionAttributes>() == 144);

/// CUfunction_attribute.
#[rustfmt::skip]
mod attribute {
    pub const THREADS: i32 = 0;
    pub const SHARED: i32 = 1;
    pub const CONSTANT: i32 = 2;
    pub const LOCAL: i32 = 3;
    pub const REGISTERS: i32 = 4;
    pub const PTX: i32 = 5;
    pub const BINARY: i32 = 6;
    pub const CACHE_CA: i32 = 7;
    pub const DYNAMIC_SHARED: i32 = 8;
    pub const CARVEOUT: i32 = 9;
    pub const CLUSTER_MUST_BE_SET: i32 = 10;
    pub const CLUSTER_WIDTH: i32 = 11;
    pub const NON_PORTABLE_CLUSTER: i32 = 14;
    pub const CLUSTER_POLICY: i32 = 15;
}

/// Returns an attribute, or 0 where the driver does not know it.
unsafe fn attribute_of(kernel: Handle, attribute: i32) -> i32 {
    let mut value = 0;
    if D.func_attribute(&mut value, attribute, kernel).is_ok() { value } else { 0 }
}

export! {
    device fn cudaFuncGetAttributes(out: *mut FunctionAttributes, function: *const c_void) {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let kernel = modules::kernel(function)?;
        *out = FunctionAttributes {
            shared: attribute_of(kernel, attribute::SHARED) as usize,
            constant: attribute_of(kernel, attribute::CONSTANT) as usize,
            local: attribute_of(kernel, attribute::LOCAL) as usize,
            threads: attribute_of(kernel, attribute::THREADS),
            registers: attribute_of(kernel, attribute::REGISTERS),
            ptx: attribute_of(kernel, attribute::PTX),
            binary: attribute_of(kernel, attribute::BINARY),
            cache_ca: attribute_of(kernel, attribute::CACHE_CA),
            dynamic_shared: attribute_of(kernel, attribute::DYNAMIC_SHARED),
            carveout: attribute_of(kernel, attribute::CARVEOUT),
            cluster_must_be_set: attribute_of(kernel, attribute::CLUSTER_MUST_BE_SET),
            cluster: [0, 1, 2].map(|axis| attribute_of(kernel, attribute::CLUSTER_WIDTH + axis)),
            cluster_policy: attribute_of(kernel, attribute::CLUSTER_POLICY),
            non_portable_cluster: attribute_of(kernel, attribute::NON_PORTABLE_CLUSTER),
            reserved: [0; 16],
        };
        Ok(())
    }

    device fn cudaFuncSetAttribute(function: *const c_void, attribute: i32, value: i32) {
        D.func_set_attribute(modules::kernel(function)?, attribute, value)
    }

    device fn cudaFuncSetCacheConfig(function: *const c_void, config: i32) {
        D.func_set_cache(modules::kernel(function)?, config)
    }

    /// Has no effect since the hardware lost the choice.
    device fn cudaFuncSetSharedMemConfig(function: *const c_void, _config: i32) {
        modules::kernel(function).map(|_| ())
    }

    device fn cudaGetFuncBySymbol(out: *mut Handle, function: *const c_void) {
        D.kernel_function(out, modules::kernel(function)?)
    }

    device fn cudaGetSymbolAddress(out: *mut Handle, symbol: *const c_void) {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        *out = modules::variable(symbol)?.0 as Handle;
        Ok(())
    }

    device fn cudaGetSymbolSize(out: *mut usize, symbol: *const c_void) {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        *out = modules::variable(symbol)?.1;
        Ok(())
    }
}
