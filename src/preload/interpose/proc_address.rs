//! `cuGetProcAddress`: the runtime's way to the driver. Asks the real one, then puts a hook in front of what
//! it found.
//!
//! Which entry point that is tells the address: the driver exports most of what it hands out. For the rest
//! the documented rule decides, from name, version and flags.

use std::ffi::{CStr, CString, c_char, c_void};

use crate::hooks::entry_points::{self, ENTRY_POINTS, Library};
use crate::hooks::{Arg, Status, driver_queries, hooks};
use crate::interpose::hook_table;
use crate::lifecycle;
use crate::loader::link_map;

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`
const PER_THREAD_STREAM: u64 = 2;

hooks! {
    /// `cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)`, CUDA 11
    fn get_proc_address(
        symbol: *const c_char,
        function: *mut *mut c_void,
        version: i32,
        flags: u64,
    ) => |call| {
        let id = call.id;
        let status = call.pass();
        // SAFETY: what the real function was given, and used.
        unsafe { put_hook(status, symbol, function, version, effective(id, flags)) };
        status
    };
    /// `cuGetProcAddress` of CUDA 12 and later, with `CUdriverProcAddressQueryResult *status`, which may be
    /// null
    fn get_proc_address_v2(
        symbol: *const c_char,
        function: *mut *mut c_void,
        version: i32,
        flags: u64,
        result: Arg<i32>,
    ) => |call| {
        let id = call.id;
        let status = call.pass();
        // SAFETY: what the real function was given, and used.
        unsafe { put_hook(status, symbol, function, version, effective(id, flags)) };
        status
    };
}

/// The flags as the driver takes them: the forms for programs compiled with the per-thread default stream
/// mean theirs when they are given none.
fn effective(id: usize, flags: u64) -> u64 {
    if flags == 0 && entry_points::entry_point(id).per_thread { PER_THREAD_STREAM } else { flags }
}

/// # Safety
/// `symbol` is null or a C string, `function` null or what the real function wrote to.
unsafe fn put_hook(
    status: Status,
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: i32,
    flags: u64,
) {
    if status != 0 || symbol.is_null() || function.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let address = *function;
        if !address.is_null() {
            *function = hook_for(CStr::from_ptr(symbol), address, version, flags).cast_mut();
        }
    }
}

/// What a look-up for `name` is to return instead of `address`.
fn hook_for(name: &CStr, address: *mut c_void, version: i32, flags: u64) -> *const c_void {
    if !name.to_bytes().starts_with(b"cu") {
        return address;
    }
    let exported = driver_queries::entry_point_at(address);
    let Some(id) = exported.or_else(|| by_rule(name, address, version, flags)) else { return address };
    lifecycle::arm();
    hook_table::in_front_of(id, address)
}

/// The entry point by the documented rule: no export that we know has this address, so it is an alias inside
/// the driver, or a form of a known name that is newer than the list.
fn by_rule(name: &CStr, address: *mut c_void, version: i32, flags: u64) -> Option<usize> {
    let id = newest_form(name, version, flags & PER_THREAD_STREAM != 0)?;
    match newer_form(name, address) {
        Some(form) => {
            entry_points::report_newer_form(&form);
            None
        }
        None => Some(id),
    }
}

/// The newest listed form of a driver function that a program of that CUDA version may be given.
fn newest_form(name: &CStr, version: i32, per_thread: bool) -> Option<usize> {
    let admitted = ENTRY_POINTS.iter().enumerate().filter(|(_, entry)| {
        let named = entry.name.as_bytes() == name.to_bytes() || entry.symbol == name;
        entry.library == Library::Driver
            && named
            && (!entry.per_thread || per_thread)
            && entry.since <= version
    });
    // Of two that are equal, the one that stands first.
    let rank = |(i, entry): &(usize, &entry_points::EntryPoint)| {
        (entry.per_thread, entry.since, std::cmp::Reverse(*i))
    };
    admitted.max_by_key(rank).map(|(i, _)| i + 1)
}

/// The exported name of a function that is a form of `name` the list does not have.
fn newer_form(name: &CStr, address: *mut c_void) -> Option<CString> {
    let name = name.to_str().ok()?;
    let forms = (2..=9).flat_map(|v| ["", "_ptsz", "_ptds"].map(|thread| format!("{name}_v{v}{thread}")));
    let newer: Vec<CString> = forms
        .filter_map(|form| CString::new(form).ok())
        .filter(|form| entry_points::is_newer_form(form))
        .collect();
    newer.into_iter().find(|form| link_map::find_beside(address, form) == Some(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(id: Option<usize>) -> Option<&'static CStr> {
        id.map(|id| entry_points::entry_point(id).symbol)
    }

    #[test]
    fn the_version_and_the_stream_decide_the_form() {
        let form = |name, version, per_thread| symbol(newest_form(name, version, per_thread));
        assert_eq!(form(c"cuMemAlloc", 12000, false), Some(c"cuMemAlloc_v2"));
        assert_eq!(form(c"cuMemAlloc", 3010, false), None);
        assert_eq!(form(c"cuMemAllocAsync", 12000, false), Some(c"cuMemAllocAsync"));
        assert_eq!(form(c"cuMemAllocAsync", 12000, true), Some(c"cuMemAllocAsync_ptsz"));
        assert_eq!(form(c"cuGraphAddNode", 12020, false), Some(c"cuGraphAddNode"));
        assert_eq!(form(c"cuGraphAddNode", 13000, false), Some(c"cuGraphAddNode_v2"));
        assert_eq!(form(c"cuGetProcAddress", 11030, false), Some(c"cuGetProcAddress"));
        // The runtime's names are not the driver's to hand out.
        assert_eq!(form(c"cudaMalloc", 12000, false), None);
    }
}
