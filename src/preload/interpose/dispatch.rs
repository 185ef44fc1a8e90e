//! Where a call of an exported symbol goes: the hook in front of the function that the caller's own scope holds.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

use crate::interpose::got_patch;
use crate::interpose::hook_table;
use crate::interpose::link_map;
use crate::interpose::link_map::LinkMap;
use crate::interpose::scope;
use crate::interpose::symbol_lookup;
use crate::lifecycle;

/// The hook for this caller, by its return address.
pub unsafe extern "C" fn route(return_address: *const c_void, row: usize) -> *const c_void {
    link_map::orient();
    got_patch::passed();
    let caller = link_map::object_of(return_address);
    let known = routes::known(caller, row);
    if known.is_none() {
        // A weak reference without a runtime: nothing is armed for it.
        let deep = caller.is_some_and(got_patch::is_deep);
        let Some(real) = scope::definition(caller, hook_table::entry_point(row).symbol, deep) else {
            return missing as *const c_void;
        };
        lifecycle::arm();
        lifecycle::wait_until_armed();
        let hook = symbol_lookup::provider(row, real);
        routes::remember(caller, row, hook);
        return hook;
    }
    lifecycle::arm();
    lifecycle::wait_until_armed();
    known.unwrap_or(missing as *const c_void)
}

/// What a weakly bound call gets when there is no runtime or driver to answer it: "not initialised", in both APIs.
extern "C" fn missing() -> i32 {
    3
}

/// Libraries were unloaded: others may come to lie where they lay.
pub fn forget() {
    GENERATION.fetch_add(1, AcqRel);
}

/// Routes found before it changed are not found again.
static GENERATION: AtomicUsize = AtomicUsize::new(0);

/// Routes already found, by calling object: a fixed table without a lock.
mod routes {
    use super::*;
    const SIZE: usize = 1024;
    static CALLER: [AtomicPtr<c_void>; SIZE] = [const { AtomicPtr::new(std::ptr::null_mut()) }; SIZE];
    static HOOK: [AtomicPtr<c_void>; SIZE] = [const { AtomicPtr::new(std::ptr::null_mut()) }; SIZE];

    /// The key is unique per (object, row) while nothing is unloaded: link maps are far larger than the number of rows,
    /// and addresses of programs leave 17 bits free.
    fn key(caller: Option<&LinkMap>, row: usize) -> *mut c_void {
        let place = caller.map_or(1 << 12, |m| std::ptr::from_ref(m) as usize) + row;
        (place ^ GENERATION.load(Acquire) << 47) as *mut c_void
    }

    fn place(key: *mut c_void) -> usize {
        (key as usize).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - 10)
    }

    pub fn known(caller: Option<&LinkMap>, row: usize) -> Option<*const c_void> {
        let key = key(caller, row);
        let at = place(key);
        // The hook first: it is stored before the key that vouches for it.
        let hook = (CALLER[at].load(Acquire) == key).then(|| HOOK[at].load(Acquire))?;
        (CALLER[at].load(Acquire) == key).then_some(hook.cast_const())
    }

    pub fn remember(caller: Option<&LinkMap>, row: usize, hook: *const c_void) {
        let key = key(caller, row);
        let at = place(key);
        // A place once taken stays: no reader can see one caller's key with another's hook.
        if HOOK[at].compare_exchange(std::ptr::null_mut(), hook.cast_mut(), AcqRel, Acquire).is_ok() {
            CALLER[at].store(key, Release);
        }
    }
}
