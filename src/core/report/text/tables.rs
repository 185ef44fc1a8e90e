//! The tables of the plain report: what was alive, what ran out, the devices, what could not be seen.

use std::fmt::Write;

use super::{STACK, line, wrap};
use crate::report::explain::{count, exact, grouped, place, short, size};
use crate::report::phrases::{clean, relied_on, unsaid};
use crate::report::{End, Frame, OutOfMemory, Place, Report, Retained};

pub(super) fn ran_out(out: &mut String, report: &Report, oom: &OutOfMemory, top: usize) {
    let at = clean(&place(oom.allocated_at.as_ref(), &report.program.cwd));
    let text = format!(
        "Out of memory on device {} in step {}: {at} asked for {}; {} were allocated.",
        oom.device,
        grouped(u64::from(oom.step)),
        exact(oom.requested_bytes as f64),
        exact(oom.allocated_bytes as f64),
    );
    wrap(out, "", 0, &text);
    let share = |bytes: u64, of: u64| 100.0 * bytes as f64 / of.max(1) as f64;
    let carried = share(oom.carry_over_bytes, oom.allocated_bytes);
    if carried >= 1.0 {
        let text = format!(
            "{} of that ({carried:.0} %) were left by the step before and waited for its successor to let go (carry-over).",
            size(oom.carry_over_bytes as f64)
        );
        wrap(out, "", 0, &text);
    }
    let empty = share(oom.free_in_segments_bytes, oom.reserved_bytes);
    if empty >= 1.0 {
        let lost = if oom.free_in_segments_bytes >= oom.requested_bytes
            && oom.largest_free_block_bytes < oom.requested_bytes
        {
            ": together they would have done, so this is fragmentation"
        } else {
            ""
        };
        let text = format!(
            "{} of the {} reserved ({empty:.0} %) lay empty between blocks, in pieces of {} at most{lost}.",
            size(oom.free_in_segments_bytes as f64),
            size(oom.reserved_bytes as f64),
            size(oom.largest_free_block_bytes as f64)
        );
        wrap(out, "", 0, &text);
    }
    if report.out_of_memory_count > 1 {
        line!(out, "Memory ran out {} times; this was the last.", grouped(report.out_of_memory_count));
    }
    out.push('\n');
    table(out, report, "Alive at that moment", &oom.retained, top);
    held(out, &oom.retained);
}

/// Who held most of it, where that is known.
fn held(out: &mut String, retained: &[Retained]) {
    let mut all: Vec<(&str, u64)> = Vec::new();
    for h in retained.iter().flat_map(|r| &r.holders) {
        match all.iter_mut().find(|known| known.0 == h.path) {
            Some(known) => known.1 = known.1.saturating_add(h.bytes),
            None => all.push((&h.path, h.bytes)),
        }
    }
    all.sort_by_key(|h| std::cmp::Reverse(h.1));
    if all.is_empty() {
        return;
    }
    line!(out, "Held by, when somebody last looked");
    for (path, bytes) in all.iter().take(STACK) {
        let head = format!("  {:>10}  ", size(*bytes as f64));
        wrap(out, &head, head.len(), &clean(path));
    }
    out.push('\n');
}

pub(super) fn table(out: &mut String, report: &Report, title: &str, held: &[Retained], top: usize) {
    if held.is_empty() {
        line!(out, "{title}: nothing\n");
        return;
    }
    line!(out, "{title}");
    line!(out, "  {:>10}  {:>8}  where", "bytes", "blocks");
    let rows = rows(report, held);
    for (at, bytes, blocks) in rows.iter().take(top) {
        let head = format!("  {:>10}  {:>8}  ", size(*bytes as f64), grouped(*blocks));
        let indent = head.chars().count();
        wrap(out, &head, indent, at);
    }
    if rows.len() > top {
        let rest: u64 = rows.iter().skip(top).fold(0, |sum, (_, bytes, _)| sum.wrapping_add(*bytes));
        line!(
            out,
            "  {:>10}  {:>8}  {}",
            size(rest as f64),
            "",
            count((rows.len() - top) as f64, "more place")
        );
    }
    out.push('\n');
}

/// What reads the same is one row (several stacks may lead through the same lines), largest first.
pub fn rows(report: &Report, held: &[Retained]) -> Vec<(String, u64, u64)> {
    let mut rows: Vec<(String, u64, u64)> = Vec::new();
    for r in held {
        let mut at = where_of(r, &report.program.cwd);
        if r.layer != "block" {
            let by = r.entry_point.as_ref().map_or_else(String::new, |e| format!(", {e}"));
            at.push_str(&format!(" ({}{by})", r.layer));
        }
        if report.devices.len() > 1
            && let Some(device) = r.device
        {
            at.push_str(&format!(" (device {device})"));
        }
        let at = clean(&at);
        match rows.iter_mut().find(|row| row.0 == at) {
            Some(row) => {
                (row.1, row.2) = (row.1.wrapping_add(r.live_bytes), row.2.wrapping_add(r.live_blocks))
            }
            None => rows.push((at, r.live_bytes, r.live_blocks)),
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.1));
    rows
}

pub fn where_of(r: &Retained, cwd: &str) -> String {
    let caller = |at: &Place| {
        let own = r.stack.iter().filter(|f| f.own).map(Frame::place);
        own.skip_while(|p| p == at).find_map(|p| Some(format!(", from {}:{}", short(&p.file, cwd), p.line?)))
    };
    let from = r.allocated_at.as_ref().and_then(caller).unwrap_or_default();
    place(r.allocated_at.as_ref(), cwd) + &from
}

pub(super) fn devices(out: &mut String, report: &Report) {
    for d in &report.devices {
        let name = if d.name.is_empty() { String::new() } else { format!(" ({})", clean(&d.name)) };
        let mut text = format!(
            "Device {}{name}: {} live ({} in blocks, {} in driver allocations), peak {}, reserved {}",
            d.index,
            size(d.live_bytes as f64),
            size(d.block_bytes as f64),
            size(d.driver_allocation_bytes as f64),
            size(d.peak_bytes as f64),
            size(d.reserved_bytes as f64),
        );
        if d.external_bytes > 0 {
            text.push_str(&format!(", borrowed {}", size(d.external_bytes as f64)));
        }
        if let Some(bytes) = d.unattributed_bytes.filter(|&b| b > 0) {
            text.push_str(&format!(", in use beyond what was seen {}", size(bytes as f64)));
        }
        if d.total_bytes > 0 {
            text.push_str(&format!(", total {}", size(d.total_bytes as f64)));
        }
        if report.program.end == End::Clean && report.step.is_none() {
            text.push_str(&format!(
                ", still held from the driver at the very end {}",
                size(d.driver_live_bytes as f64)
            ));
        }
        wrap(out, "", 2, &text);
    }
    if report.host_bytes > 0 {
        line!(out, "Pinned host memory: {}", size(report.host_bytes as f64));
    }
}

pub(super) fn coverage(out: &mut String, report: &Report) {
    let c = &report.coverage;
    wrap(out, "Coverage: ", 2, &relied_on(c));
    if let Some(calls) = unsaid(c) {
        wrap(out, "  calls that take memory unsaid: ", 4, &calls);
    }
    for hole in &c.gaps {
        wrap(out, "  not seen: ", 4, &clean(hole));
    }
    for note in &report.warnings {
        wrap(out, "Note: ", 2, &clean(note));
    }
}
