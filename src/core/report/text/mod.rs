//! The report as styled text: the traced process writes it plain beside the recording, the program colours it and shows
//! source lines. Decides the layout; the words are `wording`'s, the colours the terminal's.

mod finding;
mod styled;
mod tables;

use std::collections::BTreeSet;

use super::wording::{
    self, count, ending, findings_suppressed, found, held_by, sanitize, size, step_details, steps,
};
use super::{End, Report};
use crate::ledger::verdict::{Kind, MIN_STEPS};
use Style::{Bold, Dim, Good, Plain, Warning};

pub use finding::finding;
pub use styled::{Span, Style, Text, fitted, sparkline};

/// Columns where the output is no terminal.
pub const WIDTH: usize = 100;
/// Lines of the summary at exit.
const SUMMARY_LINES: usize = 8;

/// How a report is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub width: usize,
    pub by: By,
    /// Every row, frame and location, not only the first ones.
    pub all: bool,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout { width: WIDTH, by: By::Site, all: false }
    }
}

/// What a row of the table of retained memory stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    #[default]
    Site,
    File,
    Function,
    /// The step it was allocated in.
    Cohort,
}

/// Looks up source lines to show beside frames; `()` shows none.
pub trait SourceLines {
    /// Returns a line without the space around it; `None` where it is not known for certain.
    fn line(&mut self, file: &str, line: Option<u32>) -> Option<String>;
    /// Takes the files withheld since the last call because they may have changed since the recording began.
    fn take_changed(&mut self) -> BTreeSet<String>;
}

impl SourceLines for () {
    fn line(&mut self, _: &str, _: Option<u32>) -> Option<String> {
        None
    }

    fn take_changed(&mut self) -> BTreeSet<String> {
        BTreeSet::new()
    }
}

/// Returns the whole report as plain text.
pub fn render(report: &Report) -> String {
    styled(report, Layout::default(), &mut ()).to_string()
}

/// Lays out the whole report.
pub fn styled(report: &Report, layout: Layout, sources: &mut dyn SourceLines) -> Text {
    let mut text = Text::new(layout.width);
    let style = match report.findings.iter().map(|f| f.kind).min() {
        Some(kind) => style_of(kind),
        None if report.steps.count < MIN_STEPS => Warning,
        None => Good,
    };
    text.wrap("", 0, &[(style, &wording::answer(report))]);
    head(&mut text, report);
    findings(&mut text, report, layout, sources);
    suppressed(&mut text, report);
    tables::out_of_memory(&mut text, report, layout);
    tables::retained(&mut text, report, layout);
    tables::devices(&mut text, report);
    tables::coverage(&mut text, report);
    text
}

/// Returns, as plain text, what was live when an allocation failed the last time; `None` if none failed.
pub fn out_of_memory(report: &Report) -> Option<String> {
    if report.out_of_memory.is_empty() {
        return None;
    }
    let layout = Layout::default();
    let mut text = Text::new(layout.width);
    tables::out_of_memory(&mut text, report, layout);
    head(&mut text, report);
    findings(&mut text, report, layout, &mut ());
    tables::devices(&mut text, report);
    tables::coverage(&mut text, report);
    Some(text.to_string())
}

/// Returns the summary that a traced process writes at exit: the first finding, the devices, and how to read more.
/// `path`: the recording.
pub fn summary(report: &Report, path: &str) -> String {
    let steps = report.steps.count;
    let over = count(f64::from(steps), "step");
    let answer = match report.findings.first() {
        Some(top) => {
            format!("{} found over {over}. {}", found(&report.findings), sanitize(&top.explanation))
        }
        None if steps >= MIN_STEPS => format!("no leak found over {over}."),
        None => format!("{over} seen, too few to judge ({MIN_STEPS} are needed)."),
    };
    let mut text = Text::new(WIDTH);
    let mut say = |words: &str| text.wrap("leaktrace: ", 11, &[(Plain, words)]);
    say(&answer);
    for d in report.devices.iter().take(2) {
        say(&format!(
            "device {}: {} live, peak {}, reserved {}",
            d.index,
            size(d.live_bytes as f64),
            size(d.peak_bytes as f64),
            size(d.reserved_bytes as f64)
        ));
    }
    let text = text.to_string();
    let more = format!("leaktrace: read more with: leaktrace report {}", sanitize(path));
    let lines: Vec<&str> = text.lines().take(SUMMARY_LINES - 1).chain([more.as_str()]).collect();
    lines.join("\n") + "\n"
}

/// Returns the style of a kind of finding.
pub const fn style_of(kind: Kind) -> Style {
    match kind {
        Kind::Leak => Style::Bad,
        Kind::Growing | Kind::Residue => Warning,
        _ => Style::Accent,
    }
}

/// Writes what was recorded, and how it ended.
fn head(text: &mut Text, report: &Report) {
    let p = &report.program;
    let argv = if p.argv.is_empty() { p.exe.clone() } else { p.argv.join(" ") };
    text.wrap("  ", 6, &[(Plain, &sanitize(&argv))]);
    let host = if p.host.is_empty() { String::new() } else { format!(" on {}", sanitize(&p.host)) };
    let rank = p.rank.as_ref().map_or_else(String::new, |r| format!(", rank {},", sanitize(r)));
    let after = if p.end == End::Running { "for" } else { "after" };
    let ended = format!("{} {after} {:.1} s", ending(p.end), p.duration_s);
    text.wrap("  ", 6, &[(Dim, &format!("process {}{host}{rank} {ended}; {}", p.pid, steps(report)))]);
    for more in step_details(report) {
        text.wrap("  ", 6, &[(Dim, &more)]);
    }
    text.gap();
}

/// Writes the findings, a block each, then what is none, a line each.
fn findings(text: &mut Text, report: &Report, layout: Layout, sources: &mut dyn SourceLines) {
    for (i, f) in report.findings.iter().enumerate() {
        finding(text, i + 1, f, &report.program, sources, layout.all, None);
    }
    if report.non_leaks.is_empty() {
        return;
    }
    text.line(&[(Bold, "Not leaks")]);
    for f in &report.non_leaks {
        let kind = format!("{}:", wording::kind(f.kind));
        let held = f.holders.first().map_or_else(String::new, |h| format!("({})", held_by(&h.path)));
        text.wrap("  ", 4, &[(Good, &kind), (Plain, &sanitize(&f.explanation)), (Dim, &sanitize(&held))]);
    }
    text.gap();
}

/// Writes the findings that were suppressed, one line per rule.
fn suppressed(text: &mut Text, report: &Report) {
    if report.suppressed.is_empty() {
        return;
    }
    text.line(&[(Bold, "Suppressed")]);
    for s in &report.suppressed {
        text.wrap("  ", 4, &[(Dim, &sanitize(&findings_suppressed(s)))]);
    }
    text.gap();
}
