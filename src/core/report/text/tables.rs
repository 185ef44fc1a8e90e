//! The tables of a report: what was retained, what was live when memory ran out, the devices, the coverage.

use std::collections::BTreeMap;

use super::Style::{Bad, Bold, Dim, Good, Plain, Warning};
use super::{By, Layout, Text};
use crate::report::wording::{
    self, count, grouped, location, relative_path, retained_heading, sanitize, size, untracked_calls,
};
use crate::report::{End, Frame, Holder, Location, Report, Retained, Unlisted};

/// Rows shown of a table, and holders of a failure, if not all are wanted.
const ROWS: usize = 10;
const HOLDERS: usize = 8;

/// A row: what it stands for, bytes, blocks.
type Row = (String, u64, u64);

/// Writes what was retained at the reported moment.
pub fn retained(text: &mut Text, report: &Report, layout: Layout) {
    let (column, rows) = match layout.by {
        By::Site => ("where", sites(report, &report.retained)),
        By::File => ("file", sums(report, |at| relative_path(&at.file, &report.program.cwd).to_owned())),
        By::Function => (
            "function",
            sums(report, |at| format!("{} in {}", at.function, relative_path(&at.file, &report.program.cwd))),
        ),
        By::Cohort => ("allocated in", cohorts(report)),
    };
    let rest = report.retained_unlisted.unwrap_or_default();
    table(text, &retained_heading(report), column, &rows, rest, layout.all);
}

/// Adds up what is retained by a property of its location, largest first.
fn sums(report: &Report, key: impl Fn(&Location) -> String) -> Vec<Row> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for r in &report.retained {
        let key = r.allocated_at.as_ref().map(&key).filter(|k| !k.is_empty());
        let sum = sums.entry(key.unwrap_or_else(|| "an unknown location".to_owned())).or_default();
        *sum = (sum.0.wrapping_add(r.live_bytes), sum.1.wrapping_add(r.live_blocks));
    }
    let rows = sums.into_iter().map(|(k, (bytes, blocks))| (sanitize(&k), bytes, blocks));
    let mut rows: Vec<Row> = rows.collect();
    rows.sort_by_key(|r| std::cmp::Reverse(r.1));
    rows
}

/// Lists cohorts, oldest first: what is old and still there is what is looked for.
fn cohorts(report: &Report) -> Vec<Row> {
    let row = |c: &crate::report::Cohort| {
        let at = location(c.allocated_at.as_ref(), &report.program.cwd);
        (format!("step {}, most of it at {}", grouped(u64::from(c.step)), sanitize(&at)), c.bytes, c.blocks)
    };
    report.cohorts.iter().map(row).collect()
}

/// Lists what is retained by location, largest first; several stacks may lead through the same lines.
fn sites(report: &Report, retained: &[Retained]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for r in retained {
        let mut at = location(r.allocated_at.as_ref(), &report.program.cwd);
        if let Some(Location { file, line: Some(line), .. }) = caller(r) {
            at.push_str(&format!(", from {}:{line}", relative_path(&file, &report.program.cwd)));
        }
        if r.layer != "block" {
            let by = r.entry_point.as_ref().map_or_else(String::new, |e| format!(", {e}"));
            at.push_str(&format!(" ({}{by})", r.layer));
        }
        if report.devices.len() > 1
            && let Some(device) = r.device
        {
            at.push_str(&format!(" (device {device})"));
        }
        let at = sanitize(&at);
        match rows.iter_mut().find(|row| row.0 == at) {
            Some(row) => {
                (row.1, row.2) = (row.1.wrapping_add(r.live_bytes), row.2.wrapping_add(r.live_blocks));
            }
            None => rows.push((at, r.live_bytes, r.live_blocks)),
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.1));
    rows
}

/// Returns the user's line that called the allocating one, if that has a number.
fn caller(r: &Retained) -> Option<Location> {
    let at = r.allocated_at.as_ref()?;
    let own = r.stack.iter().filter(|f| f.own).map(Frame::location);
    own.skip_while(|l| l == at).find(|l| l.line.is_some())
}

/// Writes how the last allocation failed: the explanation, what was live, who held it.
pub fn out_of_memory(text: &mut Text, report: &Report, layout: Layout) {
    let Some(oom) = report.out_of_memory.last() else { return };
    text.wrap("", 2, &[(Bad, "Out of memory:"), (Plain, &sanitize(&oom.explanation))]);
    if report.out_of_memory_count > 1 {
        let times =
            format!("Memory ran out {} times; this was the last.", grouped(report.out_of_memory_count));
        text.wrap("", 2, &[(Plain, &times)]);
    }
    text.gap();
    table(
        text,
        "Live at that moment",
        "where",
        &sites(report, &oom.retained),
        Unlisted::default(),
        layout.all,
    );
    held(text, &oom.holders, layout.all);
}

fn held(text: &mut Text, holders: &[Holder], all: bool) {
    if holders.is_empty() {
        return;
    }
    text.line(&[(Bold, "Held by (as of the last heap scan)")]);
    for h in holders.iter().take(if all { usize::MAX } else { HOLDERS }) {
        let path = h.path.strip_prefix("held by ").unwrap_or(&h.path);
        let lead = format!("  {:>10}  {:>8}  ", size(h.bytes as f64), grouped(h.blocks));
        text.wrap(&lead, lead.len(), &[(Plain, &sanitize(path))]);
    }
    text.gap();
}

/// Writes a table; `rest`: what its rows leave out.
fn table(text: &mut Text, title: &str, column: &str, rows: &[Row], rest: Unlisted, all: bool) {
    if rows.is_empty() {
        text.line(&[(Bold, title), (Plain, ": nothing")]);
        text.gap();
        return;
    }
    text.line(&[(Bold, title)]);
    text.line(&[(Dim, &format!("  {:>10}  {:>8}  {column}", "bytes", "blocks"))]);
    let most = if all { usize::MAX } else { ROWS };
    for (what, bytes, blocks) in rows.iter().take(most) {
        let lead = format!("  {:>10}  {:>8}  ", size(*bytes as f64), grouped(*blocks));
        text.wrap(&lead, lead.len(), &[(Plain, what)]);
    }
    let hidden = rows.get(most..).unwrap_or_default();
    let more = rest.lines + hidden.len() as u64;
    if more > 0 {
        let sum = |of: fn(&Row) -> u64, first: u64| hidden.iter().map(of).fold(first, u64::saturating_add);
        let (bytes, blocks) = (sum(|r| r.1, rest.live_bytes), sum(|r| r.2, rest.live_blocks));
        let more = count(more as f64, "more row");
        let lead = format!("  {:>10}  {:>8}  ", size(bytes as f64), grouped(blocks));
        text.line(&[(Dim, &format!("{lead}{more} (--all)"))]);
    }
    text.gap();
}

/// Writes one line per device.
pub fn devices(text: &mut Text, report: &Report) {
    for d in &report.devices {
        let name = if d.name.is_empty() { String::new() } else { format!(" ({})", sanitize(&d.name)) };
        let mut figures = format!(
            "{} live ({} in blocks, {} in driver allocations), peak {}, reserved {}",
            size(d.live_bytes as f64),
            size(d.block_bytes as f64),
            size(d.driver_allocation_bytes as f64),
            size(d.peak_bytes as f64),
            size(d.reserved_bytes as f64),
        );
        let mut more = |what: &str, bytes: u64| figures.push_str(&format!(", {what} {}", size(bytes as f64)));
        if d.external_bytes > 0 {
            more("external", d.external_bytes);
        }
        if let Some(bytes) = d.unattributed_bytes.filter(|&b| b > 0) {
            more("unattributed", bytes);
        }
        if d.total_bytes > 0 {
            more("total", d.total_bytes);
        }
        if report.program.end == End::Clean && report.step.is_none() {
            more("not freed at exit", d.driver_live_bytes);
        }
        text.wrap("", 2, &[(Bold, &format!("Device {}{name}:", d.index)), (Plain, &figures)]);
    }
    if report.host_bytes > 0 {
        text.line(&[(Bold, "Pinned host memory: "), (Plain, &size(report.host_bytes as f64))]);
    }
}

/// Writes how far the figures can be relied on, and what was not seen.
pub fn coverage(text: &mut Text, report: &Report) {
    let c = &report.coverage;
    let style = match c.ledger_matches_allocator {
        _ if c.frees_without_allocation > 0 || c.allocations_without_free > 0 || c.dropped_events > 0 => {
            Warning
        }
        Some(true) => Good,
        Some(false) => Warning,
        None => Plain,
    };
    text.wrap("", 2, &[(Bold, "Coverage:"), (style, &wording::coverage(c))]);
    if let Some(calls) = untracked_calls(c) {
        text.wrap("  ", 4, &[(Dim, "calls with untracked memory use:"), (Plain, &calls)]);
    }
    for gap in &c.gaps {
        text.wrap("  ", 4, &[(Warning, "coverage gap:"), (Plain, &sanitize(gap))]);
    }
    for warning in &report.warnings {
        text.wrap("", 2, &[(Bold, "Warning:"), (Plain, &sanitize(warning))]);
    }
}
