//! One report over the processes of a run: the same cause in several of them is one finding with its spread, a cause
//! of one alone is marked, and a process that ended before the others is named. Keeps a summary of each
//! report: memory grows with the number of recordings, not with their size. Pure.

pub mod words;

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use serde::Serialize;

use crate::runs::{self, Identity, natural, rank_set};
use leaktrace_core::format::printable::printable;
use leaktrace_core::ledger::verdict::{Kind, MIN_STEPS};
use leaktrace_core::report::{Device, End, Finding, Location, Program, Report, wording};

/// Different coverage gaps that are kept at most.
const GAPS: usize = 50;
/// A rank ended early if it made fewer steps than the longest by this share, and by more than one.
const EARLY_SHARE: f64 = 0.01;

/// What is kept of one report.
pub struct Summary {
    file: String,
    program: Program,
    steps: u32,
    live_bytes: u64,
    peak_bytes: u64,
    reserved_bytes: u64,
    findings: Vec<Finding>,
    gaps: Vec<String>,
    dropped_events: u64,
    suppressed: u32,
    /// The suppressions that did.
    rules: Vec<String>,
}

impl Summary {
    pub fn of(file: &Path, report: Report) -> Summary {
        let sum = |of: fn(&Device) -> u64| report.devices.iter().map(of).fold(0, u64::saturating_add);
        Summary {
            file: printable(&file.display().to_string()).into(),
            steps: report.steps.count,
            live_bytes: sum(|d| d.live_bytes),
            peak_bytes: sum(|d| d.peak_bytes),
            reserved_bytes: sum(|d| d.reserved_bytes),
            findings: report.findings,
            gaps: report.coverage.gaps,
            dropped_events: report.coverage.dropped_events,
            suppressed: report.suppressed.iter().map(|s| s.findings).sum(),
            rules: report.suppressed.into_iter().map(|s| s.pattern).collect(),
            program: report.program,
        }
    }
}

/// One process of the report.
#[derive(Clone, Debug, Serialize)]
pub struct Process {
    pub file: String,
    pub rank: Option<String>,
    pub host: String,
    pub pid: u32,
    pub end: End,
    /// The status it exited with; `null`: not known, or it has not exited.
    pub exit_status: Option<i32>,
    pub steps: u32,
    pub duration_s: f64,
    pub live_bytes: u64,
    pub peak_bytes: u64,
    pub reserved_bytes: u64,
    pub findings: usize,
    pub dropped_events: u64,
    /// How it ended, as a fact: `exit status 1 (uncaught ValueError)`.
    pub ended: String,
    #[serde(skip)]
    identity: Identity,
    /// The program: steps are compared among processes of one program in one run only.
    #[serde(skip)]
    runs: (usize, String, Option<String>),
}

impl Process {
    /// Returns whether it exited with a status that says so.
    fn failed(&self) -> bool {
        self.exit_status.is_some_and(|status| status != 0)
    }

    /// Names the process: `rank 3`, or its recording where there are no ranks.
    pub fn name(&self) -> String {
        match &self.rank {
            Some(rank) => format!("rank {rank}"),
            None => self.file.rsplit('/').next().unwrap_or(&self.file).to_owned(),
        }
    }

    /// Returns its rank as a number.
    pub fn rank_number(&self) -> Option<u64> {
        self.rank.as_ref()?.parse().ok()
    }

    /// Returns when it began, in seconds since 1970.
    pub fn began_s(&self) -> f64 {
        self.identity.began_s
    }

    /// Names its recording: `rank 3 (runs/train.3.ltrace)`.
    pub fn recording(&self) -> String {
        match &self.rank {
            Some(rank) => format!("rank {rank} ({})", self.file),
            None => self.file.clone(),
        }
    }
}

/// A cause's share in one process.
#[derive(Clone, Debug, Serialize)]
pub struct Member {
    /// The index into the list of processes.
    pub process: usize,
    pub bytes_per_step: f64,
    pub live_bytes: u64,
}

/// A cause, over all processes that have it.
#[derive(Clone, Debug, Serialize)]
pub struct Cause {
    /// The finding of the process where the cause is largest.
    pub finding: Finding,
    /// The processes that have it.
    pub members: Vec<Member>,
    /// Whether all processes that made steps have it.
    pub everywhere: bool,
    /// Whether one process alone has it, although there are others.
    pub alone: bool,
    /// The least, the median and the most bytes per step.
    pub spread: [f64; 3],
    /// The lines that are part of it in some of these processes only, and in which.
    pub partial: Vec<(Option<Location>, Vec<usize>)>,
    #[serde(skip)]
    pub program: Program,
    /// All lines that are part of it, and in which processes.
    #[serde(skip)]
    places: Vec<(Option<Location>, Vec<usize>)>,
}

/// The report over all processes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Gathered {
    pub schema: &'static str,
    pub processes: Vec<Process>,
    pub causes: Vec<Cause>,
    /// The processes that ended before the others, by index.
    pub ended_early: Vec<usize>,
    /// The files that could not be read, and why.
    pub unread: Vec<(String, String)>,
    /// The coverage gaps, and in how many processes each is.
    pub gaps: Vec<(String, u64)>,
    pub dropped_events: u64,
    pub suppressed: u32,
    /// The suppressions that suppressed something.
    #[serde(skip)]
    pub rules: BTreeSet<String>,
    #[serde(skip)]
    pub program: Program,
    #[serde(skip)]
    at: HashMap<(Kind, &'static str, Option<Location>), Vec<usize>>,
}

/// Returns the kind that causes are compared by: a shorter recording may not show yet that what grows is a
/// leak.
fn class(kind: Kind) -> Kind {
    if kind == Kind::Growing { Kind::Leak } else { kind }
}

/// Returns the lines of the user's own code on the stack of a finding.
fn own_lines(f: &Finding) -> Option<impl Iterator<Item = (&str, Option<u32>)>> {
    let frames = &f.sites.first()?.stack;
    Some(frames.iter().filter(|f| f.own).map(|f| (f.frame.file.as_str(), f.frame.line)))
}

impl Gathered {
    /// Returns true if nothing could be read.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Adds a file that could not be read.
    pub fn unread(&mut self, file: &Path, why: &str) {
        self.unread.push((printable(&file.display().to_string()).into(), why.to_owned()));
    }

    /// Adds a process.
    pub fn add(&mut self, summary: Summary) {
        let process = self.processes.len();
        let p = &summary.program;
        self.processes.push(Process {
            file: summary.file,
            rank: p.rank.clone(),
            host: p.host.clone(),
            pid: p.pid,
            end: p.end,
            exit_status: p.exit_status,
            ended: wording::how_it_ended(p),
            identity: Identity::of(p),
            steps: summary.steps,
            duration_s: p.duration_s,
            live_bytes: summary.live_bytes,
            peak_bytes: summary.peak_bytes,
            reserved_bytes: summary.reserved_bytes,
            findings: summary.findings.len(),
            dropped_events: summary.dropped_events,
            runs: (0, p.exe.clone(), p.argv.get(1).cloned()),
        });
        if self.program.argv.is_empty() || (summary.steps > 0 && process == 0) {
            self.program = summary.program.clone();
        }
        for finding in summary.findings {
            self.add_finding(process, finding, &summary.program);
        }
        for gap in summary.gaps {
            match self.gaps.iter().position(|g| g.0 == gap) {
                Some(known) => self.gaps[known].1 += 1,
                None if self.gaps.len() < GAPS => self.gaps.push((gap, 1)),
                None => {}
            }
        }
        self.dropped_events = self.dropped_events.saturating_add(summary.dropped_events);
        self.suppressed = self.suppressed.saturating_add(summary.suppressed);
        self.rules.extend(summary.rules);
    }

    /// Adds a finding of a process to the cause that it belongs to.
    fn add_finding(&mut self, process: usize, finding: Finding, program: &Program) {
        let member =
            Member { process, bytes_per_step: finding.bytes_per_step, live_bytes: finding.live_bytes };
        let places: Vec<Option<Location>> = match finding.sites.is_empty() {
            true => vec![None],
            false => finding.sites.iter().map(|s| s.allocated_at.clone()).collect(),
        };
        let key = |place: &Option<Location>| (class(finding.kind), finding.layer, place.clone());
        let known = places.iter().find_map(|place| self.at.get(&key(place))).map_or(&[][..], |c| &c[..]);
        // One line may have several causes, which call it by different paths.
        let same_path = |&&c: &&usize| match (own_lines(&self.causes[c].finding), own_lines(&finding)) {
            (Some(a), Some(b)) => a.eq(b),
            (a, b) => a.is_none() == b.is_none(),
        };
        let free = |&&c: &&usize| self.causes[c].members.last().is_some_and(|m| m.process != process);
        let cause = known.iter().find(same_path).or_else(|| known.iter().find(free)).copied();
        let cause = cause.unwrap_or(self.causes.len());
        for place in &places {
            let causes = self.at.entry(key(place)).or_default();
            if !causes.contains(&cause) {
                causes.push(cause);
            }
        }
        let Some(c) = self.causes.get_mut(cause) else {
            self.causes.push(Cause {
                finding,
                members: vec![member],
                everywhere: false,
                alone: false,
                spread: [0.0; 3],
                partial: Vec::new(),
                program: program.clone(),
                places: places.into_iter().map(|place| (place, vec![process])).collect(),
            });
            return;
        };
        let largest = c.members.iter().all(|m| m.bytes_per_step < member.bytes_per_step);
        match c.members.last_mut().filter(|m| m.process == process) {
            Some(m) => {
                m.bytes_per_step += member.bytes_per_step;
                m.live_bytes = m.live_bytes.saturating_add(member.live_bytes);
            }
            None => c.members.push(member),
        }
        for place in &places {
            match c.places.iter_mut().find(|(known, _)| known == place) {
                Some((_, of)) if of.last() == Some(&process) => {}
                Some((_, of)) => of.push(process),
                None => c.places.push((place.clone(), vec![process])),
            }
        }
        // A finding that is certain in one process is certain.
        if finding.kind < c.finding.kind || (finding.kind == c.finding.kind && largest) {
            (c.finding, c.program) = (finding, program.clone());
        }
    }

    /// Completes the report when all processes are added: the spreads, the order, and who ended early.
    pub fn finish(&mut self) {
        self.schema = "leaktrace.ranks/1";
        let identities: Vec<Identity> = self.processes.iter().map(|p| p.identity.clone()).collect();
        for (run, members) in runs::group(&identities).into_iter().enumerate() {
            members.into_iter().for_each(|i| self.processes[i].runs.0 = run);
        }
        self.at.clear();
        let stepping = self.processes.iter().filter(|p| p.steps >= MIN_STEPS).count();
        for c in &mut self.causes {
            let mut all: Vec<f64> = c.members.iter().map(|m| m.bytes_per_step).collect();
            all.sort_by(f64::total_cmp);
            if let (Some(least), Some(most)) = (all.first(), all.last()) {
                c.spread = [*least, all[all.len() / 2], *most];
            }
            c.everywhere = stepping > 1 && c.members.len() >= stepping;
            c.alone = stepping > 1 && c.members.len() == 1;
            c.places.retain(|(_, of)| of.len() < c.members.len());
            c.partial = std::mem::take(&mut c.places);
        }
        let weight = |c: &Cause| c.members.iter().map(|m| m.bytes_per_step.max(1e-9)).sum::<f64>();
        self.causes.sort_by(|a, b| a.finding.kind.cmp(&b.finding.kind).then(weight(b).total_cmp(&weight(a))));
        self.ended_early = self.early();
    }

    /// Lists the processes that made fewer steps than the others, or none at all although they have a rank.
    fn early(&self) -> Vec<usize> {
        // By program: the most steps, and whether a process that made them exited cleanly.
        let mut longest: HashMap<&(usize, String, Option<String>), (u32, bool)> = HashMap::new();
        for p in &self.processes {
            let (most, cleanly) = longest.entry(&p.runs).or_default();
            let clean = p.end == End::Clean && !p.failed();
            match p.steps.cmp(most) {
                Ordering::Greater => (*most, *cleanly) = (p.steps, clean),
                Ordering::Equal => *cleanly |= clean,
                Ordering::Less => {}
            }
        }
        let ranked = self.processes.iter().any(|p| p.rank.is_some() && p.steps > 0);
        let is_early = |p: &Process| {
            let (most, cleanly) = longest.get(&p.runs).copied().unwrap_or_default();
            let slack = ((EARLY_SHARE * f64::from(most)) as u32).max(1);
            let takes_part = p.steps > 0 || (ranked && p.rank.is_some());
            let fewer = p.steps.saturating_add(slack) < most;
            takes_part
                && !matches!(p.end, End::Running | End::Detached)
                && (fewer || ((p.end == End::Killed || p.failed()) && cleanly))
        };
        let mut early: Vec<usize> =
            (0..self.processes.len()).filter(|&i| is_early(&self.processes[i])).collect();
        // Who ended first stands first: the others may have ended because of that.
        let ended = |&i: &usize| self.processes[i].identity.ended_s;
        early.sort_by(|a, b| ended(a).total_cmp(&ended(b)));
        early
    }

    /// Returns the most steps that a process of the same program made.
    pub fn most_steps(&self, of: &Process) -> u32 {
        self.processes.iter().filter(|p| p.runs == of.runs).map(|p| p.steps).max().unwrap_or(0)
    }

    /// Returns the least, the median and the most of a figure over the processes that made steps, and which has the most;
    /// `None` where there are not two of them.
    pub fn spread(&self, of: impl Fn(&Process) -> u64) -> Option<([u64; 3], usize)> {
        let stepping = |p: &&Process| p.steps > 0;
        let mut all: Vec<u64> = self.processes.iter().filter(stepping).map(&of).collect();
        all.sort_unstable();
        let [least, .., most] = all[..] else { return None };
        let at = self.processes.iter().position(|p| p.steps > 0 && of(p) == most)?;
        Some(([least, all[all.len() / 2], most], at))
    }

    /// Names processes by their ranks: `all 4 ranks`, `rank 1`, `ranks 0-3 and 7`; where not all have a rank, by their
    /// names, so many of them.
    pub fn named(&self, members: &[usize], most: usize) -> String {
        let of = |i: &usize| self.processes[*i].rank_number();
        let ranks: Option<Vec<u64>> = members.iter().map(of).collect();
        let ranked = ranks.filter(|ranks| ranks.iter().collect::<BTreeSet<_>>().len() == members.len());
        match ranked {
            Some(ranks) if ranks.len() == 1 => format!("rank {}", rank_set(ranks)),
            Some(ranks) if ranks.len() == self.processes.len() => format!("all {} ranks", ranks.len()),
            Some(ranks) => format!("ranks {}", rank_set(ranks)),
            None => {
                let names: Vec<String> =
                    members.iter().take(most).map(|&i| self.processes[i].name()).collect();
                let more = match members.len().saturating_sub(most) {
                    0 => String::new(),
                    n => format!(" and {n} more"),
                };
                format!("{}{more}", names.join(", "))
            }
        }
    }

    /// Counts the processes that made enough steps to be judged.
    pub fn judged(&self) -> usize {
        self.processes.iter().filter(|p| p.steps >= MIN_STEPS).count()
    }
}

/// Makes one report of each run that recordings belong to, the newest first. What could not be read is told in the first.
pub fn by_run(mut summaries: Vec<Summary>, unread: Vec<(String, String)>) -> Vec<Gathered> {
    let number = |s: &Summary| s.program.rank.as_ref().and_then(|r| r.parse::<u64>().ok());
    summaries.sort_by(|a, b| number(a).cmp(&number(b)).then_with(|| natural(&a.file, &b.file)));
    let identities: Vec<Identity> = summaries.iter().map(|s| Identity::of(&s.program)).collect();
    let mut summaries: Vec<Option<Summary>> = summaries.into_iter().map(Some).collect();
    let mut all: Vec<Gathered> = Vec::new();
    for members in runs::group(&identities) {
        let mut gathered = Gathered::default();
        members.into_iter().filter_map(|i| summaries[i].take()).for_each(|summary| gathered.add(summary));
        gathered.finish();
        all.push(gathered);
    }
    if let Some(first) = all.first_mut() {
        first.unread = unread;
    }
    all
}

/// The reports of all runs as JSON; of one run, that report itself.
#[derive(Serialize)]
struct Runs<'g> {
    schema: &'static str,
    runs: &'g [Gathered],
}

/// Writes the reports as JSON.
pub fn json(all: &[Gathered]) -> String {
    // Numbers and strings only: that cannot fail.
    let text = match all {
        [one] => serde_json::to_string_pretty(one),
        runs => serde_json::to_string_pretty(&Runs { schema: "leaktrace.runs/1", runs }),
    };
    text.unwrap_or_default() + "\n"
}
