//! What is said of a run and of a finding in the same words wherever it is told: on a terminal, in a file, by a gate.

use super::explain::{count, exact, grouped, size};
use super::suppress::Suppressed;
use super::{Coverage, Finding, Report, Site, StepSource};
use crate::ledger::verdict::{Confidence, Kind};

const HELD_BY: &str = "held by ";
const MARKS: usize = 4;
const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "%"];
const UNIT_ENDS: [char; 5] = [',', ';', '.', ':', ')'];
/// Beyond so many steps nobody waits for a device to be full.
const FAR: u64 = 10_000_000;

/// Control characters of a program's own texts must not steer the terminal.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The words of a text, which a line may be broken between: a number stays with its unit.
pub fn words(text: &str) -> impl Iterator<Item = String> {
    let mut words = text.split_whitespace().peekable();
    std::iter::from_fn(move || {
        let first = words.next()?;
        Some(match words.next_if(|next| UNITS.contains(&next.trim_end_matches(UNIT_ENDS))) {
            Some(unit) => format!("{first} {unit}"),
            None => first.to_owned(),
        })
    })
}

/// `80 steps, told by: loop at train.py:12`; without any, what to do.
pub fn told_by(report: &Report) -> String {
    let Some(source) = report.steps.source else {
        return "no step was seen; say what one is: LEAKTRACE_STEP=loop, range:NAME, api or every:SECONDS"
            .into();
    };
    let steps = count(f64::from(report.steps.count), "step");
    let loops: Vec<String> = report.steps.loop_locations.iter().map(|place| clean(place)).collect();
    let loops = if loops.is_empty() { String::new() } else { format!(" at {}", loops.join(" and ")) };
    match report.steps.phase_steps {
        0 => format!("{steps}, told by: {source}{loops}"),
        n => format!("{steps}, told by: {source}, and {n} of them between these by the loop{loops}"),
    }
}

/// What more there is to say of the steps, a line each.
pub fn said_of_steps(report: &Report) -> Vec<String> {
    let missed = report.steps.unresolved_iterations;
    let missed = (missed > 0).then(|| format!("{missed} iterations before them are not told apart"));
    [others(report), missed, marks(report)].into_iter().flatten().collect()
}

/// What went by a name, the most frequent.
fn marks(report: &Report) -> Option<String> {
    let all = &report.steps.annotation_counts;
    let told = all.iter().take(MARKS).map(|m| {
        let times = grouped(u64::from(m.count));
        match m.kind {
            "gc" => format!("{} in {}", m.name, count(f64::from(m.count), "step")),
            "empty-cache" => format!("{} {times} ×", m.name),
            kind => format!("{kind} \"{}\" {times} ×", m.name),
        }
    });
    let mut told: Vec<String> = told.collect();
    if all.len() > MARKS {
        told.push("…".into());
    }
    (!told.is_empty()).then(|| clean(&format!("seen in it: {}", told.join(", "))))
}

/// What else the steps can be read by: not what they are read by, nor what would be the same.
fn others(report: &Report) -> Option<String> {
    let source = report.steps.source?;
    let another = |l: &StepSource| l.name != source || report.steps.phase_steps > 0;
    let differs = |l: &&StepSource| another(l) && l.count > 0 && l.count != report.steps.count;
    let list: Vec<String> = (report.steps.step_sources.iter().filter(differs))
        .map(|l| {
            let at = l.loop_locations.first().map_or_else(String::new, |at| format!(" at {}", clean(at)));
            format!("{} ({}{at})", l.name, l.count)
        })
        .collect();
    (!list.is_empty()).then(|| format!("--steps-by can read them by: {}", list.join(", ")))
}

/// `1 finding, 512 B per step, by leak:train.py:log: looked at`.
pub fn suppressed_by(s: &Suppressed) -> String {
    let grow = match s.bytes_per_step > 0.0 {
        true => format!(", {} per step", size(s.bytes_per_step)),
        false => String::new(),
    };
    let why = s.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    format!("{}{grow}, by {}{why}", count(f64::from(s.findings), "finding"), s.pattern)
}

/// `2 leaks`, `1 leak and 1 growth outside what can be attributed`.
pub fn found(findings: &[Finding]) -> String {
    let mut named: Vec<(String, f64)> = Vec::new();
    for f in findings {
        let (one, rest) = match f.kind {
            Kind::Leak => ("leak", ""),
            Kind::Growing if f.sites.is_empty() => ("growth", " outside what can be attributed"),
            Kind::Growing => ("growth", " that may have a bound"),
            Kind::PendingGc => ("case", " of garbage that waits for the collector"),
            Kind::Residue => ("residue", ""),
            Kind::Fragmentation => ("fragmentation", ""),
            Kind::CarryOver => ("carry-over", ""),
            _ => ("sawtooth", ""),
        };
        let key = format!("{one}|{rest}");
        match named.iter_mut().find(|n| n.0 == key) {
            Some(n) => n.1 += 1.0,
            None => named.push((key, 1.0)),
        }
    }
    let mut parts: Vec<String> = named
        .iter()
        .map(|(key, n)| {
            let (one, rest) = key.split_once('|').unwrap_or((key, ""));
            format!("{}{rest}", count(*n, one))
        })
        .collect();
    let last = parts.pop().unwrap_or_default();
    if parts.is_empty() { last } else { format!("{} and {last}", parts.join(", ")) }
}

/// How sure it is.
pub fn sure(f: &Finding) -> &'static str {
    match f.confidence {
        Confidence::Confirmed => "confirmed",
        Confidence::Likely => "likely",
    }
}

/// `held by main() local `losses``; what nobody is found to hold says so itself.
pub fn held_by(path: &str) -> String {
    if path.starts_with(HELD_BY) { path.to_owned() } else { format!("{HELD_BY}{path}") }
}

/// Whether somebody is named who holds it.
pub fn is_named(path: &str) -> bool {
    !path.starts_with(HELD_BY)
}

/// How fast it goes; `None` where that is no figure of this kind.
pub fn pace(f: &Finding) -> Option<String> {
    let per_step = exact(f.bytes_per_step);
    Some(match f.kind {
        Kind::Leak | Kind::Growing if f.growth_step_ratio < 0.995 => {
            let mean = size(f.growth_bytes_per_step.round());
            format!("{per_step} per step that adds, {mean} per step on average")
        }
        Kind::Leak | Kind::Growing | Kind::PendingGc | Kind::Periodic => format!("{per_step} per step"),
        _ => return None,
    })
}

/// The second source: what the driver gave meanwhile.
fn reserved(f: &Finding, bytes: i64) -> String {
    let grown = f.growth_bytes_per_step * f64::from(f.cohorts.max(1));
    if bytes > 0 && bytes as f64 >= 0.5 * grown.min(f.live_bytes as f64) {
        return format!("the memory reserved from the driver grew by {} meanwhile", size(bytes as f64));
    }
    "absorbed so far by memory that was reserved already".to_owned()
}

/// `2.3 MiB (2,457,600 B) in 200 blocks from 200 steps, since step 1`.
pub fn alive(f: &Finding) -> String {
    format!(
        "{} in {} from {}, since step {}",
        exact(f.live_bytes as f64),
        blocks(f, f.live_blocks),
        count(f64::from(f.cohorts), "step"),
        grouped(u64::from(f.oldest_step)),
    )
}

/// So many blocks of the kind that it is of.
pub fn blocks(f: &Finding, n: u64) -> String {
    count(n as f64, if f.layer == "block" { "block" } else { "allocation" })
}

/// `512 B per step`, or what is alive where it does not grow.
pub fn amount(site: &Site) -> String {
    match site.bytes_per_step {
        bytes if bytes > 0.0 => format!("{} per step", exact(bytes)),
        _ => exact(site.live_bytes as f64),
    }
}

/// What the driver gave meanwhile, of what grows.
pub fn reserved_meanwhile(f: &Finding) -> Option<String> {
    let grows = matches!(f.kind, Kind::Leak | Kind::Growing);
    f.reserved_growth_bytes.filter(|_| grows).map(|bytes| reserved(f, bytes))
}

/// When the device is full, if anybody will see that.
pub fn full(f: &Finding) -> Option<String> {
    let steps = f.steps_to_oom.filter(|&steps| steps < FAR)?;
    Some(format!("the device is full in about {} more steps", grouped(steps)))
}

/// How far the figures can be relied on.
pub fn relied_on(c: &Coverage) -> String {
    let mut text = match c.ledger_matches_allocator {
        Some(true) => "blocks agree with the caching allocator's own total",
        Some(false) => "blocks do not agree with the caching allocator's own total",
        None => "no caching allocator's total to compare with",
    }
    .to_owned();
    for (n, what) in [
        (c.frees_without_allocation, "free of memory whose allocation was not seen"),
        (c.allocations_without_free, "allocation where the free before it was not seen"),
        (c.dropped_events, "events lost"),
    ] {
        if n > 0 {
            text.push_str(&format!("; {} {what}", grouped(n)));
        }
    }
    text
}

/// The calls that take memory unsaid, if there were any.
pub fn unsaid(c: &Coverage) -> Option<String> {
    let told = c.untracked_calls.iter().map(|m| format!("{} {}", grouped(m.calls), m.entry_point));
    let told = told.collect::<Vec<_>>().join(", ");
    (!told.is_empty()).then(|| clean(&told))
}
