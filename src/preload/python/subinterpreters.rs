//! More than one Python interpreter in the process. Up to CPython 3.11 a thread is known by its first
//! interpreter's state even while it runs code of another, so that what is allocated there shows at the line
//! that called into it; from 3.12 on the state is that of the interpreter that runs. Knows only whether there
//! are several.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::python::interpreter;
use crate::writer::recording::append_entry;
use leaktrace_core::format::entry::TableEntry;

type State = unsafe extern "C" fn() -> *const u8;

/// `PyInterpreterState_Head` and `PyInterpreterState_Main`; 0: nothing has to be said.
static NEWEST: AtomicUsize = AtomicUsize::new(0);
static MAIN: AtomicUsize = AtomicUsize::new(0);
static REPORTED: AtomicBool = AtomicBool::new(false);

/// The first version that follows the interpreter that runs.
const FOLLOWED: u32 = 12;

/// Looks up what [`check`] asks, where a version needs it. Outside hooks.
pub fn arm() {
    let (Some(python), Some(cpython)) = (interpreter::get(), interpreter::cpython()) else { return };
    if cpython.minor >= FOLLOWED {
        return;
    }
    let symbols = (python.symbol(c"PyInterpreterState_Head"), python.symbol(c"PyInterpreterState_Main"));
    if let (Some(newest), Some(main)) = symbols {
        MAIN.store(main.addr(), Ordering::Relaxed);
        NEWEST.store(newest.addr(), Ordering::Release);
    }
}

/// Reports other interpreters than the main one. To be called on the first sight of a Python stack: what
/// another interpreter allocates comes from a stack that was not there before.
pub fn check() {
    let newest = NEWEST.load(Ordering::Acquire);
    if newest == 0 || REPORTED.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: functions of these names, which read one word each of the interpreter's own; the answers are
    // compared only.
    let (newest, main) = unsafe {
        let function = |address| std::mem::transmute::<usize, State>(address);
        (function(newest)(), function(MAIN.load(Ordering::Relaxed))())
    };
    if !ptr::eq(newest, main) && !newest.is_null() && !REPORTED.swap(true, Ordering::Relaxed) {
        append_entry(&TableEntry::Note {
            text: "more than one Python interpreter: before CPython 3.12, Python stacks inside another than the first are \
                   not taken, and what is allocated there is shown at the line that called into it",
        });
    }
}

/// In a forked child, whose recording does not say it yet.
pub fn after_fork_child() {
    REPORTED.store(false, Ordering::Relaxed);
}
