//! `leaktrace run`: the preload set, the program executed in our place.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use super::parts::{library, preload, with_interpreter};
use super::{Failure, Run, simulate};

pub fn run(arguments: Run) -> Result<ExitCode, Failure> {
    let library = library()?;
    let words = with_interpreter(&arguments.command);
    let [program, rest @ ..] = words.as_slice() else {
        return Err(Failure("no program to run".into()));
    };
    let mut command = Command::new(program);
    command.args(rest).env("LD_PRELOAD", preload(&library)).env_remove("LEAKTRACE_PYTHON");
    if let Some(size) = &arguments.simulate {
        simulate::set_up(&mut command, size)?;
    }
    if let Some(out) = arguments.out {
        command.env("LEAKTRACE_OUT", out);
    }
    if let Some(step) = arguments.step {
        command.env("LEAKTRACE_STEP", step);
    }
    let error = command.exec();
    Err(Failure(format!("cannot run {}: {error}", OsString::from(program).display())))
}
