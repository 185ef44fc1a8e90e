//! The words of a report over the processes of a run, the same on a terminal and on a page: the answer, who has a finding,
//! who ended how, how far they differ. Knows no layout.

use serde::Serialize;

use super::{Cause, Gathered, Process};
use leaktrace_core::report::wording::{self, count, exact, found, grouped, location, sanitize, size};

/// Processes named in a sentence, if not all are wanted.
pub const NAMES: usize = 8;
/// A process is an outlier if it differs from the median by this share, and by so many bytes …
const FAR_SHARE: f64 = 0.25;
const FAR_BYTES: u64 = 1 << 20;
/// … and if no more than this share of all do.
const FEW: usize = 4;

/// Returns what the processes are counted as.
pub fn noun(g: &Gathered) -> &'static str {
    if g.processes.iter().all(|p| p.rank.is_some()) { "rank" } else { "recording" }
}

/// Returns when the run began.
pub fn began(g: &Gathered) -> String {
    wording::moment(g.processes.iter().map(Process::began_s).fold(f64::INFINITY, f64::min))
}

/// Returns the answer in one sentence: what was found, on which ranks, and who failed first.
pub fn answer(g: &Gathered) -> String {
    let over = count(g.processes.len() as f64, noun(g));
    let mut text = match &g.causes[..] {
        [] if g.judged() == 0 => format!("Not judged: none of {over} has steps enough"),
        [] => format!("No leak in {over}"),
        causes if g.processes.len() == 1 => {
            let findings: Vec<_> = causes.iter().map(|c| c.finding.clone()).collect();
            format!("{} in {over}", found(&findings))
        }
        [one] => {
            let what = found(std::slice::from_ref(&one.finding));
            let first = wording::where_and_who(&one.finding, &one.program.base);
            format!("{what} in {over}, on {}: {first}", on(g, one))
        }
        causes => {
            let findings: Vec<_> = causes.iter().map(|c| c.finding.clone()).collect();
            let mut sets: Vec<(String, usize)> = Vec::new();
            for set in causes.iter().map(|c| on(g, c)) {
                match sets.iter_mut().find(|(known, _)| *known == set) {
                    Some((_, n)) => *n += 1,
                    None => sets.push((set, 1)),
                }
            }
            let sets: Vec<String> = sets.iter().map(|(set, n)| format!("{n} on {set}")).collect();
            format!("{} in {over}: {}", found(&findings), sets.join(", "))
        }
    };
    if let Some(p) = g.ended_early.first().map(|&i| &g.processes[i]) {
        let step = grouped(u64::from(p.steps));
        text.push_str(&format!("; {} ended first, at step {step}: {}", p.name(), p.ended));
    }
    sanitize(&text)
}

/// Returns the processes of a cause: `all of them`, `rank 1 only`.
pub fn on(g: &Gathered, c: &Cause) -> String {
    let members: Vec<usize> = c.members.iter().map(|m| m.process).collect();
    match (c.everywhere, c.alone) {
        (true, _) => "all of them".to_owned(),
        (_, true) => format!("{} only", g.named(&members, NAMES)),
        _ => g.named(&members, NAMES),
    }
}

/// Returns the processes of a cause and what each adds: `all 8 ranks, 11.0 KiB to 13.0 KiB per step, median 12.0 KiB, most
/// on rank 5`.
pub fn spread(g: &Gathered, c: &Cause, most: usize) -> String {
    let members: Vec<usize> = c.members.iter().map(|m| m.process).collect();
    let judged = g.judged().max(members.len());
    let mut text = match members.len() {
        1 if c.alone => format!("{} only, of {}", g.named(&members, 1), count(judged as f64, noun(g))),
        n if n == g.processes.len() && n > 1 => format!("all {}", count(n as f64, noun(g))),
        n => format!("{}, {n} of {judged}", g.named(&members, most)),
    };
    let [least, middle, top] = c.spread;
    if members.len() > 1 && top > 0.0 {
        let largest = c.members.iter().max_by(|a, b| a.bytes_per_step.total_cmp(&b.bytes_per_step));
        let largest = largest.map_or_else(String::new, |m| g.processes[m.process].name());
        text.push_str(&match least == top {
            true => format!(", {} per step on each", exact(top)),
            false => {
                let [least, middle, top] = [least, middle, top].map(size);
                format!(", {least} to {top} per step, median {middle}, most on {largest}")
            }
        });
    }
    for (at, of) in &c.partial {
        let at = location(at.as_ref(), &c.program.base);
        text.push_str(&format!("; {at} on {} only", g.named(of, NAMES)));
    }
    sanitize(&text)
}

/// Processes that ended alike after as many steps, with as many findings.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The processes, by index.
    pub members: Vec<usize>,
    pub name: String,
    pub text: String,
    /// Whether they ended before the others, and as the first.
    pub early: bool,
    pub first: bool,
    /// Whether its processes hold the same.
    #[serde(skip)]
    pub is_equal: bool,
}

/// Lists the processes: those that ended before the others first, and, if not `all` are wanted, equal ones in one row.
pub fn rows(g: &Gathered, all: bool) -> Vec<Row> {
    let first = g.ended_early.first().copied();
    let mut sets: Vec<Vec<usize>> = Vec::new();
    let others = (0..g.processes.len()).filter(|i| !g.ended_early.contains(i));
    for i in g.ended_early.iter().copied().chain(others) {
        let key = |i: usize| {
            let p = &g.processes[i];
            (&p.ended, p.steps, p.findings, g.ended_early.contains(&i))
        };
        // Who ended first stands alone.
        let is_like = |set: &&mut Vec<usize>| first != Some(set[0]) && key(set[0]) == key(i);
        match sets.iter_mut().find(is_like).filter(|_| !all) {
            Some(set) => set.push(i),
            None => sets.push(vec![i]),
        }
    }
    sets.into_iter().map(|members| row(g, members)).collect()
}

fn row(g: &Gathered, members: Vec<usize>) -> Row {
    let p = &g.processes[members[0]];
    let early = g.ended_early.contains(&members[0]);
    let range = |of: fn(&Process) -> u64| {
        let values = members.iter().map(|&i| of(&g.processes[i]));
        let (least, most) = values.fold((u64::MAX, 0), |(a, b), v| (a.min(v), b.max(v)));
        match (size(least as f64), size(most as f64)) {
            (a, b) if a == b => a,
            (a, b) => format!("{a} to {b}"),
        }
    };
    let steps = match early {
        true => format!("step {} of {}", grouped(u64::from(p.steps)), grouped(u64::from(g.most_steps(p)))),
        false => count(f64::from(p.steps), "step"),
    };
    let held = |p: &Process| [p.live_bytes, p.peak_bytes, p.reserved_bytes];
    let is_equal = members.iter().all(|&i| held(&g.processes[i]) == held(p));
    let mut text = format!(
        "{} after {steps}; live {}, peak {}, reserved {}",
        p.ended,
        range(|p| p.live_bytes),
        range(|p| p.peak_bytes),
        range(|p| p.reserved_bytes)
    );
    if p.findings > 0 {
        text.push_str(&format!("; {}", count(p.findings as f64, "finding")));
    }
    if members.len() == 1 {
        text.push_str(&format!(" (pid {} on {}, {})", p.pid, p.host, p.file));
    }
    let name = sanitize(&g.named(&members, NAMES));
    let first = g.ended_early.first() == members.first();
    Row { name, text: sanitize(&text), early, first, is_equal, members }
}

/// How far the processes differ in one figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    pub name: &'static str,
    pub text: String,
    /// Those that differ much from the others; `None`: there are none.
    pub outliers: Option<String>,
}

/// Returns the figures in which the processes differ.
pub fn figures(g: &Gathered) -> Vec<Figure> {
    type Of = fn(&Process) -> u64;
    let all: [(&'static str, Of); 3] =
        [("live", |p| p.live_bytes), ("peak", |p| p.peak_bytes), ("reserved", |p| p.reserved_bytes)];
    let figure = |(name, of): (&'static str, Of)| {
        let ([least, middle, most], at) = g.spread(of).filter(|([least, _, most], _)| least != most)?;
        let far = |i: &usize| {
            let p = &g.processes[*i];
            let off = of(p).abs_diff(middle);
            p.steps > 0 && off >= FAR_BYTES && off as f64 > FAR_SHARE * middle as f64
        };
        let outliers: Vec<usize> = (0..g.processes.len()).filter(far).collect();
        let are_few = !outliers.is_empty() && outliers.len() * FEW <= g.processes.len();
        let [least, median, top] = [least, middle, most].map(|bytes| size(bytes as f64));
        let text = format!("{least} to {top}, median {median}, most on {}", g.processes[at].name());
        let outliers = are_few.then(|| sanitize(&g.named(&outliers, NAMES)));
        Some(Figure { name, text: sanitize(&text), outliers })
    };
    all.into_iter().filter_map(figure).collect()
}
