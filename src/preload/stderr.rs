//! Text on the program's stderr, where there is one. It knows nothing of who speaks.

use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, Ordering::*};

use crate::writer::signals::with_signals_blocked;
use leaktrace_core::format::printable::{no_command, printable};

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
pub fn say(text: &str) {
    write(&line(text));
}

/// Returns a line that names leaktrace.
pub fn line(text: &str) -> String {
    format!("leaktrace: {}\n", no_command(&printable(text)))
}

/// Writes text at once and without stdio, which the program may be using. Errors are nobody's: the reader may
/// be gone.
pub fn write(text: &str) {
    if IS_CLOSED.load(Acquire) {
        return;
    }
    let mut rest = text.as_bytes();
    with_signals_blocked(|| {
        while !rest.is_empty() {
            // SAFETY: the bytes that are left.
            let written = unsafe { libc::write(libc::STDERR_FILENO, rest.as_ptr().cast(), rest.len()) };
            match usize::try_from(written) {
                Ok(written @ 1..) => rest = rest.get(written..).unwrap_or_default(),
                _ => break,
            }
        }
    });
}

/// Returns what was given to us as a part of one line: without line ends, and not endless.
pub fn quoted(given: impl AsRef<OsStr>) -> String {
    const MAX_LENGTH: usize = 200;
    let given = given.as_ref().to_string_lossy();
    let mut text = printable(&given).into_owned();
    if let Some(end) = (MAX_LENGTH..text.len()).find(|&at| text.is_char_boundary(at)) {
        text.truncate(end);
        text.push('…');
    }
    text
}
