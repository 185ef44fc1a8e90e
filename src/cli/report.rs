//! `leaktrace report`: recording in, report out.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::{Failure, Format, Report as Arguments};
use crate::ledger::{By, Ledger};
use crate::native_symbols::Files;
use crate::report::suppress::Suppressions;
use crate::report::{self, End, Report, Run};
use crate::symbol::Names;
use crate::trace::reader::{self, Ended, Recording};

pub fn report(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let suppressions = suppressions(arguments.suppressions.as_deref())?;
    let mut text = String::new();
    for (i, file) in arguments.files.iter().enumerate() {
        let mut report =
            read(file, arguments).map_err(|why| Failure(format!("{}: {why}", file.display())))?;
        if let Some(suppressions) = &suppressions {
            suppressions.apply(&mut report);
        }
        match arguments.format {
            Format::Json => {
                text += &report::json::render(&report);
            }
            Format::Text => {
                if i > 0 {
                    text.push('\n');
                }
                text += &report::text::render(&report);
            }
        }
    }
    match &arguments.output {
        Some(path) => fs::write(path, text).map_err(|e| Failure(format!("{}: {e}", path.display())))?,
        None => match io::stdout().write_all(text.as_bytes()) {
            // `leaktrace report … | head`
            Err(e) if e.kind() != ErrorKind::BrokenPipe => {
                return Err(Failure(format!("standard output: {e}")));
            }
            _ => {}
        },
    }
    Ok(ExitCode::SUCCESS)
}

/// The rules of a file, if one is named: by the option, else by the environment.
pub(super) fn suppressions(file: Option<&Path>) -> Result<Option<Suppressions>, Failure> {
    let named = std::env::var_os("LEAKTRACE_SUPPRESSIONS").filter(|name| !name.is_empty()).map(PathBuf::from);
    let Some(file) = file.map(Path::to_path_buf).or(named) else { return Ok(None) };
    let failure = |why: String| Failure(format!("{}: {why}", file.display()));
    let text = fs::read_to_string(&file).map_err(|e| failure(e.to_string()))?;
    Suppressions::read(&text).map(Some).map_err(|wrong| failure(wrong.to_string()))
}

fn read(file: &Path, arguments: &Arguments) -> Result<Report, String> {
    let recording = reader::read(file).map_err(|e| e.to_string())?;
    let mut ledger = Ledger::replay(recording.checkpoint.as_deref(), recording.events())
        .ok_or("holds a checkpoint of another version of leaktrace; read it with that one")?;
    if let Some(by) = arguments.steps_by {
        ledger = read_by(&recording, &ledger, by)?;
    }
    let (end, duration_ns) = match recording.ended {
        Ended::Clean(after) => (End::Clean, Some(after)),
        Ended::Open if is_running(&recording) => (End::Running, None),
        Ended::Open => (End::Killed, None),
    };
    let names =
        Names::new(&recording.tables, Some(Box::new(Files::default()))).with_all_frames(arguments.all_frames);
    let run = Run {
        end,
        pid: recording.pid,
        duration_ns,
        dropped_events: recording.dropped_events,
        problems: recording.problems.clone(),
    };
    Report::build(&ledger, &recording.tables, &names, &run, arguments.step).map_err(|e| e.to_string())
}

/// The same events, their steps ended by something else. `ledger`: as they were read without that.
fn read_by(recording: &Recording, ledger: &Ledger, by: By) -> Result<Ledger, String> {
    if !ledger.levels().any(|(known, _)| by.includes(known)) {
        let known: Vec<String> = ledger.levels().map(|(by, _)| by.to_string()).collect();
        let known = if known.is_empty() { "nothing".into() } else { known.join(", ") };
        return Err(format!("--steps-by {by}: not recorded; steps can be read by {known}"));
    }
    let anew = Ledger::replay(None, recording.events().map(|e| by.read(e)));
    anew.filter(|anew| anew.lost_events() <= ledger.lost_events()).ok_or_else(|| {
        format!(
            "--steps-by {by}: the events of the beginning made room for later ones; record with LEAKTRACE_EVENTS=all to keep them"
        )
    })
}

/// True if the process that wrote it is alive on this machine, and the same one (a pid comes round again).
fn is_running(recording: &Recording) -> bool {
    let same_host = recording.tables.meta.get("host").is_some_and(|h| Some(h.as_str()) == host().as_deref());
    same_host && started(recording.pid).is_some_and(|at| at <= recording.began_ns / 1_000_000_000 + 1)
}

/// When a process started, in seconds since 1970; `None` if there is none, or it is dead and only waits to be reaped.
fn started(pid: u32) -> Option<u64> {
    /// Clock ticks per second in /proc: `USER_HZ`, 100 on every Linux this runs on.
    const TICKS: u64 = 100;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; fields are counted from behind it, the state being the third.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let alive = !matches!(fields.next()?, "Z" | "X");
    let since_boot: u64 = fields.nth(18)?.parse().ok()?;
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot: u64 = system.lines().find_map(|l| l.strip_prefix("btime "))?.trim().parse().ok()?;
    alive.then_some(boot + since_boot / TICKS)
}

fn host() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/hostname").ok()?.trim().to_owned())
}
