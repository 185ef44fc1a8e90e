//! Functions of the rest of the library that are called from the interpreter, set when the library is armed.

use std::sync::atomic::{AtomicPtr, Ordering};

/// Functions that are called with the GIL held, outside hooks.
pub struct Callbacks {
    /// An optimizer has stepped; a number, if it is known, tells it from others.
    pub optimizer_stepped: fn(Option<usize>),
    /// An optimizer that has stepped is no more; its number.
    pub optimizer_gone: fn(usize),
    /// The moment that [`search::ask`](crate::python::search::ask) asked for.
    pub may_search: fn(),
    /// The interpreter is about to end, and is whole still; with the type of an exception that nothing caught.
    pub exiting: fn(Option<&str>),
}

static NONE: Callbacks =
    Callbacks { optimizer_stepped: |_| {}, optimizer_gone: |_| {}, may_search: || {}, exiting: |_| {} };
static CALLBACKS: AtomicPtr<Callbacks> = AtomicPtr::new((&raw const NONE).cast_mut());

pub fn set(callbacks: &'static Callbacks) {
    CALLBACKS.store(std::ptr::from_ref(callbacks).cast_mut(), Ordering::Release);
}

pub fn get() -> &'static Callbacks {
    // SAFETY: what `set` was given, or `NONE`: both live for ever, and are only read.
    unsafe { &*CALLBACKS.load(Ordering::Acquire) }
}
