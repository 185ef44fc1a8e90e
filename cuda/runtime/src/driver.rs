//! The way to the driver: one `dlopen`, one `dlsym`, and from then on `cuGetProcAddress` alone.
//!
//! The table of entry points is `driver_table`; here stands how a row becomes a pointer. All rows are asked for
//! at once, the stream rows twice (the legacy default stream, and the thread's own), and the answers are kept.

use crate::error::{Code, Outcome};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// What a call takes the default stream to be: the flag values of `cuGetProcAddress`.
#[derive(Clone, Copy, PartialEq)]
pub enum Via {
    Legacy = 0,
    PerThread = 2,
}

impl Via {
    pub fn slot(self) -> usize {
        if self == Via::PerThread { 1 } else { 0 }
    }
}

/// For entry points that know no stream.
pub const D: Via = Via::Legacy;

pub type Slots = [AtomicPtr<c_void>; 2];

pub const fn empty() -> Slots {
    [AtomicPtr::new(null_mut()), AtomicPtr::new(null_mut())]
}

pub struct Row {
    pub name: &'static CStr,
    pub since: c_int,
    pub streams: bool,
}

type Lookup = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

static LOOKUP: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Opens the driver and asks for every row, once. Without a driver every later call says so.
pub extern "C" fn open() {
    static OPENED: Once = Once::new();
    OPENED.call_once(|| {
        // SAFETY: plain loader calls with constant strings; `dlsym` goes through the program's own PLT.
        let lookup = unsafe {
            let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
            if library.is_null() {
                return;
            }
            libc::dlsym(library, c"cuGetProcAddress_v2".as_ptr())
        };
        LOOKUP.store(lookup, Relaxed);
        if lookup.is_null() {
            return;
        }
        let newest = crate::state::toolkit_version();
        for (row, slots) in crate::driver_table::rows() {
            if row.since > newest {
                continue;
            }
            let legacy = find(row.name, row.since, Via::Legacy as u64, null_mut()).unwrap_or(null_mut());
            let own = if row.streams {
                find(row.name, row.since.max(PER_THREAD_SINCE), Via::PerThread as u64, null_mut())
                    .unwrap_or(null_mut())
            } else {
                legacy
            };
            slots[0].store(legacy, Relaxed);
            slots[1].store(own, Relaxed);
        }
    });
}

/// Asks the driver for one entry point. The driver's own code on failure.
pub fn find(name: &CStr, version: c_int, flags: u64, status: *mut c_int) -> Result<*mut c_void, Code> {
    let lookup = LOOKUP.load(Relaxed);
    if lookup.is_null() {
        return Err(Code::INSUFFICIENT_DRIVER);
    }
    let mut found = null_mut();
    // SAFETY: the pointer came from the driver under this name, which fixes the signature.
    let code = unsafe {
        let lookup: Lookup = std::mem::transmute(lookup);
        lookup(name.as_ptr(), &mut found, version, flags, status)
    };
    if code == 0 { Ok(found) } else { Err(Code(code)) }
}

/// The pointer of a row, or the error a caller gets in its place.
pub fn pointer(slots: &Slots, via: Via) -> Result<*mut c_void, Code> {
    let pointer = slots[via.slot()].load(Relaxed);
    if !pointer.is_null() {
        return Ok(pointer);
    }
    open();
    let pointer = slots[via.slot()].load(Relaxed);
    if !pointer.is_null() {
        Ok(pointer)
    } else if LOOKUP.load(Relaxed).is_null() {
        Err(Code::INSUFFICIENT_DRIVER)
    } else {
        Err(Code::NOT_SUPPORTED)
    }
}

/// The per-thread-stream forms of all functions came with CUDA 7.
const PER_THREAD_SINCE: c_int = 7000;

/// Driver codes are runtime codes: the numbers have been the same since CUDA 10.1.
pub fn check(code: c_int) -> Outcome {
    if code == 0 { Ok(()) } else { Err(Code(code)) }
}
