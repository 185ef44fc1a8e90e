//! `leaktrace run`: executes a program with the library preloaded, as a child whose recordings are told of, or judged,
//! afterwards; in our place where nothing is to be said.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{SystemTime, UNIX_EPOCH};

use super::doctor::resolve;
use super::gate::{self, GateOptions};
use super::input::Reader;
use super::locate::{library, preload, refuse_option, with_interpreter};
use super::{Failure, GATE, Run, output, report, settings, simulate, supervise};
use crate::ranks::{self, words};
use crate::render::terminal::{PLAIN, Page};
use leaktrace_core::format::reader;
use leaktrace_core::report::wording;

/// The exit status by which `git bisect run` skips a commit.
const SKIP: u8 = 125;
/// By these a launcher tells a process its rank: it is a part of a run, and starts none.
const RANKS: [&str; 3] = ["RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"];
/// Where recordings go by default.
pub const OUT: &str = "leaktrace.%p.ltrace";

pub fn run(arguments: Run) -> Result<ExitCode, Failure> {
    // Before the program runs, which may take long: what is mistyped is an error now.
    settings::refuse_wrong()?;
    let pattern = absolute(&out(arguments.out.as_deref()));
    settings::check_out(&pattern)?;
    let suppressions = report::suppressions(arguments.suppressions.as_deref())?;
    let baseline = arguments.baseline.as_deref().map(gate::read_baseline).transpose()?;
    refuse_option(&arguments.command)?;
    let words = with_interpreter(&arguments.command);
    let [program, rest @ ..] = words.as_slice() else {
        return Err(Failure("no program to run".into()));
    };
    let mut command = Command::new(program);
    command.args(rest).env("LD_PRELOAD", preload(&library()?)).env_remove("LEAKTRACE_PYTHON");
    if let Some(size) = &arguments.simulate {
        simulate::prepare(&mut command, size)?;
    }
    if let Some(step) = &arguments.step {
        command.env("LEAKTRACE_STEP", step);
    }
    let cannot = |error| Failure(format!("cannot run {}: {error}", OsString::from(program).display()));
    if arguments.fail_on.is_empty() && is_quiet() {
        if arguments.out.is_some() {
            command.env("LEAKTRACE_OUT", out(arguments.out.as_deref()));
        }
        return Err(cannot(command.exec()));
    }
    if resolve(program).is_none() {
        return Err(cannot(rustix::io::Errno::NOENT.into()));
    }
    // Its children may run in other folders: all recordings are looked for in one.
    command.env("LEAKTRACE_OUT", &pattern);
    // What each process would say at its end is said here, once.
    command.env("LEAKTRACE_QUIET", "1");
    if env::var_os("LEAKTRACE_RUN").is_none() && RANKS.iter().all(|rank| env::var_os(rank).is_none()) {
        command.env("LEAKTRACE_RUN", name());
    }
    let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let status = supervise::run(&command).map_err(cannot)?;
    let files = recorded(&pattern, began);
    if arguments.fail_on.is_empty() {
        output::complain(&closing(&files, status));
        return Ok(supervise::end_like(status, ExitCode::SUCCESS));
    }
    let options = GateOptions {
        fail_on: &arguments.fail_on,
        max_bytes_per_step: arguments.max_bytes_per_step,
        baseline: baseline.as_ref(),
        suppressions: suppressions.as_ref(),
        allow_unjudged: arguments.allow_unjudged,
        source_root: arguments.source_root.as_deref(),
    };
    let result = gate::judge(&files, &options)?;
    let mut page = Page::new(output::width(None), false);
    result.text(&mut page, arguments.github);
    for file in &files {
        page.wrap("  ", 8, &[(PLAIN, &format!("recorded: {}", file.display()))]);
    }
    if !status.success() {
        page.wrap("  ", 8, &[(PLAIN, &format!("the program: {}", supervise::how_it_ended(status)))]);
    }
    // The standard output is the program's own; a reader that has gone does not change the result.
    let _ = io::stderr().write_all(page.into_text().as_bytes());
    let annotations = match result.tools(arguments.github, arguments.sarif.as_deref(), &files) {
        // The program's own failure is the result, whatever else fails.
        Err(Failure(why)) if !status.success() => {
            output::complain(&why);
            String::new()
        }
        annotations => annotations?,
    };
    let _ = io::stderr().write_all(annotations.as_bytes());
    let failed = ExitCode::from(GATE);
    Ok(match (arguments.bisect, result.failed) {
        (true, true) if result.has_failed_finding() => failed,
        (true, true) => ExitCode::from(SKIP),
        (true, false) if !status.success() => ExitCode::from(SKIP),
        (_, true) => supervise::end_like(status, failed),
        (_, false) => supervise::end_like(status, ExitCode::SUCCESS),
    })
}

/// Returns whether somebody asked for no line at the end.
fn is_quiet() -> bool {
    env::var_os("LEAKTRACE_QUIET").is_some_and(|v| !v.is_empty() && v != "0")
}

/// Returns a name for the run that no other has.
fn name() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    format!("{}.{}.{now}", host.trim(), std::process::id())
}

/// Returns the line at the end: what was found, how the program ended, and how to read more.
fn closing(files: &[PathBuf], status: ExitStatus) -> String {
    let how = supervise::how_it_ended(status);
    let here = env::current_dir().unwrap_or_default();
    let short = |path: &Path| path.strip_prefix(&here).unwrap_or(path).display().to_string();
    let (answer, read) = match files {
        [] => {
            return format!(
                "nothing was recorded: no process used the GPU, or no recording could be created (a line above says why); \
                 the program: {how}"
            );
        }
        [file] => match Reader::default().report(file) {
            Ok(report) => (wording::answer(&report), short(file)),
            Err(Failure(why)) => (why, short(file)),
        },
        files => {
            let (mut summaries, mut unread) = (Vec::new(), Vec::new());
            Reader::default().read_all(files, report::summarize(None), |file, summary| match summary {
                Ok(summary) => summaries.push(summary),
                Err(why) => unread.push(format!("{}: {why}", short(file))),
            });
            let answers: Vec<String> =
                ranks::by_run(summaries, Vec::new()).iter().map(words::answer).collect();
            let folder = files[0].parent().unwrap_or(Path::new("."));
            let read = if folder == here { String::new() } else { short(folder) };
            ([answers, unread].concat().join("; "), read)
        }
    };
    let answer = answer.trim_end_matches('.');
    format!("{answer}; the program: {how}; read more: leaktrace report {read}").trim_end().to_owned()
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
