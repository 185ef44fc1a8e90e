//! The short labels of a finding: its kind, how sure it is, how fast it grows, what is live, who holds it. Knows the
//! report's model only.

use super::{count, exact, grouped, location, size};
use crate::ledger::verdict::{Confidence, Kind};
use crate::report::{Finding, Site};

const HELD_BY: &str = "held by ";
/// Steps beyond which nobody waits for a device to run out of memory.
const FAR: u64 = 10_000_000;

/// Returns what a kind of finding is called in sentences; its identifier is [`Kind::name`].
pub const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Growing => "possible leak",
        Kind::PendingGc => "waiting for garbage collection",
        Kind::Residue => "left after unload",
        Kind::Periodic => "sawtooth",
        Kind::ReservedGrowth => "reserved growth",
        Kind::Leak
        | Kind::Fragmentation
        | Kind::CarryOver
        | Kind::WarmUp
        | Kind::Plateau
        | Kind::Cache
        | Kind::Spike => kind.name(),
    }
}

/// Returns how sure a verdict is.
pub const fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Confirmed => "confirmed",
        Confidence::Likely => "likely",
    }
}

/// Counts findings by kind: `2 leaks`, `1 leak and 1 possible leak`.
pub fn found(findings: &[Finding]) -> String {
    let mut named: Vec<((&str, &str), f64)> = Vec::new();
    for f in findings {
        let name = match f.kind {
            Kind::Growing if f.sites.is_empty() => ("growth", " of unattributed memory"),
            Kind::PendingGc => ("case", " of memory waiting for garbage collection"),
            Kind::Residue => ("case", " of memory left after unload"),
            other => (kind(other), ""),
        };
        match named.iter_mut().find(|n| n.0 == name) {
            Some(n) => n.1 += 1.0,
            None => named.push((name, 1.0)),
        }
    }
    let mut parts: Vec<String> =
        named.iter().map(|((noun, rest), n)| format!("{}{rest}", count(*n, noun))).collect();
    let last = parts.pop().unwrap_or_default();
    if parts.is_empty() { last } else { format!("{} and {last}", parts.join(", ")) }
}

/// Returns `held by main() local `losses``; a path that names nobody says "held by" itself.
pub fn held_by(path: &str) -> String {
    if path.starts_with(HELD_BY) { path.to_owned() } else { format!("{HELD_BY}{path}") }
}

/// Returns whether a holder's path names an object of the program, not only a kind of code.
pub fn is_named(path: &str) -> bool {
    !path.starts_with(HELD_BY)
}

/// Returns the growth per step; `None` for kinds that have no such figure.
pub fn rate(f: &Finding) -> Option<String> {
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

/// Returns `2.3 MiB (2,457,600 B) in 200 blocks from 200 steps, since step 1`.
pub fn live(f: &Finding) -> String {
    format!(
        "{} in {} from {}, since step {}",
        exact(f.live_bytes as f64),
        block_count(f, f.live_blocks),
        count(f64::from(f.cohorts), "step"),
        grouped(u64::from(f.oldest_step)),
    )
}

/// Returns `200 blocks`, or `200 allocations` of a finding outside a caching allocator.
pub fn block_count(f: &Finding, n: u64) -> String {
    count(n as f64, if f.layer == "block" { "block" } else { "allocation" })
}

/// Returns where a site allocates: the user's line, and the frame of a package below it that tells causes apart.
pub fn place(site: &Site, cwd: &str) -> String {
    let at = location(site.allocated_at.as_ref(), cwd);
    match &site.library_at {
        Some(library) => format!("{at}, in {}", location(Some(library), package_folder(&library.file))),
        None => at,
    }
}

/// Returns the folder that a file's package was installed in.
fn package_folder(file: &str) -> &str {
    file.rfind("-packages/").map_or("", |at| &file[..at + "-packages".len()])
}

/// Returns a site's growth per step, or what it has live where it does not grow.
pub fn site_amount(site: &Site) -> String {
    match site.bytes_per_step {
        bytes if bytes > 0.0 => format!("{} per step", exact(bytes)),
        _ => exact(site.live_bytes as f64),
    }
}

/// Returns what caching allocators reserved from the driver while the finding grew; `None` where it does not grow.
pub fn reserved_growth(f: &Finding) -> Option<String> {
    let grows = matches!(f.kind, Kind::Leak | Kind::Growing);
    let bytes = f.reserved_growth_bytes.filter(|_| grows)?;
    let grown = f.growth_bytes_per_step * f64::from(f.cohorts.max(1));
    Some(if bytes > 0 && bytes as f64 >= 0.5 * grown.min(f.live_bytes as f64) {
        format!("the memory reserved from the driver grew by {} meanwhile", size(bytes as f64))
    } else {
        "no growth in reserved memory yet (served from the cache)".to_owned()
    })
}

/// Returns when the device runs out of memory, if anybody will see that.
pub fn time_to_oom(f: &Finding) -> Option<String> {
    let steps = f.steps_to_oom.filter(|&steps| steps < FAR)?;
    Some(format!("out of memory in about {}", count(steps as f64, "more step")))
}
