//! Text on the program's stderr, where there is one. It knows nothing of who speaks.

use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, Ordering::*};

use crate::writer::signals::with_signals_blocked;

/// Whether the program was started without a stderr. What it opens later may get that number.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn constructor() {
        // SAFETY: asks about a number.
        if unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_GETFD) } < 0 {
            IS_CLOSED.store(true, Release);
        }
    }
    constructor
};

/// Writes one line that names leaktrace.
pub fn say(line: &str) {
    write(&format!("leaktrace: {line}\n"));
}

/// Writes text at once and without stdio, which the program may be using. Errors are nobody's: the reader may
/// be gone.
pub fn write(text: &str) {
    if IS_CLOSED.load(Acquire) {
        return;
    }
    // SAFETY: the bytes of `text`.
    with_signals_blocked(|| unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) });
}

/// Returns what was given to us as a part of one line: without line ends, and not endless.
pub fn quoted(given: impl AsRef<OsStr>) -> String {
    const MAX_LENGTH: usize = 200;
    let mut text = String::new();
    for sign in given.as_ref().to_string_lossy().chars() {
        if text.len() >= MAX_LENGTH {
            text.push('…');
            break;
        }
        if sign.is_control() { text.extend(sign.escape_default()) } else { text.push(sign) }
    }
    text
}
