//! The report for somebody at a terminal: findings first, one block each, then what is none, then what could not be seen.
//! The program's own: the preload writes the plain `text` and carries none of what stands here.

mod blocks;
pub mod diff;
pub mod live;
mod page;
pub mod ranks;
pub mod source;
mod tables;

use anstyle::{AnsiColor, Style};

use leaktrace_core::ledger::verdict::{Kind, MIN_STEPS};
use leaktrace_core::report::explain::{count, grouped};
use leaktrace_core::report::phrases::{clean, found, said_of_steps, suppressed_by, told_by};
use leaktrace_core::report::{End, Report};

pub use blocks::sparkline;
pub use page::{Page, fitted};

/// Columns where the output is no terminal.
pub const WIDTH: usize = 100;

pub const BOLD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();
pub const PLAIN: Style = Style::new();
pub const GOOD: Style = AnsiColor::Green.on_default().bold();
pub const BAD: Style = AnsiColor::Red.on_default().bold();
pub const UNSURE: Style = AnsiColor::Yellow.on_default().bold();
pub const OTHER: Style = AnsiColor::Cyan.on_default().bold();

/// How a kind is marked.
pub const fn style_of(kind: Kind) -> Style {
    match kind {
        Kind::Leak => BAD,
        Kind::Growing | Kind::Residue => UNSURE,
        _ => OTHER,
    }
}

/// How a report is shown.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub width: usize,
    pub colour: bool,
    pub by: By,
    /// Every row, frame and place, not only the first.
    pub all: bool,
}

/// What a row of the table of retained memory stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    #[default]
    Site,
    File,
    Function,
    /// The step it was born in.
    Cohort,
}

/// The whole report.
pub fn render(report: &Report, look: &Look) -> String {
    let mut page = Page::new(look.width, look.colour);
    verdict(&mut page, report);
    head(&mut page, report);
    page.gap();
    let mut sources = source::Sources::of(&report.program);
    for (i, f) in report.findings.iter().enumerate() {
        blocks::finding(&mut page, i + 1, f, &report.program, &mut sources, look.all, None);
    }
    if !report.non_leaks.is_empty() {
        page.line(&[(BOLD, "Looked at and found to be no leak")]);
        for f in &report.non_leaks {
            let kind = format!("{}:", f.kind.name());
            page.wrap("  ", 4, &[(GOOD, &kind), (PLAIN, &clean(&f.explanation))]);
        }
        page.gap();
    }
    suppressed(&mut page, report);
    if let Some(oom) = report.out_of_memory.last() {
        tables::ran_out(&mut page, report, oom, look);
    }
    tables::retained(&mut page, report, look);
    tables::devices(&mut page, report);
    tables::coverage(&mut page, report);
    page.into_text()
}

/// The answer, in one line.
fn verdict(page: &mut Page, report: &Report) {
    let steps = report.steps.count;
    let over = count(f64::from(steps), "step");
    let (style, said) = match report.findings.iter().map(|f| f.kind).min() {
        Some(kind) => (style_of(kind), format!("{} found", found(&report.findings))),
        None if steps == 0 => (
            UNSURE,
            "Not judged: no training step was seen, and without steps nothing can be called a leak."
                .to_owned(),
        ),
        None if steps < MIN_STEPS => {
            (UNSURE, format!("Not judged: {over} were seen; at least {MIN_STEPS} are needed."))
        }
        None => {
            let but = if report.suppressed.is_empty() { "" } else { " but what is suppressed" };
            (GOOD, format!("No leak found over {over}{but}."))
        }
    };
    page.wrap("", 0, &[(style, &said)]);
}

/// What was recorded, and how it ended.
fn head(page: &mut Page, report: &Report) {
    let p = &report.program;
    let argv = if p.argv.is_empty() { p.exe.clone() } else { p.argv.join(" ") };
    page.wrap("  ", 6, &[(PLAIN, &clean(&argv))]);
    let end = match p.end {
        End::Clean => "ended in good order after",
        End::Killed => "was killed or crashed after",
        End::Running => "is running for",
    };
    let host = if p.host.is_empty() { String::new() } else { format!(" on {}", clean(&p.host)) };
    let rank = p.rank.as_ref().map_or_else(String::new, |r| format!(", rank {},", clean(r)));
    let steps = told_by(report);
    let text = format!("process {}{host}{rank} {end} {:.1} s; {steps}", p.pid, p.duration_s);
    page.wrap("  ", 6, &[(DIM, &text)]);
    for more in said_of_steps(report) {
        page.wrap("  ", 6, &[(DIM, &more)]);
    }
}

/// What somebody lives with, one line per rule.
fn suppressed(page: &mut Page, report: &Report) {
    if report.suppressed.is_empty() {
        return;
    }
    page.line(&[(BOLD, "Suppressed")]);
    for s in &report.suppressed {
        page.wrap("  ", 4, &[(DIM, &clean(&suppressed_by(s)))]);
    }
    page.gap();
}

/// The heading of what was alive.
fn when(report: &Report) -> String {
    let at = match report.step {
        Some(step) => format!("at step {}", grouped(u64::from(step))),
        None if report.steps.count == 0 => "at the end".to_owned(),
        None => format!("at step {}", grouped(u64::from(report.steps.count))),
    };
    match report.since {
        Some(since) => format!("Come since step {} and retained {at}", grouped(u64::from(since))),
        None => format!("Retained {at}"),
    }
}
