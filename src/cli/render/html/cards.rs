//! The words of a page, which are those of a terminal: the answer, the run, and each finding as a card with the lines of
//! the user's own code. Decides nothing of how they look.

use serde::Serialize;

use crate::render::source::Sources;
use leaktrace_core::report::text::SourceLines;
use leaktrace_core::report::wording::{
    self, advice, file_line, final_failure, held_by_whom, location, place, reserved_growth, site_amount,
    stack, time_to_oom, title,
};
use leaktrace_core::report::{Finding, Report};

/// Lines of a card that allocate, and of its callers.
const LINES: usize = 6;

#[derive(Debug, Serialize)]
pub struct Words {
    /// The answer in one sentence, and the line about the run below it.
    answer: String,
    run: String,
    /// What came after the last step, and is not judged.
    after_last: Option<String>,
    /// The folder that paths are relative to.
    base: String,
    cards: Vec<Card>,
    /// Of a program that memory ran out for, the sentences about it; empty: it did not.
    out_of_memory: Vec<String>,
}

/// A finding in words.
#[derive(Debug, Serialize)]
struct Card {
    title: String,
    much: String,
    at: String,
    held: Option<String>,
    why: String,
    fix: Option<String>,
    growth: Vec<String>,
    lines: Vec<Line>,
}

/// A line of the user's own code.
#[derive(Debug, Serialize)]
struct Line {
    label: &'static str,
    at: String,
    source: Option<String>,
}

impl Words {
    /// `report`: with its stacks.
    pub fn of(report: &Report) -> Words {
        let mut sources = Sources::of(&report.program);
        let failure = final_failure(report);
        let told = failure.map_or_else(Vec::new, |oom| {
            let in_use = wording::size(oom.allocated_bytes as f64);
            let at = location(oom.allocated_at.as_ref(), &report.program.base);
            let asked = wording::size(oom.requested_bytes as f64);
            let first = format!("{at} asked for {asked}; {in_use} were in use.");
            std::iter::once(first).chain(wording::out_of_memory_details(oom)).collect()
        });
        Words {
            answer: wording::answer(report),
            run: wording::run(report),
            after_last: wording::after_last(report),
            base: report.program.base.clone(),
            cards: report.findings.iter().map(|f| card(f, &report.program.base, &mut sources)).collect(),
            out_of_memory: told,
        }
    }
}

fn card(f: &Finding, base: &str, sources: &mut Sources) -> Card {
    let (name, much) = title(f);
    let label = if f.layer == "code" { "compiled at" } else { "allocated at" };
    let mut lines: Vec<Line> = Vec::new();
    for site in &f.sites {
        let at = place(site, base);
        if lines.len() == LINES || lines.iter().any(|l| l.at.starts_with(&at)) {
            continue;
        }
        let source = site.allocated_at.as_ref().and_then(|at| sources.line(&at.file, at.line));
        let at = if f.sites.len() > 1 { format!("{at}  {}", site_amount(f, site)) } else { at };
        lines.push(Line { label, at, source });
    }
    let callers = f.sites.first().map_or_else(Vec::new, |site| stack::callers(site));
    for frame in callers.iter().take(LINES) {
        let (file, line) = (&frame.frame.file, frame.frame.line);
        let place = line.map_or_else(String::new, |line| file_line(file, line, base) + " ");
        let at = format!("{place}{}", frame.frame.function);
        lines.push(Line { label: "called from", at, source: sources.line(file, line) });
    }
    Card {
        title: name,
        much,
        at: f.sites.first().map_or_else(String::new, |site| place(site, base)),
        held: held_by_whom(f)
            .or_else(|| f.holders_unknown.as_ref().map(|why| format!("held by: not known, {why}"))),
        why: f.why.clone(),
        fix: advice(f),
        growth: [reserved_growth(f), time_to_oom(f)].into_iter().flatten().collect(),
        lines,
    }
}
