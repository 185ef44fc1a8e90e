//! The search for holders: where it may run, and for how long.
//!
//! It needs the GIL and never waits for it. Where the thread that ended a step has it, the search runs at
//! once; else the interpreter is asked to call back on the main thread when it comes to it, or on the helper's, if it does
//! not come to it until somebody asks again.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use crate::python::helper::{Helper, Turn};
use crate::python::interpreter::{self, Interpreter};
use crate::python::{callbacks, heap};
use leaktrace_core::holders::{self, Found, Nodes, Wanted};

static ASKED: AtomicBool = AtomicBool::new(false);
static HELPER: Helper = Helper::new(turn, answer);

/// True if a search may run here and now. If not, somebody may [`ask`] for a moment.
pub fn may_run() -> bool {
    interpreter::get().is_some_and(|python| python.has_gil())
}

/// Asks the interpreter for a moment. From anywhere, also from inside a hook.
pub fn ask() {
    let Some(python) = interpreter::get() else { return };
    if ASKED.swap(true, AcqRel) {
        HELPER.start();
    } else if !python.add_pending_call(on_main_thread) {
        ASKED.store(false, Release);
    }
}

unsafe extern "C" fn on_main_thread(_: *mut c_void) -> c_int {
    // The helper may have been faster.
    if ASKED.swap(false, AcqRel) && may_run() {
        (callbacks::get().may_search)();
    }
    0
}

fn turn() -> Turn {
    if ASKED.load(Acquire) { Turn::Now } else { Turn::Never }
}

unsafe fn answer(_: &'static Interpreter) {
    // SAFETY: it takes nothing.
    unsafe { on_main_thread(ptr::null_mut()) };
}

/// Why nothing can be searched here and now; `None` also where there never was an interpreter.
pub fn obstacle() -> Option<String> {
    let Some(python) = interpreter::get() else {
        if interpreter::has_ended() {
            return Some("the interpreter has ended".into());
        }
        let found = interpreter::description();
        return (!found.is_empty()).then(|| format!("{found} lacks functions that it takes"));
    };
    match python.has_gil() {
        true => heap::obstacle(python),
        false => Some("the interpreter was not free, or had ended".into()),
    }
}

/// Returns who holds these blocks, as far as it shows within some processor time. With the GIL held: [`may_run`] has just said
/// so, on this thread.
pub fn run(wanted: &[Wanted], time: Duration) -> Found {
    let blocks: Nodes = wanted.iter().map(|w| (w.block, ())).collect();
    // SAFETY: the GIL is held; nothing in a search runs Python code, so nothing gives it up.
    let heap = unsafe { heap::Heap::new(&blocks, heap::Limit::new(time)) };
    let found = heap.map_or_else(Found::default, |mut heap| holders::find(&mut heap, wanted));
    Found { collector_is_off: collector_is_off(), ..found }
}

/// Whether the program has switched garbage collection off. With the GIL held.
fn collector_is_off() -> bool {
    let objects = interpreter::get().and_then(|python| python.api.objects.as_ref());
    // SAFETY: it reads one number, and the GIL is held.
    objects.and_then(|objects| objects.collector_is_enabled).is_some_and(|asks| unsafe { asks() } == 0)
}

/// In a forked child nobody was asked.
pub fn after_fork_child() {
    ASKED.store(false, Release);
    HELPER.after_fork_child();
}
