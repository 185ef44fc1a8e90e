//! What looks like a leak and is none, in words: all of it in one sentence, and what is much of the memory in use with its line
//! and its holder. Knows the model; no layout.

use super::labels::{held_by_whom, with_others};
use super::{count, grouped, place, sanitize, size};
use crate::ledger::verdict::{Kind, MIN_COHORTS, is_much};
use crate::report::{Finding, Report};

/// Less than this in all is not worth a word: a number here and there.
const FEW_BYTES: u64 = 1024;
/// What became of what a loop gathers.
const GATHERED: &str = "joined, copied to the host or released after it";

/// Returns what is known of a buffer that is enlarged whenever it is full: when it was last, and by how much a step fills it.
pub fn doubled(step: u64, bytes_per_step: f64) -> String {
    format!(
        "it doubled whenever it was full, the last time in step {}, and about {} per step fill it; this run does not show \
         whether it has a bound",
        grouped(step),
        size(bytes_per_step)
    )
}

/// Names what looks like a leak and is none, equal kinds added up: `9.3 MiB allocated during warm-up`. Empty: all of it is
/// next to nothing.
pub fn non_leaks(findings: &[Finding]) -> String {
    let findings: Vec<&Finding> = findings.iter().filter(|f| f.live_bytes >= FEW_BYTES).collect();
    let mut kinds: Vec<Kind> = findings.iter().map(|f| f.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let of_kind = |kind: &Kind| {
        let of = || findings.iter().filter(|f| f.kind == *kind);
        let bytes = size(of().fold(0u64, |sum, f| sum.saturating_add(f.live_bytes)) as f64);
        let step = of().filter_map(|f| f.evidence_step).max().map_or(0, u64::from);
        match kind {
            Kind::WarmUp => {
                format!("{bytes} allocated during warm-up (weights, optimizer state, workspaces)")
            }
            Kind::Plateau => match of().map(|f| f.cohorts).max().unwrap_or(0) {
                grew if grew as usize >= MIN_COHORTS => format!(
                    "{bytes} allocated after warm-up in {}, none since step {}",
                    count(f64::from(grew), "step"),
                    grouped(step)
                ),
                _ => format!("{bytes} allocated after warm-up, none since step {}", grouped(step)),
            },
            Kind::Cache => format!("{bytes} in caches and bounded containers"),
            Kind::LargerInputs => {
                format!("{bytes} reallocated in each step, larger each time, because the inputs grow")
            }
            Kind::Doubling => format!("{bytes} in buffers that doubled when they were full"),
            Kind::Gathered => format!("{bytes} gathered in a loop, and {GATHERED}"),
            Kind::Spike => format!("{bytes} above the usual level at step {}, freed again", grouped(step)),
            Kind::Periodic => format!("{bytes} in a sawtooth, released every so many steps"),
            _ => format!("{bytes} more reserved by the allocator, although no more is in use"),
        }
    };
    kinds.iter().map(of_kind).collect::<Vec<_>>().join("; ")
}

/// Returns, for what takes much of the memory in use and came over several steps, its line, its holder and why it is none.
pub fn large_non_leaks(report: &Report) -> Vec<String> {
    let live = report.devices.iter().fold(0u64, |sum, d| sum.saturating_add(d.live_bytes));
    let describe = |f: &Finding| {
        if f.live_bytes < FEW_BYTES || !is_much(f.kind, f.cohorts, f.live_bytes, live) {
            return None;
        }
        let held = held_by_whom(f).map_or_else(String::new, |held| format!(", {held}"));
        let at = with_others(place(f.sites.first()?, &report.program.base), &f.sites);
        Some(sanitize(&format!("{} at {at}{held}: {}", size(f.live_bytes as f64), reason(f))))
    };
    report.non_leaks.iter().filter_map(describe).collect()
}

fn reason(f: &Finding) -> String {
    match f.bound_bytes {
        Some(bound) if bound <= f.live_bytes => "what holds it is full".to_owned(),
        Some(bound) => {
            let entries = f.limit.map_or_else(String::new, |limit| {
                format!(", as the program keeps at most {} entries", grouped(limit))
            });
            format!("it can grow to {}{entries}", size(bound as f64))
        }
        None if f.kind == Kind::Doubling => {
            doubled(f.evidence_step.map_or(0, u64::from), f.growth_bytes_per_step)
        }
        None if f.kind == Kind::Gathered => format!(
            "{} per step of a loop, {GATHERED}: a longer loop needs more memory",
            size(f.growth_bytes_per_step)
        ),
        None if f.kind == Kind::Plateau => {
            format!("no more since step {}", grouped(f.evidence_step.map_or(0, u64::from)))
        }
        None if f.evidence_step.is_none() => "new ones come less and less often".to_owned(),
        None => "older ones of this line are released".to_owned(),
    }
}
