//! Where a command's text goes: the standard output or a file, with colours or without, and how wide.

use std::fs;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;

use clap::ValueEnum;

use super::Failure;
use crate::render::terminal::WIDTH;

/// When the output is coloured.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    Auto,
    Always,
    Never,
}

impl Colour {
    /// Whether what goes there is coloured.
    pub fn is_on(self, output: Option<&Path>) -> bool {
        match self {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto if output.is_some() => false,
            Colour::Auto => anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never,
        }
    }
}

/// Columns of what goes there.
pub fn width(output: Option<&Path>) -> usize {
    let terminal = output.is_none() && io::stdout().is_terminal();
    match terminal.then(terminal_size::terminal_size).flatten() {
        Some((terminal_size::Width(columns), _)) => usize::from(columns),
        None => WIDTH,
    }
}

/// Writes it there.
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
