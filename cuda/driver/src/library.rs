//! Libraries and kernels: modules that belong to no context.

use std::ffi::{c_char, c_void};

use crate::abi::{Addr, Handle, In, Out};
use crate::error::*;
use crate::function::{get, set};
use crate::module::readable;
use crate::state::{Core, here, with};

#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryLoadData(
    out: Out<Handle>,
    code: In<c_void>,
    _jit: In<i32>,
    _jit_values: In<Handle>,
    _jit_count: u32,
    _options: In<i32>,
    _values: In<Handle>,
    _count: u32,
) -> Status {
    distinct!(cuLibraryLoadData);
    with(|core| if code.is_null() { Err(INVALID_VALUE) } else { core.load_library(out) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryLoadFromFile(
    out: Out<Handle>,
    path: In<c_char>,
    _jit: In<i32>,
    _jit_values: In<Handle>,
    _jit_count: u32,
    _options: In<i32>,
    _values: In<Handle>,
    _count: u32,
) -> Status {
    distinct!(cuLibraryLoadFromFile);
    with(|core| {
        readable(path)?;
        core.load_library(out)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryUnload(library: Handle) -> Status {
    distinct!(cuLibraryUnload);
    with(|core| core.unload(library))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryGetKernel(out: Out<Handle>, library: Handle, name: In<c_char>) -> Status {
    distinct!(cuLibraryGetKernel);
    with(|core| out.put(core.function(library, &name.text()?)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryGetKernelCount(out: Out<u32>, library: Handle) -> Status {
    distinct!(cuLibraryGetKernelCount);
    crate::module::cuModuleGetFunctionCount(out, library)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryEnumerateKernels(out: Out<Handle>, room: u32, library: Handle) -> Status {
    distinct!(cuLibraryEnumerateKernels);
    crate::module::cuModuleEnumerateFunctions(out, room, library)
}

/// The library itself serves as its module in every context.
#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryGetModule(out: Out<Handle>, library: Handle) -> Status {
    distinct!(cuLibraryGetModule);
    here(|core, at| {
        core.bring_in(library, at)?;
        out.put(library)
    })
}

fn variable(at: Out<Addr>, bytes: Out<usize>, library: Handle, name: In<c_char>) -> Status {
    here(|core, place| {
        let (address, size) = core.global(library, &name.text()?, place)?;
        at.put_opt(address);
        bytes.put_opt(size);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryGetGlobal(
    at: Out<Addr>,
    bytes: Out<usize>,
    library: Handle,
    name: In<c_char>,
) -> Status {
    distinct!(cuLibraryGetGlobal);
    variable(at, bytes, library, name)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryGetManaged(
    at: Out<Addr>,
    bytes: Out<usize>,
    library: Handle,
    name: In<c_char>,
) -> Status {
    distinct!(cuLibraryGetManaged);
    variable(at, bytes, library, name)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryGetUnifiedFunction(
    _out: Out<Addr>,
    _library: Handle,
    _name: In<c_char>,
) -> Status {
    distinct!(cuLibraryGetUnifiedFunction);
    NOT_FOUND
}

fn known(core: &Core, kernel: Handle) -> Res {
    core.kernels.get(&kernel).map(drop).ok_or(INVALID_HANDLE)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuKernelGetFunction(out: Out<Handle>, kernel: Handle) -> Status {
    distinct!(cuKernelGetFunction);
    here(|core, at| {
        let library = core.kernels.get(&kernel).ok_or(INVALID_HANDLE)?.module;
        core.bring_in(library, at)?;
        out.put(kernel)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuKernelGetLibrary(out: Out<Handle>, kernel: Handle) -> Status {
    distinct!(cuKernelGetLibrary);
    with(|core| out.put(core.kernels.get(&kernel).ok_or(INVALID_HANDLE)?.module))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuKernelGetName(out: Out<*const c_char>, kernel: Handle) -> Status {
    distinct!(cuKernelGetName);
    crate::function::cuFuncGetName(out, kernel)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuKernelGetAttribute(out: Out<i32>, attribute: i32, kernel: Handle, device: i32) -> Status {
    distinct!(cuKernelGetAttribute);
    with(|core| {
        core.device(device)?;
        out.put(get(core, attribute, kernel)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuKernelSetAttribute(attribute: i32, value: i32, kernel: Handle, device: i32) -> Status {
    distinct!(cuKernelSetAttribute);
    with(|core| {
        core.device(device)?;
        set(core, attribute, value, kernel)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuKernelSetCacheConfig(kernel: Handle, _config: i32, device: i32) -> Status {
    distinct!(cuKernelSetCacheConfig);
    with(|core| {
        core.device(device)?;
        known(core, kernel)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuKernelGetParamInfo(kernel: Handle, _: usize, _: Out<usize>, _: Out<usize>) -> Status {
    distinct!(cuKernelGetParamInfo);
    with(|core| known(core, kernel).and(Err(INVALID_VALUE))) // no parameters are known
}
