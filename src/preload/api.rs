//! The one list of entry points. Hooks, look-up, exports and the coverage test are made from it.
//!
//! A row is one exported symbol of the driver or the runtime: the name programs ask for, the symbol, the CUDA version
//! from which on that name means this signature, the hook, and the names that end what it gives.
//!
//! Each hook exists [`SLOTS`] times. A slot is bound to one real address, so a process with two runtimes, or with
//! another interposer between us and the driver, gets each caller to the function it would have reached without us.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};

use super::hooks::{context, device, host, lookup, pool, runtime, virtual_memory};

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

macro_rules! entry_points {
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
            $(super::super::doors::export!($id);)+
        }
    };
}

entry_points! {
    // ── look-up ──────────────────────────────────────────────────────────────────────────────────────────────────
    cuGetProcAddress = Driver "cuGetProcAddress" c"cuGetProcAddress" 11030 false lookup::get_proc_address [];
    cuGetProcAddress_v2 = Driver "cuGetProcAddress" c"cuGetProcAddress_v2" 12000 false lookup::get_proc_address_v2 [];
    cuGetProcAddress_ptsz = Driver "cuGetProcAddress" c"cuGetProcAddress_ptsz" 11030 true lookup::get_proc_address [];
    cuGetProcAddress_v2_ptsz = Driver "cuGetProcAddress" c"cuGetProcAddress_v2_ptsz" 12000 true lookup::get_proc_address_v2 [];
    // ── device memory ────────────────────────────────────────────────────────────────────────────────────────────
    cuMemAlloc_v2 = Driver "cuMemAlloc" c"cuMemAlloc_v2" 3020 false device::alloc ["cuMemFree"];
    cuMemAllocPitch_v2 = Driver "cuMemAllocPitch" c"cuMemAllocPitch_v2" 3020 false device::alloc_pitch ["cuMemFree"];
    cuMemAllocManaged = Driver "cuMemAllocManaged" c"cuMemAllocManaged" 6000 false device::alloc_managed ["cuMemFree"];
    cuMemFree_v2 = Driver "cuMemFree" c"cuMemFree_v2" 3020 false device::free [];
    // ── pinned host memory ───────────────────────────────────────────────────────────────────────────────────────
    cuMemHostAlloc = Driver "cuMemHostAlloc" c"cuMemHostAlloc" 2020 false host::host_alloc ["cuMemFreeHost"];
    cuMemAllocHost_v2 = Driver "cuMemAllocHost" c"cuMemAllocHost_v2" 3020 false host::alloc_host ["cuMemFreeHost"];
    cuMemFreeHost = Driver "cuMemFreeHost" c"cuMemFreeHost" 2000 false host::free [];
    // ── stream-ordered memory ────────────────────────────────────────────────────────────────────────────────────
    cuMemAllocAsync = Driver "cuMemAllocAsync" c"cuMemAllocAsync" 11020 false pool::alloc ["cuMemFreeAsync" "cuMemFree"];
    cuMemAllocAsync_ptsz = Driver "cuMemAllocAsync" c"cuMemAllocAsync_ptsz" 11020 true pool::alloc ["cuMemFreeAsync" "cuMemFree"];
    cuMemAllocFromPoolAsync = Driver "cuMemAllocFromPoolAsync" c"cuMemAllocFromPoolAsync" 11020 false pool::alloc_from_pool ["cuMemFreeAsync" "cuMemFree"];
    cuMemAllocFromPoolAsync_ptsz = Driver "cuMemAllocFromPoolAsync" c"cuMemAllocFromPoolAsync_ptsz" 11020 true pool::alloc_from_pool ["cuMemFreeAsync" "cuMemFree"];
    cuMemFreeAsync = Driver "cuMemFreeAsync" c"cuMemFreeAsync" 11020 false pool::free [];
    cuMemFreeAsync_ptsz = Driver "cuMemFreeAsync" c"cuMemFreeAsync_ptsz" 11020 true pool::free [];
    // ── virtual memory management ────────────────────────────────────────────────────────────────────────────────
    cuMemAddressReserve = Driver "cuMemAddressReserve" c"cuMemAddressReserve" 10020 false virtual_memory::reserve ["cuMemAddressFree"];
    cuMemAddressFree = Driver "cuMemAddressFree" c"cuMemAddressFree" 10020 false virtual_memory::unreserve [];
    cuMemCreate = Driver "cuMemCreate" c"cuMemCreate" 10020 false virtual_memory::create ["cuMemRelease" "cuMemUnmap"];
    cuMemRelease = Driver "cuMemRelease" c"cuMemRelease" 10020 false virtual_memory::release [];
    cuMemRetainAllocationHandle = Driver "cuMemRetainAllocationHandle" c"cuMemRetainAllocationHandle" 11000 false virtual_memory::retain ["cuMemRelease"];
    cuMemMap = Driver "cuMemMap" c"cuMemMap" 10020 false virtual_memory::map ["cuMemUnmap"];
    cuMemUnmap = Driver "cuMemUnmap" c"cuMemUnmap" 10020 false virtual_memory::unmap [];
    // ── what ends memory without naming it ───────────────────────────────────────────────────────────────────────
    cuCtxDestroy_v2 = Driver "cuCtxDestroy" c"cuCtxDestroy_v2" 4000 false context::destroy [];
    cuDevicePrimaryCtxReset_v2 = Driver "cuDevicePrimaryCtxReset" c"cuDevicePrimaryCtxReset_v2" 7000 false context::reset_primary [];
    cuDevicePrimaryCtxRelease_v2 = Driver "cuDevicePrimaryCtxRelease" c"cuDevicePrimaryCtxRelease_v2" 7000 false context::release_primary [];
    // ── capture: while it lasts, the driver must not be asked anything ───────────────────────────────────────────
    cuStreamBeginCapture_v2 = Driver "cuStreamBeginCapture" c"cuStreamBeginCapture_v2" 10010 false context::begin_capture [];
    cuStreamBeginCapture_v2_ptsz = Driver "cuStreamBeginCapture" c"cuStreamBeginCapture_v2_ptsz" 10010 true context::begin_capture [];
    cuStreamEndCapture = Driver "cuStreamEndCapture" c"cuStreamEndCapture" 10000 false context::end_capture [];
    cuStreamEndCapture_ptsz = Driver "cuStreamEndCapture" c"cuStreamEndCapture_ptsz" 10000 true context::end_capture [];
    // ── the runtime: names what happens inside it ────────────────────────────────────────────────────────────────
    cudaMalloc = Runtime "cudaMalloc" c"cudaMalloc" 0 false runtime::malloc ["cudaFree"];
    cudaMallocManaged = Runtime "cudaMallocManaged" c"cudaMallocManaged" 0 false runtime::malloc_managed ["cudaFree"];
    cudaMallocPitch = Runtime "cudaMallocPitch" c"cudaMallocPitch" 0 false runtime::malloc_pitch ["cudaFree"];
    cudaMalloc3D = Runtime "cudaMalloc3D" c"cudaMalloc3D" 0 false runtime::malloc_3d ["cudaFree"];
    cudaMallocAsync = Runtime "cudaMallocAsync" c"cudaMallocAsync" 0 false runtime::malloc_async ["cudaFreeAsync" "cudaFree"];
    cudaMallocAsync_ptsz = Runtime "cudaMallocAsync" c"cudaMallocAsync_ptsz" 0 true runtime::malloc_async ["cudaFreeAsync" "cudaFree"];
    cudaMallocFromPoolAsync = Runtime "cudaMallocFromPoolAsync" c"cudaMallocFromPoolAsync" 0 false runtime::malloc_from_pool ["cudaFreeAsync" "cudaFree"];
    cudaMallocFromPoolAsync_ptsz = Runtime "cudaMallocFromPoolAsync" c"cudaMallocFromPoolAsync_ptsz" 0 true runtime::malloc_from_pool ["cudaFreeAsync" "cudaFree"];
    cudaMallocHost = Runtime "cudaMallocHost" c"cudaMallocHost" 0 false runtime::malloc_host ["cudaFreeHost"];
    cudaHostAlloc = Runtime "cudaHostAlloc" c"cudaHostAlloc" 0 false runtime::host_alloc ["cudaFreeHost"];
    cudaFree = Runtime "cudaFree" c"cudaFree" 0 false runtime::free [];
    cudaFreeAsync = Runtime "cudaFreeAsync" c"cudaFreeAsync" 0 false runtime::free_async [];
    cudaFreeAsync_ptsz = Runtime "cudaFreeAsync" c"cudaFreeAsync_ptsz" 0 true runtime::free_async [];
    cudaFreeHost = Runtime "cudaFreeHost" c"cudaFreeHost" 0 false runtime::free_host [];
}

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
        if !address.is_null() && super::elf::object_of(address).is_none() {
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

/// The row of a symbol of `library`, as exported.
pub fn row_of_symbol(symbol: &CStr) -> Option<usize> {
    ENTRY_POINTS.iter().position(|e| e.symbol == symbol).map(|i| i + 1)
}
