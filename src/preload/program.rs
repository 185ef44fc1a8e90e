//! What a program may call, if it wants to. Found by `dlsym`, so nothing need be linked.

use std::ffi::{CStr, c_char};

use super::boundary;

/// A step ended; `label` may be null.
///
/// # Safety
/// `label` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaktrace_step(label: *const c_char) {
    // SAFETY: the caller's promise.
    boundary::call(unsafe { text(label) }.as_deref());
}

/// Something happened that is to be found again in the report.
///
/// # Safety
/// `label` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaktrace_mark(label: *const c_char) {
    // SAFETY: the caller's promise.
    if let Some(label) = unsafe { text(label) } {
        super::guard::fenced(|| super::marks::mark(&label));
    }
}

/// Writes the report so far.
#[unsafe(no_mangle)]
pub extern "C" fn leaktrace_dump() {
    boundary::dump();
}

unsafe fn text<'a>(label: *const c_char) -> Option<std::borrow::Cow<'a, str>> {
    // SAFETY: the caller's promise.
    (!label.is_null()).then(|| unsafe { CStr::from_ptr(label) }.to_string_lossy())
}
