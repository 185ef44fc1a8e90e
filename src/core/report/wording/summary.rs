//! The words about a run: its answer, how it ended, its steps, what was suppressed, how far the figures can be relied on.

use super::{count, found, grouped, sanitize, size};
use crate::ledger::verdict::MIN_STEPS;
use crate::report::suppress::Suppressed;
use crate::report::{Coverage, End, Report, StepSource, UnusedLoop};

/// Annotations named, the most frequent first.
const ANNOTATIONS: usize = 4;

/// Returns the answer in one line: what was found, that nothing was, or why nothing can be judged.
pub fn answer(report: &Report) -> String {
    let steps = report.steps.count;
    let over = count(f64::from(steps), "step");
    if !report.findings.is_empty() {
        format!("{} found", found(&report.findings))
    } else if steps == 0 {
        "Not judged: no training step was seen, and without steps nothing can be called a leak.".to_owned()
    } else if steps < MIN_STEPS {
        format!("Not judged: {over} were seen; at least {MIN_STEPS} are needed.")
    } else {
        let but = if report.suppressed.is_empty() { "" } else { " but what is suppressed" };
        format!("No leak found over {over}{but}.")
    }
}

/// Returns how the process ended.
pub const fn ending(end: End) -> &'static str {
    match end {
        End::Clean => "exited cleanly",
        End::Killed => "was killed or crashed",
        End::Replaced => "was replaced by exec",
        End::Running => "is running",
    }
}

/// Returns `80 steps (from loop at train.py:12)`; without any step, what to do.
pub fn steps(report: &Report) -> String {
    let Some(source) = report.steps.source else {
        return format!(
            "no step was seen{}; say what one is: LEAKTRACE_STEP=loop, range:NAME, api or every:SECONDS",
            unused_loops(report)
        );
    };
    let steps = count(f64::from(report.steps.count), "step");
    let loops: Vec<String> = report.steps.loop_locations.iter().map(|at| sanitize(at)).collect();
    let loops = if loops.is_empty() { String::new() } else { format!(" at {}", loops.join(" and ")) };
    match report.steps.phase_steps {
        0 => format!("{steps} (from {source}{loops})"),
        n => format!("{steps} (from {source}, and {} of them from the loop{loops})", grouped(u64::from(n))),
    }
}

/// Returns which loops were seen where there is no step, and why none of them counts.
fn unused_loops(report: &Report) -> String {
    let reason = |l: &UnusedLoop| match l.reason.as_str() {
        "few" => format!("{} only", count(l.iterations as f64, "iteration")),
        "builds" => "makes a model".to_owned(),
        "framework" => "PyTorch's own, over layers or parameters".to_owned(),
        _ => "does little of the work".to_owned(),
    };
    let all = report.steps.unused_loops.iter();
    let all: Vec<String> = all.map(|l| format!("{} ({})", sanitize(&l.location), reason(l))).collect();
    if all.is_empty() { String::new() } else { format!(", and no loop that counts: {}", all.join(", ")) }
}

/// Returns what else there is to say of the steps, a line each.
pub fn step_details(report: &Report) -> Vec<String> {
    let unresolved = report.steps.unresolved_iterations;
    let unresolved = (unresolved > 0).then(|| {
        format!("{} before the first step were not resolved", count(unresolved.into(), "iteration"))
    });
    [other_sources(report), unresolved, annotations(report)].into_iter().flatten().collect()
}

fn annotations(report: &Report) -> Option<String> {
    let all = &report.steps.annotation_counts;
    let named = all.iter().take(ANNOTATIONS).map(|a| {
        let times = grouped(u64::from(a.count));
        match a.kind {
            "gc" => format!("{} in {}", a.name, count(f64::from(a.count), "step")),
            "empty-cache" => format!("{} {times} ×", a.name),
            "user" => format!("\"{}\" {times} ×", a.name),
            kind => format!("{kind} \"{}\" {times} ×", a.name),
        }
    });
    let mut named: Vec<String> = named.collect();
    if all.len() > ANNOTATIONS {
        named.push("…".into());
    }
    (!named.is_empty()).then(|| sanitize(&format!("events: {}", named.join(", "))))
}

/// Names the recorded sources that would give other steps than the ones shown.
fn other_sources(report: &Report) -> Option<String> {
    let source = report.steps.source?;
    let another = |s: &StepSource| s.name != source || report.steps.phase_steps > 0;
    let differs = |s: &&StepSource| another(s) && s.count > 0 && s.count != report.steps.count;
    let named = report.steps.step_sources.iter().filter(differs).map(|s| {
        let at = s.loop_locations.first().map_or_else(String::new, |at| format!(" at {}", sanitize(at)));
        format!("{} ({}{at})", s.name, s.count)
    });
    let named = named.collect::<Vec<_>>().join(", ");
    (!named.is_empty()).then(|| format!("other step sources: {named}; choose with --steps-by"))
}

/// Returns `1 finding, 512 B per step, by leak:train.py:log: looked at`.
pub fn findings_suppressed(s: &Suppressed) -> String {
    let growth = match s.bytes_per_step > 0.0 {
        true => format!(", {} per step", size(s.bytes_per_step)),
        false => String::new(),
    };
    let reason = s.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    format!("{}{growth}, by {}{reason}", count(f64::from(s.findings), "finding"), s.pattern)
}

/// Returns the heading of the table of what was retained.
pub fn retained_heading(report: &Report) -> String {
    let at = match report.step {
        None if report.steps.count == 0 => "at the end".to_owned(),
        step => format!("at step {}", grouped(u64::from(step.unwrap_or(report.steps.count)))),
    };
    match report.since {
        Some(since) => {
            format!("Allocated after step {} and still retained {at}", grouped(u64::from(since)))
        }
        None => format!("Retained {at}"),
    }
}

/// Returns how far the figures can be relied on.
pub fn coverage(c: &Coverage) -> String {
    let mut text = match c.ledger_matches_allocator {
        Some(true) => "blocks agree with the caching allocator's own total",
        Some(false) => "blocks do not agree with the caching allocator's own total",
        None => "no caching allocator's total to compare with",
    }
    .to_owned();
    for (n, what) in [
        (c.frees_without_allocation, "free without a recorded allocation"),
        (c.allocations_without_free, "address reused without a recorded free"),
        (c.dropped_events, "events lost"),
    ] {
        if n > 0 {
            text.push_str(&format!("; {} {what}", grouped(n)));
        }
    }
    text
}

/// Names the calls with untracked memory use, if there were any: `2 cuModuleLoadData`.
pub fn untracked_calls(c: &Coverage) -> Option<String> {
    let calls = c.untracked_calls.iter().map(|u| format!("{} {}", grouped(u.calls), u.entry_point));
    let calls = calls.collect::<Vec<_>>().join(", ");
    (!calls.is_empty()).then(|| sanitize(&calls))
}
