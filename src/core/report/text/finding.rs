//! One finding as a block: what, where and held by whom in its first line, then why, the call path, the curve, the figures
//! and the fix.

use super::Style::{Accent, Bold, Dim, Plain};
use super::{SourceLines, Style, Text, fitted, sparkline, style_of};
use crate::ledger::verdict::Kind;
use crate::report::wording::{
    advice, block_count, confidence, count, exact, grouped, held_by, is_named, kind, live, place, rate,
    relative_path, reserved_growth, sanitize, site_amount, size, stack, time_to_oom,
};
use crate::report::{Finding, Frame, Point, Program};
use crate::symbols::{self, FrameKind};

/// Frames, locations and holders shown of each, if not all are wanted.
const SHOWN: usize = 8;
/// Columns of a curve.
const CURVE: usize = 48;
/// The start of a block's lines.
const INDENT: &str = "   ";

/// Writes a finding's block. `spread`: the processes that have it, where there are several.
pub fn finding(
    text: &mut Text,
    number: usize,
    f: &Finding,
    program: &Program,
    sources: &mut dyn SourceLines,
    all: bool,
    spread: Option<&str>,
) {
    let cwd = &program.cwd;
    let most = if all { usize::MAX } else { SHOWN };
    headline(text, number, f, cwd);
    if let Some(spread) = spread {
        text.wrap(INDENT, 3, &[(Bold, spread)]);
    }
    text.wrap(INDENT, 3, &[(Plain, &sanitize(&f.explanation))]);
    for (i, site) in f.sites.iter().enumerate().take(most) {
        if f.sites.len() > 1 {
            let at = sanitize(&place(site, cwd));
            text.wrap("   - ", 5, &[(Plain, &format!("{} at", site_amount(site))), (Bold, &at)]);
        }
        if i == 0 || all {
            frames(text, &site.stack, cwd, sources, all);
            for path in stack::call_paths(&site.other_native_stacks) {
                text.wrap("      other call paths: ", 12, &[(Plain, &sanitize(&path))]);
            }
        }
    }
    if f.sites.len() > most {
        text.line(&[(Dim, &format!("   - and {}", count((f.sites.len() - most) as f64, "more location")))]);
    }
    for file in sources.take_changed() {
        let file = sanitize(relative_path(&file, cwd));
        let why = format!("no lines of {file} are shown: it may have changed since the recording began");
        text.wrap("      ", 8, &[(Dim, &why)]);
    }
    curve(text, &f.retained_over_steps);
    if !f.sites.is_empty() {
        let on = f.device.map_or_else(String::new, |d| format!(" on device {d}"));
        figure(text, "live", &format!("{}{on}", live(f)), Plain);
    }
    for h in f.holders.iter().take(most) {
        let path = held_by(&h.path);
        let path = sanitize(path.strip_prefix("held by ").unwrap_or(&path));
        let (blocks, step) = (block_count(f, h.blocks), grouped(u64::from(h.step)));
        figure(
            text,
            "held by",
            &format!("{path} ({blocks}, {}, at step {step})", size(h.bytes as f64)),
            Plain,
        );
    }
    if let Some(why) = &f.holders_unknown {
        figure(text, "held by", &format!("not known ({})", sanitize(why)), Plain);
    }
    if let Some(growth) = reserved_growth(f) {
        figure(text, "reserved", &growth, Plain);
    }
    if let Some(when) = time_to_oom(f) {
        figure(text, "forecast", &when, Plain);
    }
    if let Some(advice) = advice(f) {
        figure(text, "fix", &sanitize(&advice), Accent);
    }
    text.gap();
}

/// Writes `1. leak (confirmed): 12.0 KiB (12,288 B) per step, train.py:26 loss, held by …`.
fn headline(text: &mut Text, number: usize, f: &Finding, cwd: &str) {
    let what = format!("{} ({}):", kind(f.kind), confidence(f.confidence));
    let much = rate(f).unwrap_or_else(|| exact(f.live_bytes as f64)) + ",";
    let at = match f.sites.first() {
        Some(site) => sanitize(&place(site, cwd)),
        None => "unattributed".to_owned(),
    };
    let held = f.holders.first().filter(|h| is_named(&h.path)).map(|h| sanitize(&held_by(&h.path)));
    let at = if held.is_some() { format!("{at},") } else { at };
    let held = held.unwrap_or_default();
    let lead = format!("{number}. ");
    text.wrap(&lead, lead.len(), &[(style_of(f.kind), &what), (Bold, &much), (Bold, &at), (Bold, &held)]);
}

/// Writes a stack in one column, innermost frame first, the user's own frames each with its source line.
fn frames(text: &mut Text, stack: &[Frame], cwd: &str, sources: &mut dyn SourceLines, all: bool) {
    let shown = if all { stack.iter().collect() } else { stack::essential(stack) };
    let most = if all { shown.len() } else { SHOWN };
    for frame in shown.iter().take(most) {
        let f = &frame.frame;
        if f.kind == FrameKind::Autograd {
            let node = format!("in the backward pass ({}) of", sanitize(&f.function));
            text.line(&[(Plain, "      "), (Dim, &node)]);
            continue;
        }
        let native = f.kind == FrameKind::Native && !all;
        let function = sanitize(&if native { symbols::plain(&f.function) } else { f.function.clone() });
        match f.line {
            Some(line) => {
                let at = sanitize(&format!("{}:{line}", relative_path(&f.file, cwd)));
                let style = if frame.own { Bold } else { Plain };
                text.wrap("      at ", 12, &[(style, &at), (Plain, &function)]);
            }
            None => text.wrap("      ", 12, &[(Plain, &function)]),
        }
        if frame.own
            && let Some(line) = sources.line(&f.file, f.line)
        {
            let line = fitted(&sanitize(&line), text.width().saturating_sub(11));
            text.line(&[(Dim, "         | "), (Accent, &line)]);
        }
    }
    if shown.len() > most {
        text.line(&[(Dim, &format!("      and {}", count((shown.len() - most) as f64, "more frame")))]);
    }
}

/// Writes a labelled line of a block.
fn figure(text: &mut Text, label: &str, words: &str, style: Style) {
    text.wrap(INDENT, 14, &[(Dim, &format!("{label}:")), (style, words)]);
}

fn curve(text: &mut Text, points: &[Point]) {
    let [first, .., last] = points else { return };
    let columns = CURVE.min(text.width().saturating_sub(60)).max(12);
    let drawn = sparkline(&points.iter().map(|p| p.bytes).collect::<Vec<_>>(), columns);
    let at = |p: &Point| format!("{} at step {}", size(p.bytes as f64), grouped(u64::from(p.step)));
    let (from, to) = (at(first), at(last));
    text.wrap(
        INDENT,
        14,
        &[(Dim, "retained:"), (Plain, &from), (style_of(Kind::Leak), &drawn), (Plain, &to)],
    );
}
