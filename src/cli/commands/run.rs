//! `leaktrace run`: the preload set, the program executed in our place; with a gate, run as a child and judged afterwards.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::gate::{self, Asks};
use super::parts::{library, preload, with_interpreter};
use super::{Failure, GATE, Run, output, report, simulate};
use crate::render::terminal::Page;
use leaktrace_core::format::reader;

/// Where recordings go if nothing else is said.
pub const OUT: &str = "leaktrace.%p.ltrace";

pub fn run(arguments: Run) -> Result<ExitCode, Failure> {
    let library = library()?;
    // Before the program runs: nobody wants to hear of a mistyped file afterwards.
    let suppressions = report::suppressions(arguments.suppressions.as_deref())?;
    let known = arguments.baseline.as_deref().map(gate::known).transpose()?;
    let words = with_interpreter(&arguments.command);
    let [program, rest @ ..] = words.as_slice() else {
        return Err(Failure("no program to run".into()));
    };
    let mut command = Command::new(program);
    command.args(rest).env("LD_PRELOAD", preload(&library)).env_remove("LEAKTRACE_PYTHON");
    if let Some(size) = &arguments.simulate {
        simulate::set_up(&mut command, size)?;
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
    // Wherever its children go, their recordings lie together.
    let out = absolute(&out(arguments.out.as_deref()));
    command.env("LEAKTRACE_OUT", &out);
    let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let status = supervise(&mut command).map_err(cannot)?;
    let files = recorded(&out, began);
    let asks = Asks {
        fail_on: &arguments.fail_on,
        max_bytes_per_step: arguments.max_bytes_per_step,
        baseline: known.as_ref(),
        suppressions: suppressions.as_ref(),
        strict: false,
    };
    let judged = gate::judge(&files, &asks)?;
    if files.is_empty() {
        eprintln!("leaktrace: nothing to judge: no process of it used the GPU");
    } else {
        let mut page = Page::new(output::width(None), false);
        judged.text(&mut page);
        for file in &files {
            page.wrap("  ", 8, &[(crate::render::terminal::PLAIN, &format!("recorded: {}", file.display()))]);
        }
        // The program's own output may be somebody's input.
        eprint!("{}", page.into_text());
    }
    // Without a recording too: whoever takes the file on finds it.
    let annotations = judged.tools(arguments.github && !files.is_empty(), arguments.sarif.as_deref())?;
    // Nobody may be reading: what is judged stands all the same.
    let _ = io::stderr().write_all(annotations.as_bytes());
    Ok(ExitCode::from(match (status.code(), status.signal()) {
        (Some(0), _) => {
            if judged.failed {
                GATE
            } else {
                0
            }
        }
        (Some(code), _) => code as u8,
        // As a shell would say it.
        (None, signal) => 128 + signal.unwrap_or(0) as u8,
    }))
}

/// Where the recordings go, as it is written: the option, else the environment, else the default.
pub fn out(option: Option<&Path>) -> PathBuf {
    let set = env::var_os("LEAKTRACE_OUT").filter(|v| !v.is_empty()).map(PathBuf::from);
    option.map(Path::to_path_buf).or(set).unwrap_or_else(|| OUT.into())
}

pub fn absolute(path: &Path) -> PathBuf {
    env::current_dir().map_or_else(|_| path.to_path_buf(), |folder| folder.join(path))
}

/// Runs it to its end. What asks us to end is handed on to it; what a terminal sends, it gets by itself.
fn supervise(command: &mut Command) -> std::io::Result<ExitStatus> {
    let mut signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2])?;
    let handle = signals.handle();
    let mut child = command.spawn()?;
    let alive = Arc::new(Mutex::new(rustix::process::Pid::from_raw(child.id() as i32)));
    let target = Arc::clone(&alive);
    let forward = std::thread::spawn(move || {
        for signal in signals.forever() {
            let pid = target.lock();
            let signal = rustix::process::Signal::from_named_raw(signal);
            if let (Some(pid), Some(signal)) = (*pid, signal)
                && !matches!(signal, rustix::process::Signal::INT | rustix::process::Signal::QUIT)
            {
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
    });
    let status = child.wait();
    *alive.lock() = None;
    handle.close();
    let _ = forward.join();
    status
}

/// The recordings that were begun since then where this pattern leads.
fn recorded(pattern: &Path, began_ns: u64) -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from("/")];
    let Some(parent) = pattern.parent() else { return Vec::new() };
    for part in parent.components() {
        let Component::Normal(part) = part else { continue };
        let signs = part.as_bytes().contains(&b'%');
        folders = match signs {
            false => folders.into_iter().map(|f| f.join(part)).collect(),
            true => folders.iter().flat_map(|f| entries(f, literal(part))).filter(|f| f.is_dir()).collect(),
        };
    }
    let name = pattern.file_name().unwrap_or_default();
    // A second recording of a process has a number before its ending.
    let stem = Path::new(name).file_stem().unwrap_or(name);
    let mut found: Vec<PathBuf> =
        folders.iter().flat_map(|f| entries(f, literal(stem))).filter(|f| f.is_file()).collect();
    found.retain(|f| {
        let since = fs::metadata(f).and_then(|m| m.modified()).ok();
        let since = since.and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        // Clocks of files are coarser than ours.
        since.is_some_and(|t| t.as_nanos() as u64 + 1_000_000_000 > began_ns)
            && reader::read(f).is_ok_and(|r| r.began_ns >= began_ns)
    });
    found.sort();
    found
}

/// What a name with signs (`%p` …) certainly begins with.
fn literal(name: &OsStr) -> OsString {
    let end = name.as_bytes().iter().position(|&b| b == b'%').unwrap_or(name.len());
    OsString::from_vec(name.as_bytes()[..end].to_vec())
}

fn entries(folder: &Path, prefix: OsString) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    all.filter(|e| e.file_name().as_bytes().starts_with(prefix.as_bytes())).map(|e| e.path()).collect()
}
