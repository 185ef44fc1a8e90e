//! The words about a run: its answer, how it ended, its steps, what was suppressed, how far the figures can be relied on.

use std::collections::BTreeSet;

use super::{
    count, found, grouped, held_by_whom, location, package_folder, place, rate, relative_path, sanitize, size,
};
use crate::cpython;
use crate::format::event;
use crate::frameworks;
use crate::ledger::verdict::{Kind, MIN_STEPS};
use crate::report::suppress::Suppressed;
use crate::report::{Coverage, End, Finding, OutOfMemory, Program, Report, Retained, StepSource, UnusedLoop};

/// In fewer steps than this what grows every few steps is not judged.
const FEW_STEPS: u32 = 50;
/// Where the threads of a pool take what there is to do.
const THREAD_POOL: &str = "concurrent/futures/thread.py:";
/// Annotations named, the most frequent first.
const ANNOTATIONS: usize = 4;
/// Characters of a command line that are shown.
const COMMAND: usize = 200;

/// Returns the answer in one sentence: how memory ran out, what was found, that nothing was, or why nothing can be judged.
pub fn answer(report: &Report) -> String {
    if let Some(oom) = final_failure(report) {
        return ran_out(report, oom);
    }
    let steps = report.steps.count;
    let over = count(f64::from(steps), "step");
    let ended_early = why_ended_early(report);
    match &report.findings[..] {
        [first, others @ ..] => {
            let more = match others.len() {
                0 => String::new(),
                n => format!("; and {n} more"),
            };
            let judged = steps >= MIN_STEPS && ended_early.is_empty();
            let no_leak = match report.findings.iter().all(is_no_leak) {
                true if judged => format!("{}; ", no_leak(report)),
                _ => String::new(),
            };
            let first = where_and_who(first, &report.program.base);
            format!("{no_leak}{}: {first}{more}", found(&report.findings))
        }
        [] if !ended_early.is_empty() => format!("Not judged: tracing ended early: {ended_early}."),
        [] if steps == 0 => {
            "Not judged: no training step was seen, and without steps nothing can be called a leak."
                .to_owned()
        }
        [] if steps < MIN_STEPS => {
            let were = if steps == 1 { "was" } else { "were" };
            // An optimizer may step once for many iterations: a loop that carries its state through them.
            let instead = match report.steps.source {
                Some("optimizer") => {
                    " With LEAKTRACE_STEP=loop the iterations of the program's loop are the steps."
                }
                _ => "",
            };
            format!("Not judged: {over} {were} seen; at least {MIN_STEPS} are needed.{instead}")
        }
        [] => format!("{}.", no_leak(report)),
    }
}

/// Returns `No leak in 200 steps`.
fn no_leak(report: &Report) -> String {
    let over = count(f64::from(report.steps.count), "step");
    let but = if report.suppressed.is_empty() { "" } else { " apart from what is suppressed" };
    format!("No leak in {over}{but}")
}

/// Returns whether a finding is worth a look, and no leak.
fn is_no_leak(f: &Finding) -> bool {
    matches!(
        f.kind,
        Kind::Periodic | Kind::CarryOver | Kind::Fragmentation | Kind::LastLoop | Kind::AfterLast
    )
}

/// Returns why the library has switched itself off; empty: it has not.
fn why_ended_early(report: &Report) -> String {
    let why = |gap: &String| Some(gap.split_once("; tracing is switched off")?.0.to_owned());
    report.coverage.gaps.iter().find_map(why).unwrap_or_default()
}

/// Returns how much a finding grows, at which line, and who holds it.
pub fn where_and_who(f: &Finding, cwd: &str) -> String {
    let whole = if f.kind == Kind::CarryOver { f.bytes_per_step } else { f.live_bytes as f64 };
    let much = rate(f).unwrap_or_else(|| size(whole));
    let at = f.sites.first().map_or_else(String::new, |site| format!(" at {}", place(site, cwd)));
    let held = held_by_whom(f).map_or_else(String::new, |held| format!(", {held}"));
    format!("{much}{at}{held}")
}

/// Returns the last failed allocation if the program ended, or is about to end, of it.
pub fn final_failure(report: &Report) -> Option<&OutOfMemory> {
    let (p, steps) = (&report.program, report.steps.count);
    let is_final = |oom: &&OutOfMemory| match (p.end, p.exit_status) {
        (End::Clean, Some(0)) | (End::Replaced | End::Detached, _) => false,
        _ if p.exception.as_ref().is_some_and(|name| name.contains("OutOfMemory")) => true,
        // An iteration that an exception leaves has ended, too.
        (End::Clean, Some(_)) | (End::Killed, _) => oom.step >= steps,
        _ => oom.step > steps,
    };
    report.out_of_memory.last().filter(is_final)
}

/// Returns `OUT OF MEMORY at step 90: oom.py:7 main asked for 8.0 MiB; 1 leak accounts for 793.0 MiB of the 811.0 MiB in
/// use`.
fn ran_out(report: &Report, oom: &OutOfMemory) -> String {
    let part = |f: &Finding| {
        let of = oom.retained.iter().filter(|r| finding_of(std::slice::from_ref(f), r).is_some());
        of.fold(0u64, |sum, r| sum.saturating_add(r.live_bytes))
    };
    let blamed: Vec<Finding> = report.findings.iter().filter(|f| part(f) > 0).cloned().collect();
    let sum: u64 = blamed.iter().map(part).fold(0, u64::saturating_add);
    let in_use = size(oom.allocated_bytes as f64);
    let cause = match blamed.len() {
        0 if report.steps.count < MIN_STEPS => format!("{in_use} in use"),
        0 => format!("{in_use} in use, and no leak in {}", count(f64::from(report.steps.count), "step")),
        n => {
            let account = if n == 1 { "accounts" } else { "account" };
            format!("{} {account} for {} of the {in_use} in use", found(&blamed), size(sum as f64))
        }
    };
    let at = location(oom.allocated_at.as_ref(), &report.program.base);
    let (step, asked) = (grouped(u64::from(oom.step)), size(oom.requested_bytes as f64));
    format!("OUT OF MEMORY at step {step}: {at} asked for {asked}; {cause}")
}

/// Returns the finding that a row of live memory belongs to, by its index.
pub fn finding_of(findings: &[Finding], row: &Retained) -> Option<usize> {
    findings.iter().position(|f| f.sites.iter().any(|site| site.numbers.contains(&row.number)))
}

/// Returns how the process ended and when, if that is known: `exit status 1 (uncaught ValueError) after 7.4 s`.
fn ended(p: &Program) -> String {
    // Of one that was killed before its first step no later moment than the beginning is recorded.
    if p.duration_s == 0.0 {
        return how_it_ended(p);
    }
    let when = if p.end == End::Running { "for" } else { "after" };
    format!("{} {when} {:.1} s", how_it_ended(p), p.duration_s)
}

/// The exception that Ctrl-C raises.
const INTERRUPT: &str = "KeyboardInterrupt";

/// Returns how the process ended, as a fact: `exit status 1 (uncaught ValueError)`.
pub fn how_it_ended(p: &Program) -> String {
    let how = match (p.end, p.exit_status) {
        (End::Clean, Some(status)) => format!("exit status {status}"),
        (end, _) => ending(end).to_owned(),
    };
    match &p.exception {
        // CPython ends itself by that signal.
        Some(name) if p.end == End::Killed && name == INTERRUPT => format!("interrupted ({name})"),
        Some(name) if p.end != End::Running => format!("{how} (uncaught {name})"),
        _ => how,
    }
}

/// Returns how a process ended whose status is not known.
const fn ending(end: End) -> &'static str {
    match end {
        End::Clean => "exited",
        End::Killed => "killed or crashed",
        End::Replaced => "replaced by exec",
        End::Detached => "detached",
        End::Running => "running",
    }
}

/// Returns the command, the process, how it ended, and its steps: `python train.py (pid 42 on vm): exit status 0 after
/// 7.7 s, 200 steps (from optimizer)`.
pub fn run(report: &Report) -> String {
    let p = &report.program;
    let host = if p.host.is_empty() { String::new() } else { format!(" on {}", p.host) };
    let rank = p.rank.as_ref().map_or_else(String::new, |rank| format!(", rank {rank}"));
    sanitize(&format!("{} (pid {}{host}{rank}): {}, {}", command(p), p.pid, ended(p), steps(report)))
}

/// Returns what the whole report lacks, since the interpreter is not known or not what it seemed: said first.
pub fn lacking(coverage: &Coverage) -> impl Iterator<Item = &str> {
    coverage.gaps.iter().map(String::as_str).filter(|gap| cpython::is_interpreters(gap))
}

/// Returns what came after the last step, and is not judged, unless a finding tells it.
pub fn after_last(report: &Report) -> Option<String> {
    let is_told = report.findings.iter().any(|f| f.kind == Kind::AfterLast);
    let after = report.steps.after_last.as_ref().filter(|_| !is_told)?;
    let allocations = count(after.allocations as f64, "allocation");
    Some(format!(
        "{allocations} after the last step left {} more, which is not judged: no step was seen there",
        size(after.bytes as f64)
    ))
}

/// Returns the command as somebody would type it in its working directory.
pub fn command(p: &Program) -> String {
    let (program, arguments) = p.argv.split_first().map_or((&p.exe, &[][..]), |(first, rest)| (first, rest));
    let program = program.rsplit('/').next().unwrap_or(program);
    let arguments = arguments.iter().map(|a| relative_path(a, &p.base));
    let whole = std::iter::once(program).chain(arguments).collect::<Vec<_>>().join(" ");
    match whole.char_indices().nth(COMMAND) {
        Some((end, _)) => format!("{}…", &whole[..end]),
        None => whole,
    }
}

/// Returns `80 steps (from loop at train.py:12)`, or `from calls of handle() at …`; without any step, what to do.
pub fn steps(report: &Report) -> String {
    let Some(source) = report.steps.source else {
        return format!(
            "no step was seen{}; set the step source: LEAKTRACE_STEP=loop, range:NAME, api or every:SECONDS",
            unused_loops(report)
        );
    };
    let steps = count(f64::from(report.steps.count), "step");
    let (mut loops, mut calls) = (Vec::new(), Vec::new());
    for place in &report.steps.loop_locations {
        let mut at = in_library(relative_path(&place.at, &report.program.base)).to_owned();
        let is_pool = at.starts_with(THREAD_POOL);
        let runs = place.runs.as_ref().map_or_else(String::new, |(function, line)| {
            format!(
                ", which runs {} at {}",
                called_function(function),
                relative_path(line, &report.program.base)
            )
        });
        at.push_str(&runs);
        match &place.calls_of {
            // What its threads loop over are the calls that were submitted.
            _ if is_pool && report.steps.phase_steps == 0 => {
                return format!("{steps} (calls submitted to a thread pool{runs})");
            }
            Some(function) => calls.push(format!("{function}() at {at}")),
            None => loops.push(at),
        }
    }
    // A loop is known for each place that its function is called from.
    [&mut loops, &mut calls].into_iter().for_each(|all| {
        let mut told = BTreeSet::new();
        all.retain(|at| told.insert(at.clone()));
    });
    let from = |name: &str| {
        let loops = (!loops.is_empty()).then(|| format!("{name} at {}", loops.join(" and ")));
        let calls = (!calls.is_empty()).then(|| format!("calls of {}", calls.join(" and ")));
        match (loops, calls) {
            (Some(loops), Some(calls)) => format!("{loops} and {calls}"),
            (loops, calls) => loops.or(calls).unwrap_or_else(|| name.to_owned()),
        }
    };
    match report.steps.phase_steps {
        // Its loops between those of an optimizer train as well: by backward passes only.
        0 if source != event::StepSource::Loop.name() && !loops.is_empty() => {
            format!("{steps} (from {source}, and from {})", from("the loop"))
        }
        0 => format!("{steps} (from {})", from(source)),
        n => format!(
            "{steps} ({} from {source}, {} from {})",
            grouped(u64::from(report.steps.count.saturating_sub(n))),
            grouped(u64::from(n)),
            from("the loop")
        ),
    }
}

/// Returns a function as a call: `handle()`; a module, which no call runs, as it is.
fn called_function(function: &str) -> String {
    if function.starts_with('<') { function.to_owned() } else { format!("{function}()") }
}

/// Returns a path of a package, or of Python's own library, as it is within that.
fn in_library(path: &str) -> &str {
    if let Some((_, inside)) = path.rsplit_once("/site-packages/") {
        return inside;
    }
    let own = path.rsplit_once("/lib/python3.").and_then(|(_, inside)| inside.split_once('/'));
    own.map_or(path, |(_, inside)| inside)
}

/// Returns which loops were seen where there is no step, and why none of them counts.
fn unused_loops(report: &Report) -> String {
    let reason = |l: &UnusedLoop| match l.reason.as_str() {
        // One that takes no memory is not seen.
        "few" => format!("only {} allocated", count(l.iterations as f64, "iteration")),
        "builds" => "makes a model".to_owned(),
        "framework" => "the framework's own".to_owned(),
        _ => "does little of the work".to_owned(),
    };
    let all = report.steps.unused_loops.iter();
    let inside = |at: &str| sanitize(in_library(relative_path(at, &report.program.base)));
    // Several loops may begin in one line.
    let mut told: Vec<String> = Vec::new();
    for text in all.map(|l| format!("{} ({})", inside(&l.location), reason(l))) {
        if !told.contains(&text) {
            told.push(text);
        }
    }
    if told.is_empty() { String::new() } else { format!(", and no loop that counts: {}", told.join(", ")) }
}

/// What grows in less than this share of the steps may grow in each step of another source.
const AT_INTERVALS: f64 = 0.5;

/// Returns what else there is to say of the steps, a line each.
pub fn step_details(report: &Report, all: bool) -> Vec<String> {
    let unresolved = report.steps.unresolved_iterations;
    let unresolved = (unresolved > 0).then(|| {
        format!("{} before the first step were not resolved", count(unresolved.into(), "iteration"))
    });
    // What was found in each step is one way to find the steps right: the others are for who looks further, and for growth at
    // intervals, which may be the steps of another source.
    let at_intervals = report.findings.iter().any(|f| f.kind.grows() && f.growth_step_ratio < AT_INTERVALS);
    let asks = all || at_intervals || report.findings.is_empty();
    let others = if asks { other_sources(report) } else { None };
    [few_steps(report), others, unresolved, annotations(report)].into_iter().flatten().collect()
}

/// Returns what a short run without a leak cannot show.
fn few_steps(report: &Report) -> Option<String> {
    let steps = report.steps.count;
    let is_told = (MIN_STEPS..FEW_STEPS).contains(&steps) && report.findings.iter().all(is_no_leak);
    is_told.then(|| {
        format!(
            "{} show only what grows in most of them: a longer run may show more",
            count(f64::from(steps), "step")
        )
    })
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

/// Returns whether a place, as `file:line`, is in a framework.
fn is_of_framework(at: &str) -> bool {
    let file = at.rsplit_once(':').map_or(at, |(file, _)| file);
    !package_folder(file).is_empty() && frameworks::is_own_file(file)
}

/// Names the recorded sources that would give other steps than the ones shown.
fn other_sources(report: &Report) -> Option<String> {
    let source = report.steps.source?;
    let phases = report.steps.phase_steps;
    // The loops between an optimizer's steps are told with the steps.
    let is_told = |s: &StepSource| phases > 0 && s.count == phases && s.name.starts_with("loop");
    let another = |s: &StepSource| (s.name != source || phases > 0) && !is_told(s);
    let differs = |s: &&StepSource| another(s) && s.count > 0 && s.count != report.steps.count;
    let named = report.steps.step_sources.iter().filter(differs).filter_map(|s| {
        let base = &report.program.base;
        let at = match s.loop_locations.iter().find(|l| !is_of_framework(&l.at)) {
            Some(l) => format!(" at {}", in_library(relative_path(&l.at, base))),
            // A framework's own loops are never steps.
            None if !s.loop_locations.is_empty() => return None,
            None => String::new(),
        };
        Some(format!("{} ({}{at})", s.name, s.count))
    });
    let named = named.collect::<Vec<_>>().join(", ");
    (!named.is_empty()).then(|| sanitize(&format!("other step sources: {named}; choose with --steps-by")))
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

/// Returns the heading of the table of what is live.
pub fn live_heading(report: &Report) -> String {
    let at = match report.step {
        None if report.steps.count == 0 => "at the end".to_owned(),
        step => format!("after step {}", grouped(u64::from(step.unwrap_or(report.steps.count)))),
    };
    match report.since {
        Some(since) => {
            format!("Allocated after step {} and still live {at}", grouped(u64::from(since)))
        }
        None => format!("Live {at}"),
    }
}

/// Returns how far the figures can be relied on.
pub fn coverage(c: &Coverage) -> String {
    let mut text = match c.ledger_matches_allocator {
        Some(true) => "live bytes equal PyTorch's own counters",
        Some(false) => "live bytes differ from PyTorch's own counters",
        None => "no counters of an allocator to compare with",
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
    let calls =
        c.untracked_calls.iter().map(|u| format!("{} of {}", count(u.calls as f64, "call"), u.entry_point));
    let calls = calls.collect::<Vec<_>>().join(", ");
    (!calls.is_empty()).then(|| sanitize(&calls))
}
