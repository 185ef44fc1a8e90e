//! What was alive, by place, file, function or birth step; the devices; what could not be seen.

use super::{BAD, BOLD, By, DIM, GOOD, Look, PLAIN, Page, UNSURE, when};
use leaktrace_core::report::explain::{count, exact, grouped, place, short, size};
use leaktrace_core::report::phrases::{clean, relied_on, unsaid};
use leaktrace_core::report::text::rows;
use leaktrace_core::report::{End, OutOfMemory, Report, Retained};

const TOP: usize = 10;

/// One row: what, bytes, blocks.
type Row = (String, u64, u64);

/// The table of what was alive.
pub fn retained(page: &mut Page, report: &Report, look: &Look) {
    let by = match look.by {
        By::Site => "where",
        By::File => "file",
        By::Function => "function",
        By::Cohort => "born in",
    };
    let all = match look.by {
        By::Site => rows(report, &report.retained),
        By::File => summed(report, |r| {
            r.allocated_at.as_ref().map(|p| short(&p.file, &report.program.cwd).to_owned())
        }),
        By::Function => summed(report, |r| {
            let p = r.allocated_at.as_ref()?;
            Some(format!("{} in {}", p.function, short(&p.file, &report.program.cwd)))
        }),
        By::Cohort => cohorts(report),
    };
    table(page, &when(report), by, &all, if look.all { usize::MAX } else { TOP });
}

fn summed(report: &Report, key: impl Fn(&Retained) -> Option<String>) -> Vec<Row> {
    let mut sums: std::collections::BTreeMap<String, (u64, u64)> = std::collections::BTreeMap::new();
    for r in &report.retained {
        let key = key(r).filter(|k| !k.is_empty()).unwrap_or_else(|| "an unknown place".to_owned());
        let sum = sums.entry(key).or_default();
        *sum = (sum.0.wrapping_add(r.live_bytes), sum.1.wrapping_add(r.live_blocks));
    }
    let mut rows: Vec<Row> =
        sums.into_iter().map(|(k, (bytes, blocks))| (clean(&k), bytes, blocks)).collect();
    rows.sort_by_key(|r| std::cmp::Reverse(r.1));
    rows
}

/// Oldest first: what is old and still there is what is looked for.
fn cohorts(report: &Report) -> Vec<Row> {
    let row = |c: &leaktrace_core::report::Cohort| {
        let at = place(c.allocated_at.as_ref(), &report.program.cwd);
        (format!("step {}, most of it at {}", grouped(u64::from(c.step)), clean(&at)), c.bytes, c.blocks)
    };
    report.cohorts.iter().map(row).collect()
}

/// Memory ran out: who asked, and what was alive.
pub fn ran_out(page: &mut Page, report: &Report, oom: &OutOfMemory, look: &Look) {
    let at = clean(&place(oom.allocated_at.as_ref(), &report.program.cwd));
    let what = format!("Out of memory on device {} in step {}:", oom.device, grouped(u64::from(oom.step)));
    let text = format!(
        "{at} asked for {}; {} were allocated.",
        exact(oom.requested_bytes as f64),
        exact(oom.allocated_bytes as f64),
    );
    page.wrap("", 2, &[(BAD, &what), (PLAIN, &text)]);
    if report.out_of_memory_count > 1 {
        let times =
            format!("Memory ran out {} times; this was the last.", grouped(report.out_of_memory_count));
        page.wrap("", 2, &[(PLAIN, &times)]);
    }
    let most = if look.all { usize::MAX } else { TOP };
    table(page, "Alive at that moment", "where", &rows(report, &oom.retained), most);
}

fn table(page: &mut Page, title: &str, by: &str, rows: &[Row], most: usize) {
    if rows.is_empty() {
        page.line(&[(BOLD, title), (PLAIN, ": nothing")]);
        page.gap();
        return;
    }
    page.line(&[(BOLD, title)]);
    page.line(&[(DIM, &format!("  {:>10}  {:>8}  {by}", "bytes", "blocks"))]);
    for (what, bytes, blocks) in rows.iter().take(most) {
        let head = format!("  {:>10}  {:>8}  ", size(*bytes as f64), grouped(*blocks));
        let indent = head.chars().count();
        page.wrap(&head, indent, &[(PLAIN, what)]);
    }
    if rows.len() > most {
        let rest: u64 = rows.iter().skip(most).fold(0, |sum, r| sum.wrapping_add(r.1));
        let more = count((rows.len() - most) as f64, "more row");
        page.line(&[(DIM, &format!("  {:>10}  {:>8}  {more} (--all)", size(rest as f64), ""))]);
    }
    page.gap();
}

/// One line per device.
pub fn devices(page: &mut Page, report: &Report) {
    for d in &report.devices {
        let name = if d.name.is_empty() { String::new() } else { format!(" ({})", clean(&d.name)) };
        let head = format!("Device {}{name}:", d.index);
        let mut text = format!(
            "{} live ({} in blocks, {} in driver allocations), peak {}, reserved {}",
            size(d.live_bytes as f64),
            size(d.block_bytes as f64),
            size(d.driver_allocation_bytes as f64),
            size(d.peak_bytes as f64),
            size(d.reserved_bytes as f64),
        );
        let mut more = |what: &str, bytes: u64| text.push_str(&format!(", {what} {}", size(bytes as f64)));
        if d.external_bytes > 0 {
            more("borrowed", d.external_bytes);
        }
        if let Some(bytes) = d.unattributed_bytes.filter(|&b| b > 0) {
            more("in use beyond what was seen", bytes);
        }
        if d.total_bytes > 0 {
            more("total", d.total_bytes);
        }
        if report.program.end == End::Clean && report.step.is_none() {
            more("still held from the driver at the very end", d.driver_live_bytes);
        }
        page.wrap("", 2, &[(BOLD, &head), (PLAIN, &text)]);
    }
    if report.host_bytes > 0 {
        page.line(&[(BOLD, "Pinned host memory: "), (PLAIN, &size(report.host_bytes as f64))]);
    }
}

/// What could not be seen.
pub fn coverage(page: &mut Page, report: &Report) {
    let c = &report.coverage;
    let missed = c.frees_without_allocation > 0 || c.allocations_without_free > 0 || c.dropped_events > 0;
    let style = match c.ledger_matches_allocator {
        _ if missed => UNSURE,
        Some(true) => GOOD,
        Some(false) => UNSURE,
        None => PLAIN,
    };
    page.wrap("", 2, &[(BOLD, "Coverage:"), (style, &relied_on(c))]);
    if let Some(told) = unsaid(c) {
        page.wrap("  ", 4, &[(DIM, "calls that take memory unsaid:"), (PLAIN, &told)]);
    }
    for hole in &c.gaps {
        page.wrap("  ", 4, &[(UNSURE, "not seen:"), (PLAIN, &clean(hole))]);
    }
    for note in &report.warnings {
        page.wrap("", 2, &[(BOLD, "Note:"), (PLAIN, &clean(note))]);
    }
}
