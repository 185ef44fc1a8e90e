//! One finding as a small table: a title with the figures, then the same labels in the same order: where it is allocated,
//! who called, who holds it, why it is what it is, how it grew, what would fix it. Knows no other part of a report.

use unicode_width::UnicodeWidthStr;

use super::Style::{Accent, Bold, Dim, Plain};
use super::{SourceLines, Style, Text, fitted, sparkline, style_of};
use crate::ledger::verdict::Kind;
use crate::report::wording::{
    self, advice, block_count, common_path, count, file_line, grouped, holder, place, relative_path,
    reserved_growth, sanitize, site_amount, size, stack, time_to_oom, title,
};
use crate::report::{Finding, Frame, Holder, Point, Program, Site};
use crate::symbols::{self, FrameKind};

/// Lines, frames and holders shown of each, if not all are wanted.
const SHOWN: usize = 6;
/// Columns of a curve.
const CURVE: usize = 24;
/// The start of a finding's rows, and the columns of their labels.
const INDENT: usize = 3;
const LABEL: usize = 14;
/// The widest location that source lines are aligned behind, and the least room that one is shown in.
const ALIGNED: usize = 40;
const LEAST: usize = 16;

/// Writes a finding. `spread`: the processes that have it, where there are several.
pub fn finding(
    text: &mut Text,
    number: usize,
    f: &Finding,
    program: &Program,
    sources: &mut dyn SourceLines,
    all: bool,
    spread: Option<&str>,
) {
    let cwd = &program.base;
    let most = if all { usize::MAX } else { SHOWN };
    let (name, much) = title(f);
    let lead = format!("{number}. ");
    text.wrap(&lead, INDENT, &[(style_of(f.kind), &format!("{name}:")), (Bold, &much)]);
    let mut rows = Rows { text, label: "" };
    if let Some(spread) = spread {
        rows.say("processes", spread, Plain);
    }
    if !f.devices.is_empty() {
        let numbers: Vec<String> = f.devices.iter().map(u8::to_string).collect();
        rows.say("devices", &numbers.join(", "), Plain);
    }
    locations(&mut rows, f, cwd, sources, most);
    if all {
        f.sites.iter().for_each(|site| whole_stack(&mut rows, site, cwd));
    }
    for file in sources.take_changed() {
        let file = relative_path(&file, cwd);
        let why = format!("no lines of {file} are shown: it may have changed since the recording began");
        rows.say("source", &why, Dim);
    }
    holders(&mut rows, f, most);
    let why = if matches!(f.kind, Kind::Leak | Kind::Growing) { "why a leak" } else { "why" };
    rows.say(why, &f.why, Plain);
    growth(&mut rows, f, program);
    if let Some(advice) = advice(f) {
        rows.say("fix", &advice, Accent);
    }
    rows.text.gap();
}

/// The rows of a finding, each behind its label; rows that follow under the same label leave it out.
struct Rows<'t> {
    text: &'t mut Text,
    label: &'static str,
}

impl Rows<'_> {
    /// Returns what a row begins with.
    fn lead(&mut self, label: &'static str) -> String {
        let shown = if self.label == label { "" } else { label };
        self.label = label;
        format!("{:INDENT$}{shown:LABEL$}", "")
    }

    /// Writes a row of words, broken where it is too long.
    fn say(&mut self, label: &'static str, words: &str, style: Style) {
        let lead = self.lead(label);
        self.text.marked((Dim, &lead), INDENT + LABEL, &[(style, &sanitize(words))]);
    }

    /// Writes words that are a part of the row before, set in.
    fn part(&mut self, label: &'static str, words: &str) {
        let lead = format!("{}  ", self.lead(label));
        self.text.marked((Dim, &lead), INDENT + LABEL + 2, &[(Plain, &sanitize(words))]);
    }

    /// Writes a location with its source line, aligned at a column where there is room.
    fn at(&mut self, label: &'static str, at: &str, own: bool, source: Option<&str>, column: usize) {
        let style = if own { Bold } else { Plain };
        let Some(source) = source else { return self.say(label, at, style) };
        let (at, source) = (sanitize(at), sanitize(source));
        let room = self.text.width().saturating_sub(INDENT + LABEL);
        let behind = at.width().max(column) + 4;
        if behind + LEAST.min(source.width()) > room {
            self.say(label, &at, style);
            let line = fitted(&source, room.saturating_sub(2));
            let lead = " ".repeat(INDENT + LABEL);
            return self.text.line(&[(Plain, &lead), (Dim, "| "), (Accent, &line)]);
        }
        let lead = self.lead(label);
        let gap = " ".repeat(behind - at.width() - 2);
        let line = fitted(&source, room - behind);
        self.text.line(&[(Dim, &lead), (style, &at), (Dim, &format!("{gap}| ")), (Accent, &line)]);
    }
}

/// A location as a row shows it.
struct Line {
    label: &'static str,
    at: String,
    own: bool,
    source: Option<String>,
}

/// Writes the lines that allocate, and the user's lines that led to the first of them.
fn locations(rows: &mut Rows<'_>, f: &Finding, cwd: &str, sources: &mut dyn SourceLines, most: usize) {
    let mut lines = Vec::new();
    let allocated = if f.layer == "code" { "compiled at" } else { "allocated at" };
    let several = merged(&f.sites, cwd);
    for (at, site) in several.iter().take(most) {
        let at = if several.len() > 1 { format!("{at}  {}", site_amount(f, site)) } else { at.clone() };
        let here = site.allocated_at.as_ref();
        let source = here.and_then(|l| sources.line(&l.file, l.line));
        lines.push(Line { label: allocated, at, own: true, source });
    }
    let callers = f.sites.first().map_or_else(Vec::new, stack::callers);
    for frame in callers.iter().take(most) {
        let source = Some(frame).filter(|f| f.own).and_then(|f| sources.line(&f.frame.file, f.frame.line));
        lines.push(Line { label: "called from", at: location(frame, cwd), own: frame.own, source });
    }
    let widths = lines.iter().filter(|l| l.source.is_some()).map(|l| l.at.width());
    let column = widths.filter(|&width| width <= ALIGNED).max().unwrap_or(0);
    let mut write = |label: &'static str, hidden: usize, what: &str| {
        for line in lines.iter().filter(|l| l.label == label) {
            rows.at(label, &line.at, line.own, line.source.as_deref(), column);
        }
        if hidden > 0 {
            rows.say(label, &format!("and {} (--all)", count(hidden as f64, what)), Dim);
        }
    };
    write(allocated, several.len().saturating_sub(most), "more line");
    write("called from", callers.len().saturating_sub(most), "more frame");
}

/// Adds up the sites that one line stands for.
fn merged(sites: &[Site], cwd: &str) -> Vec<(String, Site)> {
    let mut lines: Vec<(String, Site)> = Vec::new();
    for site in sites {
        let mut at = place(site, cwd);
        if let Some(node) =
            site.stack.iter().take_while(|f| !f.own).find(|f| f.frame.kind == FrameKind::Autograd)
        {
            at.push_str(&format!(", in the backward pass ({})", node.frame.function));
        }
        match lines.iter_mut().find(|(known, _)| *known == at) {
            Some((_, sum)) => {
                sum.bytes_per_step += site.bytes_per_step;
                sum.live_bytes = sum.live_bytes.saturating_add(site.live_bytes);
                sum.live_blocks = sum.live_blocks.saturating_add(site.live_blocks);
            }
            None => lines.push((at, site.clone())),
        }
    }
    lines
}

/// Writes every frame of a stack, and the other native stacks to its allocator.
fn whole_stack(rows: &mut Rows<'_>, site: &Site, cwd: &str) {
    for frame in &site.stack {
        let at = match frame.frame.kind {
            FrameKind::Autograd => format!("in the backward pass ({}) of", frame.frame.function),
            FrameKind::Operation => format!("in the operation {} of", frame.frame.function),
            _ => location(frame, cwd),
        };
        rows.say("stack", &at, if frame.own { Bold } else { Plain });
    }
    for path in stack::call_paths(&site.other_native_stacks) {
        rows.say("other paths", &path, Plain);
    }
    rows.label = "";
}

/// Returns `train.py:37 main`, or the function alone.
fn location(frame: &Frame, cwd: &str) -> String {
    let f = &frame.frame;
    let function = if f.kind == FrameKind::Native { symbols::plain(&f.function) } else { f.function.clone() };
    match f.line {
        Some(line) => format!("{} {function}", file_line(&f.file, line, cwd)),
        None => function,
    }
}

/// Writes who holds it: one row each, what several have in common named once, and so the step they were found in.
fn holders(rows: &mut Rows<'_>, f: &Finding, most: usize) {
    if let Some(why) = &f.holders_unknown {
        rows.say("held by", &format!("not known: {why}"), Plain);
    }
    let common = common_path(&f.holders.iter().collect::<Vec<_>>());
    let beyond = |h: &Holder| -> Option<String> {
        let rest = h.path.strip_prefix(common).filter(|_| !common.is_empty())?;
        let ends = rest.is_empty() || rest.starts_with(['.', '[', ' ']);
        ends.then(|| rest.trim_start_matches(" → ").to_owned())
    };
    let shown = f.holders.iter().take(most);
    let (parts, others): (Vec<&Holder>, Vec<&Holder>) = shown.partition(|h| beyond(h).is_some());
    let mut told = None;
    let mut checked = |h: &Holder| match told.replace(h.step) {
        before if h.step == 0 || before == Some(h.step) => String::new(),
        _ => format!(" when checked at step {}", grouped(u64::from(h.step))),
    };
    // The bytes that are carried over may be others in each step.
    let has_bytes = f.holders.len() > 1 && f.kind != Kind::CarryOver;
    let much = |h: &Holder| match has_bytes {
        false => block_count(f, h.blocks),
        _ => format!("{}, {}", size(h.bytes as f64), block_count(f, h.blocks)),
    };
    if !parts.is_empty() {
        let all = f.holders.iter().filter(|h| beyond(h).is_some()).count();
        rows.say("held by", &format!("{}, by {}:", holder(common), count(all as f64, "path")), Plain);
    }
    for h in parts {
        let rest = beyond(h).filter(|rest| !rest.is_empty()).unwrap_or_else(|| "itself".to_owned());
        rows.part("held by", &format!("{rest} ({}{})", much(h), checked(h)));
    }
    for h in others {
        rows.say("held by", &format!("{} ({}{})", holder(&h.path), much(h), checked(h)), Plain);
    }
    if f.holders.len() > most {
        let more = count((f.holders.len() - most) as f64, "more holder");
        rows.say("held by", &format!("and {more} (--all)"), Dim);
    }
}

/// Writes how it grew, the reserved memory beside it, and when the device will be full.
fn growth(rows: &mut Rows<'_>, f: &Finding, program: &Program) {
    // The bars show the largest of several points: of a sawtooth they would be alike, but for its last teeth.
    let shown = &f.retained_over_steps;
    let shown = if f.kind == Kind::Periodic { &shown[shown.len().saturating_sub(CURVE)..] } else { shown };
    let [first, .., last] = shown else { return };
    // The lines of what is carried over may keep other blocks, too.
    if f.kind == Kind::CarryOver {
        return;
    }
    let values: Vec<u64> = shown.iter().map(|p| p.bytes).collect();
    // Of compiled programs they may not be known.
    if values.iter().all(|&bytes| bytes == 0) {
        return;
    }
    let at = |p: &Point| format!("{} (step {})", size(p.bytes as f64), grouped(u64::from(p.step)));
    let (from, mut to) = (at(first), at(last));
    let drawn = sparkline(&values, CURVE);
    // Of a program that failed there is nothing to be foretold.
    let forecast = time_to_oom(f).filter(|_| program.exit_status.is_none_or(|status| status == 0));
    for more in [reserved_growth(f), forecast].into_iter().flatten() {
        to.push_str(&format!("; {more}"));
    }
    let lead = rows.lead("growth");
    let spans = [(Plain, from.as_str()), (style_of(Kind::Leak), &drawn), (Plain, &to)];
    rows.text.marked((Dim, &lead), INDENT + LABEL, &spans);
}

/// Returns the arrow that a row of live memory of a finding ends with: `<- leak 1`.
pub fn arrow(findings: &[Finding], index: usize) -> String {
    let name = findings.get(index).map_or("", |f| wording::kind(f.kind));
    format!("<- {name} {}", index + 1)
}
