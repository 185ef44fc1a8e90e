//! Builds a report from the ledger, the tables and the names; each part has a file.

mod annotations;
mod figures;
mod findings;
mod holders;
mod loops;
mod query;
mod retained;
mod stacks;

use std::collections::HashMap;

use super::*;
use crate::format::tables::{COLLECTOR, COLLECTOR_OFF, Tables};
use crate::frameworks;
use crate::ledger::verdict::{Context, CountedSteps, judge_by};
use crate::ledger::{self, Ledger};
use crate::symbols::Names;

pub use query::{Query, StepUnknown};
use stacks::Lines;
pub use stacks::listed_frames;

/// Lines listed under `retained`, if not all are wanted.
const RETAINED: usize = 50;
/// Steps of another kind are few up to this number, and up to this part of all.
const FEW_STEPS: u32 = 2;
const FEW_PARTS: u32 = 50;

/// What is known of a run beside its events.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub end: End,
    /// The status that the process exited with, if it is known.
    pub exit_status: Option<i32>,
    pub pid: u32,
    /// Nanoseconds from the beginning to the exit; `None`: no exit was recorded, and the last boundary stands in.
    pub duration_ns: Option<u64>,
    /// Events that found no room in the recording.
    pub dropped_events: u64,
    /// The most events that can be missing without being lost: each was being written when the run ended.
    pub unfinished_events: u64,
    /// What the reader or the recorder could not do, one line each.
    pub problems: Vec<String>,
    /// Nanoseconds since 1970 when the recording began; 0: not known.
    pub began_ns: u64,
}

impl Report {
    /// Builds the report of a run; with `step`, of what was live when that step ended.
    pub fn build(
        ledger: &Ledger,
        tables: &Tables,
        names: &Names<'_>,
        run: &Run,
        step: Option<u32>,
    ) -> Result<Report, StepUnknown> {
        Report::query(ledger, tables, names, run, Query { step, ..Query::default() })
    }

    /// Builds the report of a run as a query wants it.
    pub fn query(
        ledger: &Ledger,
        tables: &Tables,
        names: &Names<'_>,
        run: &Run,
        query: Query,
    ) -> Result<Report, StepUnknown> {
        let step = query.step;
        for step in step.into_iter().chain(query.since.filter(|&s| s > 0)) {
            if ledger.step(step).is_none() {
                let next = ledger.steps().iter().map(|r| r.step).find(|&s| s > step);
                return Err(StepUnknown { step, count: ledger.step_count(), next });
            }
        }
        let mut b = Builder::new(ledger, tables, names);
        let mut devices = b.devices(step);
        let (host_bytes, host_live_bytes) = b.host(step);
        let lines = Lines::new(names);
        let held = b.held();
        let mut verdict = judge_by(
            ledger,
            Context {
                location: &|stack| lines.number(stack),
                way: &|stack| lines.way(stack),
                lines: &|stack| lines.all(stack),
                holders: &|site| b.key(site).and_then(|key| held.get(&key)).cloned().unwrap_or_default(),
                is_optimizer: &|stack| {
                    names.frames(stack).iter().any(|f| frameworks::is_of_optimizer(&f.file))
                },
            },
        );
        let is_off = b.meta(COLLECTOR).is_some_and(|is| is == COLLECTOR_OFF);
        verdict.findings.iter_mut().for_each(|f| f.collector_is_off = is_off);
        for f in verdict.findings.iter_mut().filter(|f| b.are_nearly_all(f.counted)) {
            f.counted = CountedSteps::All;
        }
        for d in &mut devices {
            let fill = verdict.findings.iter().filter(|f| findings::fills(f));
            d.steps_to_oom =
                findings::steps_to_oom(d, fill.map(|f| f.growth_bytes_per_step * f.part_on(d.index)).sum());
        }
        let program = b.program(run);
        let most = if query.all { usize::MAX } else { RETAINED };
        let (held_sites, retained_unlisted) =
            retained::largest_lines(ledger, &lines, retained::listed(ledger, query), most);
        let mut report = Report {
            schema: SCHEMA,
            steps: Steps {
                count: ledger.step_count(),
                source: ledger.source().map(|s| s.name()),
                phase_steps: ledger.phase_steps(),
                loop_locations: b.loop_locations("loop"),
                step_sources: b.step_sources(),
                unused_loops: b.unused_loops(),
                after_last: ledger
                    .after_last_step()
                    .map(|(allocations, bytes)| AfterLast { allocations, bytes }),
                unresolved_iterations: b.meta("loop_missed").and_then(|n| n.parse().ok()).unwrap_or(0),
                annotations: annotations::latest(ledger, tables),
                annotation_counts: annotations::counts(ledger, tables),
                series: figures::series(ledger),
            },
            findings: verdict.findings.iter().map(|f| b.finding(f, &devices, &program)).collect(),
            non_leaks: verdict.non_leaks.iter().map(|f| b.finding(f, &devices, &program)).collect(),
            suppressed: Vec::new(),
            retained: b.retained(&held_sites),
            retained_unlisted,
            out_of_memory: ledger.out_of_memory().iter().map(|o| b.out_of_memory(o, &program)).collect(),
            out_of_memory_count: ledger.out_of_memory_count(),
            peak: None,
            coverage: b.coverage(run),
            holder_searches: b.searches(),
            warnings: run.problems.clone(),
            program,
            devices,
            host_bytes,
            host_live_bytes,
            step,
            since: query.since,
            cohorts: if query.cohorts { b.cohorts(query.since.unwrap_or(0)) } else { Vec::new() },
        };
        for (f, curve) in report.findings.iter_mut().zip(findings::curves(ledger, &verdict.findings)) {
            f.retained_over_steps = curve;
        }
        report.add_warnings(ledger);
        Ok(report)
    }

    /// Lists what was live at the peak of a device. `then`: the ledger as it was at that moment.
    pub fn add_peak(&mut self, then: &Ledger, tables: &Tables, names: &Names<'_>, device: u8) {
        let Some(at) = then.devices().iter().find(|d| d.device == device) else { return };
        self.peak = Some(Peak {
            device,
            step: then.step_count() + 1,
            live_bytes: at.live_bytes(),
            reserved_bytes: at.reserved_bytes(),
            retained: Builder::new(then, tables, names).live_now(device),
        });
    }

    fn add_warnings(&mut self, ledger: &Ledger) {
        let (checks, mismatches) = ledger.allocator_checks();
        if mismatches > 0 {
            self.warnings.push(format!(
                "the caching allocator's own total differed from the blocks seen in {mismatches} of {checks} checks"
            ));
        }
        if ledger.unknown_events() > 0 {
            let n = ledger.unknown_events();
            self.warnings.push(format!("{n} events of a kind this version does not know were passed over"));
        }
        if ledger.allocations_without_stack() > 0 {
            let n = ledger.allocations_without_stack();
            self.warnings
                .push(format!("{n} allocations are listed without a stack: too many different stacks"));
        }
    }
}

struct Builder<'a> {
    ledger: &'a Ledger,
    tables: &'a Tables,
    names: &'a Names<'a>,
    stacks: HashMap<u32, (Option<Location>, Vec<Frame>)>,
    forward: HashMap<u32, Option<Location>>,
    /// Bytes of names that stacks may still list.
    room: usize,
}

impl<'a> Builder<'a> {
    fn new(ledger: &'a Ledger, tables: &'a Tables, names: &'a Names<'a>) -> Builder<'a> {
        Builder {
            ledger,
            tables,
            names,
            stacks: HashMap::new(),
            forward: HashMap::new(),
            room: stacks::NAMES,
        }
    }
}

impl Builder<'_> {
    fn meta(&self, key: &str) -> Option<String> {
        self.tables.meta.get(key).filter(|v| !v.is_empty()).cloned()
    }

    fn program(&self, run: &Run) -> Program {
        let argv = self.meta("argv").unwrap_or_default();
        let argv = argv.strip_suffix('\0').unwrap_or(&argv);
        let cwd = self.meta("cwd").unwrap_or_default();
        Program {
            argv: argv.split('\0').filter(|_| !argv.is_empty()).map(str::to_owned).collect(),
            base: wording::base_folder(argv.split('\0').skip(1), &cwd).to_owned(),
            pid: self.meta("pid").and_then(|p| p.parse().ok()).unwrap_or(run.pid),
            host: self.meta("host").unwrap_or_default(),
            rank: self.meta("rank"),
            run: self.meta("run"),
            end: run.end,
            exit_status: run.exit_status,
            // Of a program that went on and ended well it says nothing.
            exception: self.meta("exception").filter(|_| run.exit_status.is_none_or(|status| status == 1)),
            began_s: run.began_ns as f64 / 1e9,
            duration_s: run.duration_ns.unwrap_or(self.ledger.last_ns()) as f64 / 1e9,
            exe: self.meta("exe").unwrap_or_default(),
            python: self.meta("python"),
            cwd,
        }
    }

    /// Returns whether nearly all steps are of this kind, so that nobody needs to be told which ones are counted. A program that
    /// does not train at all may look as if it did from its second step on: it updates arrays.
    fn are_nearly_all(&self, counted: CountedSteps) -> bool {
        let steps = self.ledger.step_count();
        let others = |looped| self.ledger.phases().count(looped, steps) <= FEW_STEPS.max(steps / FEW_PARTS);
        match counted {
            CountedSteps::All => true,
            CountedSteps::Training => others(true),
            CountedSteps::Other => others(false),
        }
    }

    fn entry_point(&self, id: u16) -> Option<String> {
        self.tables.entry_point(id).cloned()
    }

    fn untracked_call(&self, m: &ledger::UntrackedCalls) -> Option<UntrackedCall> {
        let entry_point = self.entry_point(m.entry_point)?;
        Some(UntrackedCall { entry_point, calls: m.calls, bytes: m.bytes })
    }

    fn coverage(&self, run: &Run) -> Coverage {
        let missing = self.ledger.lost_events();
        let lost = if missing > run.unfinished_events { missing } else { 0 };
        Coverage {
            gaps: self.tables.notes.clone(),
            frees_without_allocation: self
                .ledger
                .unknown_frees()
                .iter()
                .fold(0, |sum, n| sum.wrapping_add(*n)),
            dropped_events: run.dropped_events.saturating_add(lost),
            ledger_matches_allocator: self.ledger.matches_allocator(),
            allocations_without_free: self.ledger.missed_frees(),
            freed_with_context: self.ledger.freed_with_context(),
            untracked_calls: self
                .ledger
                .untracked_calls()
                .iter()
                .filter_map(|m| self.untracked_call(m))
                .collect(),
        }
    }
}
