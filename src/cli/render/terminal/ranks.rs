//! The report over the processes of a run, and over several runs: what is the same on all of them is one row.

use super::{BAD, BOLD, DIM, GOOD, Look, PLAIN, Page, UNSURE};
use crate::ranks::Gathered;
use crate::ranks::words::{NAMES, answer, began, figures, noun, rows, spread};
use crate::render::source::Sources;
use leaktrace_core::cpython;
use leaktrace_core::report::text::{finding, style_of};
use leaktrace_core::report::wording::{command, count, grouped, sanitize};

/// Rows of the table of processes, if not all are wanted.
const ROWS: usize = 16;
/// Runs that have their whole report, if not all are wanted.
const RUNS: usize = 4;

/// Returns the whole report: of each run, the newest first.
pub fn render(runs: &[Gathered], look: &Look) -> String {
    let mut page = Page::new(look.layout.width, look.colour);
    let most = if look.layout.all { runs.len() } else { RUNS };
    if runs.len() > 1 {
        let files: usize = runs.iter().map(|g| g.processes.len()).sum();
        let over = format!("{} of {}", count(files as f64, "recording"), count(runs.len() as f64, "run"));
        page.wrap("", 2, &[(BOLD, &format!("{over}, the newest first"))]);
        page.gap();
    }
    for (i, g) in runs.iter().enumerate() {
        if i < most {
            if runs.len() > 1 {
                page.wrap("", 2, &[(BOLD, &format!("Run {} of {}, begun {}", i + 1, runs.len(), began(g)))]);
            }
            run(&mut page, g, look.layout.all);
        } else {
            let file = g.processes.first().map_or("", |p| p.file.as_str());
            let text = format!("{}: {} ({})", began(g), answer(g), sanitize(file));
            page.wrap("  ", 4, &[(DIM, &text)]);
        }
    }
    page.into_text()
}

fn run(page: &mut Page, g: &Gathered, all: bool) {
    let style = match g.causes.first() {
        Some(first) => style_of(first.finding.kind),
        None if g.judged() == 0 || !g.ended_early.is_empty() => UNSURE,
        None => GOOD,
    };
    page.wrap("", 2, &[(style, &answer(g))]);
    head(page, g);
    page.gap();
    for (i, c) in g.causes.iter().enumerate() {
        let spread = spread(g, c, if all { usize::MAX } else { NAMES });
        let mut sources = Sources::of(&c.program);
        finding(page, i + 1, &c.finding, &c.program, &mut sources, all, Some(&spread));
    }
    table(page, g, all);
    spreads(page, g);
    coverage(page, g);
}

fn head(page: &mut Page, g: &Gathered) {
    let mut hosts: Vec<&str> = g.processes.iter().map(|p| p.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let stepping: Vec<u32> = g.processes.iter().map(|p| p.steps).filter(|&s| s > 0).collect();
    let steps = match (stepping.iter().min(), stepping.iter().max()) {
        (Some(least), Some(most)) if least == most => format!("{} each", count(f64::from(*most), "step")),
        (Some(least), Some(most)) => {
            format!("{} to {} steps", grouped(u64::from(*least)), grouped(u64::from(*most)))
        }
        _ => "no step was seen".to_owned(),
    };
    let (all, hosts) = (count(g.processes.len() as f64, noun(g)), count(hosts.len() as f64, "host"));
    let mut text = format!("{all} on {hosts}; {steps}");
    let without = g.processes.len() - stepping.len();
    if without > 0 && !stepping.is_empty() {
        text.push_str(&format!("; {without} made no step"));
    }
    let program = format!("{}:", sanitize(&command(&g.program)));
    page.wrap("  ", 6, &[(PLAIN, &program), (DIM, &text)]);
    for (gap, n) in g.gaps.iter().filter(|(gap, _)| cpython::is_interpreters(gap)) {
        page.wrap("  ", 6, &[(UNSURE, &sanitize(gap)), (DIM, &format!("({n}×)"))]);
    }
}

fn table(page: &mut Page, g: &Gathered, all: bool) {
    page.line(&[(BOLD, if noun(g) == "rank" { "Ranks" } else { "Processes" })]);
    let rows = rows(g, all);
    let shown = if all { rows.len() } else { rows.len().min(ROWS) };
    for row in rows.iter().take(shown) {
        let name = format!("{}:", row.name);
        let mut spans = vec![(if row.early { BAD } else { BOLD }, name.as_str()), (PLAIN, row.text.as_str())];
        if row.first {
            spans.push((BAD, "<- ended first"));
        }
        page.wrap("  ", 4, &spans);
    }
    if shown < rows.len() {
        let more = count((rows.len() - shown) as f64, "more row");
        page.line(&[(DIM, &format!("  and {more} (--all)"))]);
    }
    page.gap();
}

/// Writes how far the processes differ in what they hold, and which differ much.
fn spreads(page: &mut Page, g: &Gathered) {
    let (figures, rows) = (figures(g), rows(g, false));
    let in_the_table = rows.len() <= ROWS && rows.iter().all(|row| row.is_equal);
    if figures.is_empty() || in_the_table && figures.iter().all(|f| f.outliers.is_none()) {
        return;
    }
    page.line(&[(BOLD, &format!("Spread over the {}s", noun(g)))]);
    for f in figures {
        let lead = format!("  {:<9} ", f.name);
        page.wrap(&lead, lead.len(), &[(PLAIN, &f.text)]);
        if let Some(outliers) = f.outliers {
            page.wrap(&" ".repeat(lead.len()), lead.len(), &[(UNSURE, &format!("outlier: {outliers}"))]);
        }
    }
    page.gap();
}

fn coverage(page: &mut Page, g: &Gathered) {
    if g.suppressed > 0 {
        page.line(&[(DIM, &format!("Suppressed: {}", count(f64::from(g.suppressed), "finding")))]);
    }
    let (style, lost) = match g.dropped_events {
        0 => (PLAIN, format!("no event lost in {}", count(g.processes.len() as f64, "recording"))),
        n => (UNSURE, format!("{} lost", count(n as f64, "event"))),
    };
    page.line(&[(BOLD, "Checked: "), (style, &lost)]);
    for (gap, n) in g.gaps.iter().filter(|(gap, _)| !cpython::is_interpreters(gap)) {
        let n = format!("({n}×)");
        page.wrap("  ", 4, &[(UNSURE, "coverage gap:"), (PLAIN, &sanitize(gap)), (DIM, &n)]);
    }
    for (file, why) in &g.unread {
        page.wrap("  ", 4, &[(UNSURE, "not read:"), (PLAIN, &sanitize(&format!("{file}: {why}")))]);
    }
    page.gap();
}
