//! The table of entry points (`leaktrace_core::entry_points`) as data, and the real functions behind them.
//!
//! An entry point may have several providers: a process can have two runtimes, or another interposer between
//! us and the driver. Each hook exists [`PROVIDERS`] times, bound to one real address each, so that every
//! caller gets to the function it would have reached without us.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};

use leaktrace_core::entry_points;
use leaktrace_core::entry_points::PASSED_OVER;

use crate::coverage_gaps;
use crate::loader::link_map::object_id;

/// Real functions per entry point that can be told apart in one process.
pub const PROVIDERS: usize = 4;

/// The library that defines a symbol.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Library {
    Driver,
    Runtime,
}

/// One row of the table.
pub struct EntryPoint {
    /// The name that programs ask for and that reports print.
    pub name: &'static str,
    /// The name that is exported.
    pub symbol: &'static CStr,
    pub library: Library,
    /// CUDA version (1000 × major + 10 × minor) from which `name` has this signature.
    pub since: i32,
    /// Works on the calling thread's default stream.
    pub per_thread: bool,
    /// The names of what ends the memory it gives; empty if it gives none.
    pub ended_by: &'static [&'static str],
}

macro_rules! rows {
    ($($id:ident = $library:ident $name:literal $symbol:literal $since:literal $thread:literal
        $room:ident::$hook:ident [$($end:literal)*];)+) => {
        /// The entry points by name.
        #[allow(non_camel_case_types, reason = "the names of the CUDA API")]
        #[allow(clippy::enum_variant_names, reason = "the names of the CUDA API")]
        #[repr(u16)]
        pub enum EntryPointId { $($id,)+ }

        /// All entry points, by number - 1.
        pub static ENTRY_POINTS: &[EntryPoint] = &[$(
            EntryPoint {
                name: $name,
                symbol: $symbol,
                library: Library::$library,
                since: $since,
                per_thread: $thread,
                ended_by: &[$($end),*],
            },
        )+];
    };
}
entry_points!(rows);

impl EntryPointId {
    /// The number of an entry point, from 1: in an event 0 stands for none.
    pub const fn number(self) -> usize {
        self as usize + 1
    }
}

/// What ends memory must be in the table itself, or its end would not be seen.
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

/// The entry point of that number.
pub fn entry_point(id: usize) -> &'static EntryPoint {
    &ENTRY_POINTS[id.saturating_sub(1)]
}

/// The entry point that is exported under that name.
pub fn id_of_symbol(symbol: &CStr) -> Option<usize> {
    ENTRY_POINTS.iter().position(|e| e.symbol == symbol).map(|i| i + 1)
}

/// A real function, and the `cudaGetDevice` of the runtime it belongs to.
struct Provider {
    real: AtomicPtr<c_void>,
    get_device: AtomicPtr<c_void>,
}

static REAL: [[Provider; PROVIDERS]; ENTRY_POINTS.len()] = [const {
    [const {
        Provider {
            real: AtomicPtr::new(std::ptr::null_mut()),
            get_device: AtomicPtr::new(std::ptr::null_mut()),
        }
    }; PROVIDERS]
}; ENTRY_POINTS.len()];

/// The real function of a provider. A hook runs only after its provider was bound.
#[inline(always)]
pub fn real(id: usize, provider: usize) -> *mut c_void {
    REAL[id - 1][provider].real.load(Acquire)
}

/// The provider of `id` whose real function is at `address`, a new one if need be; `None` when there is no
/// room for it.
pub fn bind(id: usize, address: *mut c_void) -> Option<usize> {
    REAL[id - 1].iter().position(|provider| {
        match provider.real.compare_exchange(std::ptr::null_mut(), address, AcqRel, Acquire) {
            Ok(_) => true,
            Err(taken) => taken == address,
        }
    })
}

/// Remembers the `cudaGetDevice` beside a runtime's function.
pub fn set_get_device(id: usize, provider: usize, find: impl FnOnce() -> Option<*mut c_void>) {
    let known = &REAL[id - 1][provider].get_device;
    if known.load(Acquire).is_null()
        && let Some(found) = find()
    {
        known.store(found, Release);
    }
}

/// The device that the runtime of a provider has current; 0 for one that cannot say.
pub fn runtime_device(id: usize, provider: usize) -> u8 {
    let get_device = REAL[id - 1][provider].get_device.load(Acquire);
    if get_device.is_null() {
        return 0;
    }
    let mut device = 0i32;
    // SAFETY: `cudaError_t cudaGetDevice(int *)` of the runtime that is being called; it writes one int.
    let status = unsafe {
        let get_device: unsafe extern "C" fn(*mut i32) -> i32 = std::mem::transmute(get_device);
        get_device(&mut device)
    };
    if status == 0 { device as u8 } else { 0 }
}

/// Frees the providers whose real function was unloaded. Nobody may call what is gone.
pub fn forget_unloaded() {
    for provider in REAL.iter().flatten() {
        let address = provider.real.load(Acquire);
        if !address.is_null() && object_id(address).is_none() {
            provider.get_device.store(std::ptr::null_mut(), Release);
            let _ = provider.real.compare_exchange(address, std::ptr::null_mut(), AcqRel, Acquire);
        }
    }
}

/// True for a form of a listed function of the driver that is newer than the table: `cuMemAlloc_v3`.
pub fn is_newer_form(symbol: &CStr) -> bool {
    let name = symbol.to_bytes();
    let form = name.strip_suffix(b"_ptsz").or(name.strip_suffix(b"_ptds")).unwrap_or(name);
    let [base @ .., b'_', b'v', b'2'..=b'9'] = form else { return false };
    let listed = |e: &EntryPoint| e.library == Library::Driver && e.name.as_bytes() == base;
    ENTRY_POINTS.iter().any(listed)
        && id_of_symbol(symbol).is_none()
        && PASSED_OVER.iter().all(|(pattern, _)| pattern.as_bytes() != name)
}

/// Reports that such a form was handed to the program.
pub fn report_newer_form(symbol: &CStr) {
    let symbol = symbol.to_string_lossy();
    coverage_gaps::report(&format!(
        "{symbol} is newer than this leaktrace: what it gives or takes is not seen"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_points_are_found_by_their_exported_name() {
        for (i, entry) in ENTRY_POINTS.iter().enumerate() {
            assert_eq!(id_of_symbol(entry.symbol), Some(i + 1));
            assert_eq!(entry_point(i + 1).name, entry.name);
        }
        assert_eq!(id_of_symbol(c"cuMemAlloc"), None);
        assert_eq!(EntryPointId::cuGetProcAddress.number(), 1);
    }

    #[test]
    fn a_newer_form_is_one_of_a_listed_name() {
        assert!(is_newer_form(c"cuMemAlloc_v3") && is_newer_form(c"cuMemAllocAsync_v2_ptsz"));
        for name in
            [c"cuMemAlloc_v2", c"cuMemAlloc", c"cuGraphAddNode_v3", c"cuUnheardOf_v2", c"cudaMalloc_v2"]
        {
            assert!(!is_newer_form(name), "{name:?}");
        }
    }

    #[test]
    fn each_real_function_has_a_provider_of_its_own_until_it_is_unloaded() {
        let id = EntryPointId::cuCtxSetLimit.number();
        // Addresses outside of every object: to the loader these are unloaded.
        let addresses = [8, 16, 24, 32, 40].map(std::ptr::without_provenance_mut);
        for (i, address) in addresses[..PROVIDERS].iter().enumerate() {
            assert_eq!(bind(id, *address), Some(i));
        }
        assert_eq!(bind(id, addresses[4]), None);
        assert_eq!(bind(id, addresses[2]), Some(2));
        assert_eq!(real(id, 2), addresses[2]);
        forget_unloaded();
        assert_eq!(bind(id, addresses[4]), Some(0));
    }
}
