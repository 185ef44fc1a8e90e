//! Which runtime this is: one source serves all majors.

use std::ffi::c_int;

#[cfg(test)]
#[unsafe(no_mangle)]
static simgpu_cudart_major: c_int = 13;

#[cfg(not(test))]
unsafe extern "C" {
    /// 11, 12 or 13: defined by the step that links this code into a library or a program.
    static simgpu_cudart_major: c_int;
}

/// Returns the major version, 11 to 13.
pub fn major() -> i32 {
    // SAFETY: a constant of the image we are linked into.
    #[cfg_attr(test, allow(unused_unsafe))]
    unsafe {
        simgpu_cudart_major
    }
}

/// Returns the version of the toolkit that this runtime stands for.
pub fn toolkit_version() -> i32 {
    match major() {
        ..12 => 11080,
        12 => 12080,
        _ => 13000,
    }
}
