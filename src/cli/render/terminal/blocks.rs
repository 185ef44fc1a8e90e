//! One finding as a block: what, where and by whom in its first line, then why, the way to it, the curve, and what to change.

use anstyle::Style;

use super::source::Sources;
use super::{BOLD, DIM, OTHER, PLAIN, Page, fitted, style_of};
use leaktrace_core::ledger::verdict::Kind;
use leaktrace_core::report::advice::advice;
use leaktrace_core::report::explain::{count, exact, grouped, place, short, size};
use leaktrace_core::report::phrases::{
    alive, amount, blocks, clean, full, held_by, is_named, pace, reserved_meanwhile, sure,
};
use leaktrace_core::report::{Finding, Frame, Point, Program, column};
use leaktrace_core::symbols::FrameKind;

/// Frames, places and holders shown of each, if not all are wanted.
const SHOWN: usize = 8;
/// Columns of a curve.
const CURVE: usize = 48;
/// What the lines of a block begin with.
const INDENT: &str = "   ";

/// Writes the block. `spread`: on which processes, where it is of several.
pub fn finding(
    page: &mut Page,
    number: usize,
    f: &Finding,
    program: &Program,
    sources: &mut Sources,
    all: bool,
    spread: Option<&str>,
) {
    let cwd = &program.cwd;
    let most = if all { usize::MAX } else { SHOWN };
    headline(page, number, f, cwd);
    if let Some(spread) = spread {
        page.wrap(INDENT, 3, &[(BOLD, spread)]);
    }
    page.wrap(INDENT, 3, &[(PLAIN, &clean(&f.explanation))]);
    for (i, site) in f.sites.iter().enumerate().take(most) {
        if f.sites.len() > 1 {
            let at = clean(&place(site.allocated_at.as_ref(), cwd));
            let amount = format!("{} at", amount(site));
            page.wrap("   - ", 5, &[(PLAIN, &amount), (BOLD, &at)]);
        }
        if i == 0 || all {
            stack(page, &site.stack, cwd, sources, most);
            for way in column::ways(&site.other_native_stacks) {
                page.wrap("      also through ", 12, &[(PLAIN, &clean(&way))]);
            }
        }
    }
    if f.sites.len() > most {
        page.line(&[(DIM, &format!("   - and {}", count((f.sites.len() - most) as f64, "more place")))]);
    }
    for file in sources.changed() {
        let text = format!(
            "no lines of {} are shown: it may have changed since the recording began",
            short(&file, cwd)
        );
        page.wrap("      ", 8, &[(DIM, &clean(&text))]);
    }
    curve(page, &f.retained_over_steps);
    facts(page, f, most);
    if let Some(text) = advice(f) {
        fact(page, "to change", &clean(&text), OTHER);
    }
    page.gap();
}

/// `1. leak (confirmed): 12.0 KiB (12,288 B) per step, train.py:26 loss, held by …`
fn headline(page: &mut Page, number: usize, f: &Finding, cwd: &str) {
    let what = format!("{} ({}):", f.kind.name(), sure(f));
    let much = match pace(f) {
        Some(pace) => format!("{pace},"),
        None => format!("{},", exact(f.live_bytes as f64)),
    };
    let at = match f.sites.first() {
        Some(site) => clean(&place(site.allocated_at.as_ref(), cwd)),
        None => "outside what can be attributed".to_owned(),
    };
    let mut pieces: Vec<(Style, &str)> = vec![(style_of(f.kind), &what), (BOLD, &much)];
    let held = f.holders.first().filter(|h| is_named(&h.path)).map(|h| clean(&held_by(&h.path)));
    let at = if held.is_some() { format!("{at},") } else { at };
    pieces.push((BOLD, &at));
    if let Some(held) = &held {
        pieces.push((BOLD, held));
    }
    let mark = format!("{number}. ");
    page.wrap(&mark, mark.len().max(3), &pieces);
}

/// The frames of the user's own code, each with its line, and the operator that it called; of a stack without any of the
/// user's, the innermost ones.
fn stack(page: &mut Page, frames: &[Frame], cwd: &str, sources: &mut Sources, most: usize) {
    let python = frames.iter().position(Frame::is_python).unwrap_or(0);
    let operator = frames[..python].iter().rposition(|f| f.frame.kind == FrameKind::Native && f.has_name());
    let told =
        |(i, f): &(usize, &Frame)| f.own || f.frame.kind == FrameKind::Autograd || Some(*i) == operator;
    let own: Vec<&Frame> = frames.iter().enumerate().filter(told).map(|(_, f)| f).collect();
    let shown = match own.iter().any(|f| f.own) && most == SHOWN {
        true => own,
        false => frames.iter().collect(),
    };
    for frame in shown.iter().take(most) {
        let f = &frame.frame;
        if f.kind == FrameKind::Autograd {
            let node = format!("in the backward pass ({}) of", clean(&f.function));
            page.line(&[(PLAIN, "      "), (DIM, &node)]);
            continue;
        }
        let function = clean(&f.function);
        match f.line {
            Some(line) => {
                let at = clean(&format!("{}:{line}", short(&f.file, cwd)));
                page.wrap(
                    "      at ",
                    12,
                    &[(if frame.own { BOLD } else { PLAIN }, &at), (PLAIN, &function)],
                );
            }
            None => page.wrap("      ", 12, &[(PLAIN, &function)]),
        }
        if frame.own
            && let Some(text) = sources.line(&f.file, f.line)
        {
            let text = fitted(&clean(&text), page.width().saturating_sub(11));
            page.line(&[(DIM, "         | "), (OTHER, &text)]);
        }
    }
    if shown.len() > most {
        page.line(&[(DIM, &format!("      and {}", count((shown.len() - most) as f64, "more frame")))]);
    }
}

/// A labelled line of a block.
fn fact(page: &mut Page, label: &str, text: &str, style: Style) {
    page.wrap(INDENT, 14, &[(DIM, &format!("{label}:")), (style, text)]);
}

fn curve(page: &mut Page, points: &[Point]) {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
    if points.len() < 2 {
        return;
    }
    let columns = CURVE.min(page.width().saturating_sub(60)).max(12);
    let drawn = sparkline(&points.iter().map(|p| p.bytes).collect::<Vec<_>>(), columns);
    let from = format!("{} at step {}", size(first.bytes as f64), grouped(u64::from(first.step)));
    let to = format!("{} at step {}", size(last.bytes as f64), grouped(u64::from(last.step)));
    page.wrap(
        INDENT,
        14,
        &[(DIM, "retained:"), (PLAIN, &from), (style_of(Kind::Leak), &drawn), (PLAIN, &to)],
    );
}

fn facts(page: &mut Page, f: &Finding, most: usize) {
    if !f.sites.is_empty() {
        let on = f.device.map_or_else(String::new, |d| format!(" on device {d}"));
        fact(page, "alive", &format!("{}{on}", alive(f)), PLAIN);
    }
    for h in f.holders.iter().take(most) {
        let what = blocks(f, h.blocks);
        let when = grouped(u64::from(h.step));
        let path = held_by(&h.path);
        let path = clean(path.strip_prefix("held by ").unwrap_or(&path));
        let text = format!("{path} ({what}, {}, at step {when})", size(h.bytes as f64));
        fact(page, "held by", &text, PLAIN);
    }
    if let Some(text) = reserved_meanwhile(f) {
        fact(page, "reserved", &text, PLAIN);
    }
    if let Some(text) = full(f) {
        fact(page, "full", &text, PLAIN);
    }
}

/// Values as a row of bars, from nothing to the largest.
pub fn sparkline(values: &[u64], columns: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let columns = columns.min(values.len()).max(1);
    let top = values.iter().copied().max().unwrap_or(0).max(1);
    let column = |i: usize| {
        // The largest of those that share a column: a peak must not get lost.
        let (from, to) = (i * values.len() / columns, ((i + 1) * values.len() / columns).max(1));
        values.get(from..to).and_then(|part| part.iter().max()).copied().unwrap_or(0)
    };
    let bar = |value: u64| BARS[(value as f64 / top as f64 * 7.0).round() as usize];
    (0..columns).map(|i| bar(column(i))).collect()
}

#[cfg(test)]
mod tests {
    use super::sparkline;

    #[test]
    fn a_curve_rises_from_nothing_to_the_largest() {
        let rising: Vec<u64> = (0..8).map(|n| n * 10).collect();
        assert_eq!(sparkline(&rising, 8), "▁▂▃▄▅▆▇█");
        assert_eq!(sparkline(&[0, 9, 0], 48), "▁█▁");
        assert_eq!(sparkline(&[0, 0], 48), "▁▁");
        assert_eq!(sparkline(&[], 48), "▁");
        // A spike between two columns is seen.
        let mut spike = vec![1u64; 100];
        spike[41] = 1000;
        assert!(sparkline(&spike, 10).contains('█'));
        assert_eq!(sparkline(&[u64::MAX, u64::MAX], 2), "██");
    }
}
