//! Where a framework's blocks, steps and failures are seen.
//!
//! It knows the symbols of the frameworks. What a step is, and what becomes of a block, is not decided here.

pub mod pjrt;
pub mod tensorflow;
pub mod torch;

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use crate::loader::link_map;
use crate::python;

/// A framework's function that we interpose, and the address of the real one.
struct Original {
    symbol: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Original {
    const fn new(symbol: &'static CStr) -> Original {
        Original { symbol, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns the address, which is found once, without the loader.
    #[inline(always)]
    fn get(&self) -> *mut c_void {
        let known = self.address.load(Acquire);
        if known.is_null() { self.find() } else { known }
    }

    #[cold]
    #[inline(never)]
    fn find(&self) -> *mut c_void {
        let found = link_map::find_in_any(self.symbol).unwrap_or(std::ptr::null_mut());
        self.address.store(found, Release);
        found
    }
}

/// Blocks at which the interpreter is asked for a moment, to have its end reported: it may not run Python when the
/// first one is made.
const POKES: u32 = 4096;

/// Asks for that moment, at the first blocks of a framework that is known not to be PyTorch.
fn poke_at_first() {
    static MADE: AtomicU32 = AtomicU32::new(0);
    if MADE.load(Relaxed) < POKES {
        MADE.fetch_add(1, Relaxed);
        python::poke();
    }
}

/// Whether what happens is recorded. It may be the first event of all.
fn is_recorded() -> bool {
    crate::state::is_recording() || crate::lifecycle::start()
}
