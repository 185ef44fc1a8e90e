//! What we ask of the interpreter itself: to be told of optimizer steps and of the end. Never from inside a hook: a
//! hook only *pokes*, and the interpreter calls back on the main thread when it comes to it, GIL in hand.
//!
//! No Python source is run, nothing is imported that the program did not import, no object of the program is kept.

pub mod all_frames;
mod api;
pub mod codes;
pub mod cpython;
pub mod frames;
mod gc;
mod heap;
mod install;
pub mod interpreters;
pub mod layout;
pub mod lifetime;
pub mod search;
pub mod strings;
pub mod verify;
pub mod walk;

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::*};

/// 0 not installed, 1 asked, 2 installed.
#[unsafe(link_section = ".data.leaktrace")]
static STATE: AtomicU8 = AtomicU8::new(0);
static POKES: AtomicU32 = AtomicU32::new(0);
const WANTED: u8 = 0;
const ASKED: u8 = 1;
const INSTALLED: u8 = 2;

/// Looks up the interpreter's functions, if there is one.
pub fn arm() {
    api::arm();
    heap::arm();
}

/// True while a block hook has to see to it that the hooks get installed.
#[inline(always)]
pub fn is_poked() -> bool {
    STATE.load(Relaxed) == WANTED
}

/// From a block hook: sees to it that the hooks get installed. Two loads once they are.
#[inline(always)]
pub fn poke() {
    if is_poked() {
        ask();
    }
}

/// Every so many blocks: PyTorch may still be importing its optimizers.
const INTERVAL: u32 = 16;

#[cold]
fn ask() {
    if !POKES.fetch_add(1, Relaxed).is_multiple_of(INTERVAL) {
        return;
    }
    if STATE.compare_exchange(WANTED, ASKED, AcqRel, Acquire).is_ok() && !install::schedule() {
        STATE.store(WANTED, Release);
    }
}

pub use crate::python::gc::collecting;

/// In a forked child: what is installed was copied along; what was only asked for is asked for again.
pub fn after_fork_child() {
    if STATE.load(Acquire) == ASKED {
        STATE.store(WANTED, Release);
    }
    install::after_fork_child();
    search::after_fork_child();
}
