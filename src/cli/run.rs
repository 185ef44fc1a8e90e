//! `leaktrace run`: the preload set, the program executed in our place.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use super::{Failure, Run};

pub fn run(arguments: Run) -> Result<ExitCode, Failure> {
    let library = library()?;
    let mut preload = library.clone().into_os_string();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let [program, rest @ ..] = arguments.command.as_slice() else {
        return Err(Failure("no program to run".into()));
    };
    let mut command = Command::new(program);
    command.args(rest).env("LD_PRELOAD", preload);
    if let Some(out) = arguments.out {
        command.env("LEAKTRACE_OUT", out);
    }
    if let Some(step) = arguments.step {
        command.env("LEAKTRACE_STEP", step);
    }
    let error = command.exec();
    Err(Failure(format!("cannot run {}: {error}", OsString::from(program).display())))
}

/// libleaktrace.so: `LEAKTRACE_LIBRARY`, beside this program, or in the `lib` beside its folder.
fn library() -> Result<PathBuf, Failure> {
    const NAME: &str = "libleaktrace.so";
    let beside =
        env::current_exe().ok().and_then(|exe| Some(exe.canonicalize().ok()?.parent()?.to_path_buf()));
    let mut places: Vec<PathBuf> = env::var_os("LEAKTRACE_LIBRARY").map(PathBuf::from).into_iter().collect();
    if let Some(folder) = beside {
        places.extend([folder.join(NAME), folder.join("../lib").join(NAME)]);
    }
    let found = places.iter().find_map(|p| p.canonicalize().ok()).ok_or_else(|| {
        let places: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
        Failure(format!("cannot find {NAME}; looked for {}", places.join(", ")))
    })?;
    // The loader splits LD_PRELOAD there.
    if found.as_os_str().as_bytes().iter().any(|b| b" :\t".contains(b)) {
        return Err(Failure(format!(
            "{} cannot be preloaded: the loader takes a space or colon in the path for an end; move it",
            found.display()
        )));
    }
    Ok(found)
}
