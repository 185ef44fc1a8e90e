//! The optional C interface for programs. It is found by `dlsym`, so nothing need be linked.

use std::ffi::{CStr, c_char};

use crate::analysis::{annotations, step_boundaries};
use crate::shield::shield;

/// Ends a step; `label` may be null.
///
/// # Safety
/// `label` is null or a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_leaktrace_step"))]
pub unsafe extern "C" fn leaktrace_step(label: *const c_char) {
    // SAFETY: the caller's promise.
    step_boundaries::call(unsafe { text(label) }.as_deref());
}

/// Ends a cell of a notebook, which is a step where nothing else ends any; `label` may be null.
///
/// # Safety
/// `label` is null or a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_leaktrace_cell"))]
pub unsafe extern "C" fn leaktrace_cell(label: *const c_char) {
    // SAFETY: the caller's promise.
    step_boundaries::cell(unsafe { text(label) }.as_deref());
}

/// Annotates this moment, which is to be found again in the report.
///
/// # Safety
/// `label` is null or a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_leaktrace_mark"))]
pub unsafe extern "C" fn leaktrace_mark(label: *const c_char) {
    // SAFETY: the caller's promise.
    if let Some(label) = unsafe { text(label) } {
        shield(|| annotations::mark(&label));
    }
}

/// Writes the report so far.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_leaktrace_dump"))]
pub extern "C" fn leaktrace_dump() {
    step_boundaries::dump();
}

unsafe fn text<'a>(label: *const c_char) -> Option<std::borrow::Cow<'a, str>> {
    // SAFETY: the caller's promise.
    (!label.is_null()).then(|| unsafe { CStr::from_ptr(label) }.to_string_lossy())
}
