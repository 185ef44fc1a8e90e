//! The way to the driver: one `dlopen`, one `dlsym`, and from then on `cuGetProcAddress` alone.
//!
//! All rows of a table of functions are looked up at once, those that take a stream twice (for the legacy
//! default stream, and for the thread's own), and the pointers are kept in the table.

use crate::error::{Code, Outcome};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Which default stream a null stream handle means, as the flag of `cuGetProcAddress`.
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

/// The choice for functions that take no stream.
pub const D: Via = Via::Legacy;

pub type Slots = [AtomicPtr<c_void>; 2];

pub const fn empty() -> Slots {
    [AtomicPtr::new(null_mut()), AtomicPtr::new(null_mut())]
}

/// A function of the driver: what it is looked up by, and its pointers.
pub struct Row {
    pub name: &'static CStr,
    /// The CUDA version that introduced it.
    pub since: c_int,
    /// Whether it exists for either default stream.
    pub streams: bool,
    pub pointers: &'static Slots,
}

type Lookup = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

static LOOKUP: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Opens the driver and looks every row up, once. Without a driver every later call says so.
pub fn open(rows: &[Row]) {
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
        // That of CUDA 11 loads code as that of 12 does.
        let newest = crate::version::toolkit_version().max(12000);
        for row in rows {
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
            row.pointers[0].store(legacy, Relaxed);
            row.pointers[1].store(own, Relaxed);
        }
    });
}

/// Looks one function up. The error is the driver's own code.
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

/// Returns one of a row's pointers, or the error that a caller gets in its place.
pub fn pointer(rows: &[Row], slots: &Slots, via: Via) -> Result<*mut c_void, Code> {
    let pointer = slots[via.slot()].load(Relaxed);
    if !pointer.is_null() {
        return Ok(pointer);
    }
    open(rows);
    let pointer = slots[via.slot()].load(Relaxed);
    if !pointer.is_null() {
        Ok(pointer)
    } else if LOOKUP.load(Relaxed).is_null() {
        Err(Code::INSUFFICIENT_DRIVER)
    } else {
        Err(Code::NOT_SUPPORTED)
    }
}

/// The CUDA version that brought the per-thread forms of all functions.
const PER_THREAD_SINCE: c_int = 7000;

/// Turns a driver's code into an outcome. The numbers are the runtime's own since CUDA 10.1.
pub fn check(code: c_int) -> Outcome {
    if code == 0 { Ok(()) } else { Err(Code(code)) }
}
