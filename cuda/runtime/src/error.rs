//! Error codes, and the thread's last error.

use std::cell::Cell;
use std::ffi::c_char;

/// A cudaError_t that is not success.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Code(pub i32);

pub type Outcome = Result<(), Code>;

impl Code {
    pub const INVALID_VALUE: Code = Code(1);
    pub const INVALID_CHANNEL: Code = Code(20);
    pub const INSUFFICIENT_DRIVER: Code = Code(35);
    pub const MISSING_CONFIGURATION: Code = Code(52);
    pub const INVALID_DEVICE_FUNCTION: Code = Code(98);
    pub const NO_DEVICE: Code = Code(100);
    pub const INVALID_DEVICE: Code = Code(101);
    pub const NOT_READY: Code = Code(600);
    pub const NOT_SUPPORTED: Code = Code(801);
}

thread_local! {
    static LAST: Cell<i32> = const { Cell::new(0) };
}

/// Returns the code for the C caller and keeps an error as the thread's last. "Not ready" is a reply and no
/// error.
pub fn report(outcome: Outcome) -> i32 {
    match outcome {
        Ok(()) => 0,
        Err(code) => {
            if code != Code::NOT_READY {
                LAST.set(code.0);
            }
            code.0
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetLastError() -> i32 {
    LAST.replace(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaPeekAtLastError() -> i32 {
    LAST.get()
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorName(code: i32) -> *const c_char {
    crate::error_text::of(code).0.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorString(code: i32) -> *const c_char {
    crate::error_text::of(code).1.as_ptr()
}
