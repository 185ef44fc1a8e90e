//! Where the calling thread's frames begin, in the interpreter's own memory.
//!
//! Nothing of Python's is called but two functions that only read a flag and a thread-local, and no GIL is
//! taken. What makes that sound: a thread's frames change only by that thread, which is here now; frames keep
//! their code objects alive, and code objects their names and line tables; and the interpreter does not end
//! during a read section. A layout that no stack has confirmed is not used (see [`verify()`]).

use std::ptr;
use std::sync::atomic::Ordering;

use crate::coverage_gaps;
use crate::python::interpreter::{self, Cpython};
use crate::python::layout::Links;
use crate::python::lifetime;
use crate::python::memory::read;
use crate::python::verify;

/// The innermost frame of a thread's stack.
#[derive(Clone, Copy)]
pub struct Top {
    pub frame: *const u8,
    pub cpython: &'static Cpython,
}

/// Returns the innermost of the calling thread's frames, if it has any that can be read. In a read section
/// only.
#[inline(always)]
pub fn top() -> Option<Top> {
    let cpython = interpreter::cpython()?;
    let thread = state(cpython)?;
    if !cpython.is_verified.load(Ordering::Relaxed) && !verify_thread(cpython, thread) {
        return None;
    }
    // SAFETY: the state is this thread's, the layout its version's and confirmed.
    let frame = unsafe { innermost(&cpython.links, thread) };
    (!frame.is_null()).then_some(Top { frame, cpython })
}

/// Returns the calling thread's state.
#[inline(always)]
fn state(cpython: &Cpython) -> Option<*const u8> {
    // SAFETY: a thread state of a version whose layout we know.
    let is_own =
        |state| unsafe { read::<u64>(state, usize::from(cpython.links.thread_id)) } == crate::machine::own_id();
    let main: *const u8 = cpython.main_thread.load(Ordering::Acquire);
    if !main.is_null() && is_own(main) {
        return Some(main);
    }
    // SAFETY: both only read; once the runtime is finalising the flag is off, and thread states may be gone
    // from then on. Where that is watched, the interpreter was there after this thread began its read section
    // (see `lifetime`).
    let thread: *const u8 = unsafe {
        if !cpython.is_watched.load(Ordering::Acquire) && (cpython.is_initialized)() == 0 {
            return None;
        }
        (cpython.this_thread)().cast()
    };
    // The comparison rejects another thread's state: the key it is found by may have been given to somebody
    // else.
    (!thread.is_null() && is_own(thread)).then_some(thread)
}

/// Returns the innermost frame of a thread.
///
/// # Safety
/// `thread` is the state of the calling thread or the GIL is held, `links` its version's.
#[inline(always)]
pub unsafe fn innermost(links: &Links, thread: *const u8) -> *const u8 {
    // SAFETY: the caller's word; the C frame lives on the stack of the running evaluation loop.
    unsafe {
        let frame = read::<*const u8>(thread, usize::from(links.thread_frame));
        match links.cframe {
            Links::NO_CFRAME => frame,
            _ if frame.is_null() => frame,
            at => read(frame, usize::from(at)),
        }
    }
}

/// True once a stack has confirmed the layout. `threads`, whose states are alive while the GIL is held, are
/// looked at for one.
pub fn verify(cpython: &'static Cpython, mut threads: impl Iterator<Item = u64>) -> bool {
    cpython.is_verified.load(Ordering::Relaxed)
        || threads.any(|thread| verify_thread(cpython, ptr::with_exposed_provenance(thread as usize)))
}

/// Compares a stack with the layout; one that contradicts it switches Python stacks off, for good. Returns
/// false while there is no stack to look at, too.
#[cold]
#[inline(never)]
fn verify_thread(cpython: &'static Cpython, thread: *const u8) -> bool {
    match verify::confirms(cpython, thread.addr()) {
        Ok(true) => cpython.is_verified.store(lifetime::watch(), Ordering::Relaxed),
        Ok(false) => return false,
        Err(verify::Contradicts) => {
            interpreter::refuse(cpython);
            coverage_gaps::report(interpreter::description());
            return false;
        }
    }
    true
}
