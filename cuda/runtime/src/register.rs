//! What compiled programs register while they load: fat binaries, their kernels and variables; and
//! the launch configuration between `<<<` and `>>>`.

use crate::abi::{Dim3, Handle, Stream};
use crate::error::{Code, Outcome};
use crate::modules;
use std::cell::Cell;
use std::ffi::{c_char, c_void};

/// The wrapper nvcc puts around a fat binary; only the image's address matters here.
#[repr(C)]
pub struct Wrapper {
    magic: i32,
    version: i32,
    image: *const c_void,
    more: *const c_void,
}

/// What compilers hand to `__cudaRegister*`: the handle that `__cudaRegisterFatBinary` gave.
type Registered = *mut modules::FatBinary;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterFatBinary(wrapper: *const Wrapper) -> Registered {
    let image = wrapper.as_ref().map_or(std::ptr::null(), |wrapper| wrapper.image);
    modules::register(image)
}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterFatBinaryEnd(_binary: Registered) {}

/// Drops nothing: kernels may still be looked up while the program unloads.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaUnregisterFatBinary(_binary: Registered) {}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaInitModule(_binary: Registered) -> c_char {
    1
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn __cudaRegisterFunction(
    binary: Registered,
    host: *const c_void,
    _device: *const c_char,
    name: *const c_char,
    _limit: i32,
    _thread: Handle,
    _block: Handle,
    _block_dim: Handle,
    _grid_dim: Handle,
    _warp: Handle,
) {
    modules::add_kernel(binary, host, name);
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn __cudaRegisterVar(
    binary: Registered,
    host: *const c_void,
    _device: *const c_char,
    name: *const c_char,
    _external: i32,
    bytes: usize,
    _constant: i32,
    _global: i32,
) {
    modules::add_variable(binary, host, name, bytes);
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn __cudaRegisterManagedVar(
    binary: Registered,
    host: *mut Handle,
    _device: *const c_char,
    name: *const c_char,
    _external: i32,
    bytes: usize,
    _constant: i32,
    _global: i32,
) {
    modules::add_variable(binary, host.cast(), name, bytes);
}

#[derive(Clone, Copy)]
struct Configuration {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: Stream,
}

/// How deep launches may nest in the arguments of launches.
const DEPTH: usize = 16;

thread_local! {
    // No destructor: kernels may be launched while a thread ends.
    static PENDING: Cell<([Option<Configuration>; DEPTH], usize)> = const { Cell::new(([None; DEPTH], 0)) };
}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaPushCallConfiguration(grid: Dim3, block: Dim3, shared: usize, stream: Stream) -> u32 {
    let (mut stack, depth) = PENDING.get();
    let Some(free) = stack.get_mut(depth) else { return 1 };
    *free = Some(Configuration { grid, block, shared, stream });
    PENDING.set((stack, depth + 1));
    0
}

export! {
    plain fn __cudaPopCallConfiguration(grid: *mut Dim3, block: *mut Dim3, shared: *mut usize, stream: *mut Stream) {
        let (stack, depth) = PENDING.get();
        let below = depth.checked_sub(1).ok_or(Code::MISSING_CONFIGURATION)?;
        let top = stack[below].ok_or(Code::MISSING_CONFIGURATION)?;
        PENDING.set((stack, below));
        (*grid, *block, *shared, *stream) = (top.grid, top.block, top.shared, top.stream);
        Ok(())
    }

    /// Writes a kernel's handle for `__cudaLaunchKernel`, which is the driver's own.
    device fn __cudaGetKernel(out: *mut Handle, host: *const c_void) {
        hand_out(out, host)
    }

    device fn cudaGetKernel(out: *mut Handle, host: *const c_void) {
        hand_out(out, host)
    }
}

unsafe fn hand_out(out: *mut Handle, host: *const c_void) -> Outcome {
    if out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    *out = modules::kernel(host)?;
    Ok(())
}
