//! Where a framework's blocks, steps and failures are seen.
//!
//! It knows the symbols of the frameworks. What a step is, and what becomes of a block, is not decided here.
//!
//! # How to add a framework
//!
//! 1. `leaktrace_core::frameworks`: a row. Which Python packages are its own, whether their innermost frames are left out
//!    of stacks, the number that its blocks bear, what an installation must have, and the words of its users: what to keep
//!    instead of an array, what gives cached memory back. Reports, the loop detector, the advice and `leaktrace doctor` read
//!    nothing else of it.
//! 2. A module here, which exports the framework's own functions under their names ([`torch`], [`tensorflow`]), or stands
//!    in front of the table that gives them ([`pjrt`]), or registers what the framework calls back ([`cupy`]). It says, by
//!    `hooks::record`, when a block is given out (`block_alloc`, after the real call), when it ends (`block_free`, before it), when memory ran out, and when something
//!    trained. It knows the device and the bytes of a block; where the block's own address is no pointer it says in which
//!    segment it lies. Call the real function with no lock held, and never change what it answers.
//! 3. `python::heap::natives`: if objects of Python's hold its blocks other than by their bare address, a row, and a module
//!    that goes from the object to the address by the names of C++ classes alone.
//! 4. `cuda/stubs`: what the simulated GPU has to have for it, if it needs libraries that are not there.
//! 5. Programs that leak, and mended ones, whose truth comes from the framework's own counters: `scripts/dev/frameworks`, and
//!    one in `tests/` for what has to hold at every change. `leaktrace doctor` and README's table say what is seen of it.
//!
//! A library with an arena of its own, whose parts cannot be seen, needs a row of `leaktrace_core::frameworks::ARENAS` only.

mod cupy;
mod pjrt;
mod tensorflow;
mod torch;

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use crate::loader::link_map;
use crate::lock::RawLock;
use crate::python;

/// Locks of frameworks, in the order of taking.
pub fn locks() -> [&'static RawLock; 1] {
    [pjrt::BUFFERS.raw()]
}

/// Takes what a look-up found, and returns what it is to give.
pub type InFrontOf = fn(*mut c_void) -> *const c_void;

/// Returns what stands in front of this symbol, if a framework has its table of functions by it, or is imported by it.
pub fn in_front_of(symbol: &CStr) -> Option<InFrontOf> {
    if symbol == pjrt::SYMBOL { Some(pjrt::in_front_of) } else { cupy::in_front_of(symbol) }
}

/// After the first block and others: watches the frameworks' steps, once they are there.
#[inline(always)]
pub fn watch_steps() {
    torch::watch_steps();
}

/// Python reports every optimizer's step: the frameworks' own reports of them are no longer needed. Not for the inside of a
/// callback.
pub fn stop_watching_steps() {
    torch::leave_ranges();
}

/// Puts our callbacks into the frameworks that were imported before this library was opened. With the GIL held, if there is
/// one.
pub fn come_late() {
    cupy::come_late();
}

/// Takes our callbacks out of the frameworks, since the tracing ends. Not for the inside of a callback.
pub fn leave() {
    torch::leave();
    cupy::leave();
}

/// Forgets what was written to the parent's recording.
pub fn after_fork_child() {
    pjrt::after_fork_child();
    tensorflow::after_fork_child();
}

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
#[inline(always)]
fn poke_at_first() {
    #[unsafe(link_section = ".data.leaktrace")]
    static MADE: AtomicU32 = AtomicU32::new(0);
    if MADE.load(Relaxed) < POKES {
        poke(&MADE);
    }
}

#[cold]
#[inline(never)]
fn poke(made: &AtomicU32) {
    made.fetch_add(1, Relaxed);
    python::poke();
}

/// Whether what happens is recorded. It may be the first event of all.
fn is_recorded() -> bool {
    crate::state::is_recording() || crate::lifecycle::start()
}
