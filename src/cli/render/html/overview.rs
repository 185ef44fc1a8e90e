//! The page over all recordings of a file: of each run the answer, the findings by ranks, who ended how, how far they
//! differ, and what could not be read. In the words that a terminal has.

use serde::Serialize;

use crate::ranks::Gathered;
use crate::ranks::words::{self, Figure, NAMES, Row};
use leaktrace_core::report::wording::{advice, command, held_by_whom, place, title};

/// A run on the page.
#[derive(Serialize)]
pub struct Run<'g> {
    answer: String,
    began: String,
    command: String,
    causes: Vec<Cause>,
    rows: Vec<Row>,
    figures: Vec<Figure>,
    /// The recordings, as the pages name them.
    files: Vec<&'g str>,
    unread: &'g [(String, String)],
    dropped_events: u64,
}

/// A cause in the words of its finding.
#[derive(Serialize)]
struct Cause {
    kind: &'static str,
    title: String,
    much: String,
    at: String,
    held: Option<String>,
    on: String,
    why: String,
    fix: Option<String>,
    /// The process where it is largest.
    process: usize,
}

impl<'g> Run<'g> {
    pub fn of(g: &'g Gathered) -> Run<'g> {
        let cause = |c: &crate::ranks::Cause| {
            let (title, much) = title(&c.finding);
            let largest = c.members.iter().max_by(|a, b| a.bytes_per_step.total_cmp(&b.bytes_per_step));
            Cause {
                kind: c.finding.kind.name(),
                title,
                much,
                at: c.finding.sites.first().map_or_else(String::new, |s| place(s, &c.program.base)),
                held: held_by_whom(&c.finding),
                on: words::spread(g, c, NAMES),
                why: c.finding.why.clone(),
                fix: advice(&c.finding),
                process: largest.map_or(0, |m| m.process),
            }
        };
        let name = |file: &'g str| file.rsplit('/').next().unwrap_or(file);
        Run {
            answer: words::answer(g),
            began: words::began(g),
            command: command(&g.program),
            causes: g.causes.iter().map(cause).collect(),
            rows: words::rows(g, false),
            figures: words::figures(g),
            files: g.processes.iter().map(|p| name(&p.file)).collect(),
            unread: &g.unread,
            dropped_events: g.dropped_events,
        }
    }
}
