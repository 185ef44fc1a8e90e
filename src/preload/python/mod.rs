//! Everything that knows CPython: its C API, the layout of its memory, frames, code objects, the collector
//! and the objects on its heap; and what we have the interpreter call: at an optimizer's step, at its end,
//! and when a search is due. Never from inside a hook: a hook only *pokes*, and the interpreter calls back on
//! the main thread when it comes to it, GIL in hand.
//!
//! No Python source is run, nothing is imported that the program did not import, no object of the program is
//! kept. Knows neither stacks' ids nor CUDA.
//!
//! ```text
//!  api, layout, memory ◀─ interpreter ◀─ lifetime ◀─ current ◀─ walk ◀─ codes ◀─ frames
//!  (pure)                 alive or not    its end     top frame  ◀─ heap ◀─ search
//! ```

pub mod api;
pub mod callbacks;
pub mod codes;
pub mod current;
mod debug_offsets;
pub mod frames;
mod gc;
mod heap;
mod helper;
mod install;
pub mod interpreter;
mod layout;
mod lifetime;
mod memory;
mod offsets;
mod optimizers;
pub mod packages;
pub mod search;
mod strings;
pub mod subinterpreters;
mod thread_frames;
mod tlbc;
mod uncaught;
mod verify;
pub mod walk;

use crate::coverage_gaps;
pub use crate::python::callbacks::Callbacks;
pub use crate::python::gc::collecting;
pub use crate::python::install::{install_now, is_importing, is_poked, poke, remove};
pub use crate::python::lifetime::ended_at;

/// What a search reads, other threads would change meanwhile; and without one, garbage is not told from what is held.
const NO_HOLDERS: &str =
    "holders are not searched for; garbage that waits for the collector may be taken for a leak";

/// Looks for the interpreter, which calls back `callbacks`. Outside hooks.
pub fn arm(callbacks: &'static Callbacks) {
    callbacks::set(callbacks);
    find();
}

/// Looks for the interpreter. Outside hooks; may be called again when it was not there yet.
pub fn find() {
    interpreter::find();
    subinterpreters::arm();
    if !interpreter::description().is_empty() {
        packages::find();
    }
    match interpreter::cpython() {
        Some(cpython) => {
            codes::watch_deallocation(cpython);
            if cpython.layout.is_free_threaded() {
                coverage_gaps::report(&format!("{}: {NO_HOLDERS}", cpython.name()));
            }
        }
        None if interpreter::has_ended() || interpreter::description().is_empty() => {}
        None => coverage_gaps::report(interpreter::description()),
    }
}

/// In a forked child: what is installed was copied along; what was only asked for is asked for again.
pub fn after_fork_child() {
    interpreter::after_fork_child();
    install::after_fork_child();
    optimizers::after_fork_child();
    search::after_fork_child();
    subinterpreters::after_fork_child();
}
