//! The report as styled text: the traced process writes it plain beside the recording, the program colours it and shows
//! source lines. Decides the layout; the words are `wording`'s, the colours the terminal's.

mod finding;
mod styled;
mod tables;

use std::collections::BTreeSet;

use super::Report;
use super::wording::{self, advice, capitalized, final_failure, findings_suppressed, sanitize, size};
use crate::ledger::verdict::{Kind, MIN_STEPS};
use Style::{Bad, Bold, Dim, Good, Plain, Warning};

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
    /// What was live when an allocation failed the last time, and not what is live else.
    pub failure: bool,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout { width: WIDTH, by: By::Site, all: false, failure: false }
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
    let lacks = wording::lacking(&report.coverage).next().is_some();
    let style = match report.findings.iter().map(|f| f.kind).min() {
        _ if final_failure(report).is_some() => Bad,
        Some(kind) => style_of(kind),
        None if report.steps.count < MIN_STEPS || lacks => Warning,
        None => Good,
    };
    text.wrap("", 2, &[(style, &sanitize(&wording::answer(report)))]);
    text.wrap("  ", 4, &[(Plain, &wording::run(report))]);
    for lacking in wording::lacking(&report.coverage) {
        text.wrap("  ", 4, &[(Warning, &sanitize(lacking))]);
    }
    if let Some(after) = wording::after_last(report) {
        text.wrap("  ", 4, &[(Warning, &after)]);
    }
    text.gap();
    for (i, f) in report.findings.iter().enumerate() {
        finding(&mut text, i + 1, f, &report.program, sources, layout.all, None);
    }
    tables::out_of_memory(&mut text, report, layout);
    non_leaks(&mut text, report, layout.all);
    suppressed(&mut text, report);
    // What was live when the program ended of want of memory has been listed.
    let asked = report.step.is_some() || report.since.is_some();
    if let Some(peak) = &report.peak {
        tables::peak(&mut text, report, peak, layout.all);
    } else if !layout.failure && (asked || final_failure(report).is_none()) {
        tables::live(&mut text, report, layout);
    }
    tables::devices(&mut text, report, layout.all);
    tables::coverage(&mut text, report, layout.all);
    text
}

/// Returns the report as plain text where an allocation has failed; `None` if none has.
pub fn out_of_memory(report: &Report) -> Option<String> {
    (!report.out_of_memory.is_empty()).then(|| render(report))
}

/// Returns the summary that a traced process writes at exit: the answer, the fix, the devices, and how to read more.
/// `path`: the recording.
pub fn summary(report: &Report, path: &str) -> String {
    let mut text = Text::new(WIDTH);
    let rank = report.program.rank.as_ref().map_or_else(String::new, |rank| format!("rank {rank}: "));
    let mut say = |words: &str| text.wrap("leaktrace: ", 11, &[(Plain, &sanitize(words))]);
    say(&format!("{rank}{}", wording::answer(report)));
    wording::lacking(&report.coverage).for_each(&mut say);
    wording::after_last(report).iter().for_each(|after| say(after));
    if let Some(advice) = report.findings.first().and_then(advice) {
        say(&format!("fix: {advice}"));
    }
    for d in report.devices.iter().take(2) {
        say(&format!(
            "{} {}: live {}, peak {}, reserved {}",
            wording::device_word(&d.name),
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

/// Writes what is no leak: in one sentence, or each with its explanation.
fn non_leaks(text: &mut Text, report: &Report, all: bool) {
    let told = wording::non_leaks(&report.non_leaks);
    if report.non_leaks.is_empty() || (told.is_empty() && !all) {
        return;
    }
    if all {
        text.line(&[(Bold, "Not leaks")]);
        for f in &report.non_leaks {
            let kind = format!("{}:", capitalized(wording::kind(f.kind)));
            // Of all warm-up there are many.
            let holder = f.holders.first().filter(|_| f.kind != Kind::WarmUp);
            let held = holder.map_or_else(String::new, |h| format!("({})", wording::held_by(&h.path)));
            text.wrap("  ", 4, &[(Good, &kind), (Plain, &sanitize(&f.explanation)), (Dim, &sanitize(&held))]);
        }
    } else {
        text.wrap("", 2, &[(Bold, "Not leaks:"), (Plain, &told)]);
        wording::large_non_leaks(report).iter().for_each(|large| text.wrap("  ", 4, &[(Plain, large)]));
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
