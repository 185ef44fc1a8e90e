//! `leaktrace attach` and `leaktrace detach`: a recording of a program that runs already. The library is opened in it by
//! its own interpreter (`inject`), once it is clear that this can work (`target`). Knows no CUDA.

mod debugger;
mod gdb;
mod inject;
mod lldb;
mod target;

use std::env;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::input::Reader;
use super::{Failure, Report, locate, output, report, run, settings};
use inject::{Answer, Outcome};
use leaktrace_core::report::wording;
use leaktrace_core::settings::{CHOICES, SWITCH};
use target::Target;

pub use debugger::Debugger;
pub use target::obstacle;

/// How often a recording is read while steps are waited for.
const POLL: Duration = Duration::from_millis(500);

#[derive(clap::Args)]
#[command(after_help = "Examples:
  leaktrace attach 4711                record from now on, until detached
  leaktrace attach --steps 200 4711    record, detach, print the report
  leaktrace attach --seconds 60 --out /scratch/%p.ltrace 4711
  leaktrace detach 4711

The program must be Python. CPython 3.14 and later loads the library by itself
(sys.remote_exec); for earlier ones gdb or lldb is needed, which stops it for a moment.
What was allocated before has no line; it counts as \"allocated before attaching\".
LEAKTRACE_OUT, LEAKTRACE_STEP, LEAKTRACE_STACKS, LEAKTRACE_HOLDERS, LEAKTRACE_DUMP_EVERY and
LEAKTRACE_EVENTS are read from this command's environment. See leaktrace help limits.
Exit status: 0 success, 2 it cannot be attached to.")]
pub struct Attach {
    /// Write the recording to PATH [default: leaktrace.%p.ltrace here]; %p pid, %e program, %h host, %r rank
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// End steps by: auto, optimizer, loop, backward, range:NAME, api, every:SECONDS
    #[arg(long, value_name = "SOURCE", value_parser = settings::step)]
    step: Option<String>,
    /// Record at least N steps, then detach and print the report
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    steps: Option<u32>,
    /// Record for N seconds, then detach and print the report; with --steps: whichever is reached first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
    /// Seconds to wait until the library is loaded
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u32).range(1..=3600))]
    timeout: u32,
    /// The process
    #[arg(value_name = "PID")]
    pid: u32,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  leaktrace detach 4711

The recording stays where it is; the program is as it was before, and can be attached to again.
Exit status: 0 success, 2 it was not attached to.")]
pub struct Detach {
    /// Seconds to wait until the library stops recording
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u32).range(1..=3600))]
    timeout: u32,
    /// The process
    #[arg(value_name = "PID")]
    pid: u32,
}

pub fn attach(arguments: &Attach) -> Result<ExitCode, Failure> {
    settings::refuse_wrong()?;
    let pattern = run::absolute(&run::out(arguments.out.as_deref()));
    settings::check_out(&pattern)?;
    let target = Target::find(arguments.pid)?;
    target.check_gpu()?;
    let library = match &target.library {
        Some(there) => there.clone(),
        None => locate::library()?,
    };
    let limit = Duration::from_secs(u64::from(arguments.timeout));
    let lines = lines(&pattern, arguments.step.as_deref());
    let Answer { outcome, text } = inject::call(&target, &library, "leaktrace_attach", Some(&lines), limit)?;
    let pid = arguments.pid;
    match outcome {
        Outcome::Done => {}
        Outcome::Preloaded if text.is_empty() => {
            return Err(Failure(format!(
                "process {pid} was started with leaktrace: it is recorded from its first CUDA call on"
            )));
        }
        Outcome::Preloaded => {
            return Err(Failure(format!(
                "process {pid} has been recorded since it started: {}",
                short(&text)
            )));
        }
        Outcome::Attached => {
            return Err(Failure(format!("process {pid} is already attached to: {}", short(&text))));
        }
        _ => return Err(Failure(format!("process {pid} could not be attached to: {text}"))),
    }
    let file = PathBuf::from(&text);
    let waits = arguments.steps.is_some() || arguments.seconds.is_some();
    if !waits {
        output::complain(&format!(
            "attached to process {pid}; the report so far: leaktrace report {}; the end: leaktrace detach {pid}",
            short(&text)
        ));
        return Ok(ExitCode::SUCCESS);
    }
    output::complain(&format!("attached to process {pid}; recording to {}", short(&text)));
    wait(&target, &file, arguments);
    let left = match target.is_alive() {
        false => Err(Failure(format!("process {pid} ended meanwhile"))),
        true => detach_from(&target, &library, limit).map(|_| ()),
    };
    if let Err(Failure(why)) = left {
        output::complain(&why);
    }
    report::report(&Report::of(file))
}

pub fn detach(arguments: &Detach) -> Result<ExitCode, Failure> {
    let target = Target::find(arguments.pid)?;
    let not_attached = || Failure(format!("process {} is not attached to", arguments.pid));
    let library = target.library.clone().ok_or_else(not_attached)?;
    let file = detach_from(&target, &library, Duration::from_secs(u64::from(arguments.timeout)))?;
    let answer = match Reader::default().report(&file) {
        Ok(report) => wording::answer(&report),
        Err(Failure(why)) => why,
    };
    let answer = answer.trim_end_matches('.').to_owned();
    let line = format!("{answer}; read more: leaktrace report {}", short(&file.display().to_string()));
    let _ = writeln!(io::stdout(), "{line}");
    Ok(ExitCode::SUCCESS)
}

fn detach_from(target: &Target, library: &Path, limit: Duration) -> Result<PathBuf, Failure> {
    let pid = target.pid;
    let Answer { outcome, text } = inject::call(target, library, "leaktrace_detach", None, limit)?;
    match outcome {
        Outcome::Done => Ok(PathBuf::from(text)),
        Outcome::Preloaded => Err(Failure(format!(
            "process {pid} was started with leaktrace, which it keeps until it ends; recording: {}",
            short(&text)
        ))),
        Outcome::NotAttached => Err(Failure(format!("process {pid} is not attached to"))),
        _ => Err(Failure(format!("process {pid} could not be detached from: {text}"))),
    }
}

/// Waits until enough was recorded, the process has ended, or somebody interrupts.
fn wait(target: &Target, file: &Path, arguments: &Attach) {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let _ = signal_hook::flag::register(signal, Arc::clone(&interrupted));
    }
    let began = Instant::now();
    let limit = arguments.seconds.map(|s| Duration::from_secs(u64::from(s)));
    let reader = Reader { quiet: true, ..Reader::default() };
    while target.is_alive() && !interrupted.load(Ordering::Relaxed) {
        let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
        if left == Some(Duration::ZERO) {
            return;
        }
        // What is being written may be unreadable for a moment.
        let steps = arguments.steps.and_then(|_| reader.report(file).ok()).map_or(0, |r| r.steps.count);
        if arguments.steps.is_some_and(|wanted| steps >= wanted) {
            return;
        }
        thread::sleep(left.unwrap_or(POLL).min(POLL));
    }
}

/// Returns the settings that are handed over, a line each.
fn lines(out: &Path, step: Option<&str>) -> Vec<u8> {
    let mut lines = b"LEAKTRACE_QUIET=1\nLEAKTRACE_OUT=".to_vec();
    lines.extend(out.as_os_str().as_bytes());
    let mut add = |name: &str, value: &[u8]| {
        lines.push(b'\n');
        lines.extend(name.as_bytes());
        lines.push(b'=');
        lines.extend(value);
    };
    let choices = CHOICES.iter().map(|choice| choice.variable).filter(|name| *name != SWITCH.variable);
    for name in choices.chain(["LEAKTRACE_DUMP_EVERY"]) {
        if let Some(value) = env::var_os(name) {
            add(name, value.as_bytes());
        }
    }
    let set = env::var_os("LEAKTRACE_STEP");
    if let Some(step) = step.map(str::as_bytes).or(set.as_ref().map(|value| value.as_bytes())) {
        add("LEAKTRACE_STEP", step);
    }
    lines
}

/// Returns a path as a person would type it here.
fn short(path: &str) -> String {
    let here = env::current_dir().unwrap_or_default();
    Path::new(path).strip_prefix(&here).map_or_else(|_| path.to_owned(), |p| p.display().to_string())
}
