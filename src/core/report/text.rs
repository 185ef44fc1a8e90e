//! The report for a terminal: at most 100 columns, no colour.

mod tables;

use std::fmt::Write;

use super::explain::{count, grouped, place, short, size};
use super::phrases::{
    alive, amount, blocks, clean, found, full, held_by, pace, reserved_meanwhile, said_of_steps,
    suppressed_by, sure, told_by, words,
};
use super::{End, Finding, Frame, Report, column};
use crate::ledger::verdict::MIN_STEPS;
use crate::symbols::{self, FrameKind};
use tables::{coverage, devices, ran_out, table};

pub use tables::rows;

const WIDTH: usize = 100;
const TOP: usize = 10;
const OOM_TOP: usize = 20;
const STACK: usize = 8;

/// The whole report.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    head(&mut out, report);
    findings(&mut out, report);
    suppressed(&mut out, report);
    if let Some(oom) = report.out_of_memory.last() {
        ran_out(&mut out, report, oom, TOP);
    }
    let when = match report.step {
        Some(step) => format!("Retained at step {}", grouped(u64::from(step))),
        None if report.steps.count == 0 => "Retained at the end".to_owned(),
        None => format!("Retained at step {}", grouped(u64::from(report.steps.count))),
    };
    table(&mut out, report, &when, &report.retained, TOP);
    devices(&mut out, report);
    coverage(&mut out, report);
    out
}

/// What was alive when memory ran out the last time; `None` if it never did.
pub fn out_of_memory(report: &Report) -> Option<String> {
    let oom = report.out_of_memory.last()?;
    let mut out = String::new();
    head(&mut out, report);
    ran_out(&mut out, report, oom, OOM_TOP);
    findings(&mut out, report);
    devices(&mut out, report);
    coverage(&mut out, report);
    Some(out)
}

/// Appends `text` broken into lines of at most `WIDTH` columns, the later ones indented by `indent`.
pub fn wrap(out: &mut String, first: &str, indent: usize, text: &str) {
    out.push_str(first);
    let mut column = first.chars().count();
    let mut fresh = true;
    for word in words(text) {
        let length = word.chars().count();
        if !fresh && column + 1 + length > WIDTH {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            (column, fresh) = (indent, true);
        }
        if !fresh {
            out.push(' ');
            column += 1;
        }
        out.push_str(&word);
        (column, fresh) = (column + length, false);
    }
    out.push('\n');
}

/// Writing to a string cannot fail.
macro_rules! line {
    ($out:expr, $($arg:tt)*) => {{ let _ = writeln!($out, $($arg)*); }};
}
use line;

fn head(out: &mut String, report: &Report) {
    let p = &report.program;
    let argv = if p.argv.is_empty() { p.exe.clone() } else { p.argv.join(" ") };
    wrap(out, "", 4, &clean(&argv));
    let end = match p.end {
        End::Clean => "ended in good order",
        End::Killed => "was killed or crashed",
        End::Running => "is running",
    };
    let host = if p.host.is_empty() { String::new() } else { format!(" on {}", clean(&p.host)) };
    let rank = p.rank.as_ref().map_or_else(String::new, |r| format!(", rank {}", clean(r)));
    let after = if p.end == End::Running { "for" } else { "after" };
    line!(out, "  process {}{host}{rank} {end} {after} {:.1} s", p.pid, p.duration_s);
    line!(out, "  {}", told_by(report));
    for more in said_of_steps(report) {
        wrap(out, "  ", 4, &more);
    }
    out.push('\n');
}

fn findings(out: &mut String, report: &Report) {
    let steps = report.steps.count;
    if report.findings.is_empty() {
        let text = if steps == 0 {
            "Not judged: no training step was seen, and without steps nothing can be called a leak."
                .to_owned()
        } else if steps < MIN_STEPS {
            format!(
                "Not judged: {} were seen; at least {MIN_STEPS} are needed.",
                count(f64::from(steps), "step")
            )
        } else {
            let but = if report.suppressed.is_empty() { "" } else { " but what is suppressed" };
            format!("No leak found over {}{but}.", count(f64::from(steps), "step"))
        };
        wrap(out, "", 0, &text);
        out.push('\n');
    } else {
        line!(out, "{} found\n", found(&report.findings));
    }
    for (i, f) in report.findings.iter().enumerate() {
        finding(out, i + 1, f, &report.program.cwd, report.all_frames);
    }
    if !report.non_leaks.is_empty() {
        line!(out, "Looked at and found to be no leak");
        for f in &report.non_leaks {
            let mark = format!("  {}: ", f.kind.name());
            let holder = f.holders.first().map_or_else(String::new, |h| format!(" Held by {}.", h.path));
            wrap(out, &mark, 4, &clean(&format!("{}{holder}", f.explanation)));
        }
        out.push('\n');
    }
}

/// What is known and lived with, a line per rule.
fn suppressed(out: &mut String, report: &Report) {
    if report.suppressed.is_empty() {
        return;
    }
    line!(out, "Suppressed");
    for s in &report.suppressed {
        wrap(out, "  ", 4, &clean(&suppressed_by(s)));
    }
    out.push('\n');
}

fn finding(out: &mut String, number: usize, f: &Finding, cwd: &str, all: bool) {
    let mark = format!("{number}. ");
    let indent = mark.len();
    wrap(out, &mark, indent, &format!("{} ({}): {}", f.kind.name(), sure(f), clean(&f.explanation)));
    if f.sites.is_empty() {
        full_in(out, f);
        out.push('\n');
        return;
    }
    if let Some(pace) = pace(f) {
        let on = f.device.map_or_else(String::new, |d| format!(" on device {d}"));
        wrap(out, "   ", indent, &format!("{pace}; alive{on}: {}", alive(f)));
    }
    if let Some(text) = reserved_meanwhile(f) {
        wrap(out, "   ", indent, &text);
    }
    full_in(out, f);
    for h in f.holders.iter().take(STACK) {
        let what = blocks(f, h.blocks);
        let when = grouped(u64::from(h.step));
        let text = format!("{} ({what}, {}, at step {when})", clean(&held_by(&h.path)), size(h.bytes as f64));
        wrap(out, "   ", indent, &text);
    }
    for (i, site) in f.sites.iter().enumerate().take(STACK) {
        if f.sites.len() > 1 {
            let at = clean(&place(site.allocated_at.as_ref(), cwd));
            let text = format!("{} at {at}", amount(site));
            wrap(out, "   - ", 5, &text);
        }
        if i == 0 {
            stack(out, &site.stack, cwd, all);
            for way in column::ways(&site.other_native_stacks) {
                wrap(out, "      also through ", 12, &clean(&way));
            }
        }
    }
    if f.sites.len() > STACK {
        line!(out, "   - and {}", count((f.sites.len() - STACK) as f64, "more place"));
    }
    out.push('\n');
}

fn full_in(out: &mut String, f: &Finding) {
    if let Some(text) = full(f) {
        line!(out, "   {text}");
    }
}

/// A stack in one column, innermost first; all of it if every frame is wanted.
fn stack(out: &mut String, frames: &[Frame], cwd: &str, all: bool) {
    let lines = column::lines(frames, all);
    let most = if all { lines.len() } else { STACK };
    for line in lines.iter().take(most) {
        let f = &line.frame.frame;
        let at = match f.line {
            Some(line) => format!("{}:{line}", short(&f.file, cwd)),
            _ => String::new(),
        };
        if f.kind == FrameKind::Autograd {
            line!(out, "      in the backward pass ({}) of", clean(&f.function));
            continue;
        }
        let lead = if at.is_empty() { "      " } else { "      at " };
        let more = match line.nameless {
            0 => String::new(),
            n => format!(" and {} without a name", count(n as f64, "more frame")),
        };
        let name = if f.kind == FrameKind::Native { symbols::plain(&f.function) } else { f.function.clone() };
        wrap(out, lead, 12, &clean(&format!("{at} {name}{more}")));
    }
    if lines.len() > most {
        line!(out, "      and {}", count((lines.len() - most) as f64, "more frame"));
    }
}
