//! A short-lived thread of ours that takes the GIL, where the main thread does not come to what the interpreter was asked
//! for: it waits in `join` while another one trains. Knows nothing of what is asked for.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::*};

use crate::loader::link_map;
use crate::python::interpreter::{self, Interpreter};
use crate::writer::signals::with_signals_blocked;

/// How long it waits for the main thread each time, and how many times.
const PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };
const PAUSES: u32 = 200;

/// Whether the helper has anything to do.
pub enum Turn {
    Now,
    Later,
    /// It was done, or is not wanted any more.
    Never,
}

pub struct Helper {
    turn: fn() -> Turn,
    act: unsafe fn(&'static Interpreter),
    runs: AtomicBool,
}

impl Helper {
    /// `act` is called with the GIL held.
    pub const fn new(turn: fn() -> Turn, act: unsafe fn(&'static Interpreter)) -> Helper {
        Helper { turn, act, runs: AtomicBool::new(false) }
    }

    /// Starts it, if it does not run. A program that was attached to gets no thread of ours.
    pub fn start(&'static self) {
        if link_map::is_late() || self.runs.swap(true, AcqRel) {
            return;
        }
        // Started with all signals blocked, it never takes one: those are for the program's threads.
        // SAFETY: plain thread creation; the thread is detached and ends by itself, and what it is given lives for ever.
        let started = with_signals_blocked(|| unsafe {
            let mut thread = std::mem::zeroed();
            let entry: extern "C" fn(*mut c_void) -> *mut c_void =
                std::mem::transmute::<extern "C-unwind" fn(*mut c_void) -> *mut c_void, _>(run);
            let argument = ptr::from_ref(self).cast_mut().cast();
            libc::pthread_create(&mut thread, ptr::null(), entry, argument) == 0
                && libc::pthread_detach(thread) == 0
        });
        if !started {
            self.runs.store(false, Release);
        }
    }

    /// In a forked child it does not exist.
    pub fn after_fork_child(&self) {
        self.runs.store(false, Release);
    }
}

/// Unwinding passes through: an interpreter that is shutting down ends threads that ask for its GIL.
extern "C-unwind" fn run(helper: *mut c_void) -> *mut c_void {
    // SAFETY: what `start` has given.
    let helper = unsafe { &*helper.cast_const().cast::<Helper>() };
    for _ in 0..PAUSES {
        // SAFETY: a constant duration.
        unsafe { libc::nanosleep(&PAUSE, ptr::null_mut()) };
        let Some(python) = interpreter::get() else { break };
        let calls = &python.api.functions;
        match (helper.turn)() {
            Turn::Never => break,
            // SAFETY: the interpreter is up; Ensure and Release pair.
            Turn::Now if unsafe { (calls.Py_IsInitialized)() } != 0 => unsafe {
                let gil = (calls.PyGILState_Ensure)();
                (helper.act)(python);
                (calls.PyGILState_Release)(gil);
            },
            _ => {}
        }
    }
    helper.runs.store(false, Release);
    ptr::null_mut()
}
