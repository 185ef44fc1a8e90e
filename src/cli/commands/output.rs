//! Where a command's text goes: the standard output or a file, with colors or without, and how wide it is.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use clap::ValueEnum;
use rustix::termios::tcgetwinsize;

use super::Failure;
use leaktrace_core::report::text::WIDTH;

/// When the output is colored.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

impl Color {
    /// Returns true if text that goes to `output`, or to the standard output, is colored.
    pub fn is_on(self, output: Option<&Path>) -> bool {
        match self {
            Color::Always => true,
            Color::Never => false,
            Color::Auto if output.is_some() => false,
            Color::Auto => anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never,
        }
    }
}

/// Returns the columns of the terminal that text goes to, or a usual width where it goes elsewhere.
pub fn width(output: Option<&Path>) -> usize {
    // Without a file, and only a terminal has a size.
    let size = output.is_none().then(|| tcgetwinsize(io::stdout())).and_then(Result::ok);
    size.map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0).unwrap_or(WIDTH)
}

/// Writes text to `output`, or to the standard output.
pub fn write(output: Option<&Path>, text: &[u8]) -> Result<(), Failure> {
    match output {
        Some(path) => fs::write(path, text).map_err(|e| Failure(format!("{}: {e}", path.display()))),
        None => match io::stdout().write_all(text) {
            // `leaktrace report … | head`
            Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure(format!("standard output: {e}"))),
            _ => Ok(()),
        },
    }
}
