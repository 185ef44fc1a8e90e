//! The search for holders: who asks for it, where it may run, and for how long.
//!
//! It needs the GIL and never waits for it. Where the thread that ended a step has it, the search runs at once; else the
//! interpreter is asked to call back on the main thread when it comes to it.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use crate::analysis::step_boundaries;
use crate::python::api;
use crate::python::heap;
use leaktrace_core::holders::{self, Nodes, Owner, Wanted};

/// The longest a search may take.
pub const BUDGET: Duration = Duration::from_millis(500);

static ASKED: AtomicBool = AtomicBool::new(false);

/// Whether a search may run here and now. If not, the interpreter is asked for a moment, once.
pub fn may_run() -> bool {
    heap::has_gil() || {
        ask();
        false
    }
}

/// Asks the interpreter for a moment. From anywhere, also from inside a hook.
pub fn ask() {
    let Some(python) = api::get() else { return };
    if ASKED.swap(true, AcqRel) {
        return;
    }
    // SAFETY: callable from any thread, with or without the GIL.
    let asked = unsafe {
        (python.Py_IsInitialized)() != 0
            && (python.Py_AddPendingCall)(on_main_thread, std::ptr::null_mut()) == 0
    };
    if !asked {
        ASKED.store(false, Release);
    }
}

unsafe extern "C" fn on_main_thread(_: *mut c_void) -> c_int {
    ASKED.store(false, Release);
    if heap::has_gil() {
        step_boundaries::holders();
    }
    0
}

/// Why there is nothing to search; with the GIL held.
pub fn obstacle() -> Option<String> {
    heap::obstacle()
}

/// Who holds these blocks. With the GIL held: [`may_run`] has just said so, on this thread.
pub fn run(wanted: &[Wanted]) -> Vec<Owner> {
    let blocks: Nodes = wanted.iter().map(|w| (w.block, ())).collect();
    // SAFETY: the GIL is held; nothing in a search runs Python code, so nothing gives it up.
    let heap = unsafe { heap::Heap::new(&blocks, heap::Limit::new(BUDGET)) };
    heap.map_or_else(Vec::new, |mut heap| holders::find(&mut heap, wanted))
}

/// In a forked child nobody was asked.
pub fn after_fork_child() {
    ASKED.store(false, Release);
}
