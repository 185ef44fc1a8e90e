//! `leaktrace top`: what running programs hold, read from their recordings again and again. The programs are not touched.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use super::input::{self, Symbols};
use super::{Failure, Top as Arguments, output};
use crate::render::terminal::live::{self, Seen, State};
use leaktrace_core::format::reader;
use leaktrace_core::report::{Asked, Report, Run};

/// Steps over which growth is told.
const WINDOW: usize = 100;
/// How long a key may wait.
const POLL: Duration = Duration::from_millis(100);

pub fn top(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.once {
        let seen = look(&targets(&arguments.what)?, &Symbols::default());
        if let [Seen { report: Err(why), file, .. }] = &seen[..] {
            return Err(input::failure(Path::new(file), why));
        }
        output::write(None, live::once(&seen, output::width(None).clamp(80, 300) as u16).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if !std::io::stdout().is_terminal() {
        return Err(Failure("top draws on a terminal; --once prints one frame as text".into()));
    }
    // A wrong name is told before the screen is taken.
    targets(&arguments.what)?;
    let (what, every) = (arguments.what.clone(), Duration::from_secs(u64::from(arguments.every)));
    let (looks, seen) = mpsc::channel();
    let (ended, end) = mpsc::channel::<()>();
    let watcher = thread::spawn(move || {
        let symbols = Symbols::default();
        let mut files = Vec::new();
        loop {
            // Processes come and go; those that were there stay on the screen.
            if let Ok(now) = targets(&what) {
                files.extend(now.into_iter().filter(|f| !files.contains(f)).collect::<Vec<_>>());
            }
            if looks.send(look(&files, &symbols)).is_err() {
                return;
            }
            if !matches!(end.recv_timeout(every), Err(RecvTimeoutError::Timeout)) {
                return;
            }
        }
    });
    let shown = show(&seen);
    drop(ended);
    ratatui::restore();
    let _ = watcher.join();
    shown.map_err(|e| Failure(format!("the terminal: {e}")))?;
    Ok(ExitCode::SUCCESS)
}

/// Draws until somebody ends it.
fn show(looks: &mpsc::Receiver<Vec<Seen>>) -> std::io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let (mut seen, mut state) = (Vec::new(), State::default());
    loop {
        if let Some(newest) = looks.try_iter().last()
            && !state.held_still
        {
            seen = newest;
        }
        terminal.draw(|frame| live::draw(frame, &seen, state))?;
        if !event::poll(POLL)? {
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                KeyCode::Char('s') => state.by_size = !state.by_size,
                KeyCode::Char('p') => state.held_still = !state.held_still,
                _ => {}
            }
        }
    }
}

/// Reads each recording as it is now.
fn look(files: &[PathBuf], symbols: &Symbols) -> Vec<Seen> {
    let one = |file: &PathBuf| {
        let both = input::read(file, Asked::default(), symbols, |report, ledger, tables, names| {
            let steps = ledger.steps();
            let since = steps.len().checked_sub(WINDOW + 1).and_then(|i| steps.get(i)).map_or(0, |r| r.step);
            let asked = Asked { since: Some(since), ..Asked::default() };
            let grown = Report::asked(ledger, tables, names, &Run::default(), asked);
            (report, grown.map_or_else(|_| Vec::new(), |r| r.retained), since)
        });
        let at_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        let file = file.display().to_string();
        match both {
            Ok((report, grown, since)) => Seen { file, report: Ok(report), grown, since, at_s },
            Err(why) => Seen { file, report: Err(why), grown: Vec::new(), since: 0, at_s },
        }
    };
    files.iter().map(one).collect()
}

/// The recordings that are meant: by name, or those that a process and its children write.
fn targets(what: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for name in what {
        let pid = name.to_str().and_then(|n| n.parse::<u32>().ok()).filter(|_| !name.exists());
        match pid {
            Some(pid) => files.extend(of_process(pid)?),
            None => files.extend(input::files(std::slice::from_ref(name))?),
        }
    }
    Ok(files)
}

/// What a process and those it started have mapped that is a recording.
fn of_process(pid: u32) -> Result<Vec<PathBuf>, Failure> {
    if !Path::new(&format!("/proc/{pid}")).exists() {
        return Err(Failure(format!("{pid}: there is no such process, and no such file")));
    }
    let mut files: BTreeSet<PathBuf> = BTreeSet::new();
    for pid in family(pid) {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"));
        // Only what is shared and written to can be one.
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
            "{pid}: neither this process nor one it started writes a recording that can be read; was it run by \
             `leaktrace run`, and has it used the GPU yet?"
        )));
    }
    Ok(files.into_iter().collect())
}

/// A process and all it started.
fn family(pid: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(child);
        }
    }
    let (mut all, mut at) = (vec![pid], 0);
    while let Some(&next) = all.get(at) {
        let of_it = children.remove(&next).unwrap_or_default();
        all.extend(of_it);
        at += 1;
    }
    all
}
