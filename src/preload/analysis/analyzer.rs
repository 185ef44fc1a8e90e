//! The books of this process: where the ledger catches up with the events, old events make room, and reports are written.
//!
//! Under one lock, on whatever thread has something to be taken in. What ends a step is not known here: see `boundary`.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use crate::allocator;
use crate::analysis::holders;
use crate::analysis::loop_steps;
use crate::analysis::step_boundaries;
use crate::lifecycle;
use crate::python;
use crate::writer::drain::Drain;
use crate::writer::lock::Mutex;
use crate::writer::recording;
use crate::writer::signals::calmly;
use leaktrace_core::format::backfilled::BackfilledBoundary;
use leaktrace_core::format::event::{Event, RECORD};
use leaktrace_core::format::{reader, tables::Tables};
use leaktrace_core::ledger::Ledger;
use leaktrace_core::report::{self, Report, Run};
use leaktrace_core::symbols::Names;

/// Events after which a checkpoint is due (8 MiB of them): so many that its cost vanishes among theirs.
const WINDOW: u64 = (8 << 20) / RECORD as u64;

/// So many events are taken in together, however many steps they are: each time it is done the books push the program's own
/// data out of the processor's caches.
const TOGETHER: u64 = 8192;

/// Events not covered by a checkpoint at which a thread that fills a segment takes them in, and at which it waits until
/// they are.
const ENOUGH: u64 = 2 * WINDOW;
const TOO_MUCH: u64 = ENOUGH + WINDOW / 4;
/// The longest such wait.
const LONG: Duration = Duration::from_millis(100);

/// The part of the run, 1 in so many, that reports may take, and how long they may take at first.
const DUMPS_SHARE: u32 = 100;
const DUMPS_AT_ONCE: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(crate) struct Host {
    pub(crate) ledger: Ledger,
    pub(crate) drain: Drain,
    /// Boundaries that lie before an event that is still to be taken in.
    pub(crate) placed: VecDeque<BackfilledBoundary>,
    /// Steps that ended since events were taken in.
    pub(crate) waiting: u32,
    /// Size of the last checkpoint in records.
    pub(crate) checkpoint: u64,
    pub(crate) out_of_memory_dumps: u32,
    /// The time that judging and writing reports took.
    pub(crate) dumping: Duration,
    pub(crate) owners: holders::Owners,
}

pub(crate) static HOST: Mutex<Option<Box<Host>>> = Mutex::new(None);
/// The first sequence number that the last checkpoint does not cover.
pub(crate) static COVERED: AtomicU64 = AtomicU64::new(1);
impl Host {
    /// Takes in every event up to now; writes a checkpoint when enough have gathered.
    /// `false`: there is no memory for that. The events stay where they are.
    pub(crate) fn catch_up(&mut self) -> bool {
        if !self.take_in() {
            return false;
        }
        if self.ledger.next_seq() - COVERED.load(Relaxed) > WINDOW.max(2 * self.checkpoint) {
            self.write_checkpoint();
        }
        true
    }

    /// Chooses the program's loop now, from what was seen up to now, if it shows. `over`: there will not be more.
    pub(crate) fn choose_loop(&mut self, over: bool) {
        if !loop_steps::may_settle() || !step_boundaries::wants_loop() {
            return;
        }
        if let Some(placed) = loop_steps::settle(self.ledger.next_seq(), over) {
            step_boundaries::loop_was_chosen();
            self.placed.extend(placed);
        }
    }

    fn take_in(&mut self) -> bool {
        // What is taken in has no place for a boundary any more.
        self.choose_loop(false);
        self.waiting = 0;
        self.apply_all(|_, _| {})
    }

    /// Takes in what waits; `first` sees each event before that. `false`: there is no memory for it.
    fn apply_all(&mut self, mut first: impl FnMut(&mut Ledger, &Event)) -> bool {
        // What waits is copied and sorted, most of it may be new blocks, and tables that grow exist twice for a moment.
        let waiting = (recording::sequence() - self.ledger.next_seq()) as usize;
        if !allocator::enough_for(waiting * 8 * RECORD + 4 * self.checkpoint as usize * RECORD) {
            return false;
        }
        let Host { ledger, drain, placed, .. } = self;
        drain.run(ledger.next_seq(), |event| {
            while let Some(boundary) = placed.front().filter(|p| p.seq <= event.seq) {
                ledger.apply(&boundary.event());
                placed.pop_front();
            }
            first(ledger, event);
            ledger.apply(event);
        });
        true
    }

    /// The iterations under way are over: at the latest when the interpreter is, or the program lets go of what it had at the
    /// boundary before, which is what the last step kept.
    pub(crate) fn end_iterations(&mut self) {
        let over = python::ended_at().unwrap_or(u64::MAX);
        let first = loop_steps::after_last();
        let mut ended = false;
        self.apply_all(|ledger, event| {
            if !ended && event.seq >= first && (event.seq >= over || ledger.frees_retained_block(event)) {
                ended = true;
                loop_steps::finish(event.seq).iter().for_each(|end| ledger.apply(&end.event()));
            }
        });
        if !ended {
            self.placed.extend(loop_steps::finish(self.ledger.next_seq()));
        }
    }

    /// Events that wait are few, and taken in together with later ones.
    pub(crate) fn few_wait(&self) -> bool {
        recording::sequence() - self.ledger.next_seq() < TOGETHER
    }

    fn write_checkpoint(&mut self) {
        let next = self.ledger.next_seq();
        if let Ok(state) = postcard::to_stdvec(&self.ledger) {
            // Without room for it the next try comes a window later, not at every boundary.
            recording::checkpoint(&state, next, lifecycle::settings().all_events);
            self.checkpoint = (state.len() / RECORD) as u64;
            COVERED.store(next, Release);
        }
    }

    pub(crate) fn report(&self) -> Option<Report> {
        let mut tables = Tables::default();
        for segment in recording::table_bytes() {
            let _ = reader::entries(&segment, &mut tables);
        }
        let names = Names::new(&tables, None);
        let run = Run {
            pid: std::process::id(),
            duration_ns: Some(lifecycle::elapsed()),
            dropped_events: recording::dropped(),
            ..Run::default()
        };
        Report::build(&self.ledger, &tables, &names, &run, None).ok()
    }

    pub(crate) fn dump(&mut self) {
        let began = Instant::now();
        self.write("txt", |report| Some(report::text::render(report)));
        self.dumping += began.elapsed();
    }

    /// True if the reports so far took more of the run than they are worth: where a step takes microseconds, a hundred of
    /// them are soon over.
    pub(crate) fn dumps_too_much(&self) -> bool {
        self.dumping > DUMPS_AT_ONCE + Duration::from_nanos(lifecycle::elapsed()) / DUMPS_SHARE
    }

    /// Writes beside the recording, replacing what stood there at once.
    pub(crate) fn write(&self, extension: &str, render: impl FnOnce(&Report) -> Option<String>) {
        let (Some(path), Some(text)) = (lifecycle::path(), self.report().and_then(|r| render(&r))) else {
            return;
        };
        let (target, draft) = (beside(&path, extension), beside(&path, "draft"));
        calmly(|| {
            if std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, &target)).is_err() {
                let _ = std::fs::remove_file(&draft);
            }
        });
    }
}

/// A segment was filled: if none of the boundaries comes, somebody has to make room. Where many threads write faster than
/// one takes in, they sleep until it has, and it gives its turn to whoever holds it up: else the file grows without bound.
/// Never for long, since this thread may be a signal handler's, on top of the one that takes in.
pub fn relieve() {
    let behind = || recording::sequence() - COVERED.load(Relaxed);
    let host = match behind() {
        ..ENOUGH => return,
        ENOUGH..TOO_MUCH => HOST.try_lock(),
        _ => HOST.try_lock_for(LONG),
    };
    let Some(mut host) = host else { return };
    let Some(host) = host.as_mut() else { return };
    let began = Instant::now();
    // Another may have done it meanwhile.
    while behind() >= ENOUGH && host.catch_up() && behind() >= TOO_MUCH && began.elapsed() < LONG {
        std::thread::yield_now();
    }
}

/// The file cannot grow: a checkpoint now, however few events have gathered, gives back what holds older ones.
pub fn make_room() {
    if let Some(mut host) = HOST.try_lock()
        && let Some(host) = host.as_mut()
        && host.take_in()
    {
        host.write_checkpoint();
    }
}

/// The name of another file beside a recording; never the recording's own, whatever that is called.
fn beside(path: &Path, extension: &str) -> PathBuf {
    if path.extension().is_some_and(|e| e == "ltrace") {
        return path.with_extension(extension);
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}
