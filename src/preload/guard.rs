//! Guards around our half of a hook: errno is kept, and a panic of ours ends the tracing, not the program.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::life;

/// Runs our half: whatever happens in it, the caller sees the errno from before, and no panic.
#[inline]
pub fn fenced(ours: impl FnOnce()) {
    // SAFETY: the calling thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: valid for the thread's life.
    let kept = unsafe { *errno };
    if catch_unwind(AssertUnwindSafe(ours)).is_err() {
        life::off("a fault inside leaktrace; tracing is switched off, the program goes on");
    }
    // SAFETY: as above.
    unsafe { *errno = kept };
}

/// One line on stderr.
pub fn say(line: &str) {
    write(&format!("leaktrace: {line}\n"));
}

/// Text on stderr, at once and without stdio: the program may be using it.
pub fn write(text: &str) {
    // SAFETY: the bytes of `text`. A closed stderr is an error nobody needs to hear of.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}
