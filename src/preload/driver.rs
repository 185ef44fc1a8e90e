//! The driver as we know it: which row an address belongs to, and the few cheap questions we ask it ourselves.
//!
//! Nothing is asked while a stream capture is under way: capture forbids most calls.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering::*};

use super::api::{self, ENTRY_POINTS, Library};
use super::hooks::Status;
use super::{elf, life};
use crate::trace::record::NO_DEVICE;
use cudarc::driver::sys::CUcontext;

/// A function of the driver that we call ourselves.
struct Question {
    symbol: &'static CStr,
    address: AtomicPtr<c_void>,
}

macro_rules! questions {
    ($($name:ident $symbol:literal;)+) => {
        $(static $name: Question = Question { symbol: $symbol, address: AtomicPtr::new(std::ptr::null_mut()) };)+
        static QUESTIONS: &[&Question] = &[$(&$name),+];
    };
}

questions! {
    CTX_GET_DEVICE c"cuCtxGetDevice";
    CTX_GET_CURRENT c"cuCtxGetCurrent";
    PRIMARY_STATE c"cuDevicePrimaryCtxGetState";
    PRIMARY_RETAIN c"cuDevicePrimaryCtxRetain";
    PRIMARY_RELEASE c"cuDevicePrimaryCtxRelease_v2";
    DEVICE_NAME c"cuDeviceGetName";
    DEVICE_TOTAL c"cuDeviceTotalMem_v2";
    MEM_INFO c"cuMemGetInfo_v2";
    DEVICE_POOL c"cuDeviceGetMemPool";
    POOL_ATTRIBUTE c"cuMemPoolGetAttribute";
}

/// Calls a question if the driver has it.
macro_rules! ask {
    ($question:ident, ($($arg:expr),*) as ($($type:ty),*)) => {{
        let address = $question.address.load(Acquire);
        // SAFETY: the address of the driver's function of that name, whose documented signature this is.
        (!address.is_null()).then(|| unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> Status>(address)($($arg),*)
        })
    }};
}

/// Where the real driver's functions are, by row: the addresses that tell what a look-up returned.
static ADDRESSES: [AtomicPtr<c_void>; ENTRY_POINTS.len() + 1] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; ENTRY_POINTS.len() + 1];
static CAPTURES: AtomicI32 = AtomicI32::new(0);

/// Learns the driver's addresses from a function of it.
pub fn learn(row: usize, function: *const c_void) {
    let known = !CTX_GET_DEVICE.address.load(Acquire).is_null();
    if known || api::entry_point(row).library != Library::Driver {
        return;
    }
    let Some(object) = elf::object_of(function) else { return };
    for (i, entry) in ENTRY_POINTS.iter().enumerate() {
        if entry.library == Library::Driver
            && let Some(address) = object.find(entry.symbol)
        {
            ADDRESSES[i + 1].store(address, Release);
        }
    }
    // The first question last: it is the one that says all are known.
    for question in QUESTIONS.iter().rev() {
        if let Some(address) = object.find(question.symbol) {
            question.address.store(address, Release);
        }
    }
}

/// Libraries were unloaded. A driver that is gone is asked nothing more; another may come, elsewhere.
pub fn forget_unloaded() {
    let first = CTX_GET_DEVICE.address.load(Acquire);
    let there = elf::object_of(first).and_then(|object| object.find(CTX_GET_DEVICE.symbol));
    if first.is_null() || there == Some(first) {
        return;
    }
    for question in QUESTIONS {
        question.address.store(std::ptr::null_mut(), Release);
    }
    for address in &ADDRESSES {
        address.store(std::ptr::null_mut(), Release);
    }
}

/// What a look-up for `name` is to return instead of `address`.
pub fn hook_for(name: &CStr, address: *mut c_void, version: i32, flags: u64) -> *const c_void {
    if !name.to_bytes().starts_with(b"cu") {
        return address;
    }
    let mut known = None;
    for (i, entry) in ENTRY_POINTS.iter().enumerate() {
        if entry.library != Library::Driver || entry.name.as_bytes() != name.to_bytes() {
            continue;
        }
        if ADDRESSES[i + 1].load(Acquire) == address {
            known = Some(i + 1);
            break;
        }
        // No export has this address (an alias inside the driver): the documented rule decides.
        let fits = entry.since <= version && entry.per_thread == (flags & PER_THREAD_STREAM != 0);
        let streamless = entry.since <= version && !entry.per_thread;
        if fits || (streamless && known.is_none()) {
            known = Some(i + 1);
        }
    }
    let Some(row) = known else { return address };
    life::arm();
    learn(row, address);
    api::bind(row, address).unwrap_or_else(|| {
        life::too_many_providers(row);
        address
    })
}

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`
const PER_THREAD_STREAM: u64 = 2;

/// The calling thread's device, and the number of its current context.
pub fn current() -> (u8, u8) {
    let mut device = -1i32;
    let mut context: CUcontext = std::ptr::null_mut();
    let known = ask!(CTX_GET_DEVICE, (&mut device) as (*mut i32)) == Some(0);
    let _ = ask!(CTX_GET_CURRENT, (&mut context) as (*mut CUcontext));
    (if known { device as u8 } else { NO_DEVICE }, context_number(context))
}

static CONTEXTS: [AtomicPtr<c_void>; 255] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 255];

/// A context's number, from 1; 0 for none, or beyond the 255th.
pub fn context_number(context: CUcontext) -> u8 {
    if context.is_null() {
        return 0;
    }
    for (i, known) in CONTEXTS.iter().enumerate() {
        match known.compare_exchange(std::ptr::null_mut(), context.cast(), AcqRel, Acquire) {
            Ok(_) => return i as u8 + 1,
            Err(taken) if taken == context.cast() => return i as u8 + 1,
            Err(_) => {}
        }
    }
    0
}

/// The number of a device's primary context; 0 if it is not active or cannot be told.
pub fn primary_context_number(device: i32) -> u8 {
    if !primary_context_active(device) {
        return 0;
    }
    let mut context: CUcontext = std::ptr::null_mut();
    if ask!(PRIMARY_RETAIN, (&mut context, device) as (*mut CUcontext, i32)) != Some(0) {
        return 0;
    }
    let _ = ask!(PRIMARY_RELEASE, (device) as (i32));
    context_number(context)
}

/// True while a device's primary context is alive.
pub fn primary_context_active(device: i32) -> bool {
    let (mut flags, mut active) = (0u32, 0i32);
    ask!(PRIMARY_STATE, (device, &mut flags, &mut active) as (i32, *mut u32, *mut i32)) == Some(0)
        && active != 0
}

/// Name and total bytes of a device.
pub fn describe(device: u8) -> Option<(String, u64)> {
    let mut name = [0 as c_char; 128];
    let mut total = 0usize;
    let asked = ask!(DEVICE_NAME, (name.as_mut_ptr(), 127, i32::from(device)) as (*mut c_char, i32, i32));
    let _ = ask!(DEVICE_TOTAL, (&mut total, i32::from(device)) as (*mut usize, i32));
    // SAFETY: NUL-terminated: the last byte was never offered to the driver.
    (asked == Some(0))
        .then(|| (unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned(), total as u64))
}

/// Free and total bytes of the current device, as the driver counts them.
pub fn memory_info() -> Option<(u64, u64)> {
    let (mut free, mut total) = (0usize, 0usize);
    (ask!(MEM_INFO, (&mut free, &mut total) as (*mut usize, *mut usize)) == Some(0))
        .then_some((free as u64, total as u64))
}

/// Bytes reserved and used by a device's current stream-ordered pool.
pub fn pool_totals(device: u8) -> Option<(u64, u64)> {
    /// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`, `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`
    const RESERVED: u32 = 5;
    const USED: u32 = 7;
    let mut pool: *mut c_void = std::ptr::null_mut();
    if ask!(DEVICE_POOL, (&mut pool, i32::from(device)) as (*mut *mut c_void, i32)) != Some(0) {
        return None;
    }
    let attribute = |which: u32| {
        let mut value = 0u64;
        let asked =
            ask!(POOL_ATTRIBUTE, (pool, which, (&raw mut value).cast()) as (*mut c_void, u32, *mut c_void));
        (asked == Some(0)).then_some(value)
    };
    Some((attribute(RESERVED)?, attribute(USED)?))
}

/// A stream capture begins.
pub fn capture_begins() {
    CAPTURES.fetch_add(1, AcqRel);
}

/// A stream capture ended.
pub fn capture_ends() {
    CAPTURES.fetch_sub(1, AcqRel);
}

/// True while the driver may be asked.
pub fn may_ask() -> bool {
    CAPTURES.load(Acquire) <= 0
}
