//! Two reports side by side, for a terminal: what leaks more or less first, then every line that changed.

use std::cmp::Ordering;

use super::{BAD, BOLD, DIM, GOOD, Look, PLAIN, Page, UNSURE};
use crate::diff::{Change, Diff, Row, Side};
use leaktrace_core::report::text::Style;
use leaktrace_core::report::wording::{self, count, exact, grouped, place_in, sanitize, size};

/// Rows shown, if not all are wanted.
const TOP: usize = 20;

/// Returns the whole comparison.
pub fn render(diff: &Diff, look: &Look) -> String {
    let mut page = Page::new(look.layout.width, look.colour);
    answer(&mut page, diff);
    side(&mut page, "A", &diff.a);
    side(&mut page, "B", &diff.b);
    page.gap();
    if !diff.same_recording {
        leaks(&mut page, diff);
        others(&mut page, diff);
    }
    retained(&mut page, diff, look.layout.all);
    page.into_text()
}

fn answer(page: &mut Page, diff: &Diff) {
    let (was, is) = (diff.a.growth_bytes_per_step, diff.b.growth_bytes_per_step);
    let (before, after) = (diff.a.retained_bytes, diff.b.retained_bytes);
    let (style, said) = match (was, is) {
        _ if diff.same_recording => {
            (BOLD, format!("Live memory changes by {} between the two steps.", signed(before, after)))
        }
        (was, is) if was == 0.0 && is == 0.0 => {
            let (came, went) = turned(diff);
            let style = if came == 0 { GOOD } else { BAD };
            let told = |n: usize, what| match n {
                0 => String::new(),
                1 => format!("1 other finding {what}. ").replace("%", "is"),
                n => format!("{n} other findings {what}. ").replace("%", "are"),
            };
            let (went, came) = (told(went, "of A % gone"), told(came, "% new in B"));
            let much = match after.cmp(&before) {
                Ordering::Equal => "as much".to_owned(),
                Ordering::Less => format!("{} less", size((before - after) as f64)),
                Ordering::Greater => format!("{} more", size((after - before) as f64)),
            };
            (style, format!("Neither leaks. {went}{came}B ends with {much} live memory."))
        }
        (_, 0.0) => (GOOD, format!("B does not leak any more: A grew by {} per step.", exact(was))),
        (0.0, _) => (BAD, format!("B leaks and A does not: {} per step.", exact(is))),
        (was, is) if is > was => (BAD, format!("B leaks more: {} per step, A {}.", exact(is), exact(was))),
        (was, is) if is < was => (UNSURE, format!("B leaks less: {} per step, A {}.", exact(is), exact(was))),
        _ => (UNSURE, format!("Both leak the same: {} per step.", exact(is))),
    };
    page.wrap("", 2, &[(style, &said)]);
}

fn side(page: &mut Page, name: &str, s: &Side) {
    let at = match s.step {
        Some(step) => format!("at step {}", grouped(u64::from(step))),
        None => format!("at the end, after {}", count(f64::from(s.steps), "step")),
    };
    let peak = size(s.peak_bytes as f64);
    let text = format!("{}: {} live {at}, peak {peak}", sanitize(&s.file), size(s.retained_bytes as f64));
    page.wrap("  ", 6, &[(BOLD, name), (DIM, &text)]);
}

fn signed(before: u64, after: u64) -> String {
    let sign = if after < before { '-' } else { '+' };
    format!("{sign}{}", size(after.abs_diff(before) as f64))
}

/// Locates a row, with the line it had in A if that is another.
fn at(r: &Row) -> String {
    let mut text = sanitize(&place_in(r.allocated_at.as_ref(), r.library_at.as_ref(), ""));
    if let Some(line) = r.line_before {
        text.push_str(&format!(" (line {line} in A)"));
    }
    if r.layer != "block" {
        let by = r.entry_point.as_ref().map_or_else(String::new, |e| format!(", {e}"));
        text.push_str(&sanitize(&format!(" ({}{by})", r.layer)));
    }
    text
}

fn leaks(page: &mut Page, diff: &Diff) {
    let grows = |r: &&Row| r.before.growth_bytes_per_step > 0.0 || r.after.growth_bytes_per_step > 0.0;
    let mut rows: Vec<&Row> = diff.rows.iter().filter(grows).collect();
    if rows.is_empty() {
        return;
    }
    let weight = |r: &Row| (r.after.growth_bytes_per_step - r.before.growth_bytes_per_step).abs();
    rows.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    page.line(&[(BOLD, "Leaks")]);
    for r in rows {
        let (was, is) = (r.before.growth_bytes_per_step.round(), r.after.growth_bytes_per_step.round());
        let (style, mark, text): (Style, &str, String) = match (was, is) {
            (0.0, is) => (BAD, "new:", format!("{} per step", exact(is))),
            (was, 0.0) => (GOOD, "gone:", format!("{} per step before,", exact(was))),
            (was, is) if is > was => (BAD, "more:", format!("{} per step, {} before", exact(is), exact(was))),
            (was, is) if is < was => {
                (UNSURE, "less:", format!("{} per step, {} before", exact(is), exact(was)))
            }
            (_, is) => (UNSURE, "same:", format!("{} per step", exact(is))),
        };
        page.wrap("  ", 8, &[(style, mark), (PLAIN, &text), (PLAIN, "at"), (BOLD, &at(r))]);
    }
    page.gap();
}

/// Counts the findings without growth that are new in B, and those gone from A.
fn turned(diff: &Diff) -> (usize, usize) {
    let came = diff.others.iter().filter(|o| o.before.is_none()).count();
    (came, diff.others.iter().filter(|o| o.after.is_none()).count())
}

fn others(page: &mut Page, diff: &Diff) {
    if diff.others.is_empty() {
        return;
    }
    page.line(&[(BOLD, "Other findings")]);
    for o in &diff.others {
        let (style, mark) = match (&o.before, &o.after) {
            (None, _) => (BAD, "new:"),
            (_, None) => (GOOD, "gone:"),
            _ => (UNSURE, "same:"),
        };
        let kind = wording::kind(o.kind);
        let at = sanitize(&place_in(o.allocated_at.as_ref(), o.library_at.as_ref(), ""));
        page.wrap("  ", 8, &[(style, mark), (PLAIN, kind), (PLAIN, "at"), (BOLD, &at)]);
        if let Some(why) = o.after.as_ref().or(o.before.as_ref()) {
            page.wrap("        ", 8, &[(DIM, &sanitize(why))]);
        }
    }
    page.gap();
}

fn retained(page: &mut Page, diff: &Diff, all: bool) {
    let rows: Vec<&Row> = diff.rows.iter().filter(|r| all || r.before.bytes != r.after.bytes).collect();
    let most = if all { usize::MAX } else { TOP };
    if rows.is_empty() {
        page.line(&[(BOLD, "Live"), (PLAIN, ": every line the same")]);
        return;
    }
    page.line(&[(BOLD, "Live")]);
    let head = format!("  {:>11}  {:>10}  {:>10}  {:<8}  where", "change", "A", "B", "");
    page.line(&[(DIM, &head)]);
    for r in rows.iter().take(most) {
        let (style, mark) = match r.change {
            _ if r.before.bytes == r.after.bytes => (DIM, "same"),
            Change::Appeared => (BAD, "appeared"),
            Change::Vanished => (GOOD, "vanished"),
            _ if r.after.bytes > r.before.bytes => (UNSURE, "grew"),
            _ => (GOOD, "shrank"),
        };
        let head = format!(
            "  {:>11}  {:>10}  {:>10}  {mark:<8}  ",
            signed(r.before.bytes, r.after.bytes),
            size(r.before.bytes as f64),
            size(r.after.bytes as f64),
        );
        let blocks = match (r.before.blocks, r.after.blocks) {
            (a, b) if a == b => format!("({})", count(b as f64, "block")),
            (a, b) => format!("({} to {} blocks)", grouped(a), grouped(b)),
        };
        page.wrap(&head, head.chars().count(), &[(style, &at(r)), (DIM, &blocks)]);
    }
    if rows.len() > most {
        page.line(&[(DIM, &format!("  and {} (--all)", count((rows.len() - most) as f64, "more row")))]);
    }
}
