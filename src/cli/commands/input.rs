//! Recordings for the commands: which files are meant, and what each of them says. Several are read side by side, each
//! let go as soon as its report is made.

use std::cell::RefCell;
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Failure;
use crate::native_symbols::Files;
use leaktrace_core::format::event::RECORD;
use leaktrace_core::format::reader::{self, Ended, Recording};
use leaktrace_core::format::tables::{Module, Tables};
use leaktrace_core::ledger::{BoundarySource, Ledger};
use leaktrace_core::report::{Asked, End, Report, Run};
use leaktrace_core::symbols::{Function, Names, Symboliser};

/// Files of this size are read with a progress bar.
const LONG: u64 = 64 << 20;
/// So many files too.
const MANY: usize = 16;
/// Folders within folders that are looked into.
const DEPTH: usize = 8;

/// How a recording is read, and what its report is asked for.
#[derive(Clone, Copy, Default)]
pub struct Reading {
    pub asked: Asked,
    /// What ends the steps, if not what did in the process.
    pub steps_by: Option<BoundarySource>,
    /// Every frame of each stack.
    pub all_frames: bool,
}

impl From<Asked> for Reading {
    fn from(asked: Asked) -> Reading {
        Reading { asked, ..Reading::default() }
    }
}

/// The symboliser of one thread: object files are looked at once, not once per recording.
#[derive(Clone, Default)]
pub struct Symbols(Rc<RefCell<Files>>);

impl Symboliser for Symbols {
    fn functions(&mut self, module: &Module, addresses: &[u64]) -> Vec<Vec<Function>> {
        self.0.borrow_mut().functions(module, addresses)
    }
}

/// The recordings that are meant: files as they are, folders for those in them.
pub fn files(named: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut all = Vec::new();
    for path in named {
        if !path.is_dir() {
            all.push(path.clone());
            continue;
        }
        let before = all.len();
        look_into(path, DEPTH, &mut all).map_err(|e| Failure(format!("{}: {e}", path.display())))?;
        if all.len() == before {
            return Err(Failure(format!("{}: holds no recording (*.ltrace)", path.display())));
        }
    }
    Ok(all)
}

fn look_into(folder: &Path, depth: usize, all: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(|e| e.file_name());
    for entry in entries {
        let path = entry.path();
        let kind = entry.file_type()?;
        if kind.is_dir() && depth > 0 {
            // A folder that may not be read holds nothing for us.
            let _ = look_into(&path, depth - 1, all);
        } else if !kind.is_dir() && path.extension().is_some_and(|e| e == "ltrace") {
            all.push(path);
        }
    }
    Ok(())
}

/// Reads a recording, and makes of its report and what that was made of whatever `make` does.
pub fn read<T>(
    file: &Path,
    reading: impl Into<Reading>,
    symbols: &Symbols,
    make: impl FnOnce(Report, &Ledger, &Tables, &Names<'_>) -> T,
) -> Result<T, String> {
    read_beside(file, reading.into(), symbols, true, make)
}

/// The same. `alone`: how far it is can be shown, as nothing else is read beside it.
fn read_beside<T>(
    file: &Path,
    reading: Reading,
    symbols: &Symbols,
    alone: bool,
    make: impl FnOnce(Report, &Ledger, &Tables, &Names<'_>) -> T,
) -> Result<T, String> {
    let Reading { asked, steps_by, all_frames } = reading;
    let recording = reader::read(file).map_err(|e| e.to_string())?;
    let length = fs::metadata(file).map_or(0, |m| m.len());
    let bar = bar(length / RECORD as u64, alone && length >= LONG, "reading {wide_bar} {percent} %");
    let events = recording.events().enumerate().map(|(i, e)| {
        if i.is_multiple_of(1 << 16) {
            bar.set_position(i as u64);
        }
        e
    });
    let mut ledger = Ledger::replay(recording.checkpoint.as_deref(), events)
        .ok_or("holds a checkpoint of another version of leaktrace; read it with that one")?;
    bar.finish_and_clear();
    if let Some(by) = steps_by {
        ledger = read_by(&recording, &ledger, by)?;
    }
    let (end, duration_ns) = match recording.ended {
        Ended::Clean(after) => (End::Clean, Some(after)),
        Ended::Open if is_running(&recording) => (End::Running, None),
        Ended::Open => (End::Killed, None),
    };
    let names = Names::new(&recording.tables, Some(Box::new(symbols.clone()))).with_all_frames(all_frames);
    let run = Run {
        end,
        pid: recording.pid,
        duration_ns,
        began_ns: recording.began_ns,
        dropped_events: recording.dropped_events,
        problems: recording.problems.clone(),
    };
    let report = Report::asked(&ledger, &recording.tables, &names, &run, asked).map_err(|e| e.to_string())?;
    Ok(make(report, &ledger, &recording.tables, &names))
}

/// The report of one recording.
pub fn report(file: &Path, reading: impl Into<Reading>) -> Result<Report, Failure> {
    read(file, reading, &Symbols::default(), |report, _, _, _| report).map_err(|why| failure(file, &why))
}

/// One line about a file.
pub fn failure(file: &Path, why: &str) -> Failure {
    Failure(format!("{}: {why}", file.display()))
}

/// Makes something of each report, on all cores; `take` gets them in the order of the files.
pub fn each<T: Send>(
    files: &[PathBuf],
    reading: impl Into<Reading>,
    make: impl Fn(&Path, Report) -> T + Sync,
    mut take: impl FnMut(&Path, Result<T, String>),
) {
    let reading = reading.into();
    let alone = files.len() == 1;
    let length: u64 = files.iter().map(|f| fs::metadata(f).map_or(0, |m| m.len())).sum();
    let long = !alone && (files.len() >= MANY || length >= LONG);
    let bar = bar(files.len() as u64, long, "reading {wide_bar} {pos} of {len} recordings");
    let next = AtomicUsize::new(0);
    let (made, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from).min(files.len()) {
            let (made, next, make) = (made.clone(), &next, &make);
            scope.spawn(move || {
                let symbols = Symbols::default();
                while let Some((i, file)) = {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    files.get(i).map(|file| (i, file))
                } {
                    let result =
                        read_beside(file, reading, &symbols, alone, |report, _, _, _| make(file, report));
                    if made.send((i, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(made);
        // What comes before its turn waits.
        let mut early = std::collections::BTreeMap::new();
        let mut due = 0;
        for (i, result) in results {
            early.insert(i, result);
            bar.inc(1);
            while let Some(result) = early.remove(&due) {
                take(&files[due], result);
                due += 1;
            }
        }
    });
    bar.finish_and_clear();
}

/// A progress bar on stderr, if that is a terminal and it takes long.
fn bar(length: u64, long: bool, template: &str) -> ProgressBar {
    if !long || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The same events, their steps ended by something else. `ledger`: as they were read without that.
fn read_by(recording: &Recording, ledger: &Ledger, by: BoundarySource) -> Result<Ledger, String> {
    if !ledger.step_sources().any(|(known, _)| by.includes(known)) {
        let known: Vec<String> = ledger.step_sources().map(|(by, _)| by.to_string()).collect();
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
