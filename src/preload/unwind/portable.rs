//! The platform's own unwinder (libgcc's, through the `backtrace` crate): for every machine and every stack,
//! at some 100 ns a frame.

use crate::unwind::{Frames, is_own};

/// Adds the frames of the calling thread's stack.
#[cold]
#[inline(never)]
pub fn walk(frames: &mut Frames) {
    let mut followed = false;
    let step = |frame: &backtrace::Frame| {
        let pc = frame.ip().addr() as u64;
        // Past the outermost frame the address is 0; without one the stack goes on where no table tells how.
        followed = pc == 0;
        !followed && (is_own(pc) || frames.push(pc))
    };
    // SAFETY: unsynchronised matters only where symbols are resolved or the backend keeps state; the system's
    // unwinder keeps none, and nothing is resolved here.
    unsafe { backtrace::trace_unsynchronized(step) };
    if !followed {
        frames.truncate();
    }
}
