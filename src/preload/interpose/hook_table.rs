//! The table of hooks: for each entry point the code of its hook, once per provider.
//!
//! A hook comes in front of one real function: see [`entry_points`]. Whoever asks for an entry point, by
//! whatever way, is given the hook that [`in_front_of`] names.

use std::ffi::c_void;

use crate::coverage_gaps;
use crate::hooks::entry_points::{self, ENTRY_POINTS, EntryPointId, Library, PROVIDERS};
use crate::hooks::{
    array, context, device, driver_queries, external, graph, pinned_host, pool, runtime, untracked,
    virtual_memory, work,
};
use crate::interpose::proc_address;
use crate::loader::link_map::{find_beside, is_own_address};

/// The code of an entry point's hook, one function per provider.
struct Hooks([*const c_void; PROVIDERS]);
// SAFETY: addresses of functions, never written.
unsafe impl Sync for Hooks {}

macro_rules! hooks {
    ($($id:ident = $library:ident $name:literal $symbol:literal $since:literal $thread:literal
        $room:ident::$hook:ident [$($end:literal)*];)+) => {
        static HOOKS: [Hooks; ENTRY_POINTS.len()] = [$(
            Hooks([
                $room::$hook::<{ EntryPointId::$id.number() }, 0> as *const c_void,
                $room::$hook::<{ EntryPointId::$id.number() }, 1> as *const c_void,
                $room::$hook::<{ EntryPointId::$id.number() }, 2> as *const c_void,
                $room::$hook::<{ EntryPointId::$id.number() }, 3> as *const c_void,
            ]),
        )+];
    };
}
leaktrace_core::entry_points!(hooks);

/// The hook of an entry point for one of its providers.
pub fn hook(id: usize, provider: usize) -> *const c_void {
    HOOKS[id - 1].0[provider]
}

/// The number of the provider whose function is `real`; `None` if there are more of them than can be told
/// apart.
pub fn provider(id: usize, real: *mut c_void) -> Option<usize> {
    let entry = entry_points::entry_point(id);
    if entry.library == Library::Driver {
        driver_queries::learn(real);
    }
    let provider = entry_points::bind(id, real);
    match provider {
        Some(provider) if entry.library == Library::Runtime => {
            entry_points::set_get_device(id, provider, || find_beside(real, c"cudaGetDevice"));
        }
        Some(_) => {}
        None => {
            coverage_gaps::report(&format!("more than {PROVIDERS} different {} in this process", entry.name))
        }
    }
    provider
}

/// The hook in front of a real function just found; the function itself where it is a hook already, or cannot
/// be told apart from others.
pub fn in_front_of(id: usize, real: *mut c_void) -> *const c_void {
    if is_own_address(real) {
        return real;
    }
    provider(id, real).map_or(real, |provider| hook(id, provider))
}
