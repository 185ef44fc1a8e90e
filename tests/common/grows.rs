//! Recordings of `tests/programs/grows.py`, which leaks as its arguments say, at known lines, without any
//! GPU.

use std::path::{Path, PathBuf};
use std::process::Output;

use super::programs::{self, bare_cudart, pythons, script};
use super::report::leaktrace;
use super::{Ran, Run};

/// Returns the newest Python whose frames the preload reads.
pub fn python() -> PathBuf {
    pythons().pop().expect("a CPython 3.8 to 3.15").1
}

/// Prepares a traced run of `grows.py`.
pub fn grows(steps: u32, args: &[&str]) -> Run {
    grows_at(&script("grows.py"), steps, args)
}

/// Prepares a traced run of a copy of `grows.py`.
pub fn grows_at(program: &Path, steps: u32, args: &[&str]) -> Run {
    Run::new(python())
        .traced()
        .env("LEAKTRACE_QUIET", "1")
        .arg(program)
        .arg(bare_cudart())
        .arg(steps.to_string())
        .args(args)
}

/// Runs `grows.py` to its end.
pub fn grown(steps: u32, args: &[&str]) -> Ran {
    grows(steps, args).run().success()
}

/// Returns the number of the line of `grows.py` that has this text.
pub fn line_of(text: &str) -> usize {
    programs::line_of("grows.py", text) as usize
}

/// Runs `leaktrace ARGS…` in a folder.
pub fn run_leaktrace(folder: &Path, args: &[&str]) -> Output {
    leaktrace().current_dir(folder).env_remove("LEAKTRACE_SUPPRESSIONS").args(args).output().unwrap()
}

/// Returns the standard output of a command, which must have ended with this status.
#[track_caller]
pub fn text(out: &Output, status: i32) -> String {
    let (text, err) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(status), "── stdout\n{text}\n── stderr\n{err}");
    text.into_owned()
}

/// Returns the text with every run of spaces and line ends as one space.
pub fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs `leaktrace ARGS…` on a terminal of so many columns, and types `keys` once the program has written
/// `word`.
pub fn on_terminal(
    folder: &Path,
    columns: u32,
    keys: &str,
    word: &str,
    args: &[&str],
    no_colour: bool,
) -> Output {
    let mut command = std::process::Command::new(python());
    command.current_dir(folder).arg(script("terminal.py")).arg(columns.to_string()).arg(keys);
    command.env("WORD", word).env("TERM", "xterm-256color").env_remove("NO_COLOR").env_remove("LD_PRELOAD");
    if no_colour {
        command.env("NO_COLOR", "1");
    }
    command.arg(env!("CARGO_BIN_EXE_leaktrace")).args(args).output().unwrap()
}
