//! Whether what was found may pass: kinds, a limit, a baseline. Pure: findings in, a judgement out; files and exit
//! statuses are the command's.

pub mod baseline;
pub mod github;
pub mod sarif;

use std::path::Path;

use crate::ranks::{Cause, Gathered};
use baseline::Baseline;
use leaktrace_core::ledger::verdict::Kind;
use leaktrace_core::report::explain::{exact, short};
use leaktrace_core::report::phrases::{held_by, is_named};
use leaktrace_core::report::{Place, Program};

/// What passes and what does not.
pub struct Gate<'a> {
    pub fails_on: &'a dyn Fn(Kind) -> bool,
    /// What grows by no more per step passes.
    pub max_bytes_per_step: Option<f64>,
    pub baseline: Option<&'a Baseline>,
}

/// What the gate says of one cause.
#[derive(Clone, Debug, PartialEq)]
pub enum Passage {
    Fails(String),
    /// It would fail, but is accepted.
    Accepted(String),
    /// Of a kind that the gate does not look at.
    Passes,
}

impl Gate<'_> {
    /// One judgement per cause.
    pub fn judge(&self, found: &Gathered) -> Vec<Passage> {
        let growth = baseline::growth(&found.causes);
        found.causes.iter().map(|c| self.judge_one(c, &growth)).collect()
    }

    fn judge_one(&self, cause: &Cause, growth: &baseline::Growth) -> Passage {
        let f = &cause.finding;
        if !(self.fails_on)(f.kind) {
            return Passage::Passes;
        }
        let rate = rate(cause);
        if let Some(most) = self.max_bytes_per_step
            && matches!(f.kind, Kind::Leak | Kind::Growing)
            && rate <= most
        {
            return Passage::Accepted(format!(
                "{} per step, of {} that are accepted",
                exact(rate),
                exact(most)
            ));
        }
        match self.baseline.map(|b| b.compare(cause, growth)) {
            Some(baseline::Known::Accepted) => {
                Passage::Accepted("known: it stands in the baseline".to_owned())
            }
            Some(baseline::Known::Grew { was, is }) => Passage::Fails(format!(
                "known, but grows faster: {} per step, the baseline accepts {}",
                exact(is),
                exact(was)
            )),
            Some(baseline::Known::New { at }) => {
                Passage::Fails(format!("not in the baseline: {}", at.trim()))
            }
            None => Passage::Fails(String::new()),
        }
    }
}

/// Bytes per step where it is largest, on average over all steps.
pub fn rate(cause: &Cause) -> f64 {
    match cause.finding.kind {
        Kind::Leak | Kind::Growing => cause.finding.growth_bytes_per_step,
        _ => cause.finding.bytes_per_step,
    }
}

/// Where a cause shows: the line that allocates.
pub fn place_of(cause: &Cause) -> Option<&Place> {
    cause.finding.sites.first()?.allocated_at.as_ref().filter(|p| p.line.is_some() && !p.file.is_empty())
}

/// A file as the tools of a repository want it: relative to its root, or to where the program ran.
pub fn in_repository<'p>(file: &'p str, root: &Path, program: &Program) -> &'p str {
    let root = root.to_string_lossy();
    match short(file, &root) {
        whole if whole == file => short(file, &program.cwd),
        inside => inside,
    }
}

/// A finding in a line: `leak: 12.0 KiB (12,288 B) per step at train.py:26 loss, held by …`.
pub fn headline(cause: &Cause) -> String {
    let f = &cause.finding;
    let much = match leaktrace_core::report::phrases::pace(f) {
        Some(pace) => pace,
        None => exact(f.live_bytes as f64),
    };
    let at = match f.sites.first() {
        Some(site) => {
            format!(
                " at {}",
                leaktrace_core::report::explain::place(site.allocated_at.as_ref(), &cause.program.cwd)
            )
        }
        None => " outside what can be attributed".to_owned(),
    };
    let held = f.holders.first().filter(|h| is_named(&h.path));
    let held = held.map_or_else(String::new, |h| format!(", {}", held_by(&h.path)));
    let alone = match cause.members.len() {
        1 => String::new(),
        n => format!(", in {n} processes"),
    };
    leaktrace_core::report::phrases::clean(&format!("{}: {much}{at}{held}{alone}", f.kind.name()))
}
