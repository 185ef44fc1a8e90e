//! Plain words: the one sentence about a finding, sizes and places for people.

use super::{Place, Site};
use crate::ledger::Layer;
use crate::ledger::verdict::{Confidence, Finding, Kind};

/// Bytes for people: `512 B`, `72.0 KiB`, `1.5 GiB`.
pub fn size(bytes: f64) -> String {
    let mut value = bytes;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 || unit == "TiB" {
            return if unit == "B" && value.fract() == 0.0 {
                format!("{value:.0} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    String::new()
}

/// A number with its thousands apart: `282,112`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `512 B`, or `72.0 KiB (73,728 B)` where the unit rounds.
pub fn exact(bytes: f64) -> String {
    if bytes < 1024.0 {
        size(bytes)
    } else {
        format!("{} ({} B)", size(bytes), grouped(bytes.round() as u64))
    }
}

/// `1 block`, `2 blocks`, `1.5 blocks`.
pub fn count(n: f64, noun: &str) -> String {
    let plural = if n == 1.0 { "" } else { "s" };
    let n = if n.fract() == 0.0 { grouped(n as u64) } else { format!("{n:.1}") };
    format!("{n} {noun}{plural}")
}

/// A path as people want it: relative to the directory the program ran in.
pub fn short<'p>(file: &'p str, cwd: &str) -> &'p str {
    let cwd = cwd.trim_end_matches('/');
    match file.strip_prefix(cwd).and_then(|rest| rest.strip_prefix('/')) {
        Some(rest) if !cwd.is_empty() && !rest.is_empty() => rest,
        _ => file,
    }
}

/// `train.py:37 cross_entropy_loss`.
pub fn place(place: Option<&Place>, cwd: &str) -> String {
    let Some(p) = place else { return "an unknown place (no stack was taken)".to_owned() };
    match p.line {
        Some(line) => format!("{}:{line} {}", short(&p.file, cwd), p.function),
        None => p.function.clone(),
    }
}

/// What grows where nothing was seen.
fn unseen(f: &Finding) -> String {
    format!(
        "device {}: memory in use that cannot be attributed grew by {} over {}, {} per step on average. Nothing that \
         leaktrace sees asked for it: device code loaded anew, the driver's own buffers, another process on this \
         device, or an allocation past its doors.",
        f.device,
        size(f.live_bytes as f64),
        count(f64::from(f.span), "step"),
        size(f.growth_bytes_per_step.round()),
    )
}

/// The lines of a finding as the subject of a sentence: who, whether they are several, and how to speak of them.
struct Who {
    subject: String,
    several: bool,
    these: &'static str,
}

fn who(sites: &[Site], cwd: &str) -> Who {
    let first = sites.first();
    let mut main = place(first.and_then(|s| s.allocated_at.as_ref()), cwd);
    if first.is_some_and(|s| s.forward_site.is_some() && s.forward_site == s.allocated_at) {
        main.push_str(", in its backward pass,");
    }
    let mut places: Vec<Option<&Place>> = sites.iter().map(|s| s.allocated_at.as_ref()).collect();
    places.sort_by_key(|p| p.map(|p| (&p.file, p.line)));
    places.dedup();
    match places.len() {
        0 | 1 => Who { subject: main, several: false, these: "this line" },
        n => {
            let subject = format!("{main} and {}", count((n - 1) as f64, "more line"));
            Who { subject, several: true, these: "these lines" }
        }
    }
}

fn noun(layer: Layer) -> &'static str {
    match layer {
        Layer::Block => "block",
        Layer::Driver => "driver allocation",
        Layer::Host => "pinned host allocation",
        Layer::External => "borrowed allocation",
    }
}

/// `2 blocks (64.0 KiB, 65,536 B)`
fn amount(blocks: f64, bytes: f64, noun: &str) -> String {
    let bytes = match bytes {
        b if b < 1024.0 => size(b),
        b => format!("{}, {} B", size(b), grouped(b.round() as u64)),
    };
    format!("{} ({bytes})", count(blocks, noun))
}

/// ` (between 4.0 KiB and 6.5 KiB)`, where that is no point.
fn give_or_take(f: &Finding) -> String {
    match f.bytes_interval.map(|bounds| bounds.map(size)) {
        Some([low, high]) if low != high => format!(" (between {low} and {high}, at 95 % confidence)"),
        _ => String::new(),
    }
}

/// `of every step`, `of every 10th step`, `of 40 % of the steps`.
fn rhythm(f: &Finding) -> String {
    if f.growth_step_ratio >= 0.995 {
        return "of every step".to_owned();
    }
    if f.growth_step_ratio >= 0.5 {
        return format!("of {:.0} % of the steps", f.growth_step_ratio * 100.0);
    }
    format!("of about every {} step", ordinal((1.0 / f.growth_step_ratio.max(1e-9)).round() as u64))
}

fn ordinal(n: u64) -> String {
    let ending = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{}{ending}", grouped(n))
}

/// The finding in one sentence.
pub fn sentence(f: &Finding, sites: &[Site], cwd: &str) -> String {
    match f.kind {
        Kind::Growing if f.sites.is_empty() => unseen(f),
        Kind::Leak | Kind::Growing if f.renewed => renewed(f, sites, cwd),
        Kind::Leak | Kind::Growing => grows(f, sites, cwd),
        Kind::PendingGc => pending(f, sites, cwd),
        Kind::Residue => residue(f, sites, cwd),
        Kind::Fragmentation => fragmentation(f, sites, cwd),
        Kind::CarryOver => carry_over(f, sites, cwd),
        Kind::Periodic => periodic(f, sites, cwd),
        Kind::WarmUp | Kind::Plateau | Kind::Cache | Kind::Spike | Kind::ReservedGrowth => benign(f),
    }
}

fn grows(f: &Finding, sites: &[Site], cwd: &str) -> String {
    let Who { subject, several, these } = who(sites, cwd);
    let noun = noun(f.layer);
    let keep = if several { "keep" } else { "keeps" };
    let held = format!(
        "{noun}s of {} of the {} steps since step {} are still held",
        grouped(u64::from(f.cohorts)),
        grouped(u64::from(f.span)),
        grouped(u64::from(f.oldest_step)),
    );
    let why = match (f.freed, f.longest_life) {
        (0, _) => format!("and nothing that {these} allocated was ever freed"),
        (_, 0) => {
            format!("while the others of {these} were all freed in the step that made them")
        }
        (_, life) => {
            let life = count(f64::from(life), "step");
            format!("while no other of {these} that was freed lived longer than {life}")
        }
    };
    let late = grouped(u64::from(f.evidence_step));
    let verdict = match f.kind {
        Kind::Leak => "This is a leak.".to_owned(),
        _ if f.bound_bytes.is_some() => format!(
            "Its holder is bounded, but only at about {}, which this device does not have.",
            size(f.bound_bytes.unwrap_or(0) as f64)
        ),
        _ if f.evidence_step > 0 => {
            format!("They were let go only in step {late}, at the end: until then this grew without a bound.")
        }
        _ => {
            "It grows, and the run is too short or too irregular to tell whether there is a bound.".to_owned()
        }
    };
    let amount = amount(f.blocks_per_step, f.bytes_per_step, noun);
    format!("{subject} {keep} {amount} {}{}: {held}, {why}. {verdict}", rhythm(f), give_or_take(f))
}

fn renewed(f: &Finding, sites: &[Site], cwd: &str) -> String {
    let Who { subject, .. } = who(sites, cwd);
    format!(
        "{subject} makes its memory anew every step or so and each time {} more, {} by now: no block is old, but the \
         floor rises all the time, and the run does not show a bound.",
        exact(f.bytes_per_step),
        size(f.live_bytes as f64),
    )
}

fn pending(f: &Finding, sites: &[Site], cwd: &str) -> String {
    let Who { subject, several, these } = who(sites, cwd);
    let leave = if several { "leave" } else { "leaves" };
    let amount = amount(f.blocks_per_step, f.bytes_per_step, noun(f.layer));
    if f.freed == 0 {
        return format!(
            "{subject} {leave} {amount} {} in reference cycles that nothing else holds: garbage, but the collector has \
             not come for it. Break the cycle, and the memory is free at once.",
            rhythm(f)
        );
    }
    format!(
        "{subject} {leave} {amount} {} in reference cycles: nothing but the garbage collector frees what {these} \
         allocated, up to {} later. It grows only until the next collection; break the cycle, and the memory is free \
         at once.",
        rhythm(f),
        count(f64::from(f.longest_life), "step"),
    )
}

fn residue(f: &Finding, sites: &[Site], cwd: &str) -> String {
    let Who { subject, .. } = who(sites, cwd);
    let step = grouped(u64::from(f.evidence_step));
    let stays = amount(f.live_blocks as f64, f.live_bytes as f64, noun(f.layer));
    match f.confidence {
        Confidence::Confirmed => format!(
            "{subject}: {} of what was allocated together were freed in step {step}, but {stays} stayed and are still \
             held. Nothing grows.",
            count(f.freed as f64, noun(f.layer)),
        ),
        Confidence::Likely => format!(
            "{subject}: {stays} were set up for the part of the program that was over in step {step}, when cached \
             memory was given back and other things were set up; none of it was freed. Nothing grows.",
        ),
    }
}

fn fragmentation(f: &Finding, sites: &[Site], cwd: &str) -> String {
    let Who { subject, .. } = who(sites, cwd);
    format!(
        "{} ({}) keep {} of segments that are otherwise empty from going back to the driver; most of them are from \
         {subject}.",
        count(f.live_blocks as f64, "block"),
        size(f.live_bytes as f64),
        size(f.reserved_growth_bytes.unwrap_or(0) as f64),
    )
}

fn carry_over(f: &Finding, sites: &[Site], cwd: &str) -> String {
    let Who { subject, .. } = who(sites, cwd);
    let (live, die) = if f.blocks_per_step == 1.0 { ("lives", "dies") } else { ("live", "die") };
    format!(
        "{subject}: {}{} of one step {live} on into the next and {die} only there, after its peak. Nothing grows, but \
         without it the peak would be {} lower.",
        amount(f.blocks_per_step, f.bytes_per_step, noun(f.layer)),
        give_or_take(f),
        exact(f.peak_reduction_bytes as f64),
    )
}

fn periodic(f: &Finding, sites: &[Site], cwd: &str) -> String {
    let Who { subject, several, .. } = who(sites, cwd);
    let gather = if several { "gather" } else { "gathers" };
    format!(
        "{subject} {gather} {} per step and lets all of it go every {}, down to the same floor. This is no leak.",
        amount(f.blocks_per_step, f.bytes_per_step, noun(f.layer)),
        count(f.period_steps.unwrap_or(0.0), "step"),
    )
}

fn benign(f: &Finding) -> String {
    let bytes = size(f.live_bytes as f64);
    if let Some(bound) = f.bound_bytes {
        return format!(
            "{bytes} in a holder that keeps so many entries and no more: it will be {} at most.",
            size(bound as f64)
        );
    }
    let (step, since) = (grouped(u64::from(f.evidence_step)), grouped(u64::from(f.oldest_step)));
    match f.kind {
        Kind::WarmUp => {
            format!("{bytes} came in the first steps and stayed: parameters, states, work spaces.")
        }
        Kind::Plateau => format!("{bytes} came after the first steps and no more of it since step {step}."),
        Kind::Cache => format!(
            "{bytes} in a stock that is renewed or fills up ever more slowly: nothing in it outlives what it lets go."
        ),
        Kind::Spike => format!("{bytes} above the floor at step {step}, and back to it."),
        _ => format!(
            "{bytes} more were reserved since step {since} though no more was live: requests that found no cached block \
             large enough."
        ),
    }
}
