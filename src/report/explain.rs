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

/// The finding in one sentence.
pub fn sentence(f: &Finding, sites: &[Site], cwd: &str) -> String {
    if f.kind == Kind::Growing {
        return unseen(f);
    }
    let main = sites.first();
    let mut who = place(main.and_then(|s| s.allocated_at.as_ref()), cwd);
    if main.is_some_and(|s| s.backward_of.is_some() && s.backward_of == s.allocated_at) {
        who.push_str(", in its backward pass,");
    }
    let mut places: Vec<Option<&Place>> = sites.iter().map(|s| s.allocated_at.as_ref()).collect();
    places.dedup();
    places.sort_by_key(|p| p.map(|p| (&p.file, p.line)));
    places.dedup();
    let (others, keep, these) = match places.len() {
        0 | 1 => (String::new(), "keeps", "this line"),
        n => (format!(" and {}", count((n - 1) as f64, "more line")), "keep", "these lines"),
    };
    let noun = match f.layer {
        Layer::Block => "block",
        Layer::Driver => "driver allocation",
        Layer::Host => "pinned host allocation",
        Layer::Borrowed => "borrowed allocation",
    };
    let bytes = match f.bytes_per_step {
        b if b < 1024.0 => size(b),
        b => format!("{}, {} B", size(b), grouped(b.round() as u64)),
    };
    let amount = format!("{} ({bytes})", count(f.blocks_per_step, noun));
    let rhythm = if f.adding_share >= 0.995 {
        "of every step".to_owned()
    } else if f.adding_share >= 0.5 {
        format!("of {:.0} % of the steps", f.adding_share * 100.0)
    } else {
        format!("of about every {:.0}th step", 1.0 / f.adding_share.max(1e-9))
    };
    let held = format!(
        "{noun}s of {} of the {} steps since step {} are still held",
        grouped(u64::from(f.cohorts)),
        grouped(u64::from(f.span)),
        grouped(u64::from(f.oldest_step)),
    );
    let why = match (f.confidence, f.longest_life) {
        (Confidence::Likely, _) => format!("and nothing that {these} allocated was ever freed"),
        (Confidence::Confirmed, 0) => {
            format!("while the others of {these} were all freed in the step that made them")
        }
        (Confidence::Confirmed, life) => {
            let life = count(f64::from(life), "step");
            format!("while no other of {these} that was freed lived longer than {life}")
        }
    };
    format!("{who}{others} {keep} {amount} {rhythm}: {held}, {why}. This is a leak.")
}
