//! `leaktrace top`: a live view of running programs, read from their recordings again and again. The programs
//! themselves are neither stopped nor asked.

use std::collections::BTreeSet;
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use super::input::{self, Reader};
use super::{Failure, Top as Arguments, output, proc};
use crate::render::terminal::live::{self, Seen};
use leaktrace_core::format::{reader, tables::Tables};
use leaktrace_core::ledger::Ledger;
use leaktrace_core::report::{Query, Report, Run};
use leaktrace_core::symbols::Names;

/// Steps that growth is shown over.
const WINDOW: usize = 100;
/// Steps that warm-up takes at most.
const WARM_UP: usize = 10;
/// How long a key may wait to be handled.
const POLL: Duration = Duration::from_millis(100);

/// What the thread that reads and the one that draws share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when `ended` is set.
    end: Condvar,
}

#[derive(Default)]
struct State {
    /// What was read last and is not drawn yet.
    newest: Option<Vec<Seen>>,
    ended: bool,
}

pub fn top(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let reader = Reader { quiet: !arguments.once, ..Reader::default() };
    if arguments.once {
        let seen = read(&reader, &targets(&arguments.what)?);
        if let [Seen { report: Err(why), file, .. }] = &seen[..] {
            return Err(input::failure(Path::new(file), why));
        }
        output::write(None, &[], live::once(&seen, output::width(None).clamp(80, 300) as u16).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if !std::io::stdout().is_terminal() {
        return Err(Failure("top draws on a terminal; --once prints one frame as text".into()));
    }
    // A wrong name is an error before the screen is taken; what is not there yet may come.
    if let Err(why) = targets(&arguments.what)
        && !arguments.what.iter().all(|what| may_come(what))
    {
        return Err(why);
    }
    let interval = Duration::from_secs(u64::from(arguments.every));
    let shared = Shared::default();
    let shown = thread::scope(|scope| {
        scope.spawn(|| watch(&reader, &arguments.what, interval, &shared));
        let shown = show(&shared);
        ratatui::restore();
        shared.state.lock().ended = true;
        shared.end.notify_one();
        shown
    });
    shown.map_err(|e| Failure(format!("the terminal: {e}")))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the recordings once per interval until the view is closed.
fn watch(reader: &Reader, what: &[PathBuf], interval: Duration, shared: &Shared) {
    let mut files = Vec::new();
    loop {
        // Processes come and go; those that were there stay on the screen.
        if let Ok(now) = targets(what) {
            files.extend(now.into_iter().filter(|f| !files.contains(f)).collect::<Vec<_>>());
        }
        let seen = read(reader, &files);
        let mut state = shared.state.lock();
        state.newest = Some(seen);
        shared.end.wait_while_for(&mut state, |state| !state.ended, interval);
        if state.ended {
            return;
        }
    }
}

/// Draws until a key closes the view.
fn show(shared: &Shared) -> std::io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let (mut seen, mut view) = (Vec::new(), live::State::default());
    loop {
        if !view.paused
            && let Some(newest) = shared.state.lock().newest.take()
        {
            seen = newest;
        }
        terminal.draw(|frame| live::draw(frame, &seen, view))?;
        if !event::poll(POLL)? {
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                KeyCode::Char('s') => view.by_size = !view.by_size,
                KeyCode::Char('p') => view.paused = !view.paused,
                _ => {}
            }
        }
    }
}

/// Reads each recording as it is now.
fn read(reader: &Reader, files: &[PathBuf]) -> Vec<Seen> {
    let mut all = Vec::new();
    let make = |_: &Path, report: Report, ledger: &Ledger, tables: &Tables, names: &Names<'_>| {
        let steps = ledger.steps();
        // What comes in the first steps is warm-up, and no growth.
        let first = steps.len().saturating_sub(WINDOW + 1).max(WARM_UP.min(steps.len() / 2));
        let since = first.checked_sub(1).and_then(|i| steps.get(i)).map_or(0, |r| r.step);
        let asked = Query { since: Some(since), net: true, ..Query::default() };
        let grown = Report::query(ledger, tables, names, &Run::default(), asked);
        let mut grown = grown.map_or_else(|_| Vec::new(), |r| r.retained);
        let no_leak =
            |number| report.non_leaks.iter().flat_map(|f| &f.sites).any(|s| s.numbers.contains(&number));
        grown.retain(|g| !no_leak(g.number));
        (report, grown, since)
    };
    reader.read_all(files, make, |file, made| {
        let at_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        let file = file.display().to_string();
        all.push(match made {
            Ok((report, grown, since)) => Seen { file, report: Ok(report), grown, since, at_s },
            Err(why) => Seen { file, report: Err(why), grown: Vec::new(), since: 0, at_s },
        });
    });
    all
}

/// Returns whether a recording may come where none is yet: in a folder, at a path, of a process that runs.
fn may_come(what: &Path) -> bool {
    let pid = what.to_str().and_then(|n| n.parse::<u32>().ok()).filter(|_| !what.exists());
    match pid {
        Some(pid) => Path::new(&format!("/proc/{pid}")).exists(),
        None if what.exists() => what.is_dir(),
        None => {
            let folder = what.parent().filter(|folder| !folder.as_os_str().is_empty());
            what.extension().is_some_and(|e| e == "ltrace") && folder.unwrap_or(Path::new(".")).is_dir()
        }
    }
}

/// Lists the recordings that are meant: by name, or those that a process and its descendants write.
fn targets(what: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for name in what {
        let pid = name.to_str().and_then(|n| n.parse::<u32>().ok()).filter(|_| !name.exists());
        match pid {
            Some(pid) => files.extend(of_process(pid)?),
            None if !name.exists() => return Err(input::failure(name, "no such file or folder")),
            None => files.extend(input::list(std::slice::from_ref(name), &mut |_| {})?),
        }
    }
    Ok(files)
}

/// Lists the recordings that a process and its descendants have mapped.
fn of_process(pid: u32) -> Result<Vec<PathBuf>, Failure> {
    if !Path::new(&format!("/proc/{pid}")).exists() {
        return Err(Failure(format!("{pid}: no such process, and no such file")));
    }
    let mut files: BTreeSet<PathBuf> = BTreeSet::new();
    for pid in proc::family(pid) {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"));
        // A recording is mapped shared and writable.
        let shared = |line: &&str| {
            line.split_whitespace().nth(1).is_some_and(|p| p.starts_with("rw") && p.ends_with('s'))
        };
        let maps = maps.unwrap_or_default();
        let paths = maps.lines().filter(shared).filter_map(|line| line.find('/').map(|at| &line[at..]));
        let paths: BTreeSet<&str> = paths.filter(|p| !p.starts_with("/dev/")).collect();
        files.extend(paths.into_iter().map(PathBuf::from).filter(|p| reader::read(p).is_ok()));
    }
    if files.is_empty() {
        return Err(Failure(format!(
            "{pid}: neither this process nor one it started writes a readable recording; was it started by `leaktrace run`, \
             and has it used the GPU yet?"
        )));
    }
    Ok(files.into_iter().collect())
}
