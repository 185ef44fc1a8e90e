//! Recordings for the commands: which files are meant, and the report of each. Several are read side by side;
//! of each only what a command makes of it is kept. Knows no format that a command writes.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::UNIX_EPOCH;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

use super::{Failure, output, proc};
use crate::export::replay;
use crate::native_symbols::SharedNames;
use crate::runs::{self, Identity, natural};
use leaktrace_core::format::event::{Event, EventKind, RECORD};
use leaktrace_core::format::printable::printable;
use leaktrace_core::format::reader::{self, Ended, Recording};
use leaktrace_core::format::tables::{DETACHED, Tables};
use leaktrace_core::ledger::{BoundarySource, Ledger};
use leaktrace_core::report::{End, Program, Query, Report, Run};
use leaktrace_core::symbols::Names;

/// A progress bar is drawn while files of this size in all are read, or this many files.
const LONG: u64 = 64 << 20;
const MANY: usize = 16;
/// How deep folders in a folder are searched for recordings.
const DEPTH: usize = 8;

/// How recordings are read, and what their reports are asked for.
#[derive(Clone, Default)]
pub struct Reader {
    pub asked: Query,
    /// What ends the steps, if not what did in the process.
    pub steps_by: Option<BoundarySource>,
    /// Whether stacks keep every frame.
    pub all_frames: bool,
    /// Whether the report is to have what was live at the peak.
    pub at_peak: bool,
    /// Draws no progress bar: another part of the program draws on the terminal.
    pub quiet: bool,
    /// The names of native functions that were looked up so far.
    pub names: SharedNames,
}

impl From<Query> for Reader {
    fn from(asked: Query) -> Reader {
        Reader { asked, ..Reader::default() }
    }
}

/// Lists the recordings that are meant: files as they are, folders for those in them. What is called like one
/// in a folder and is no file is named and passed over.
pub fn files(named: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    list(named, &mut |path| {
        output::complain(&format!("{}: is not a plain file; passed over", path.display()));
    })
}

/// Lists the recordings that are meant, and has `passed_over` told what is called like one and is no file.
pub fn list(named: &[PathBuf], passed_over: &mut dyn FnMut(&Path)) -> Result<Vec<PathBuf>, Failure> {
    let mut all = Vec::new();
    for path in named {
        if !path.is_dir() {
            all.push(path.clone());
            continue;
        }
        let before = all.len();
        collect(path, DEPTH, &mut all, passed_over).map_err(|e| failure(path, &e.to_string()))?;
        if all.len() == before {
            return Err(failure(path, "holds no recording (*.ltrace)"));
        }
    }
    Ok(all)
}

/// Lists the recordings of the newest run that lie in a folder.
pub fn newest_run(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    collect(folder, 0, &mut files, &mut |_| {}).map_err(|e| failure(folder, &e.to_string()))?;
    let files: Vec<PathBuf> =
        files.into_iter().map(|f| f.strip_prefix(folder).map(Path::to_path_buf).unwrap_or(f)).collect();
    let read = |file: &PathBuf| {
        let recording = reader::read(file).ok()?;
        let ledger = Ledger::default();
        let run = Run { end: End::Clean, pid: recording.pid, began_ns: recording.began_ns, ..Run::default() };
        let names = Names::new(&recording.tables, None);
        let report = Report::build(&ledger, &recording.tables, &names, &run, None).ok()?;
        // A recording is written to until its end.
        let written = fs::metadata(file).and_then(|m| m.modified()).ok()?;
        let written_s = written.duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
        let duration_s = (written_s - report.program.began_s).max(0.0);
        Some((Identity::of(&Program { duration_s, ..report.program }), file.clone()))
    };
    let (identities, files): (Vec<Identity>, Vec<PathBuf>) = files.iter().filter_map(read).unzip();
    let newest = runs::group(&identities).into_iter().next();
    let newest = newest.ok_or_else(|| {
        Failure(
            "no recording (*.ltrace) is here; name one, or record a program: leaktrace run train.py".into(),
        )
    })?;
    Ok(newest.into_iter().map(|i| files[i].clone()).collect())
}

/// Adds the recordings below a folder, in the order of their names.
fn collect(
    folder: &Path,
    depth: usize,
    all: &mut Vec<PathBuf>,
    passed_over: &mut dyn FnMut(&Path),
) -> std::io::Result<()> {
    let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    entries.sort_by(|a, b| natural(&a.file_name().to_string_lossy(), &b.file_name().to_string_lossy()));
    for entry in entries {
        let path = entry.path();
        let kind = entry.file_type()?;
        if kind.is_dir() && depth > 0 {
            // A folder inside that may not be read holds nothing for us.
            let _ = collect(&path, depth - 1, all, passed_over);
        } else if !kind.is_dir() && path.extension().is_some_and(|e| e == "ltrace") {
            // A link that leads nowhere is an error of reading, as a file that is gone.
            match fs::metadata(&path).is_ok_and(|there| !there.is_file()) {
                true => passed_over(&path),
                false => all.push(path),
            }
        }
    }
    Ok(())
}

impl Reader {
    /// Reads one recording and returns its report.
    pub fn report(&self, file: &Path) -> Result<Report, Failure> {
        self.read(file, true, |report, _, _, _| report).map_err(|why| failure(file, &why))
    }

    /// Reads recordings side by side, with a thread per core. `make` runs on these threads with all that was
    /// read of one recording, which is dropped after it; `take` gets what was made, in the order of the
    /// files, one at a time.
    pub fn read_all<T: Send>(
        &self,
        files: &[PathBuf],
        make: impl Fn(&Path, Report, &Ledger, &Tables, &Names<'_>) -> T + Sync,
        take: impl FnMut(&Path, Result<T, String>) + Send,
    ) {
        let alone = files.len() == 1;
        let length: u64 = files.iter().map(|f| fs::metadata(f).map_or(0, |m| m.len())).sum();
        let long = !alone && (files.len() >= MANY || length >= LONG);
        let bar = self.bar(files.len() as u64, long, "reading {wide_bar} {pos} of {len} recordings");
        let queue = Mutex::new(Queue { files, started: 0, taken: 0, early: BTreeMap::new(), take });
        let work = || {
            while let Some((number, file)) = { queue.lock().start() } {
                let made = self.read(file, alone, |report, ledger, tables, names| {
                    make(file, report, ledger, tables, names)
                });
                queue.lock().finish(number, made);
                bar.inc(1);
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from).min(files.len());
        thread::scope(|scope| {
            (1..threads).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        bar.finish_and_clear();
    }

    /// Reads a recording and returns what `make` makes of it. `alone`: no other is read beside it, so that a
    /// bar can show how far it is.
    fn read<T>(
        &self,
        file: &Path,
        alone: bool,
        make: impl FnOnce(Report, &Ledger, &Tables, &Names<'_>) -> T,
    ) -> Result<T, String> {
        let recording = reader::read(file).map_err(|e| e.to_string())?;
        let length = fs::metadata(file).map_or(0, |m| m.len());
        let bar = self.bar(length / RECORD as u64, alone && length >= LONG, "reading {wide_bar} {percent} %");
        let events = recording.events().enumerate().map(|(i, e)| {
            if i.is_multiple_of(1 << 16) {
                bar.set_position(i as u64);
            }
            e
        });
        let mut ledger = replay(&recording, events)?;
        bar.finish_and_clear();
        if let Some(by) = self.steps_by {
            ledger = read_by(&recording, &ledger, by)?;
        }
        let (end, duration_ns) = match recording.ended {
            Ended::Clean(after) if recording.tables.meta.contains_key(DETACHED) => {
                (End::Detached, Some(after))
            }
            Ended::Clean(after) => (End::Clean, Some(after)),
            Ended::Replaced => (End::Replaced, None),
            Ended::Open if is_running(&recording) => (End::Running, None),
            Ended::Open => (End::Killed, None),
        };
        let cut = self.asked.step.and_then(|step| up_to(&recording, &ledger, step, self.steps_by));
        let whole = cut.is_none();
        let ledger = cut.unwrap_or(ledger);
        let names = Names::new(&recording.tables, Some(Box::new(self.names.clone())));
        let names = names.with_all_frames(self.all_frames);
        let run = Run {
            end,
            exit_status: recording.exit_status,
            pid: recording.pid,
            duration_ns,
            began_ns: recording.began_ns,
            dropped_events: recording.dropped_events,
            unfinished_events: recording.unfinished_events,
            problems: recording.problems.clone(),
        };
        let report = Report::query(&ledger, &recording.tables, &names, &run, self.asked);
        let mut report = report.map_err(|e| e.to_string())?;
        if let Some(by) = self.steps_by {
            report.steps.read_by(by);
        }
        if let Some(step) = self.asked.step.filter(|&step| whole && step < report.steps.count) {
            let net = match self.asked.since {
                Some(since) => format!("; the list shows how much more each line held than at step {since}"),
                None => String::new(),
            };
            report.warnings.push(format!(
                "findings are those of the whole run, not up to step {step}{net}: the events before it made room for \
                 later ones; record with LEAKTRACE_EVENTS=all to keep them"
            ));
        }
        if self.at_peak {
            let device = ledger.devices().iter().max_by_key(|d| d.peak_bytes());
            let device = device.map(|d| (d.device, d.peak_bytes())).ok_or("--at peak: nothing was live")?;
            let then = at_peak(&recording, device)?;
            report.add_peak(&then, &recording.tables, &names, device.0);
        }
        Ok(make(report, &ledger, &recording.tables, &names))
    }

    /// A progress bar on the standard error, if that is a terminal and reading takes long.
    fn bar(&self, length: u64, long: bool, template: &str) -> ProgressBar {
        if !long || self.quiet || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
        bar.with_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        )
    }
}

/// The files that several threads read, and what was made of them before its turn came.
struct Queue<'f, T, F> {
    files: &'f [PathBuf],
    /// Files that a thread has begun to read.
    started: usize,
    /// Results that `take` has got.
    taken: usize,
    early: BTreeMap<usize, Result<T, String>>,
    take: F,
}

impl<'f, T, F: FnMut(&Path, Result<T, String>)> Queue<'f, T, F> {
    /// Returns the next file and its number.
    fn start(&mut self) -> Option<(usize, &'f Path)> {
        let number = self.started;
        let file = self.files.get(number)?;
        self.started += 1;
        Some((number, file))
    }

    /// Takes every result whose turn has come.
    fn finish(&mut self, number: usize, made: Result<T, String>) {
        self.early.insert(number, made);
        while let Some(made) = self.early.remove(&self.taken) {
            (self.take)(&self.files[self.taken], made);
            self.taken += 1;
        }
    }
}

/// Says in one line what is wrong with a file.
pub fn failure(file: &Path, why: &str) -> Failure {
    Failure(printable(&format!("{}: {why}", file.display())).into())
}

/// Returns the ledger as it was when a device had its peak.
fn at_peak(recording: &Recording, (device, peak): (u8, u64)) -> Result<Ledger, String> {
    let mut ledger = replay(recording, std::iter::empty())?;
    let live = |l: &Ledger| l.devices().iter().find(|d| d.device == device).map_or(0, |d| d.live_bytes());
    for event in recording.events() {
        if live(&ledger) == peak {
            break;
        }
        ledger.apply(&event);
    }
    if live(&ledger) == peak {
        return Ok(ledger);
    }
    Err("--at peak: the events of that moment made room for later ones; record with LEAKTRACE_EVENTS=all to keep them"
        .to_owned())
}

/// Returns the ledger as it was when a step had ended; `None` where the events do not begin before that, or the recording
/// ends there. `ledger`: of the whole recording.
fn up_to(recording: &Recording, ledger: &Ledger, step: u32, by: Option<BoundarySource>) -> Option<Ledger> {
    if step == 0 || step >= ledger.step_count() {
        return None;
    }
    let events = || recording.events().map(|e| by.map_or(e, |by| by.reinterpret(e)));
    let begin = || match by {
        Some(_) => Ledger::replay(None, std::iter::empty()),
        None => replay(recording, std::iter::empty()).ok(),
    };
    let mut then = begin().filter(|then| then.step_count() < step)?;
    // A boundary may be superseded by the next one: the last that ends this step counts.
    let mut end = None;
    for (i, event) in events().enumerate() {
        then.apply(&event);
        match then.step_count().cmp(&step) {
            Ordering::Equal if event.kind == EventKind::StepEnd as u8 => end = Some(i + 1),
            Ordering::Greater => break,
            _ => {}
        }
    }
    let mut then = begin()?;
    let apply = |event: Event| then.apply(&event);
    events().take(end?).for_each(apply);
    Some(then)
}

/// Replays the same events with their steps ended by another source. `ledger`: as they were read without
/// that.
fn read_by(recording: &Recording, ledger: &Ledger, by: BoundarySource) -> Result<Ledger, String> {
    if !ledger.step_sources().any(|(known, _)| by.includes(known)) {
        let known: Vec<String> = ledger.step_sources().map(|(by, _)| by.to_string()).collect();
        let known = if known.is_empty() { "nothing".into() } else { known.join(", ") };
        return Err(format!("--steps-by {by}: not recorded; steps can be read by {known}"));
    }
    let anew = Ledger::replay(None, recording.events().map(|e| by.reinterpret(e)));
    anew.filter(|anew| anew.lost_events() <= ledger.lost_events()).ok_or_else(|| {
        format!(
            "--steps-by {by}: the events of the beginning made room for later ones; record with LEAKTRACE_EVENTS=all to keep them"
        )
    })
}

/// Returns true if the process that wrote the recording runs on this machine, and is not another one with its
/// pid.
fn is_running(recording: &Recording) -> bool {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let same_host = host.is_some_and(|h| recording.tables.meta.get("host").is_some_and(|of| of == h.trim()));
    same_host
        && match recording.tables.meta.get("started").and_then(|ticks| ticks.parse().ok()) {
            Some(ticks) => proc::is_alive(recording.pid, ticks),
            None => {
                let began_s = recording.began_ns / 1_000_000_000;
                proc::started(recording.pid).is_some_and(|at| at <= began_s + 1)
            }
        }
}
