//! The shield around our half of a hook: errno is kept, and a panic of ours ends the tracing, not the
//! program.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::allocator;
use crate::state;

const FAULT: &str = "a fault inside leaktrace; tracing is switched off, the program goes on";
const OUT_OF_MEMORY: &str = "no memory left for leaktrace; tracing is switched off, the program goes on";

/// Runs our half of a hook. Whatever happens in it, the caller sees the errno from before, and no panic.
#[inline]
pub fn shield(ours: impl FnOnce()) {
    // SAFETY: the calling thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: valid for the thread's life.
    let kept = unsafe { *errno };
    if catch_unwind(AssertUnwindSafe(ours)).is_err() {
        disable(FAULT);
    }
    if allocator::reserve_was_used() {
        disable(OUT_OF_MEMORY);
    }
    // SAFETY: as above.
    unsafe { *errno = kept };
}

#[cold]
#[inline(never)]
fn disable(why: &str) {
    state::disable(why);
}
