//! The list of entry points (`entry_points`) as code: hooks, exports, and which real function stands behind which hook.
//!
//! Each hook exists [`SLOTS`] times. A slot is bound to one real address, so a process with two runtimes, or with
//! another interposer between us and the driver, gets each caller to the function it would have reached without us.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};

use crate::coverage_gaps;
use crate::hooks::array;
use crate::hooks::context;
use crate::hooks::device;
use crate::hooks::external;
use crate::hooks::graph;
use crate::hooks::lookup;
use crate::hooks::pinned_host;
use crate::hooks::pool;
use crate::hooks::runtime;
use crate::hooks::untracked;
use crate::hooks::virtual_memory;
use leaktrace_core::entry_points;
use leaktrace_core::entry_points::PASSED_OVER;

/// Real functions per entry point that can be told apart in one process.
pub const SLOTS: usize = 4;

/// Where a symbol lives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Library {
    Driver,
    Runtime,
}

/// The code of a hook, one per slot.
pub struct Hooks([*const c_void; SLOTS]);
// SAFETY: addresses of functions, never written.
unsafe impl Sync for Hooks {}

/// One row of the list.
pub struct EntryPoint {
    /// As programs ask for it and as reports call it.
    pub name: &'static str,
    /// As it is exported.
    pub symbol: &'static CStr,
    pub library: Library,
    /// CUDA version (1000 × major + 10 × minor) from which `name` has this signature.
    pub since: i32,
    /// Works on the calling thread's default stream.
    pub per_thread: bool,
    /// The names of what ends the memory it gives; empty if it gives none.
    pub ended_by: &'static [&'static str],
    hooks: Hooks,
}

macro_rules! entry_point_rows {
    ($($id:ident = $library:ident $name:literal $symbol:literal $since:literal $thread:literal
        $room:ident::$hook:ident [$($end:literal)*];)+) => {
        /// The rows by name; a row's number is its place + 1, so that 0 is none.
        #[allow(non_camel_case_types, reason = "the names of the CUDA API")]
        #[allow(clippy::enum_variant_names, reason = "the names of the CUDA API")]
        #[repr(u16)]
        pub enum Row { $($id,)+ }

        /// All rows; a row's number is its place + 1.
        pub static ENTRY_POINTS: &[EntryPoint] = &[$(
            EntryPoint {
                name: $name,
                symbol: $symbol,
                library: Library::$library,
                since: $since,
                per_thread: $thread,
                ended_by: &[$($end),*],
                hooks: Hooks([
                    $room::$hook::<{ Row::$id as usize + 1 }, 0> as *const c_void,
                    $room::$hook::<{ Row::$id as usize + 1 }, 1> as *const c_void,
                    $room::$hook::<{ Row::$id as usize + 1 }, 2> as *const c_void,
                    $room::$hook::<{ Row::$id as usize + 1 }, 3> as *const c_void,
                ]),
            },
        )+];

        /// The exported symbols: programs that link the driver or the runtime arrive here.
        mod exports {
            $(crate::interpose::trampolines::export!($id);)+
        }
    };
}

entry_points!(entry_point_rows);

/// What ends memory must be in the list itself, or its end would not be seen.
const _: () = {
    let mut row = 0;
    while row < ENTRY_POINTS.len() {
        let mut end = 0;
        while end < ENTRY_POINTS[row].ended_by.len() {
            assert!(is_listed(ENTRY_POINTS[row].ended_by[end]));
            end += 1;
        }
        row += 1;
    }
};

const fn is_listed(name: &str) -> bool {
    let mut row = 0;
    while row < ENTRY_POINTS.len() {
        let (listed, name) = (ENTRY_POINTS[row].name.as_bytes(), name.as_bytes());
        let mut same = 0;
        while same < listed.len() && same < name.len() && listed[same] == name[same] {
            same += 1;
        }
        if same == listed.len() && same == name.len() {
            return true;
        }
        row += 1;
    }
    false
}

const ROWS: usize = ENTRY_POINTS.len() + 1;

static REAL: [[AtomicPtr<c_void>; SLOTS]; ROWS] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; SLOTS] }; ROWS];

/// The real function behind a slot. A hook runs only after its slot was bound.
#[inline(always)]
pub fn real(row: usize, slot: usize) -> *mut c_void {
    REAL[row][slot].load(Acquire)
}

/// The row of that number.
pub fn entry_point(row: usize) -> &'static EntryPoint {
    &ENTRY_POINTS[row.saturating_sub(1)]
}

/// The hook of `row` in front of the real function at `address`; `None` when every slot is taken by another.
pub fn bind(row: usize, address: *mut c_void) -> Option<*const c_void> {
    if is_ours(address) {
        return Some(address);
    }
    for (slot, real) in REAL[row].iter().enumerate() {
        match real.compare_exchange(std::ptr::null_mut(), address, AcqRel, Acquire) {
            Ok(_) => return Some(entry_point(row).hooks.0[slot]),
            Err(taken) if taken == address => return Some(entry_point(row).hooks.0[slot]),
            Err(_) => {}
        }
    }
    None
}

/// Libraries were unloaded: slots whose real function is gone are free for others. Nobody may call what went.
pub fn forget_unloaded() {
    for real in REAL.iter().flatten() {
        let address = real.load(Acquire);
        if !address.is_null() && crate::interpose::link_map::object_of(address).is_none() {
            let _ = real.compare_exchange(address, std::ptr::null_mut(), AcqRel, Acquire);
        }
    }
}

/// True for an address inside this library: already a hook, or an export.
pub fn is_ours(address: *const c_void) -> bool {
    unsafe extern "C" {
        static __ehdr_start: u8;
        static _end: u8;
    }
    (&raw const __ehdr_start..&raw const _end).contains(&address.cast())
}

/// True for a form of a listed function of the driver that is newer than the list: `cuMemAlloc_v3`.
pub fn is_newer_form(symbol: &CStr) -> bool {
    let name = symbol.to_bytes();
    let form = name.strip_suffix(b"_ptsz").or(name.strip_suffix(b"_ptds")).unwrap_or(name);
    let [base @ .., b'_', b'v', b'2'..=b'9'] = form else { return false };
    let listed = |e: &EntryPoint| e.library == Library::Driver && e.name.as_bytes() == base;
    ENTRY_POINTS.iter().any(listed)
        && row_of_symbol(symbol).is_none()
        && PASSED_OVER.iter().all(|(pattern, _)| pattern.as_bytes() != name)
}

/// Such a form was handed to the program.
pub fn name_newer_form(symbol: &CStr) {
    let symbol = symbol.to_string_lossy();
    coverage_gaps::name(&format!(
        "{symbol} is newer than this leaktrace: what it gives or takes is not seen"
    ));
}

/// The row of a symbol of `library`, as exported.
pub fn row_of_symbol(symbol: &CStr) -> Option<usize> {
    ENTRY_POINTS.iter().position(|e| e.symbol == symbol).map(|i| i + 1)
}
