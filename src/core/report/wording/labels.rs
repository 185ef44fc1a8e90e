//! The short labels of a finding: its kind, how sure it is, how fast it grows, what is live, who holds it. Knows the
//! report's model only.

use std::fmt::Display;

use super::{count, grouped, location, size};
use crate::ledger::Layer;
use crate::ledger::verdict::{Confidence, Kind};
use crate::report::{Finding, Holder, Location, Site};

const HELD_BY: &str = "held by ";
const RECOMPILATION: &str = "recompilation";
/// What separates two objects of a holder's path that are no attribute or entry of each other.
const LEADS_TO: &str = " → ";
/// What stands between a function and the name of its variable.
const LOCAL: &str = " local `";
/// A holder has little if another has so many times as many blocks, and another so many times as many bytes.
const LITTLE: u64 = 8;
/// The mean of what steps add is told beside what most add if they differ by more than this share.
const UNEVEN: f64 = 0.1;
/// The sizes of what steps add are different, and none is that of most, if the interval of their median is as wide as this.
const DIFFERENT: f64 = 1.05;
/// What a step adds and the mean over all steps are one figure if they differ by no more than this share.
const SAME: f64 = 0.02;
/// Steps beyond which nobody waits for a device to run out of memory: a day of steps of one second each.
const FAR: u64 = 86_400;
/// How the path of garbage begins.
const GARBAGE: &str = "garbage waiting for the cyclic collector: ";

/// Returns what a kind of finding is called in sentences; its identifier is [`Kind::name`].
pub const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Growing => "possible leak",
        Kind::PendingGc => "waiting for garbage collection",
        Kind::Residue => "left after unload",
        Kind::LastLoop => "growth in the last loop",
        Kind::AfterLast => "growth after the last step",
        Kind::Periodic => "sawtooth",
        Kind::LargerInputs => "larger inputs",
        Kind::Doubling => "doubling buffer",
        Kind::ReservedGrowth => "reserved growth",
        Kind::Leak
        | Kind::Fragmentation
        | Kind::CarryOver
        | Kind::WarmUp
        | Kind::Plateau
        | Kind::Cache
        | Kind::Gathered
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
            Kind::LastLoop => ("growth", " in the last loop"),
            Kind::AfterLast => ("growth", " after the last step"),
            Kind::Periodic if recompiles(f) => (RECOMPILATION, ""),
            Kind::PendingGc => ("case", " of memory waiting for garbage collection"),
            Kind::Residue => ("case", " of memory left after unload"),
            Kind::Leak if f.confidence == Confidence::Likely => ("likely leak", ""),
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

/// Returns ``held by `losses[*]` in main()``; a path that names nobody says "held by" itself.
pub fn held_by(path: &str) -> String {
    if path.starts_with(HELD_BY) { path.to_owned() } else { format!("{HELD_BY}{}", holder(path)) }
}

/// Returns a holder's path as text names it: `` `history.losses[*]` in train() ``, without "held by".
pub fn holder(path: &str) -> String {
    let (first, rest) = path.split_at(path.find(LEADS_TO).unwrap_or(path.len()));
    if let Some((function, local)) = first.split_once(LOCAL)
        && let Some((name, entries)) = local.split_once('`')
    {
        return format!("`{name}{entries}` in {function}{rest}");
    }
    match first.strip_prefix("__main__.") {
        Some(name) if !name.contains(' ') => format!("`{name}` in __main__{rest}"),
        None if is_named(path) && !first.contains([' ', '`']) => format!("`{first}`{rest}"),
        _ => path.strip_prefix(HELD_BY).unwrap_or(path).to_owned(),
    }
}

/// Returns what the paths of several holders have in common, in whole names, those aside that have little; empty:
/// nothing, or there is one holder.
pub fn common_path<'h>(holders: &[&'h Holder]) -> &'h str {
    let holders = with_much(holders);
    let [first, others @ ..] = &holders[..] else { return "" };
    let first = first.path.as_str();
    if others.is_empty() || !holders.iter().all(|h| is_named(&h.path)) {
        return "";
    }
    let alike = |other: &&Holder| first.bytes().zip(other.path.bytes()).take_while(|(a, b)| a == b).count();
    let most = others.iter().map(alike).min().unwrap_or(0);
    // A name ends before an attribute, an entry, or what it leads to, and never between its quotes; the function alone is no
    // holder.
    let variable = first.find(LOCAL).map_or(0, |at| at + LOCAL.len() + 1);
    let ends = |at: &usize| {
        let rest = |h: &&Holder| {
            h.path
                .get(*at..)
                .is_some_and(|r| r.is_empty() || r.starts_with(['.', '[']) || r.starts_with(LEADS_TO))
        };
        // Several ways from one place begin with a dot each.
        let is_end = |path: &str| is_whole(path) && !path.ends_with(LEADS_TO);
        holders.iter().all(rest) && first.get(..*at).is_some_and(is_end)
    };
    let end = (variable.max(1)..=most.min(first.len())).rev().find(ends).unwrap_or(0);
    let common = &first[..end];
    if common == "__main__" { "" } else { common }
}

/// Returns whether a part of a path ends neither within a variable's name nor within a key, which may have a quote.
fn is_whole(text: &str) -> bool {
    let times = |mark: &str| text.matches(mark).count();
    times("`").is_multiple_of(2) && times("['") == times("']")
}

/// Returns the holders that do not have little.
fn with_much<'h>(holders: &[&'h Holder]) -> Vec<&'h Holder> {
    let blocks = holders.iter().map(|h| h.blocks).max().unwrap_or(0);
    let bytes = holders.iter().map(|h| h.bytes).max().unwrap_or(0);
    let has_much = |h: &&Holder| h.blocks >= blocks / LITTLE || h.bytes >= bytes / LITTLE;
    holders.iter().copied().filter(has_much).collect()
}

/// Returns the holders that a few words are of. Where something grows, that are those which can grow for ever: a `deque` with
/// a bound that has the same blocks is no cause.
pub(super) fn keepers(f: &Finding) -> Vec<&Holder> {
    let all: Vec<&Holder> = f.holders.iter().collect();
    let can_grow = |h: &&Holder| matches!(h.retention, Some("unbounded" | "unreachable"));
    let gathers = f.kind.grows() || f.kind == Kind::AfterLast;
    if gathers && with_much(&all).iter().any(can_grow) {
        return all.into_iter().filter(can_grow).collect();
    }
    all
}

/// Returns the path that a finding's holder is called by in a few words: that of the first one, or what several have in
/// common; `None`: nothing of the program is known to hold it.
pub(super) fn called(f: &Finding) -> Option<&str> {
    let keepers = keepers(f);
    match common_path(&keepers) {
        "" => keepers.first().map(|h| h.path.as_str()).filter(|path| is_named(path)),
        common => Some(common),
    }
}

/// Returns who holds a finding, in a few words.
pub fn held_by_whom(f: &Finding) -> Option<String> {
    called(f).map(held_by)
}

/// Returns whether it is garbage that has most of what holders have.
pub fn is_garbage(holders: &[Holder]) -> bool {
    holders.first().is_some_and(|h| h.path.starts_with(GARBAGE))
}

/// Returns whether a holder's path names an object of the program, not only a kind of code.
pub fn is_named(path: &str) -> bool {
    !path.starts_with(HELD_BY)
}

/// Returns `a new program is compiled in 1 of 3 steps`.
fn compiles(f: &Finding, compiled: &str) -> String {
    let programs = match f.blocks_per_step.round() {
        n if n > 1.0 => format!("{} are", count(n, "new program")),
        _ => "a new program is".to_owned(),
    };
    let when = match f.growth_step_ratio {
        all if is_every_step(all) => "each step".to_owned(),
        most if most >= 0.5 => format!("{:.0} % of the steps", most * 100.0),
        few => format!("1 of {:.0} steps", (1.0 / few.max(1e-9)).round()),
    };
    format!("{programs} {compiled} in {when}")
}

/// Returns whether programs are compiled again and again, each of which is released soon.
fn recompiles(f: &Finding) -> bool {
    f.kind == Kind::Periodic && f.period_steps.is_none() && is_code(f)
}

/// Returns `2 compiled programs per step, released every 15 steps`: what they take may not be known. Where each is released
/// soon, `a new program is compiled and released in each step`.
fn compiles_and_releases(f: &Finding) -> String {
    if recompiles(f) {
        return compiles(f, "compiled and released");
    }
    let (programs, period) = (f.blocks_per_step.round().max(1.0), f.period_steps.unwrap_or(0.0).round());
    format!("{} per {}, released every {}", count(programs, noun(f)), step(f), count(period, "step"))
}

/// Returns the growth per step; `None` for kinds that have no such figure.
pub fn rate(f: &Finding) -> Option<String> {
    match f.kind {
        Kind::Leak | Kind::Growing if is_code(f) => return Some(compiles(f, "compiled")),
        Kind::Periodic if is_code(f) => return Some(compiles_and_releases(f)),
        _ => {}
    }
    let (per_step, mean, step) = (size(f.bytes_per_step), size(f.growth_bytes_per_step.round()), step(f));
    Some(match f.kind {
        kind if kind.grows()
            && let Some(late) = late(f) =>
        {
            format!("{mean} per {step} on average{late}")
        }
        kind if kind.grows() && !is_plain(f) => match in_most(f) {
            // What most steps add may be of another line than the one that is named.
            Some(_) if f.sites.len() > 1 => format!("{mean} per {step} on average"),
            Some(most) => format!("{per_step} {most} {}, {mean} per {step} on average", adding_steps(f)),
            None => format!("{per_step} in {}, {mean} per {step} on average", adding_share(f)),
        },
        Kind::PendingGc if !is_every_step(f.growth_step_ratio) => {
            format!("{per_step} in {}", adding_share(f))
        }
        Kind::Leak | Kind::Growing | Kind::LastLoop | Kind::PendingGc | Kind::Periodic => {
            format!("{per_step} per {step}")
        }
        _ => return None,
    })
}

/// Returns what a step has added of late, where steps add more and more: ` (11.0 KiB of late)`.
fn late(f: &Finding) -> Option<String> {
    f.late_bytes_per_step.map(|late| format!(" ({} of late)", size(late)))
}

/// Returns whether this share of the steps is all of them, as far as a report tells.
pub(super) fn is_every_step(share: f64) -> bool {
    share >= 0.995
}

/// Returns the steps of which the figures are: `step`, `training step` or `step outside training`.
fn step(f: &Finding) -> String {
    steps_of("", false, f.counted_steps)
}

/// Returns so many steps of a kind: `156 training steps`.
pub(super) fn steps_of(n: impl Display, plural: bool, counted: &str) -> String {
    let s = if plural { "s" } else { "" };
    let text = match counted {
        "training" => format!("{n} training step{s}"),
        "other" => format!("{n} step{s} outside training"),
        _ => format!("{n} step{s}"),
    };
    text.trim_start().to_owned()
}

fn adding_steps(f: &Finding) -> String {
    let steps = steps_of("", true, f.counted_steps);
    if is_every_step(f.growth_step_ratio) { steps } else { format!("{steps} that add") }
}

/// Returns `15 % of the steps`: those that add something.
fn adding_share(f: &Finding) -> String {
    let percent = (100.0 * f.growth_step_ratio).round().max(1.0);
    format!("{percent:.0} % of the {}", steps_of("", true, f.counted_steps))
}

/// Returns whether some steps add so much more, or less, than most that the mean over those that add is another figure.
fn is_uneven(f: &Finding) -> bool {
    if f.growth_step_ratio <= 0.0 {
        return false;
    }
    let (usual, mean) = (f.bytes_per_step, f.growth_bytes_per_step / f.growth_step_ratio);
    mean > 0.0 && (mean - usual).abs() > UNEVEN * usual.max(mean)
}

/// Returns how many of the steps that add something add the median; where each adds another size, that is no more than this.
/// `None`: each adds as much.
fn in_most(f: &Finding) -> Option<&'static str> {
    let differs = |[low, high]: [f64; 2]| high > DIFFERENT * low;
    match f.bytes_per_step_interval.is_some_and(differs) {
        true => Some("as the median of"),
        false => is_uneven(f).then_some("in most"),
    }
}

/// Returns whether the mean over all steps is what one step adds, as far as a report tells. Of calls that overlap two may
/// add in one step, and none in another.
fn is_plain(f: &Finding) -> bool {
    let (usual, mean) = (f.bytes_per_step, f.growth_bytes_per_step);
    let is_every = is_every_step(f.growth_step_ratio) && in_most(f).is_none();
    is_every || size(mean.round()) == size(usual) || (mean - usual).abs() <= SAME * usual
}

/// Returns a finding's title in two parts: `Leak (confirmed)`, `12.0 KiB (1 block) per step, 2.3 MiB so far`.
pub fn title(f: &Finding) -> (String, String) {
    let (kind, blocks) = (kind(f.kind), |n: f64| count(n, noun(f)));
    let name = match (f.kind, f.confidence) {
        (Kind::Growing, _) if f.sites.is_empty() => "growth of unattributed memory".to_owned(),
        // A possible leak is never more certain than that.
        (Kind::Growing, _) => kind.to_owned(),
        (Kind::Periodic, _) if recompiles(f) => RECOMPILATION.to_owned(),
        (Kind::LastLoop | Kind::AfterLast, _) => format!("{kind} (not judged)"),
        (Kind::Leak, Confidence::Likely) => "likely leak".to_owned(),
        (_, sure) => format!("{kind} ({})", confidence(sure)),
    };
    let (live, each) = (size(f.live_bytes as f64), size(f.bytes_per_step));
    // What is allocated anew each time, only larger, adds no block; between one block and none lies half a block.
    let adds_blocks = !f.sites.is_empty() && f.blocks_per_step >= 1.0 && f.blocks_per_step.fract() == 0.0;
    let each = if adds_blocks { format!("{each} ({})", blocks(f.blocks_per_step)) } else { each };
    let (mean, step) = (size(f.growth_bytes_per_step.round()), step(f));
    let much = match f.kind {
        Kind::Leak | Kind::Growing if is_code(f) => {
            let bytes = if f.live_bytes > 0 { format!(" ({live})") } else { String::new() };
            format!("{}, {} so far{bytes}", compiles(f, "compiled"), grouped(f.live_blocks))
        }
        Kind::Periodic if is_code(f) => compiles_and_releases(f),
        kind if kind.grows()
            && let Some(late) = late(f) =>
        {
            format!("{mean} per {step} on average{late}, {live} so far")
        }
        kind if kind.grows() && !is_plain(f) => match in_most(f) {
            Some(most) => {
                format!("{each} {most} {}, {mean} per {step} on average, {live} so far", adding_steps(f))
            }
            None => format!("{each} in each {step} that adds, {mean} per {step} on average, {live} so far"),
        },
        Kind::PendingGc if !is_every_step(f.growth_step_ratio) => {
            format!("{each} in each {step} that adds, {live} so far")
        }
        Kind::Leak | Kind::Growing | Kind::LastLoop | Kind::PendingGc => {
            format!("{each} per {step}, {live} so far")
        }
        Kind::Periodic => format!("{each} per {step}, {live} since the last release"),
        Kind::CarryOver => {
            format!("{each}; the peak would be {} lower without it", size(f.peak_reduction_bytes as f64))
        }
        Kind::Fragmentation => {
            let kept = size(f.reserved_growth_bytes.unwrap_or(0) as f64);
            format!(
                "{live} in {} keep {kept} from being returned to the driver",
                blocks(f.live_blocks as f64)
            )
        }
        _ => format!("{live} in {}", blocks(f.live_blocks as f64)),
    };
    (capitalized(&name), much)
}

/// Returns what the memory of a finding is counted in.
fn noun(f: &Finding) -> &'static str {
    match f.layer {
        "block" => "block",
        "code" => "compiled program",
        _ => "allocation",
    }
}

/// Returns whether it is of programs that were compiled, which are counted: what they take may not be known.
fn is_code(f: &Finding) -> bool {
    f.layer == Layer::Code.name()
}

/// Returns a text with its first letter in upper case.
pub fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Returns `200 blocks`, or `200 allocations` of a finding outside a caching allocator.
pub fn block_count(f: &Finding, n: u64) -> String {
    count(n as f64, noun(f))
}

/// Returns where a site allocates: the user's line, and the frame of a package below it that tells causes apart.
pub fn place(site: &Site, cwd: &str) -> String {
    place_in(site.allocated_at.as_ref(), site.library_at.as_ref(), cwd)
}

/// Returns the first of several sites, and how many more lines they are on.
pub(super) fn with_others(first: String, sites: &[Site]) -> String {
    match lines(sites) {
        0 | 1 => first,
        n => format!("{first} and {}", count((n - 1) as f64, "more line")),
    }
}

/// Returns how many lines of the program several sites are on.
pub(super) fn lines(sites: &[Site]) -> usize {
    let mut all: Vec<Option<&Location>> = sites.iter().map(|s| s.allocated_at.as_ref()).collect();
    all.sort_by_key(|p| p.map(|p| (&p.file, p.line)));
    all.dedup();
    all.len()
}

/// Returns the user's line, and the frame of a package that it called.
pub fn place_in(allocated_at: Option<&Location>, library_at: Option<&Location>, cwd: &str) -> String {
    let at = location(allocated_at, cwd);
    match library_at {
        Some(library) => format!("{at}, in {}", location(Some(library), package_folder(&library.file))),
        None => at,
    }
}

/// Returns the folder that a file's package was installed in; empty: it is in none.
pub fn package_folder(file: &str) -> &str {
    file.rfind("-packages/").map_or("", |at| &file[..at + "-packages".len()])
}

/// Returns a site's part of a finding: of the growth per step, or of what is live where nothing grows.
pub fn site_amount(f: &Finding, site: &Site) -> String {
    if is_code(f) {
        return block_count(f, site.live_blocks);
    }
    size(if site.bytes_per_step > 0.0 { site.bytes_per_step } else { site.live_bytes as f64 })
}

/// Returns what a device is called: XLA's plugins have others than GPUs.
pub fn device_word(name: &str) -> &'static str {
    match name {
        "cpu" => "CPU",
        name if name.starts_with("TPU") => "TPU",
        _ => "GPU",
    }
}

/// Returns by how much the memory reserved from the driver grew with the finding; `None` where it does not grow.
pub fn reserved_growth(f: &Finding) -> Option<String> {
    Some(match f.reserved_growth_bytes.filter(|_| f.kind.grows())? {
        bytes if bytes > 0 => {
            let each = f.reserved_bytes_per_step.map(|each| format!(", {} per {}", size(each), step(f)));
            format!("all reserved memory +{}{}", size(bytes as f64), each.unwrap_or_default())
        }
        // How another framework comes by its memory may not be seen.
        _ if f.sites.first().is_some_and(|site| site.entry_point.is_some()) => return None,
        _ => "all reserved memory +0 B (served from cached memory)".to_owned(),
    })
}

/// Returns when the device runs out of memory, if anybody will see that.
pub fn time_to_oom(f: &Finding) -> Option<String> {
    let steps = f.steps_to_oom.filter(|&steps| steps < FAR)?;
    let more = format!("{} more", grouped(steps));
    Some(format!("device full in about {}", steps_of(more, steps != 1, f.counted_steps)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_named_as_a_programmer_would() {
        for (path, text) in [
            ("train() local `history`.losses[*]", "`history.losses[*]` in train()"),
            ("__main__.keep[*]", "`keep[*]` in __main__"),
            ("pkg.mod.CACHE['a']", "`pkg.mod.CACHE['a']`"),
            ("main() local `f` → closure variable `x`[*]", "`f` in main() → closure variable `x`[*]"),
            (
                "held by C or C++ code, or by an expression under way: x",
                "C or C++ code, or by an expression under way: x",
            ),
            (
                "garbage waiting for the cyclic collector: a → b",
                "garbage waiting for the cyclic collector: a → b",
            ),
        ] {
            assert_eq!(holder(path), text);
        }
    }

    #[test]
    fn what_holders_have_in_common_is_whole_names() {
        let common = |paths: &[&str]| {
            let of = |path: &&str| Holder {
                path: path.to_string(),
                bytes: 1,
                blocks: 1,
                step: 1,
                retention: None,
                max_entries: None,
            };
            let holders: Vec<Holder> = paths.iter().map(of).collect();
            common_path(&holders.iter().collect::<Vec<_>>()).to_owned()
        };
        assert_eq!(common(&["f() local `m`.a.weight", "f() local `m`.a.bias"]), "f() local `m`.a");
        assert_eq!(common(&["f() local `m`.alpha", "f() local `m`.alps"]), "f() local `m`");
        assert_eq!(common(&["f() local `model`", "f() local `modem`"]), "");
        assert_eq!(common(&["__main__.a[*]", "__main__.b[*]"]), "");
        assert_eq!(common(&["__main__.t.a[*]", "__main__.t.a2"]), "__main__.t");
        assert_eq!(common(&["f() local `m`.a"]), "");
        // Neither within quotes, nor a function without its variable.
        let ends = |end: &str| format!("A.f() local `t` → traceback.tb_frame → g() local `{end}");
        assert_eq!(common(&[&ends("a`[*]"), &ends("b`[*]")]), "A.f() local `t` → traceback.tb_frame");
        assert_eq!(common(&[&ends("a`[0].x"), &ends("a`[0].y")]), ends("a`[0]"));
        assert_eq!(common(&["A.f() local `x`", "A.f() local `y`"]), "");
        assert_eq!(common(&["__main__.s['Net.bn.state'][*]", "__main__.s['Net.bn.counter']"]), "__main__.s");
        assert_eq!(common(&["__main__.s['it's.a'].x", "__main__.s['it's.b'].x"]), "__main__.s");
        assert_eq!(common(&["__main__.s['a.b'].x", "__main__.s['a.b'].y"]), "__main__.s['a.b']");
        assert_eq!(common(&["f() local `m`.a", "held by C or C++ code"]), "");
    }
}
