//! Guards around our half of a hook: errno is kept, and a panic of ours ends the tracing, not the program.

use std::ffi::{OsStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::*};

use crate::allocator;
use crate::lifecycle;
use crate::writer::signals::calmly;

/// Runs our half: whatever happens in it, the caller sees the errno from before, and no panic.
#[inline]
pub fn fenced(ours: impl FnOnce()) {
    // SAFETY: the calling thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: valid for the thread's life.
    let kept = unsafe { *errno };
    if catch_unwind(AssertUnwindSafe(ours)).is_err() {
        off(FAULT);
    }
    if allocator::is_short() {
        off(SHORT);
    }
    // SAFETY: as above.
    unsafe { *errno = kept };
}

#[cold]
#[inline(never)]
fn off(why: &str) {
    lifecycle::off(why);
}

const FAULT: &str = "a fault inside leaktrace; tracing is switched off, the program goes on";
const SHORT: &str = "no memory left for leaktrace; tracing is switched off, the program goes on";

/// Whether the program was started without a stderr. What it opens later may get that number.
static NO_STDERR: AtomicBool = AtomicBool::new(false);

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn constructor() {
        // SAFETY: asks about a number.
        if unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_GETFD) } < 0 {
            NO_STDERR.store(true, Release);
        }
    }
    constructor
};

/// One line on stderr.
pub fn say(line: &str) {
    write(&format!("leaktrace: {line}\n"));
}

/// Text on stderr, at once and without stdio: the program may be using it. Nobody reading it is no trouble of the
/// program's.
pub fn write(text: &str) {
    if NO_STDERR.load(Acquire) {
        return;
    }
    // SAFETY: the bytes of `text`. A closed stderr is an error nobody needs to hear of.
    calmly(|| unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) });
}

/// What was given to us, as a part of one line: nothing in it ends the line, and it is not endless.
pub fn shown(given: impl AsRef<OsStr>) -> String {
    const LONGEST: usize = 200;
    let mut text = String::new();
    for sign in given.as_ref().to_string_lossy().chars() {
        if text.len() >= LONGEST {
            text.push('…');
            break;
        }
        if sign.is_control() { text.extend(sign.escape_default()) } else { text.push(sign) }
    }
    text
}

unsafe extern "C" {
    fn _Unwind_Backtrace(
        step: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIPInfo(context: *mut c_void, before: *mut c_int) -> usize;
}

/// True inside a signal handler. What it interrupted may be any code, with any lock held: this thread's own hook, the
/// allocator, the driver.
pub fn in_signal_handler() -> bool {
    extern "C" fn step(context: *mut c_void, found: *mut c_void) -> c_int {
        let mut interrupted = 0;
        // SAFETY: the unwinder's context, and a place for one number. An address that is not one behind a call is one that
        // a signal came to.
        unsafe {
            _Unwind_GetIPInfo(context, &mut interrupted);
            if interrupted != 0 {
                *found.cast::<bool>() = true;
            }
        }
        // 4: any code but "go on" ends the walk.
        if interrupted != 0 { 4 } else { 0 }
    }
    let mut found = false;
    // SAFETY: the step function has the documented signature; `found` outlives the walk.
    unsafe { _Unwind_Backtrace(step, (&raw mut found).cast()) };
    found
}
