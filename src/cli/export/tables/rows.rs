//! The columns and rows of each table.

use super::{Field, Result, Sink, Table, Type};
use crate::export::input::device;
use crate::export::range::EventRange;
use crate::export::{Input, stats};
use leaktrace_core::format::event::{EventKind, MemoryClass, StepSource};
use leaktrace_core::report::{Finding, Location, Report};
use leaktrace_core::symbols::Names;

use Type::{Bool, Float, Int, Text};

pub static RECORDINGS: Table = Table {
    name: "recordings",
    columns: &[
        ("file", Text),
        ("host", Text),
        ("pid", Int),
        ("argv", Text),
        ("began_ns", Int),
        ("duration_s", Float),
        ("end", Text),
        ("steps", Int),
        ("step_source", Text),
        ("live_bytes", Int),
        ("peak_bytes", Int),
        ("host_bytes", Int),
        ("frees_without_allocation", Int),
        ("dropped_events", Int),
        ("ledger_matches_allocator", Bool),
    ],
};

pub static FINDINGS: Table = Table {
    name: "findings",
    columns: &[
        ("kind", Text),
        ("non_leak", Bool),
        ("confidence", Text),
        ("device", Int),
        ("layer", Text),
        ("file", Text),
        ("line", Int),
        ("function", Text),
        ("sites", Int),
        ("bytes_per_step", Float),
        ("blocks_per_step", Float),
        ("growth_step_ratio", Float),
        ("growth_bytes_per_step", Float),
        ("period_steps", Float),
        ("live_bytes", Int),
        ("live_blocks", Int),
        ("cohorts", Int),
        ("oldest_step", Int),
        ("peak_reduction_bytes", Int),
        ("steps_to_oom", Int),
        ("held_by", Text),
        ("explanation", Text),
    ],
};

pub static STEPS: Table = Table {
    name: "steps",
    columns: &[
        ("step", Int),
        ("first_step", Int),
        ("at_s", Float),
        ("source", Text),
        ("label", Text),
        ("device", Int),
        ("live_bytes", Int),
        ("block_bytes", Int),
        ("driver_allocation_bytes", Int),
        ("reserved_bytes", Int),
        ("driver_bytes", Int),
        ("pool_used_bytes", Int),
        ("host_bytes", Int),
        ("external_bytes", Int),
        ("code_bytes", Int),
        ("unattributed_bytes", Int),
        ("peak_bytes", Int),
    ],
};

pub static SITES: Table = Table {
    name: "sites",
    columns: &[
        ("site", Int),
        ("stack_id", Int),
        ("device", Int),
        ("layer", Text),
        ("entry_point", Text),
        ("file", Text),
        ("line", Int),
        ("function", Text),
        ("stack", Text),
        ("live_bytes", Int),
        ("live_blocks", Int),
        ("retained_bytes", Int),
        ("growth_bytes", Int),
        ("peak_bytes", Int),
        ("allocs", Int),
        ("frees", Int),
        ("alloc_steps", Int),
        ("first_alloc_step", Int),
        ("last_alloc_step", Int),
        ("last_freed_step", Int),
        ("longest_life_steps", Int),
    ],
};

pub static COHORTS: Table = Table {
    name: "cohorts",
    columns: &[("site", Int), ("alloc_step", Int), ("live_blocks", Int), ("live_bytes", Int)],
};

pub static EVENTS: Table = Table {
    name: "events",
    columns: &[
        ("seq", Int),
        ("at_s", Float),
        ("step", Int),
        ("kind", Text),
        ("class", Text),
        ("device", Int),
        ("address", Int),
        ("bytes", Int),
        ("stack_id", Int),
        ("entry_point", Text),
    ],
};

fn int(n: impl Into<u64>) -> Field<'static> {
    Field::Int(n.into() as i64)
}

fn maybe(n: Option<impl Into<u64>>) -> Field<'static> {
    n.map_or(Field::Null, int)
}

fn text<'t>(text: impl Into<std::borrow::Cow<'t, str>>) -> Field<'t> {
    Field::Text(text.into())
}

/// Makes a text of words, and nothing of the empty text.
fn known(words: Option<&str>) -> Field<'_> {
    words.filter(|w| !w.is_empty()).map_or(Field::Null, text)
}

/// Makes a text of a value's name in JSON.
fn name(value: &impl serde::Serialize) -> Field<'static> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => text(name),
        _ => Field::Null,
    }
}

pub fn recording(input: &Input, report: &Report, sink: &mut dyn Sink) -> Result<()> {
    let sum = |of: fn(&leaktrace_core::report::Device) -> u64| {
        int(report.devices.iter().map(of).fold(0, u64::wrapping_add))
    };
    sink.row(&[
        text(input.path.to_string_lossy()),
        known(Some(&report.program.host)),
        int(report.program.pid),
        text(report.program.argv.join(" ")),
        int(input.recording.began_ns),
        Field::Float(report.program.duration_s),
        name(&report.program.end),
        int(report.steps.count),
        known(report.steps.source),
        sum(|d| d.live_bytes),
        sum(|d| d.peak_bytes),
        int(report.host_bytes),
        int(report.coverage.frees_without_allocation),
        int(report.coverage.dropped_events),
        report.coverage.ledger_matches_allocator.map_or(Field::Null, Field::Bool),
    ])
}

pub fn findings(report: &Report, sink: &mut dyn Sink) -> Result<()> {
    let all = report.findings.iter().map(|f| (f, false));
    let mut all = all.chain(report.non_leaks.iter().map(|f| (f, true)));
    all.try_for_each(|(f, non_leak)| finding(f, non_leak, sink))
}

fn finding(f: &Finding, non_leak: bool, sink: &mut dyn Sink) -> Result<()> {
    let place: Option<&Location> = f.sites.first().and_then(|s| s.allocated_at.as_ref());
    sink.row(&[
        name(&f.kind),
        Field::Bool(non_leak),
        name(&f.confidence),
        maybe(f.device),
        text(f.layer),
        known(place.map(|p| p.file.as_str())),
        maybe(place.and_then(|p| p.line)),
        known(place.map(|p| p.function.as_str())),
        int(f.sites.len() as u64),
        Field::Float(f.bytes_per_step),
        Field::Float(f.blocks_per_step),
        Field::Float(f.growth_step_ratio),
        Field::Float(f.growth_bytes_per_step),
        f.period_steps.map_or(Field::Null, Field::Float),
        int(f.live_bytes),
        int(f.live_blocks),
        int(f.cohorts),
        int(f.oldest_step),
        int(f.peak_reduction_bytes),
        maybe(f.steps_to_oom),
        known(f.holders.first().map(|h| h.path.as_str())),
        text(f.explanation.as_str()),
    ])
}

/// Writes a row for each step and device.
pub fn steps(input: &Input, sink: &mut dyn Sink) -> Result<()> {
    let mut before = 0u32;
    for r in input.ledger.steps() {
        let label = input.recording.tables.labels.get(&r.label).filter(|_| r.label > 0);
        for d in &r.devices {
            sink.row(&[
                int(r.step),
                int(before.saturating_add(1)),
                Field::Float(r.at_ns as f64 / 1e9),
                known(StepSource::from_code(r.source).map(StepSource::name)),
                known(label.map(String::as_str)),
                maybe(device(d.device)),
                int(d.live_bytes()),
                int(d.block_bytes),
                int(d.driver_allocation_bytes),
                int(d.reserved_bytes),
                int(d.driver_bytes),
                int(d.pool_used_bytes),
                int(d.host_bytes),
                int(d.external_bytes),
                int(d.code_bytes),
                maybe(d.unattributed_bytes),
                int(d.peak_bytes),
            ])?;
        }
        before = r.step;
    }
    Ok(())
}

pub fn sites(input: &Input, names: &Names<'_>, since: Option<u32>, sink: &mut dyn Sink) -> Result<()> {
    for f in stats::site_stats(&input.ledger, since) {
        let Some(s) = input.ledger.site(f.site) else { continue };
        let frames = names.frames(s.stack);
        let place = names.allocated_at(&frames);
        let stack: Vec<String> = frames.iter().rev().map(|frame| input.label(frame)).collect();
        let entry_point = (s.entry_point != 0).then(|| input.call(s.entry_point));
        sink.row(&[
            int(f.site),
            int(s.stack),
            maybe(device(s.device)),
            text(s.layer.name()),
            known(entry_point.as_deref()),
            known(place.map(|p| p.file.as_str())),
            maybe(place.and_then(|p| p.line)),
            known(place.map(|p| p.function.as_str())),
            text(stack.join(";")),
            int(f.live_bytes),
            int(f.live_blocks),
            int(f.retained_bytes),
            Field::Int(f.growth_bytes),
            int(f.peak_bytes),
            int(s.allocs),
            int(s.frees),
            int(s.births),
            int(s.first_birth),
            int(s.last_birth),
            int(s.last_freed),
            int(s.longest_life()),
        ])?;
    }
    Ok(())
}

pub fn cohorts(input: &Input, sink: &mut dyn Sink) -> Result<()> {
    for (site, cohorts) in input.ledger.cohorts() {
        for c in cohorts {
            sink.row(&[int(site), int(c.birth), int(c.blocks), int(c.bytes)])?;
        }
    }
    Ok(())
}

/// Writes the last `most` of the events that the recording holds.
pub fn events(input: &Input, most: u64, sink: &mut dyn Sink) -> Result<()> {
    let range = EventRange::new(input);
    let skipped = range.count.saturating_sub(most) as usize;
    let named = |of: &dyn Fn(u8) -> Option<String>| (0..=u8::MAX).map(|c| of(c).map(|n| snake(&n))).collect();
    let kinds: Vec<Option<String>> = named(&|code| EventKind::from_code(code).map(|k| format!("{k:?}")));
    let classes: Vec<Option<String>> = named(&|code| MemoryClass::from_code(code).map(|c| format!("{c:?}")));
    for p in range.events().skip(skipped) {
        let e = &p.event;
        let Some(kind) = EventKind::from_code(e.kind) else { continue };
        let has_class = matches!(kind, EventKind::Alloc | EventKind::Free | EventKind::FreeFailed);
        sink.row(&[
            int(e.seq),
            Field::Float(p.at_ns as f64 / 1e9),
            int(p.step),
            known(kinds[usize::from(e.kind)].as_deref()),
            known(classes[usize::from(e.class)].as_deref().filter(|_| has_class)),
            maybe(device(e.device)),
            int(e.address),
            int(e.size),
            maybe(has_stack(kind).then_some(e.stack)),
            known(input.recording.tables.entry_point(e.entry_point).map(String::as_str)),
        ])?;
    }
    Ok(())
}

/// Returns true if events of this kind have a stack; others use its field for something else.
fn has_stack(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::BlockAlloc
            | EventKind::Alloc
            | EventKind::GraphAllocNode
            | EventKind::GraphLaunch
            | EventKind::OutOfMemory
    )
}

/// Writes `BlockAlloc` as `block_alloc`.
fn snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}
