//! The report for a terminal: at most 100 columns, no colour.

use std::fmt::Write;

use super::explain::{count, exact, grouped, place, short, size};
use super::suppress::Suppressed;
use super::{End, Finding, Frame, OutOfMemory, Place, Report, Retained, column};
use crate::ledger::verdict::{Confidence, Kind, MIN_STEPS};
use crate::symbol::{self, FrameKind};

const WIDTH: usize = 100;
const HELD_BY: &str = "held by ";
const TOP: usize = 10;
const OOM_TOP: usize = 20;
const MARKS: usize = 4;
const STACK: usize = 8;
const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "%"];
const UNIT_ENDS: [char; 5] = [',', ';', '.', ':', ')'];
/// Beyond so many steps nobody waits for a device to be full.
const FAR: u64 = 10_000_000;

/// The whole report.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    head(&mut out, report);
    findings(&mut out, report);
    suppressed(&mut out, report);
    if let Some(oom) = report.out_of_memory.last() {
        ran_out(&mut out, report, oom, TOP);
    }
    let when = match report.step {
        Some(step) => format!("Retained at step {}", grouped(u64::from(step))),
        None if report.steps.count == 0 => "Retained at the end".to_owned(),
        None => format!("Retained at step {}", grouped(u64::from(report.steps.count))),
    };
    table(&mut out, report, &when, &report.retained, TOP);
    devices(&mut out, report);
    coverage(&mut out, report);
    out
}

/// What was alive when memory ran out the last time; `None` if it never did.
pub fn out_of_memory(report: &Report) -> Option<String> {
    let oom = report.out_of_memory.last()?;
    let mut out = String::new();
    head(&mut out, report);
    ran_out(&mut out, report, oom, OOM_TOP);
    findings(&mut out, report);
    devices(&mut out, report);
    coverage(&mut out, report);
    Some(out)
}

/// Appends `text` broken into lines of at most `WIDTH` columns, the later ones indented by `indent`.
pub fn wrap(out: &mut String, first: &str, indent: usize, text: &str) {
    out.push_str(first);
    let mut column = first.chars().count();
    let mut fresh = true;
    let mut words = text.split_whitespace().peekable();
    while let Some(first) = words.next() {
        // A number stays with its unit.
        let word = match words.next_if(|next| UNITS.contains(&next.trim_end_matches(UNIT_ENDS))) {
            Some(unit) => format!("{first} {unit}"),
            None => first.to_owned(),
        };
        let length = word.chars().count();
        if !fresh && column + 1 + length > WIDTH {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            (column, fresh) = (indent, true);
        }
        if !fresh {
            out.push(' ');
            column += 1;
        }
        out.push_str(&word);
        (column, fresh) = (column + length, false);
    }
    out.push('\n');
}

/// Control characters of a program's own texts must not steer the terminal.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Writing to a string cannot fail.
macro_rules! line {
    ($out:expr, $($arg:tt)*) => {{ let _ = writeln!($out, $($arg)*); }};
}

fn head(out: &mut String, report: &Report) {
    let p = &report.program;
    let argv = if p.argv.is_empty() { p.exe.clone() } else { p.argv.join(" ") };
    wrap(out, "", 4, &clean(&argv));
    let end = match p.end {
        End::Clean => "ended in good order",
        End::Killed => "was killed or crashed",
        End::Running => "is running",
    };
    let host = if p.host.is_empty() { String::new() } else { format!(" on {}", clean(&p.host)) };
    let rank = p.rank.as_ref().map_or_else(String::new, |r| format!(", rank {}", clean(r)));
    let after = if p.end == End::Running { "for" } else { "after" };
    line!(out, "  process {}{host}{rank} {end} {after} {:.1} s", p.pid, p.duration_s);
    line!(out, "  {}", told_by(report));
    for more in said_of_steps(report) {
        wrap(out, "  ", 4, &more);
    }
    out.push('\n');
}

/// `80 steps, told by: loop at train.py:12`; without any, what to do.
pub fn told_by(report: &Report) -> String {
    let Some(source) = report.steps.source else {
        return "no step was seen; say what one is: LEAKTRACE_STEP=loop, nvtx:RANGE, call or every:SECONDS"
            .into();
    };
    let steps = count(f64::from(report.steps.count), "step");
    let loops: Vec<String> = report.steps.loops.iter().map(|place| clean(place)).collect();
    let loops = if loops.is_empty() { String::new() } else { format!(" at {}", loops.join(" and ")) };
    match report.steps.between {
        0 => format!("{steps}, told by: {source}{loops}"),
        n => format!("{steps}, told by: {source}, and {n} of them between these by the loop{loops}"),
    }
}

/// What more there is to say of the steps, a line each.
pub fn said_of_steps(report: &Report) -> Vec<String> {
    let missed = report.steps.missed_iterations;
    let missed = (missed > 0).then(|| format!("{missed} iterations before them are not told apart"));
    [others(report), missed, marks(report)].into_iter().flatten().collect()
}

/// What went by a name, the most frequent.
fn marks(report: &Report) -> Option<String> {
    let all = &report.steps.mark_counts;
    let told = all.iter().take(MARKS).map(|m| {
        let times = grouped(u64::from(m.count));
        match m.kind {
            "collection" => format!("{} in {}", m.name, count(f64::from(m.count), "step")),
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
    let another = |l: &super::Level| l.name != source || report.steps.between > 0;
    let differs = |l: &&super::Level| another(l) && l.count > 0 && l.count != report.steps.count;
    let list: Vec<String> = (report.steps.levels.iter().filter(differs))
        .map(|l| {
            let at = l.loops.first().map_or_else(String::new, |at| format!(" at {}", clean(at)));
            format!("{} ({}{at})", l.name, l.count)
        })
        .collect();
    (!list.is_empty()).then(|| format!("--steps-by can read them by: {}", list.join(", ")))
}

fn findings(out: &mut String, report: &Report) {
    let steps = report.steps.count;
    if report.findings.is_empty() {
        let text = if steps == 0 {
            "Not judged: no training step was seen, and without steps nothing can be called a leak."
                .to_owned()
        } else if steps < MIN_STEPS {
            format!(
                "Not judged: {} were seen; at least {MIN_STEPS} are needed.",
                count(f64::from(steps), "step")
            )
        } else {
            let but = if report.suppressed.is_empty() { "" } else { " but what is suppressed" };
            format!("No leak found over {}{but}.", count(f64::from(steps), "step"))
        };
        wrap(out, "", 0, &text);
        out.push('\n');
    } else {
        line!(out, "{} found\n", found(&report.findings));
    }
    for (i, f) in report.findings.iter().enumerate() {
        finding(out, i + 1, f, &report.program.cwd, report.all_frames);
    }
    if !report.benign.is_empty() {
        line!(out, "Looked at and found to be no leak");
        for f in &report.benign {
            let mark = format!("  {}: ", f.kind.name());
            let holder = f.holders.first().map_or_else(String::new, |h| format!(" Held by {}.", h.path));
            wrap(out, &mark, 4, &clean(&format!("{}{holder}", f.explanation)));
        }
        out.push('\n');
    }
}

/// What is known and lived with, a line per rule.
fn suppressed(out: &mut String, report: &Report) {
    if report.suppressed.is_empty() {
        return;
    }
    line!(out, "Suppressed");
    for s in &report.suppressed {
        wrap(out, "  ", 4, &clean(&suppressed_by(s)));
    }
    out.push('\n');
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

fn finding(out: &mut String, number: usize, f: &Finding, cwd: &str, all: bool) {
    let sure = match f.confidence {
        Confidence::Confirmed => "confirmed",
        Confidence::Likely => "likely",
    };
    let mark = format!("{number}. ");
    let indent = mark.len();
    wrap(out, &mark, indent, &format!("{} ({sure}): {}", f.kind.name(), clean(&f.explanation)));
    if f.sites.is_empty() {
        full_in(out, f);
        out.push('\n');
        return;
    }
    let noun = if f.layer == "block" { "block" } else { "allocation" };
    let on = f.device.map_or_else(String::new, |d| format!(" on device {d}"));
    let alive = format!(
        "alive{on}: {} in {} from {}, since step {}",
        exact(f.live_bytes as f64),
        count(f.live_blocks as f64, noun),
        count(f64::from(f.cohorts), "step"),
        grouped(u64::from(f.oldest_step)),
    );
    if let Some(pace) = pace(f) {
        wrap(out, "   ", indent, &format!("{pace}; {alive}"));
    }
    if let Some(bytes) = f.reserved_growth_bytes.filter(|_| matches!(f.kind, Kind::Leak | Kind::Growing)) {
        wrap(out, "   ", indent, &reserved(f, bytes));
    }
    full_in(out, f);
    for h in f.holders.iter().take(STACK) {
        let what = count(h.blocks as f64, if f.layer == "block" { "block" } else { "allocation" });
        let when = grouped(u64::from(h.step));
        let text = format!("{} ({what}, {}, at step {when})", clean(&held_by(&h.path)), size(h.bytes as f64));
        wrap(out, "   ", indent, &text);
    }
    for (i, site) in f.sites.iter().enumerate().take(STACK) {
        if f.sites.len() > 1 {
            let at = clean(&place(site.allocated_at.as_ref(), cwd));
            let text = match site.bytes_per_step {
                bytes if bytes > 0.0 => format!("{} per step at {at}", exact(bytes)),
                _ => format!("{} at {at}", exact(site.live_bytes as f64)),
            };
            wrap(out, "   - ", 5, &text);
        }
        if i == 0 {
            stack(out, &site.stack, cwd, all);
            for way in &site.also_through {
                let names: Vec<String> = column::names(way);
                wrap(out, "      also through ", 12, &clean(&names.join(", for ")));
            }
        }
    }
    if f.sites.len() > STACK {
        line!(out, "   - and {}", count((f.sites.len() - STACK) as f64, "more place"));
    }
    out.push('\n');
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
        Kind::Leak | Kind::Growing if f.adding_share < 0.995 => {
            let mean = size(f.growth_bytes_per_step.round());
            format!("{per_step} per step that adds, {mean} per step on average")
        }
        Kind::Leak | Kind::Growing | Kind::PendingGc | Kind::Periodic => format!("{per_step} per step"),
        _ => return None,
    })
}

/// The second source: what the driver gave meanwhile.
pub fn reserved(f: &Finding, bytes: i64) -> String {
    let grown = f.growth_bytes_per_step * f64::from(f.cohorts.max(1));
    if bytes > 0 && bytes as f64 >= 0.5 * grown.min(f.live_bytes as f64) {
        return format!("the memory reserved from the driver grew by {} meanwhile", size(bytes as f64));
    }
    "absorbed so far by memory that was reserved already".to_owned()
}

fn full_in(out: &mut String, f: &Finding) {
    if let Some(steps) = f.steps_to_oom.filter(|&steps| steps < FAR) {
        line!(out, "   the device is full in about {} more steps", grouped(steps));
    }
}

/// A stack in one column, innermost first; all of it if every frame is wanted.
fn stack(out: &mut String, frames: &[Frame], cwd: &str, all: bool) {
    let lines = column::lines(frames, all);
    let most = if all { lines.len() } else { STACK };
    for line in lines.iter().take(most) {
        let f = &line.frame.frame;
        let at = match f.line {
            Some(line) => format!("{}:{line}", short(&f.file, cwd)),
            _ => String::new(),
        };
        if f.kind == FrameKind::Autograd {
            line!(out, "      in the backward pass ({}) of", clean(&f.function));
            continue;
        }
        let lead = if at.is_empty() { "      " } else { "      at " };
        let more = match line.nameless {
            0 => String::new(),
            n => format!(" and {} without a name", count(n as f64, "more frame")),
        };
        let name = if f.kind == FrameKind::Native { symbol::plain(&f.function) } else { f.function.clone() };
        wrap(out, lead, 12, &clean(&format!("{at} {name}{more}")));
    }
    if lines.len() > most {
        line!(out, "      and {}", count((lines.len() - most) as f64, "more frame"));
    }
}

fn ran_out(out: &mut String, report: &Report, oom: &OutOfMemory, top: usize) {
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
    let carried = share(oom.carried_bytes, oom.allocated_bytes);
    if carried >= 1.0 {
        let text = format!(
            "{} of that ({carried:.0} %) were left by the step before and waited for its successor to let go (carry-over).",
            size(oom.carried_bytes as f64)
        );
        wrap(out, "", 0, &text);
    }
    let empty = share(oom.empty_bytes, oom.reserved_bytes);
    if empty >= 1.0 {
        let lost = if oom.empty_bytes >= oom.requested_bytes && oom.largest_hole_bytes < oom.requested_bytes {
            ": together they would have done, so this is fragmentation"
        } else {
            ""
        };
        let text = format!(
            "{} of the {} reserved ({empty:.0} %) lay empty between blocks, in pieces of {} at most{lost}.",
            size(oom.empty_bytes as f64),
            size(oom.reserved_bytes as f64),
            size(oom.largest_hole_bytes as f64)
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

fn table(out: &mut String, report: &Report, title: &str, held: &[Retained], top: usize) {
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

fn devices(out: &mut String, report: &Report) {
    for d in &report.devices {
        let name = if d.name.is_empty() { String::new() } else { format!(" ({})", clean(&d.name)) };
        let mut text = format!(
            "Device {}{name}: {} live ({} in blocks, {} in driver allocations), peak {}, reserved {}",
            d.index,
            size(d.live_bytes as f64),
            size(d.block_bytes as f64),
            size(d.object_bytes as f64),
            size(d.peak_bytes as f64),
            size(d.reserved_bytes as f64),
        );
        if d.borrowed_bytes > 0 {
            text.push_str(&format!(", borrowed {}", size(d.borrowed_bytes as f64)));
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

fn coverage(out: &mut String, report: &Report) {
    let c = &report.coverage;
    let agrees = match c.ledger_matches_allocator {
        Some(true) => "blocks agree with the caching allocator's own total",
        Some(false) => "blocks do not agree with the caching allocator's own total",
        None => "no caching allocator's total to compare with",
    };
    let mut text = agrees.to_owned();
    for (n, what) in [
        (c.unknown_frees, "free of memory whose allocation was not seen"),
        (c.missed_frees, "allocation where the free before it was not seen"),
    ] {
        if n > 0 {
            text.push_str(&format!("; {} {what}", grouped(n)));
        }
    }
    if c.dropped_events > 0 {
        text.push_str(&format!("; {} events lost", grouped(c.dropped_events)));
    }
    wrap(out, "Coverage: ", 2, &text);
    if !c.markers.is_empty() {
        let told = c.markers.iter().map(|m| format!("{} {}", grouped(m.calls), m.entry_point));
        let told: Vec<String> = told.collect();
        wrap(out, "  calls that take memory unsaid: ", 4, &clean(&told.join(", ")));
    }
    for hole in &c.holes {
        wrap(out, "  not seen: ", 4, &clean(hole));
    }
    for note in &report.notes {
        wrap(out, "Note: ", 2, &clean(note));
    }
}
