//! The reading side under fuzz: from the bytes of a recording to every report of it, in one process.

mod compact;
mod long;
mod mutation;
mod programs;
mod recording_bytes;

pub use compact::expand;
pub use long::{Long, long};
pub use mutation::{Random, mutate};
pub use programs::{SYNTHETIC, synthetic};

use leaktrace_cli::html;
use leaktrace_core::format::reader;
use leaktrace_core::ledger::Ledger;
use leaktrace_core::report::{self, End, Query, Report, Run};
use leaktrace_core::symbols::Names;

/// What became of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// No recording, or not a whole one: one line says so.
    Refused,
    /// A recording without the step of the query.
    NoSuchStep,
    /// Every report was made.
    Told,
}

/// What `leaktrace report` does with a file of these bytes, in every format. Native symbols are not looked up: they
/// come from files of this machine.
pub fn tell(bytes: &[u8], step: Option<u32>) -> Fate {
    let Ok(recording) = reader::parse(bytes) else { return Fate::Refused };
    let Some(ledger) = Ledger::replay(recording.checkpoint.as_deref(), recording.events()) else {
        return Fate::Refused;
    };
    let names = Names::new(&recording.tables, None);
    let run = Run {
        end: End::Killed,
        exit_status: recording.exit_status,
        pid: recording.pid,
        began_ns: recording.began_ns,
        duration_ns: None,
        dropped_events: recording.dropped_events,
        unfinished_events: recording.unfinished_events,
        problems: recording.problems.clone(),
    };
    let query = Query {
        step,
        since: step.map(|step| step / 2),
        net: step.is_some_and(|step| step % 2 == 0),
        all: true,
        cohorts: step.is_none(),
    };
    let Ok(report) = Report::query(&ledger, &recording.tables, &names, &run, query) else {
        return Fate::NoSuchStep;
    };
    let text = report::text::render(&report);
    assert!(text.lines().all(|l| l.chars().all(|c| !c.is_control())), "a control character in the text");
    assert!(report::text::summary(&report, "leaktrace.1.ltrace").lines().count() <= 8);
    report::text::out_of_memory(&report);
    let json = report.to_json();
    assert!(json.starts_with("{\n"), "the report cannot be written as JSON");
    let limits = html::Limits::of(1);
    let page = html::Page::new("fuzzed.ltrace", report, &ledger, &recording.tables, &names, &limits);
    let mut pages = html::Pages::of(1);
    pages.add(&page);
    assert!(html::render(&pages).ends_with("</html>\n"), "the page has no end");
    // The traced process writes the same ledger on: it must still be one.
    if let Ok(state) = postcard::to_stdvec(&ledger) {
        assert!(
            Ledger::replay(Some(&state), []).is_some_and(|again| again == ledger),
            "a checkpoint differs"
        );
    }
    Fate::Told
}
