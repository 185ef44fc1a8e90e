//! `leaktrace run`: executes a program with the library preloaded, in our place; with a gate as a child,
//! whose recordings are judged afterwards.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use super::gate::{self, GateOptions};
use super::locate::{library, preload, with_interpreter};
use super::{Failure, GATE, Run, output, report, simulate, supervise};
use crate::render::terminal::{PLAIN, Page};
use leaktrace_core::format::reader;
use leaktrace_core::steps::StepSetting;

/// Where recordings go by default.
pub const OUT: &str = "leaktrace.%p.ltrace";

pub fn run(arguments: Run) -> Result<ExitCode, Failure> {
    let library = library()?;
    // Before the program runs, which may take long: a mistyped file is an error now.
    let suppressions = report::suppressions(arguments.suppressions.as_deref())?;
    let baseline = arguments.baseline.as_deref().map(gate::baseline).transpose()?;
    let words = with_interpreter(&arguments.command);
    let [program, rest @ ..] = words.as_slice() else {
        return Err(Failure("no program to run".into()));
    };
    let mut command = Command::new(program);
    command.args(rest).env("LD_PRELOAD", preload(&library)).env_remove("LEAKTRACE_PYTHON");
    if let Some(size) = &arguments.simulate {
        simulate::prepare(&mut command, size)?;
    }
    if let Some(out) = &arguments.out {
        command.env("LEAKTRACE_OUT", out);
    }
    if let Some(step) = &arguments.step {
        command.env("LEAKTRACE_STEP", step);
    }
    let cannot = |error| Failure(format!("cannot run {}: {error}", OsString::from(program).display()));
    if arguments.fail_on.is_empty() {
        return Err(cannot(command.exec()));
    }
    // Its children may run in other folders: all recordings are looked for in one.
    let out = absolute(&out(arguments.out.as_deref()));
    command.env("LEAKTRACE_OUT", &out);
    let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let status = supervise::run(&mut command).map_err(cannot)?;
    let files = recorded(&out, began);
    let options = GateOptions {
        fail_on: &arguments.fail_on,
        max_bytes_per_step: arguments.max_bytes_per_step,
        baseline: baseline.as_ref(),
        suppressions: suppressions.as_ref(),
        strict: false,
    };
    let result = gate::judge(&files, &options)?;
    if files.is_empty() {
        eprintln!("leaktrace: nothing to judge: no process of it used the GPU");
    } else {
        let mut page = Page::new(output::width(None), false);
        result.text(&mut page);
        for file in &files {
            page.wrap("  ", 8, &[(PLAIN, &format!("recorded: {}", file.display()))]);
        }
        // The standard output is the program's own.
        eprint!("{}", page.into_text());
    }
    // Without a recording too: the next stage of a pipeline expects the file.
    let github = arguments.github && !files.is_empty();
    let annotations = result.tools(github, arguments.sarif.as_deref(), &files)?;
    // A reader that has gone does not change the result.
    let _ = io::stderr().write_all(annotations.as_bytes());
    Ok(supervise::end_like(status, ExitCode::from(if result.failed { GATE } else { 0 })))
}

/// Accepts what the library will understand.
pub fn step(value: &str) -> Result<String, String> {
    value.parse::<StepSetting>().map(|_| value.to_owned())
}

/// Returns the pattern of the recordings' paths: the option, else the environment, else the default.
pub fn out(option: Option<&Path>) -> PathBuf {
    let set = env::var_os("LEAKTRACE_OUT").filter(|v| !v.is_empty()).map(PathBuf::from);
    option.map(Path::to_path_buf).or(set).unwrap_or_else(|| OUT.into())
}

/// Makes a path absolute, without looking at what is there.
pub fn absolute(path: &Path) -> PathBuf {
    env::current_dir().map_or_else(|_| path.to_path_buf(), |folder| folder.join(path))
}

/// Finds the recordings that were begun since `began_ns` at paths of this pattern.
fn recorded(pattern: &Path, began_ns: u64) -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from("/")];
    let Some(parent) = pattern.parent() else { return Vec::new() };
    for part in parent.components() {
        let Component::Normal(part) = part else { continue };
        let is_pattern = part.as_bytes().contains(&b'%');
        folders = match is_pattern {
            false => folders.into_iter().map(|f| f.join(part)).collect(),
            true => folders.iter().flat_map(|f| entries(f, literal(part))).filter(|f| f.is_dir()).collect(),
        };
    }
    let name = pattern.file_name().unwrap_or_default();
    // A second recording of a process has a number before the extension.
    let stem = Path::new(name).file_stem().unwrap_or(name);
    let mut found: Vec<PathBuf> =
        folders.iter().flat_map(|f| entries(f, literal(stem))).filter(|f| f.is_file()).collect();
    found.retain(|f| {
        let since = fs::metadata(f).and_then(|m| m.modified()).ok();
        let since = since.and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        // Clocks of file systems are coarser than ours.
        since.is_some_and(|t| t.as_nanos() as u64 + 1_000_000_000 > began_ns)
            && reader::read(f).is_ok_and(|r| r.began_ns >= began_ns)
    });
    found.sort();
    found
}

/// Returns what every name of a pattern (`%p` …) begins with.
fn literal(name: &OsStr) -> OsString {
    let end = name.as_bytes().iter().position(|&b| b == b'%').unwrap_or(name.len());
    OsString::from_vec(name.as_bytes()[..end].to_vec())
}

/// Lists the files of a folder whose names begin so.
fn entries(folder: &Path, prefix: OsString) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    all.filter(|e| e.file_name().as_bytes().starts_with(prefix.as_bytes())).map(|e| e.path()).collect()
}
