//! The explanation of a finding: one sentence on what happens, since when, and why it is a leak or is none; and its reason
//! alone, for who shows the line and the figures beside it.

use std::cmp::Ordering;

use super::labels::{is_every_step, lines, steps_of, with_others};
use super::non_leaks::doubled;
use super::{count, exact, grouped, is_garbage, location, ordinal, place, size};
use crate::ledger::Layer;
use crate::ledger::verdict::{Confidence, Finding, Kind};
use crate::report::{Holder, Site};

/// Explains a finding in one sentence. `cwd`: the program's working directory, which paths are relative to.
pub fn explanation(f: &Finding, sites: &[Site], holders: &[Holder], cwd: &str) -> String {
    match f.kind {
        Kind::Growing if f.sites.is_empty() => unattributed(f),
        Kind::Leak | Kind::Growing if f.renewed => reallocated(f, sites, holders, cwd),
        Kind::Growing if f.doubling => arena(f, sites, cwd),
        Kind::Leak | Kind::Growing | Kind::LastLoop => grows(f, sites, holders, cwd),
        Kind::AfterLast => after_last(f, sites, cwd),
        Kind::PendingGc => pending(f, sites, cwd),
        Kind::Residue => residue(f, sites, cwd),
        Kind::Fragmentation => fragmentation(f, sites, cwd),
        Kind::CarryOver => carry_over(f, sites, cwd),
        Kind::Periodic if f.layer == Layer::Code && f.period_steps.is_none() => recompiled(f, sites, cwd),
        Kind::Periodic => periodic(f, sites, cwd),
        Kind::WarmUp
        | Kind::Plateau
        | Kind::Cache
        | Kind::LargerInputs
        | Kind::Doubling
        | Kind::Gathered
        | Kind::Spike
        | Kind::ReservedGrowth => non_leak(f, sites, cwd),
    }
}

/// Returns why a finding is what it is, without its line and its figures.
pub fn why(f: &Finding, sites: &[Site], holders: &[Holder], cwd: &str) -> String {
    let Subject { these, .. } = subject(sites, cwd);
    match f.kind {
        Kind::Growing if f.sites.is_empty() => UNEXPLAINED.to_owned(),
        Kind::Leak | Kind::Growing if f.renewed => format!(
            "{}. No block is old, but the lowest level of live memory keeps rising. {}",
            renewed(f),
            renewed_bound(f, holders)
        ),
        Kind::Growing if f.doubling => doubles(f),
        Kind::Leak if f.confidence == Confidence::Confirmed => format!("{}.{}", grounds(f, these), unbounded(f)),
        Kind::Leak | Kind::Growing | Kind::LastLoop => {
            format!("{}. {}", grounds(f, these), bound(f, holders))
        }
        Kind::AfterLast => format!("{}.", turns(f)),
        Kind::PendingGc => garbage(f),
        Kind::Residue if f.confidence == Confidence::Confirmed => format!(
            "{} of what was allocated together were freed in step {}, and these were not. Nothing grows.",
            count(f.freed as f64, noun(f.layer)),
            grouped(u64::from(f.evidence_step)),
        ),
        Kind::Residue => format!(
            "set up for the part of the program that was over in step {}, when cached memory was released and other \
             objects were set up; none of it was freed. Nothing grows.",
            grouped(u64::from(f.evidence_step)),
        ),
        Kind::CarryOver => "allocated in one step and freed only in the next one, after its peak.".to_owned(),
        Kind::Fragmentation => {
            "these blocks lie in segments that are otherwise free, and a segment goes back to the driver only as a whole."
                .to_owned()
        }
        _ => explanation(f, sites, holders, cwd),
    }
}

const EVERY_STEP: &str = "about every step";
const LAST_LOOP: &str =
    "That loop ran once, up to the end of the run: what it gathers may be released after it.";
const UNEXPLAINED: &str = "no recorded call allocated it: newly loaded device code, the driver's own buffers, another \
                           process on this device, or an allocation through an unhooked path.";

/// Returns how what is renewed becomes more.
fn renewed(f: &Finding) -> String {
    match renewals(f) {
        when if f.blocks_per_step > 0.0 => {
            format!("each block is replaced by a newer one, and {when} there are more of them")
        }
        when if when == EVERY_STEP => format!("it is reallocated {when}, larger each time"),
        when => format!("it is reallocated, and {when} the new one is larger"),
    }
}

/// Returns when what is renewed becomes more: `about every step`, `about every 20th step`.
fn renewals(f: &Finding) -> String {
    match (1.0 / f.growth_step_ratio.max(1e-9)).round() as u64 {
        0 | 1 => EVERY_STEP.to_owned(),
        n => format!("about every {} step", ordinal(n)),
    }
}

/// Returns what is not known of the growth of what is renewed.
fn renewed_bound(f: &Finding, holders: &[Holder]) -> String {
    match f.kind {
        Kind::Growing => "The run does not show a bound.".to_owned(),
        _ => bound(f, holders),
    }
}

/// Returns what the verdict on growth rests on: which steps left blocks, and how long the others lived.
fn grounds(f: &Finding, these: &str) -> String {
    let (noun, oldest) = (noun(f.layer), grouped(u64::from(f.oldest_step)));
    let since = match f.until_step {
        Some(until) => format!("from step {oldest} to step {}", grouped(u64::from(until))),
        None => format!("since step {oldest}"),
    };
    let span = format!("{} {since}", steps_of(grouped(u64::from(f.span)), true, f.counted.name()));
    // What grows in one phase may leave its last block in the first step of the next one.
    let steps = match f.cohorts.cmp(&f.span) {
        Ordering::Equal => format!("each of the {span}"),
        Ordering::Less => format!("{} of the {span}", grouped(u64::from(f.cohorts))),
        Ordering::Greater => format!("{} steps {since}", grouped(u64::from(f.cohorts))),
    };
    if f.layer == Layer::Code {
        let others = match f.freed {
            0 => format!("none that {these} had compiled was ever released"),
            1 => format!("1 other that {these} had compiled was released"),
            n => format!("{} that {these} had compiled were released", count(n as f64, "other")),
        };
        return format!("{steps} had a program compiled that is still there; {others}");
    }
    if f.ever_later {
        return format!(
            "{steps} left {noun}s that are still live; what {these} allocated is freed, but later and later (by now after {}): \
             more is added than is removed",
            count(f64::from(f.longest_life), "step")
        );
    }
    let others = match (f.freed, f.longest_life) {
        // Other blocks of the same line may come and go.
        (0, _) => {
            let stacks = if f.sites.len() == 1 { "this call stack" } else { "these call stacks" };
            let until = if f.released_later { "freed before that" } else { "ever freed" };
            format!("nothing that {stacks} allocated was {until}")
        }
        (_, 0) => format!("all other {noun}s of {these} were freed in the step that allocated them"),
        (_, life) => {
            format!("all other {noun}s of {these} lived for at most {}", count(f64::from(life), "step"))
        }
    };
    match f.evidence_step {
        0 if f.released_later => {
            format!("{steps} left {noun}s that were still live after the last step; {others}")
        }
        0 => format!("{steps} left {noun}s that are still live; {others}"),
        freed => {
            format!("{steps} left {noun}s that were live until step {}; {others}", grouped(u64::from(freed)))
        }
    }
}

/// Returns why it is certain that a line leaks which frees nothing: only its holder can show that.
fn unbounded(f: &Finding) -> &'static str {
    if f.freed == 0 && f.layer != Layer::Code { " Nothing was seen to bound what holds them." } else { "" }
}

/// Returns what is not known of growth that is no certain leak.
fn bound(f: &Finding, holders: &[Holder]) -> String {
    match f.bound_bytes {
        _ if is_garbage(holders) && f.collector_is_off => {
            "They are in reference cycles that nothing else holds, and garbage collection is switched off \
             (`gc.disable()`): nothing frees them."
                .to_owned()
        }
        _ if is_garbage(holders) => {
            "They are in reference cycles that nothing else holds: only garbage collection frees them."
                .to_owned()
        }
        _ if f.kind == Kind::LastLoop => LAST_LOOP.to_owned(),
        _ if f.kind == Kind::Leak => "Only a cache that is not full yet would look the same.".to_owned(),
        Some(bytes) => format!(
            "What holds them is bounded, but only at about {}, which this device does not have.",
            size(bytes as f64)
        ),
        None if f.evidence_step > 0 => format!(
            "They were freed in step {}, near the end of the run, perhaps because the program was ending.",
            grouped(u64::from(f.evidence_step))
        ),
        // Of what is renewed or freed ever later it says that the growth is irregular.
        None if f.may_end && !f.renewed && !f.ever_later => LAST_LOOP.to_owned(),
        None => "The run is too short or too irregular to tell whether there is a bound.".to_owned(),
    }
}

/// Returns how what came after the last step did so.
fn turns(f: &Finding) -> String {
    format!(
        "these {}s were allocated {} after step {}, each time after others that were freed, and are still live. No step was seen there, \
         so nothing shows whether it goes on",
        noun(f.layer),
        count(f64::from(f.cohorts), "time"),
        grouped(u64::from(f.evidence_step)),
    )
}

fn garbage(f: &Finding) -> String {
    match f.longest_life {
        0 if f.collector_is_off => "reference cycles that nothing else holds keep them, and garbage collection is switched \
                                    off (`gc.disable()`): nothing frees them."
            .to_owned(),
        0 => "reference cycles that nothing else holds keep them, and no garbage collection has freed them yet."
            .to_owned(),
        _ => format!(
            "they are in reference cycles: only garbage collection frees them, up to {} later.",
            count(f64::from(f.longest_life), "step")
        ),
    }
}

/// Explains growth of memory in use that no recorded call accounts for.
fn unattributed(f: &Finding) -> String {
    format!(
        "device {}: unattributed memory in use grew by {} over {}, {} per step on average. No recorded call allocated \
         it: newly loaded device code, the driver's own buffers, another process on this device, or an allocation \
         through an unhooked path.",
        f.device,
        size(f.live_bytes as f64),
        count(f64::from(f.span), "step"),
        size(f.growth_bytes_per_step.round()),
    )
}

/// The lines of a finding as the subject of a sentence.
struct Subject {
    name: String,
    plural: bool,
    /// `this line`, `these lines`
    these: &'static str,
}

fn subject(sites: &[Site], cwd: &str) -> Subject {
    let first = sites.first();
    let mut main = first.map_or_else(|| location(None, cwd), |s| place(s, cwd));
    if first.is_some_and(|s| s.forward_site.is_some() && s.forward_site == s.allocated_at) {
        main.push_str(", in its backward pass,");
    }
    let plural = lines(sites) > 1;
    let these = if plural { "these lines" } else { "this line" };
    Subject { name: with_others(main, sites), plural, these }
}

fn noun(layer: Layer) -> &'static str {
    match layer {
        Layer::Block => "block",
        Layer::Driver => "driver allocation",
        Layer::Host => "pinned host allocation",
        Layer::External => "external allocation",
        Layer::Code => "compiled program",
    }
}

/// Returns `2 blocks (64.0 KiB, 65,536 B)`; without bytes where those are not known, without blocks where these are no whole
/// number.
fn amount(blocks: f64, bytes: f64, noun: &str) -> String {
    let bytes = match bytes {
        0.0 => return count(blocks.round().max(1.0), noun),
        b if blocks.fract() != 0.0 => return exact(b.round()),
        b if b < 1024.0 => size(b),
        b => format!("{}, {} B", size(b), grouped(b.round() as u64)),
    };
    format!("{} ({bytes})", count(blocks, noun))
}

/// Returns ` (between 4.0 KiB and 6.5 KiB, …)`; nothing where every step adds as much.
fn interval(f: &Finding) -> String {
    match f.bytes_interval.map(|bounds| bounds.map(size)) {
        Some([low, high]) if low != high => format!(" (between {low} and {high}, at 95 % confidence)"),
        _ => String::new(),
    }
}

/// Returns `of every step`, `of about every 10th step`, `of 80 % of the steps`.
fn frequency(f: &Finding) -> String {
    if is_every_step(f.growth_step_ratio) {
        return "of every step".to_owned();
    }
    if f.growth_step_ratio >= 0.5 {
        return format!("of {:.0} % of the steps", f.growth_step_ratio * 100.0);
    }
    format!("of about every {} step", ordinal((1.0 / f.growth_step_ratio.max(1e-9)).round() as u64))
}

fn grows(f: &Finding, sites: &[Site], holders: &[Holder], cwd: &str) -> String {
    let Subject { name, plural, these } = subject(sites, cwd);
    let keep = if plural { "keep" } else { "keeps" };
    let verdict = match (f.kind, f.confidence) {
        (Kind::Leak, Confidence::Confirmed) => format!("This is a leak.{}", unbounded(f)),
        (Kind::Leak, Confidence::Likely) => format!("This is likely a leak. {}", bound(f, holders)),
        _ => bound(f, holders),
    };
    let amount = amount(f.blocks_per_step, f.bytes_per_step, noun(f.layer));
    let grounds = grounds(f, these);
    format!("{name} {keep} {amount} {}{}: {grounds}. {verdict}", frequency(f), interval(f))
}

fn reallocated(f: &Finding, sites: &[Site], holders: &[Holder], cwd: &str) -> String {
    let Subject { name, .. } = subject(sites, cwd);
    format!(
        "{name}: {}, by {}; {} by now. No block is old, but the lowest level of live memory keeps rising. {}",
        renewed(f),
        exact(f.bytes_per_step),
        size(f.live_bytes as f64),
        renewed_bound(f, holders),
    )
}

/// Explains the growth of an arena.
fn arena(f: &Finding, sites: &[Site], cwd: &str) -> String {
    let Subject { name, .. } = subject(sites, cwd);
    format!(
        "{name} uses up about {} in each step, {} by now: {}",
        exact(f.bytes_per_step.round()),
        size(f.live_bytes as f64),
        doubles(f)
    )
}

fn doubles(f: &Finding) -> String {
    format!(
        "memory is taken in larger and larger pieces (the latest of {} in step {}), none of it was ever freed, and each piece \
         lasted in proportion to its size. What they are divided into is not seen, and the run does not show a bound.",
        grouped(u64::from(f.cohorts)),
        grouped(u64::from(f.evidence_step)),
    )
}

fn after_last(f: &Finding, sites: &[Site], cwd: &str) -> String {
    let Subject { name, plural, .. } = subject(sites, cwd);
    let keep = if plural { "keep" } else { "keeps" };
    let amount = amount(f.live_blocks as f64, f.live_bytes as f64, noun(f.layer));
    format!("{name} {keep} {amount}: {}.", turns(f))
}

fn pending(f: &Finding, sites: &[Site], cwd: &str) -> String {
    let Subject { name, plural, these } = subject(sites, cwd);
    let leave = if plural { "leave" } else { "leaves" };
    let amount = amount(f.blocks_per_step, f.bytes_per_step, noun(f.layer));
    if f.longest_life == 0 {
        let until = if f.collector_is_off {
            "and garbage collection is switched off (`gc.disable()`)"
        } else {
            "waiting for garbage collection"
        };
        return format!(
            "{name} {leave} {amount} {} in reference cycles that nothing else holds, {until}. Break the cycle, and the \
             memory is free at once.",
            frequency(f)
        );
    }
    format!(
        "{name} {leave} {amount} {} in reference cycles: nothing but the garbage collector frees what {these} \
         allocated, up to {} later. It grows only until the next collection; break the cycle, and the memory is free \
         at once.",
        frequency(f),
        count(f64::from(f.longest_life), "step"),
    )
}

fn residue(f: &Finding, sites: &[Site], cwd: &str) -> String {
    let Subject { name, .. } = subject(sites, cwd);
    let step = grouped(u64::from(f.evidence_step));
    let stays = amount(f.live_blocks as f64, f.live_bytes as f64, noun(f.layer));
    match f.confidence {
        Confidence::Confirmed => format!(
            "{name}: {} of what was allocated together were freed in step {step}, but {stays} stayed and are still \
             held. Nothing grows.",
            count(f.freed as f64, noun(f.layer)),
        ),
        Confidence::Likely => format!(
            "{name}: {stays} were set up for the part of the program that was over in step {step}, when cached \
             memory was released and other objects were set up; none of it was freed. Nothing grows.",
        ),
    }
}

fn fragmentation(f: &Finding, sites: &[Site], cwd: &str) -> String {
    let Subject { name, .. } = subject(sites, cwd);
    format!(
        "{} ({}) keep {} of otherwise free segments from being returned to the driver; most of them are from {name}.",
        count(f.live_blocks as f64, "block"),
        size(f.live_bytes as f64),
        size(f.reserved_growth_bytes.unwrap_or(0) as f64),
    )
}

fn carry_over(f: &Finding, sites: &[Site], cwd: &str) -> String {
    let Subject { name, .. } = subject(sites, cwd);
    let (live, die) = if f.blocks_per_step == 1.0 { ("lives", "dies") } else { ("live", "die") };
    format!(
        "{name}: {}{} of one step {live} on into the next and {die} only there, after its peak: without it the \
         peak would be {} lower.",
        amount(f.blocks_per_step, f.bytes_per_step, noun(f.layer)),
        interval(f),
        exact(f.peak_reduction_bytes as f64),
    )
}

fn periodic(f: &Finding, sites: &[Site], cwd: &str) -> String {
    let Subject { name, plural, .. } = subject(sites, cwd);
    let accumulate = if plural { "accumulate" } else { "accumulates" };
    format!(
        "{name} {accumulate} {} per step; every {} as much is released, down to the same floor (sawtooth). This is not a leak.",
        amount(f.blocks_per_step, f.bytes_per_step, noun(f.layer)),
        count(f.period_steps.unwrap_or(0.0), "step"),
    )
}

fn recompiled(f: &Finding, sites: &[Site], cwd: &str) -> String {
    let Subject { name, .. } = subject(sites, cwd);
    format!(
        "{name} compiled {} up to step {}, and nearly all of them were released: that costs time, and no memory.",
        count(f.freed as f64 + f.live_blocks as f64, "program"),
        grouped(u64::from(f.evidence_step)),
    )
}

fn non_leak(f: &Finding, sites: &[Site], cwd: &str) -> String {
    let bytes = size(f.live_bytes as f64);
    let at = || format!("{bytes} at {}", subject(sites, cwd).name);
    if let Some(bound) = f.bound_bytes {
        let steps = (bound.saturating_sub(f.live_bytes) as f64 / f.growth_bytes_per_step).ceil();
        let when = if steps.is_finite() && steps >= 1.0 {
            format!(", in about {}", count(steps, "step"))
        } else {
            String::new()
        };
        return format!(
            "{} in a holder with a bounded number of entries: it will be {} at most{when}.",
            at(),
            size(bound as f64)
        );
    }
    let (step, since) = (grouped(u64::from(f.evidence_step)), grouped(u64::from(f.oldest_step)));
    match f.kind {
        Kind::WarmUp => {
            format!("{bytes} came in the first steps and stayed: parameters, states, workspaces.")
        }
        Kind::Plateau => format!("{} came after the first steps and no more of it since step {step}.", at()),
        Kind::Cache if f.evidence_step == 0 => format!("{}: new ones come less and less often.", at()),
        Kind::Cache => format!("{}: older ones of this line are released.", at()),
        Kind::LargerInputs => {
            format!(
                "{bytes} are reallocated in each step, larger each time, like nearly everything that the steps allocate."
            )
        }
        Kind::Doubling => format!("{}: {}.", at(), doubled(f.evidence_step.into(), f.growth_bytes_per_step)),
        Kind::Gathered => format!(
            "{} grew by {} per step through a loop, joined to one block, copied to the host or released after it.",
            at(),
            size(f.growth_bytes_per_step)
        ),
        Kind::Spike => format!("{bytes} above the floor at step {step}, and back to it."),
        _ => format!(
            "{bytes} more were reserved since step {since}, and no more is in use: some requests found no cached block that was \
             large enough."
        ),
    }
}
