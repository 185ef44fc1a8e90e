//! The tables of a report: what is live, what was live when memory ran out, the devices, and what was checked. Knows
//! nothing of a finding but which rows are its.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Style::{Bad, Bold, Dim, Good, Plain, Warning};
use super::finding::arrow;
use super::{By, Layout, Text};
use crate::cpython;
use crate::ledger::verdict::is_shared;
use crate::report::wording::{
    self, arena, count, final_failure, finding_of, grouped, held_by, is_named, live_heading, location,
    out_of_memory_details, relative_path, sanitize, size, stack, untracked_calls,
};
use crate::report::{Device, End, Frame, Location, Peak, Report, Retained, Unlisted};

/// Rows shown of a table, if not all are wanted.
const ROWS: usize = 10;

/// A row of a table.
#[derive(Default)]
struct Row {
    what: String,
    bytes: u64,
    blocks: u64,
    /// The finding that it belongs to, by its index.
    finding: Option<usize>,
}

/// Writes what was live at the reported moment.
pub fn live(text: &mut Text, report: &Report, layout: Layout) {
    let rows = match layout.by {
        By::Site => sites(report, &report.retained, false),
        By::File => sums(report, |at| relative_path(&at.file, &report.program.base).to_owned()),
        By::Function => {
            sums(report, |at| format!("{} in {}", at.function, relative_path(&at.file, &report.program.base)))
        }
        By::Cohort => cohorts(report),
    };
    let rest = report.retained_unlisted.unwrap_or_default();
    let sum = rows.iter().fold(rest.live_bytes, |sum, row| sum.saturating_add(row.bytes));
    let title = format!("{:<28}  {:>10}", live_heading(report), size(sum as f64));
    table(text, report, &title, &rows, rest, layout.all);
}

/// Adds up what is live by a property of its location, largest first.
fn sums(report: &Report, key: impl Fn(&Location) -> String) -> Vec<Row> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for r in &report.retained {
        let key = r.allocated_at.as_ref().map(&key).filter(|k| !k.is_empty());
        let sum = sums.entry(key.unwrap_or_else(|| "an unknown location".to_owned())).or_default();
        *sum = (sum.0.wrapping_add(r.live_bytes), sum.1.wrapping_add(r.live_blocks));
    }
    let row =
        |(key, (bytes, blocks)): (String, _)| Row { what: sanitize(&key), bytes, blocks, finding: None };
    let mut rows: Vec<Row> = sums.into_iter().map(row).collect();
    rows.sort_by_key(|r| std::cmp::Reverse(r.bytes));
    rows
}

/// Lists cohorts, oldest first: what is old and still there is what is looked for.
fn cohorts(report: &Report) -> Vec<Row> {
    let row = |c: &crate::report::Cohort| {
        let at = location(c.allocated_at.as_ref(), &report.program.base);
        let what = format!("step {}, most of it at {}", grouped(u64::from(c.step)), sanitize(&at));
        Row { what, bytes: c.bytes, blocks: c.blocks, finding: None }
    };
    report.cohorts.iter().map(row).collect()
}

/// Lists what is live by location, largest first; several stacks may lead through the same lines. `held`: with the
/// holders of what belongs to no finding.
fn sites(report: &Report, live: &[Retained], held: bool) -> Vec<Row> {
    // The caller is named only where it tells rows apart.
    let mut callers: HashMap<String, HashSet<Option<Location>>> = HashMap::new();
    for r in live {
        callers.entry(row_name(report, r)).or_default().insert(caller(r));
    }
    let cwd = &report.program.base;
    let mut rows: Vec<Row> = Vec::new();
    // Of a compiled program the bytes may not be known.
    for r in live.iter().filter(|r| r.live_bytes > 0) {
        let mut what = row_name(report, r);
        if callers.get(&what).is_some_and(|all| all.len() > 1)
            && let Some(Location { file, line: Some(line), .. }) = caller(r)
        {
            what.push_str(&format!(", from {}:{line}", relative_path(&file, cwd)));
        }
        let finding = finding_of(&report.findings, r);
        if let Some(h) = r.holders.first().filter(|h| held && finding.is_none() && is_named(&h.path)) {
            what.push_str(&format!(", {}", held_by(&h.path)));
        }
        let what = sanitize(&what);
        match rows.iter_mut().find(|row| row.what == what && row.finding == finding) {
            Some(row) => {
                row.bytes = row.bytes.wrapping_add(r.live_bytes);
                row.blocks = row.blocks.wrapping_add(r.live_blocks);
            }
            None => rows.push(Row { what, bytes: r.live_bytes, blocks: r.live_blocks, finding }),
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    rows
}

fn row_name(report: &Report, r: &Retained) -> String {
    let mut name = location(r.allocated_at.as_ref(), &report.program.base);
    if let Some(inner) = stack::through(&r.stack) {
        name.push_str(&format!(", in {inner}"));
    }
    if r.layer != "block" {
        let by = r.entry_point.as_ref().map_or_else(String::new, |e| format!(", {e}"));
        let arena = arena(&r.stack).filter(|_| r.layer == "driver");
        let what = arena.map_or(r.layer, |arena| arena.name);
        name.push_str(&format!(" ({what}{by})"));
    }
    if report.devices.len() > 1
        && let Some(device) = r.device
    {
        name.push_str(&format!(" (device {device})"));
    }
    name
}

/// Returns the user's line that called the allocating one, if that has a number.
fn caller(r: &Retained) -> Option<Location> {
    let at = r.allocated_at.as_ref()?;
    let own = r.stack.iter().filter(|f| f.own).map(Frame::location);
    own.skip_while(|l| l == at).find(|l| l.line.is_some())
}

/// Writes how the last allocation failed, and what was live.
pub fn out_of_memory(text: &mut Text, report: &Report, layout: Layout) {
    let Some(oom) = report.out_of_memory.last() else { return };
    if final_failure(report).is_none() {
        // The first line of the report does not say it.
        let said = format!("{} The program went on.", oom.explanation.split("; ").next().unwrap_or_default());
        text.wrap("", 2, &[(Bad, "Out of memory:"), (Plain, &sanitize(&said.replacen(" The", ". The", 1)))]);
    }
    if report.out_of_memory_count > 1 {
        let times = grouped(report.out_of_memory_count);
        text.line(&[(Plain, &format!("Memory ran out {times} times; this was the last."))]);
    }
    let device = report.devices.iter().find(|d| d.index == oom.device);
    let total = device.filter(|d| d.total_bytes > 0).map_or_else(String::new, |d| {
        let total = size(d.total_bytes as f64);
        format!("; the device has {total}")
    });
    let title = format!(
        "At the failure: {} live, {} reserved{total}",
        size(oom.allocated_bytes as f64),
        size(oom.reserved_bytes as f64)
    );
    table(text, report, &title, &sites(report, &oom.retained, true), Unlisted::default(), layout.all);
    let details = out_of_memory_details(oom);
    if !details.is_empty() {
        text.ungap();
        details.iter().for_each(|sentence| text.wrap("   ", 3, &[(Plain, sentence)]));
        text.gap();
    }
}

/// Writes what was live at the peak, and what the findings have of it.
pub fn peak(text: &mut Text, report: &Report, peak: &Peak, all: bool) {
    let title = format!(
        "At the peak, in step {}: {} live, {} reserved on GPU {}",
        grouped(u64::from(peak.step)),
        size(peak.live_bytes as f64),
        size(peak.reserved_bytes as f64),
        peak.device
    );
    table(text, report, &title, &sites(report, &peak.retained, true), Unlisted::default(), all);
    text.ungap();
    for (index, f) in report.findings.iter().enumerate() {
        let of = peak.retained.iter().filter(|r| finding_of(std::slice::from_ref(f), r).is_some());
        let bytes: u64 = of.map(|r| r.live_bytes).fold(0, u64::saturating_add);
        if bytes > 0 {
            let name = format!("{} {}", wording::kind(f.kind), index + 1);
            let less = size(bytes as f64);
            text.wrap(
                "   ",
                3,
                &[(Plain, &format!("Without {name} the peak would be lower by up to {less}."))],
            );
        }
    }
    text.gap();
}

/// Writes a table; `rest`: what its rows leave out.
fn table(text: &mut Text, report: &Report, title: &str, rows: &[Row], rest: Unlisted, all: bool) {
    if rows.is_empty() {
        text.line(&[(Bold, title.trim_end()), (Plain, ": nothing")]);
        text.gap();
        return;
    }
    text.line(&[(Bold, title)]);
    let lead = |bytes: u64, blocks: u64| {
        format!("  {:>10}  {:>12}  ", size(bytes as f64), count(blocks as f64, "block"))
    };
    let most = if all { usize::MAX } else { worth_a_row(rows, rest.live_bytes) };
    for row in rows.iter().take(most) {
        let lead = lead(row.bytes, row.blocks);
        let arrow = row.finding.map_or_else(String::new, |index| arrow(&report.findings, index));
        text.wrap(&lead, lead.len(), &[(Plain, &row.what), (Bad, &arrow)]);
    }
    let hidden = rows.get(most..).unwrap_or_default();
    let more = rest.lines + hidden.len() as u64;
    if more > 0 {
        let bytes = hidden.iter().fold(rest.live_bytes, |sum, row| sum.saturating_add(row.bytes));
        let blocks = hidden.iter().fold(rest.live_blocks, |sum, row| sum.saturating_add(row.blocks));
        let more = count(more as f64, "more line");
        text.line(&[(Dim, &format!("{}{more} (--all)", lead(bytes, blocks)))]);
    }
    text.gap();
}

/// Returns how many rows are shown: not those at the end that have no finding, and a hundredth of all bytes together.
fn worth_a_row(rows: &[Row], unlisted: u64) -> usize {
    let listed = rows.iter().map(|row| row.bytes).fold(0, u64::saturating_add);
    let mut hidden =
        rows[rows.len().min(ROWS)..].iter().map(|row| row.bytes).fold(unlisted, u64::saturating_add);
    let total = listed.saturating_add(unlisted);
    let small = rows.iter().take(ROWS).rev().take_while(|row| {
        hidden = hidden.saturating_add(row.bytes);
        row.finding.is_none() && hidden <= total / 100
    });
    // One line that says that there is one more says less than that one.
    let small = Some(small.count()).filter(|&n| n > 1 || rows.len() > ROWS || unlisted > 0).unwrap_or(0);
    rows.len().min(ROWS) - small
}

/// Writes one line per device.
pub fn devices(text: &mut Text, report: &Report, all: bool) {
    for d in &report.devices {
        let total = if d.total_bytes > 0 { size(d.total_bytes as f64) } else { String::new() };
        let known: Vec<String> =
            [sanitize(&d.name), total].into_iter().filter(|part| !part.is_empty()).collect();
        let name = if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) };
        let of_device = report.steps.series.iter().flat_map(|s| &s.devices).filter(|at| at.index == d.index);
        let shared = is_shared(of_device.filter_map(|at| at.unattributed_bytes).next());
        let figures = figures(d, all && report.program.end == End::Clean && report.step.is_none(), shared);
        text.wrap(
            "",
            2,
            &[(Bold, &format!("{} {}{name}:", wording::device_word(&d.name), d.index)), (Plain, &figures)],
        );
    }
    if report.host_bytes > 0 {
        text.line(&[(Bold, "Pinned host memory: "), (Plain, &size(report.host_bytes as f64))]);
    }
}

/// Returns the figures of a device. `over`: with what the program left at its exit; `shared`: other processes use it.
fn figures(d: &Device, over: bool, shared: bool) -> String {
    let mut all: Vec<String> = Vec::new();
    let mut add = |what: &str, bytes: u64| all.push(what.replace("{}", &size(bytes as f64)));
    add("live {}", d.live_bytes);
    if d.before_attaching_bytes > 0 {
        add("allocated before attaching {}", d.before_attaching_bytes);
    }
    add("peak {}", d.peak_bytes);
    add("reserved {}", d.reserved_bytes);
    if d.external_bytes > 0 {
        add("external {}", d.external_bytes);
    }
    if d.code_bytes > 0 {
        add("compiled programs {}", d.code_bytes);
    }
    if let Some(bytes) = d.unattributed_bytes.filter(|&b| b > 0) {
        let judged = if shared { ": whether it grows is not judged" } else { "" };
        add(&format!("unattributed {{}} (CUDA context, other processes{judged})"), bytes);
    }
    if over && d.driver_live_bytes > 0 {
        add("not freed at exit {}", d.driver_live_bytes);
    }
    all.join(", ")
}

/// Writes how far the figures can be relied on, and what was not seen.
pub fn coverage(text: &mut Text, report: &Report, all: bool) {
    let c = &report.coverage;
    let style = match c.ledger_matches_allocator {
        _ if c.frees_without_allocation > 0 || c.allocations_without_free > 0 || c.dropped_events > 0 => {
            Warning
        }
        Some(true) => Good,
        Some(false) => Warning,
        None => Plain,
    };
    let mut checked = wording::coverage(c);
    if let Some(calls) = untracked_calls(c) {
        checked.push_str(&format!("; not tracked: memory taken by {calls}"));
    }
    text.wrap("", 2, &[(Bold, "Checked:"), (style, &checked)]);
    for more in wording::step_details(report, all) {
        text.wrap("  ", 4, &[(Dim, &more)]);
    }
    for gap in c.gaps.iter().filter(|gap| !cpython::is_interpreters(gap)) {
        text.wrap("  ", 4, &[(Warning, "coverage gap:"), (Plain, &sanitize(gap))]);
    }
    for warning in &report.warnings {
        text.wrap("", 2, &[(Bold, "Warning:"), (Plain, &sanitize(warning))]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_add_up_to_a_hundredth_are_one_line() {
        let shown = |bytes: &[u64], finding: Option<usize>, unlisted: u64| {
            let row = |(i, &bytes): (usize, &u64)| {
                let finding = finding.filter(|&at| at == i);
                Row { what: String::new(), bytes, blocks: 1, finding }
            };
            worth_a_row(&bytes.iter().enumerate().map(row).collect::<Vec<_>>(), unlisted)
        };
        assert_eq!(shown(&[9_000, 880, 70, 50], None, 0), 4, "more than a hundredth");
        assert_eq!(shown(&[9_000, 970, 6, 4], None, 0), 2);
        assert_eq!(shown(&[9_000, 970, 6, 4], Some(2), 0), 4, "one of a finding, and one line saves none");
        assert_eq!(shown(&[9_000, 970, 6, 4], Some(2), 1), 3, "there is such a line already");
        assert_eq!(shown(&[9_000, 970, 6, 4], None, 200), 4, "what is not listed counts with them");
        assert_eq!(shown(&[5; 30], None, 0), ROWS);
        assert_eq!(shown(&[], None, 0), 0);
    }
}
