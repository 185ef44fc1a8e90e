//! Where a command's text goes: the standard output or a file, with colors or without, and how wide it is. A
//! file that is an input of the command, or any recording, is refused before it is opened for writing: a
//! program may be writing there, and what it holds is evidence.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use rustix::termios::tcgetwinsize;

use super::Failure;
use super::input::failure;
use leaktrace_core::format::printable::{no_command, printable};
use leaktrace_core::format::reader;
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

/// Checks that a command with these inputs may write to `output`.
pub fn check(output: Option<&Path>, inputs: &[PathBuf]) -> Result<(), Failure> {
    let Some((path, there)) = output.and_then(|path| Some((path, fs::metadata(path).ok()?))) else {
        return Ok(());
    };
    let same = |m: fs::Metadata| (m.dev(), m.ino()) == (there.dev(), there.ino());
    if there.is_file() && inputs.iter().any(|input| fs::metadata(input).is_ok_and(same)) {
        return Err(failure(path, "is an input of this command: name another file"));
    }
    if there.is_file() && reader::is_recording(path) {
        return Err(failure(path, "is a recording, and recordings are never overwritten: name another file"));
    }
    Ok(())
}

/// Creates a file for the output of a command with these inputs.
pub fn create(path: &Path, inputs: &[PathBuf]) -> Result<File, Failure> {
    check(Some(path), inputs)?;
    File::create(path).map_err(|e| failure(path, &e.to_string()))
}

/// Writes text to a new file of this name, or of the next one that nothing has; returns its path.
pub fn write_new(wanted: &Path, text: &[u8]) -> Result<PathBuf, Failure> {
    let stem = wanted.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let extension = wanted.extension().unwrap_or_default().to_string_lossy().into_owned();
    let mut path = wanted.to_path_buf();
    for number in 2.. {
        match File::create_new(&path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                path = wanted.with_file_name(format!("{stem}-{number}.{extension}"));
            }
            created => {
                let written = created.and_then(|mut file| file.write_all(text));
                return written.map(|()| path.clone()).map_err(|e| failure(&path, &e.to_string()));
            }
        }
    }
    Ok(path)
}

/// Writes text to `output`, or to the standard output. `inputs`: what the command reads.
pub fn write(output: Option<&Path>, inputs: &[PathBuf], text: &[u8]) -> Result<(), Failure> {
    match output {
        Some(path) => create(path, inputs)?.write_all(text).map_err(|e| failure(path, &e.to_string())),
        None => match io::stdout().write_all(text) {
            // `leaktrace report … | head`
            Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure(format!("standard output: {e}"))),
            _ => Ok(()),
        },
    }
}

/// Writes one line about this command on the standard error.
pub fn complain(line: &str) {
    eprintln!("leaktrace: {}", no_command(&printable(line)));
}
