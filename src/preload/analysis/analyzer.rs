//! The analyzer: drains events into the ledger of this process, writes checkpoints that let old events go,
//! and writes reports.
//!
//! It works under one lock, on whatever thread has events to drain. It does not know what ends a step: see
//! `step_boundaries`.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use crate::allocator;
use crate::analysis::report_files::ReportFiles;
use crate::analysis::{holders, loop_entries, loop_steps, step_boundaries, step_schedule};
use crate::lock::{Mutex, Rank};
use crate::python;
use crate::settings;
use crate::state;
use crate::stderr;
use crate::writer::drain::{self, Drain};
use crate::writer::recording;
use crate::writer::signals::with_signals_blocked;
use leaktrace_core::format::backfilled::BackfilledBoundary;
use leaktrace_core::format::corrections::{BACKWARD_STEPS, Corrections, TURNS};
use leaktrace_core::format::entry::TableEntry;
use leaktrace_core::format::event::{Event, EventKind, RECORD, StepSource};
use leaktrace_core::format::{reader, tables::Tables};
use leaktrace_core::ledger::Ledger;
use leaktrace_core::report::{self, Report, Run};
use leaktrace_core::symbols::Names;

/// The events after which a checkpoint is due (8 MiB of them): so many that its cost vanishes among theirs.
const CHECKPOINT_EVERY: u64 = (8 << 20) / RECORD as u64;

/// The events that wait to be drained at which a thread that fills a segment drains them, and at which it waits until they
/// are drained.
const BACKLOG: u64 = 2 * CHECKPOINT_EVERY;
const BACKLOG_LIMIT: u64 = BACKLOG + CHECKPOINT_EVERY / 4;
/// The longest such wait.
const MAX_WAIT: Duration = Duration::from_millis(100);

/// The part of the run, 1 in so many, that reports may take, and how long they may take at first.
const DUMP_SHARE: u32 = 400;
const DUMP_ALLOWANCE: Duration = Duration::from_millis(100);

/// What a report may have to go through: bytes of table entries, sites with something live, live blocks. Of more it would
/// take longer than a second, and tens of MiB: then it is left to the reader.
const MAX_TABLES: usize = 16 << 20;
const MAX_SITES: usize = 6000;
const MAX_LIVE: usize = 500_000;

/// What a live block and a site take in the ledger.
const OF_BLOCK: usize = 64;
const OF_SITE: usize = 512;
/// What a live block, and a site with the names in its stacks, take where a report is made. It lists so many names only.
const REPORT_OF_BLOCK: usize = 128;
const REPORT_OF_SITE: usize = 24 << 10;
const REPORT_OF_SITES: usize = 48 << 20;

const NO_REPORT: &str = "reports beside the recording: there was too much to sum up in the program";

/// The ledger of this process and what is needed to keep it.
#[derive(Default)]
pub struct Analyzer {
    pub ledger: Ledger,
    pub stream: Drain,
    /// Boundaries that were found later, each before an event that is still to be drained.
    pub backfilled: VecDeque<BackfilledBoundary>,
    /// The end of the last iteration, if it may lie further in front: see [`loop_steps::without_late`].
    late_ends: Vec<BackfilledBoundary>,
    /// What turned out later of boundaries that are still to be drained.
    corrections: Corrections,
    /// The size of the last checkpoint in records.
    pub checkpoint: u64,
    pub out_of_memory_dumps: u32,
    /// The time that verdicts and reports took.
    pub dumping: Duration,
    pub searches: holders::Searches,
    pub files: ReportFiles,
    /// Whether a report was left to the reader.
    left_reports: bool,
}

/// The analyzer of this process; empty without a recording.
pub static ANALYZER: Mutex<Option<Box<Analyzer>>> = Mutex::new(Rank::Analyzer, None);
/// The first sequence number that the last checkpoint does not cover, and the first that was not drained.
static COVERED: AtomicU64 = AtomicU64::new(1);
static DRAINED: AtomicU64 = AtomicU64::new(1);

fn write_range(key: &str, events: &Range<u64>) {
    let value = format!("{} {}", events.start, events.end);
    recording::append_entry(&TableEntry::Meta { key, value: &value });
}

/// Begins anew, for another recording.
pub fn restart() {
    COVERED.store(1, Release);
    DRAINED.store(1, Release);
}

/// Returns whether fewer events wait than a checkpoint is due for.
pub fn may_wait() -> bool {
    recording::sequence().saturating_sub(DRAINED.load(Acquire)) < CHECKPOINT_EVERY
}

impl Analyzer {
    /// Drains every event up to now, and writes a checkpoint when enough have gathered. `false`: there is no
    /// memory for that. The events stay where they are.
    pub fn drain(&mut self) -> bool {
        if !self.drain_into_ledger() {
            return false;
        }
        if self.ledger.next_seq() - COVERED.load(Relaxed) > CHECKPOINT_EVERY.max(2 * self.checkpoint) {
            self.write_checkpoint();
        }
        true
    }

    /// Has the program's loop chosen from what was seen so far, if it shows. `over`: there will not be more.
    pub fn choose_loop(&mut self, over: bool) {
        if !loop_steps::is_enabled() || !step_boundaries::wants_loop() {
            return;
        }
        if let Some(mut ends) = loop_steps::decide(self.ledger.next_seq(), over) {
            step_boundaries::loop_was_chosen();
            if over {
                self.late_ends = loop_steps::without_late(&mut ends);
            }
            loop_entries::add(&ends);
            self.backfilled.extend(ends);
        }
    }

    /// Has the backward passes so far end steps, as far as the ledger can still take that in: there is nothing else that
    /// could. What they are is known too late for the events themselves. The optimizer step behind the last one ends a
    /// step, too: no other backward pass will.
    pub fn end_steps_at_backward_passes(&mut self) {
        let (first, mut last) = (self.ledger.next_seq(), None);
        drain::peek(first, |event| match EventKind::from_code(event.kind) {
            Some(EventKind::AltBoundary) if event.class == StepSource::Backward as u8 => last = None,
            Some(EventKind::StepEnd) if event.class == StepSource::Optimizer as u8 => {
                last = last.or(Some(event.seq));
            }
            _ => (),
        });
        self.corrections.backward_steps = first..last.unwrap_or(recording::sequence() + 1);
        write_range(BACKWARD_STEPS, &self.corrections.backward_steps);
    }

    /// Has the latest optimizer steps so far, so many turns of a critic, be one step, as far as the ledger can still take that in.
    pub fn join_turns(&mut self, turns: u32) {
        let mut ends = Vec::new();
        drain::peek(self.ledger.next_seq(), |event| {
            let is_end = event.kind == EventKind::StepEnd as u8 && event.class == StepSource::Optimizer as u8;
            if is_end && event.context == 0 {
                ends.push(event.seq);
            }
        });
        // The first one stays: it ends the step that the others belong to.
        let others = ends.len().saturating_sub(turns as usize - 1);
        if let Some(&first) = ends.get(others) {
            self.corrections.turns = first..recording::sequence() + 1;
            write_range(TURNS, &self.corrections.turns);
        }
    }

    fn drain_into_ledger(&mut self) -> bool {
        // No boundary can be put before an event that was drained.
        self.choose_loop(false);
        self.apply_all(|_, _| {})
    }

    /// Drains what waits; `first` sees each event before the ledger does. `false`: there is no memory for it.
    fn apply_all(&mut self, mut first: impl FnMut(&mut Ledger, &Event)) -> bool {
        // What waits is copied and sorted, most of it may be new blocks, and tables that grow exist twice for
        // a moment.
        let waiting = (recording::sequence() - self.ledger.next_seq()) as usize;
        if !allocator::can_allocate(waiting * 8 * RECORD + 4 * self.checkpoint as usize * RECORD) {
            return false;
        }
        let Analyzer { ledger, stream, backfilled, corrections, .. } = self;
        stream.run(ledger.next_seq(), |event| {
            let event = &corrections.apply(*event);
            while let Some(boundary) = backfilled.front().filter(|p| p.seq <= event.seq) {
                ledger.apply(&boundary.event());
                backfilled.pop_front();
            }
            first(ledger, event);
            ledger.apply(event);
        });
        DRAINED.store(ledger.next_seq(), Release);
        step_schedule::drained(ledger.next_seq(), ledger.step_count());
        true
    }

    /// Returns the ledger as it would be if the program's loop were chosen now, while none was, or other loops joined an
    /// optimizer's steps. Nothing is drained for it: no boundary can be put before an event that was.
    pub fn drafted(&mut self) -> Option<Ledger> {
        let began = Instant::now();
        let mut ends = loop_steps::drafted()?.into_iter().peekable();
        let waiting = (recording::sequence() - self.ledger.next_seq()) as usize;
        if !self.backfilled.is_empty() || !allocator::can_allocate(waiting * 8 * RECORD + self.memory()) {
            return None;
        }
        let mut ledger = self.ledger.clone();
        let first = ledger.next_seq();
        drain::peek(first, |event| {
            while let Some(end) = ends.next_if(|end| end.seq <= event.seq) {
                if end.seq >= first {
                    ledger.apply(&end.event());
                }
            }
            ledger.apply(event);
        });
        self.searches.looked(began.elapsed());
        Some(ledger)
    }

    /// Ends the iterations under way: at the latest when the interpreter ends, or the program frees more of what it
    /// had at the boundary before, which is what the last step kept, than every step does at its end, and than it has made
    /// anew in the place of others; at once where others have allocated as much as several steps since.
    pub fn end_iterations(&mut self) {
        let late = std::mem::take(&mut self.late_ends);
        let left = late.iter().map(|end| end.seq).min().unwrap_or(u64::MAX);
        let over = python::ended_at().unwrap_or(u64::MAX).min(left);
        let first = loop_steps::after_last();
        let is_behind = |e: &Event, kind: EventKind| e.kind == kind as u8 && (first..over).contains(&e.seq);
        let (mut behind, mut frees) = (0, 0);
        drain::peek(self.ledger.next_seq(), |event| {
            behind += u64::from(is_behind(event, EventKind::BlockAlloc));
            frees += u64::from(is_behind(event, EventKind::BlockFree));
        });
        let (mut ended, mut freed, mut made) = (false, 0, None);
        self.apply_all(|ledger, event| {
            if ended || event.seq < first {
                return;
            }
            let made = made.get_or_insert_with(|| ledger.made_since_boundary(frees));
            freed += u64::from(!made.replaces(ledger, event) && ledger.frees_retained_block(event));
            let went_on = is_behind(event, EventKind::BlockAlloc) && ledger.are_several_steps(behind);
            if event.seq >= over || freed > ledger.usual_trailing_frees() || went_on {
                ended = true;
                loop_steps::finish(&late, event.seq).iter().for_each(|end| ledger.apply(&end.event()));
            }
        });
        if !ended {
            self.backfilled.extend(loop_steps::finish(&late, self.ledger.next_seq()));
        }
    }

    /// Returns about how many bytes a copy of the ledger takes. Less than half of that is written of it, and a vector that grows
    /// may have twice the room.
    fn memory(&self) -> usize {
        let ((live, _), sites) = (self.ledger.live_counts(), self.ledger.sites().count());
        4 * self.checkpoint as usize * RECORD + live * OF_BLOCK + sites * OF_SITE
    }

    fn write_checkpoint(&mut self) {
        let next = self.ledger.next_seq();
        if !allocator::can_allocate(self.memory()) {
            // As without room in the file.
            COVERED.store(next, Release);
            return;
        }
        if let Ok(state) = postcard::to_stdvec(&self.ledger) {
            // Without room for it the next try comes a window later, not at every boundary.
            recording::checkpoint(&state, next, settings::get().all_events);
            self.checkpoint = (state.len() / RECORD) as u64;
            COVERED.store(next, Release);
        }
    }

    /// Builds the report so far. `Err`: it is left to the reader, and this says why.
    pub fn report(&self) -> Result<Report, String> {
        self.check_size()?;
        let mut tables = Tables::default();
        recording::each_table(|segment| {
            let _ = reader::entries(segment, &mut tables);
        });
        let names = Names::new(&tables, None);
        let run = Run {
            end: step_boundaries::end(),
            pid: std::process::id(),
            duration_ns: Some(state::elapsed()),
            dropped_events: recording::dropped(),
            // No file that could be damaged comes in between.
            unfinished_events: u64::MAX,
            ..Run::default()
        };
        Report::build(&self.ledger, &tables, &names, &run, None).map_err(|e| e.to_string())
    }

    fn check_size(&self) -> Result<(), String> {
        let ((live, sites), tables) = (self.ledger.live_counts(), recording::table_length());
        let is_little = live <= MAX_LIVE && sites <= MAX_SITES && tables <= MAX_TABLES;
        let listed = (sites * REPORT_OF_SITE).min(REPORT_OF_SITES);
        if is_little && allocator::can_allocate(3 * tables + live * REPORT_OF_BLOCK + listed) {
            return Ok(());
        }
        let what = if is_little { "too little memory" } else { "too much" };
        let tables = report::wording::size(tables as f64);
        let path = state::path().unwrap_or_default();
        Err(format!(
            "{what} to sum up in the program ({live} live blocks at {sites} call stacks, {tables} of stacks and names); \
             it is all in the recording: leaktrace report {}",
            as_typed(&path)
        ))
    }

    /// Writes the report so far as text, beside the recording.
    pub fn dump(&mut self) {
        let began = Instant::now();
        let report = self.report();
        self.write("txt", &report, report::text::render);
        self.dumping += began.elapsed();
    }

    /// Returns whether the reports so far took more of the run than they are worth: where a step takes
    /// microseconds, a hundred of them are soon over.
    pub fn dumps_too_much(&self) -> bool {
        self.dumping > DUMP_ALLOWANCE + Duration::from_nanos(state::elapsed()) / DUMP_SHARE
    }

    /// Writes what memory ran out with, beside the recording.
    pub fn write_out_of_memory(&mut self) {
        let report = self.report();
        if report.as_ref().map_or(true, |report| !report.out_of_memory.is_empty()) {
            self.write("oom.txt", &report, |report| report::text::out_of_memory(report).unwrap_or_default());
        }
    }

    /// Writes a file beside the recording, replacing the one from before. Where there is no report, it says why.
    pub fn write(
        &mut self,
        extension: &'static str,
        report: &Result<Report, String>,
        render: impl FnOnce(&Report) -> String,
    ) {
        let Some(path) = state::path() else { return };
        let text = match report {
            Ok(report) => render(report),
            Err(why) => {
                if !std::mem::replace(&mut self.left_reports, true) {
                    recording::append_entry(&TableEntry::Note { text: NO_REPORT });
                }
                stderr::line(why)
            }
        };
        // A report that cannot be written is missing, and the recording has it all.
        let _ = with_signals_blocked(|| self.files.write(&path, extension, &text));
    }
}

/// Drains events on a thread that has filled a segment, in case no boundary comes. Where many threads write
/// faster than one drains, they sleep until it has, and it yields to whoever holds it up: else the file grows
/// without bound. Never for long, since the thread that drains may be waiting for this one.
pub fn apply_backpressure() {
    // Loaded first: another thread may record and drain in between.
    let behind = || {
        let drained = DRAINED.load(Relaxed);
        recording::sequence().saturating_sub(drained)
    };
    let analyzer = match behind() {
        ..BACKLOG => return,
        BACKLOG..BACKLOG_LIMIT => ANALYZER.try_lock(),
        _ => ANALYZER.try_lock_for(MAX_WAIT),
    };
    let Some(mut analyzer) = analyzer else { return };
    let Some(analyzer) = analyzer.as_mut() else { return };
    let began = Instant::now();
    // Another may have done it meanwhile.
    while behind() >= BACKLOG && analyzer.drain() && behind() >= BACKLOG_LIMIT && began.elapsed() < MAX_WAIT {
        std::thread::yield_now();
    }
}

/// Writes a checkpoint now, however few events have gathered: the file cannot grow, and segments of older
/// ones become free.
pub fn reclaim_segments() {
    if let Some(mut analyzer) = ANALYZER.try_lock()
        && let Some(analyzer) = analyzer.as_mut()
        && analyzer.drain_into_ledger()
    {
        analyzer.write_checkpoint();
    }
}

/// Returns the path as a person would type it: relative where the recording lies below the working directory.
pub fn as_typed(path: &Path) -> String {
    let below = std::env::current_dir().ok().and_then(|d| path.strip_prefix(d).ok().map(PathBuf::from));
    below.as_deref().unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_that_there_is_no_memory_for_is_left_out() {
        // As large as all of a process's addresses.
        let mut analyzer = Analyzer { checkpoint: 1 << 40, ..Analyzer::default() };
        analyzer.write_checkpoint();
        assert_eq!(analyzer.checkpoint, 1 << 40, "none was made");
        let mut analyzer = Analyzer { checkpoint: 1000, ..Analyzer::default() };
        analyzer.write_checkpoint();
        assert_ne!(analyzer.checkpoint, 1000);
    }
}
