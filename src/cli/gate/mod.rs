//! Which findings fail a gate: by kind, by a limit, by a baseline. Pure: findings in, decisions out. Knows no
//! file and no exit status.

pub mod baseline;
pub mod github;
pub mod sarif;

use std::path::Path;

use crate::ranks::{Cause, Gathered};
use baseline::{Baseline, Known};
use leaktrace_core::ledger::verdict::Kind;
use leaktrace_core::report::wording::{self, exact, held_by, is_named, relative_path, sanitize};
use leaktrace_core::report::{Location, Program};

/// The rules that findings are held against.
pub struct Gate<'a> {
    pub fails_on: &'a dyn Fn(Kind) -> bool,
    /// What grows by no more per step is accepted.
    pub max_bytes_per_step: Option<f64>,
    pub baseline: Option<&'a Baseline>,
}

/// What the gate decides about one cause, and why.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    Failed(String),
    /// It would fail, but something accepts it.
    Accepted(Acceptance, String),
    /// Of a kind that does not fail.
    Ignored,
}

/// What accepts a cause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Acceptance {
    Limit,
    Baseline,
}

impl Decision {
    pub fn is_failed(&self) -> bool {
        matches!(self, Decision::Failed(_))
    }
}

impl Acceptance {
    /// Returns the name that people read.
    pub fn name(self) -> &'static str {
        match self {
            Acceptance::Limit => "within the limit",
            Acceptance::Baseline => "baselined",
        }
    }
}

impl Gate<'_> {
    /// Decides about each cause.
    pub fn judge(&self, found: &Gathered) -> Vec<Decision> {
        let growth = baseline::growth(&found.causes);
        found.causes.iter().map(|c| self.decide(c, &growth)).collect()
    }

    fn decide(&self, cause: &Cause, growth: &baseline::Growth) -> Decision {
        let f = &cause.finding;
        if !(self.fails_on)(f.kind) {
            return Decision::Ignored;
        }
        let rate = rate(cause);
        if let Some(most) = self.max_bytes_per_step
            && matches!(f.kind, Kind::Leak | Kind::Growing)
            && rate <= most
        {
            let reason = format!("{} per step, the limit is {}", exact(rate), exact(most));
            return Decision::Accepted(Acceptance::Limit, reason);
        }
        match self.baseline.map(|b| b.compare(cause, growth)) {
            Some(Known::Accepted) => Decision::Accepted(Acceptance::Baseline, "in the baseline".to_owned()),
            Some(Known::Grew { was, is }) => Decision::Failed(format!(
                "in the baseline, but it grows faster: {} per step, the baseline accepts {}",
                exact(is),
                exact(was)
            )),
            Some(Known::New { at }) => Decision::Failed(format!("not in the baseline: {}", at.trim())),
            None => Decision::Failed(String::new()),
        }
    }
}

/// Returns the bytes per step of a cause in the process where it is largest, on average over all steps.
pub fn rate(cause: &Cause) -> f64 {
    match cause.finding.kind {
        Kind::Leak | Kind::Growing => cause.finding.growth_bytes_per_step,
        _ => cause.finding.bytes_per_step,
    }
}

/// Returns the line that a cause is shown at: the one that allocates.
pub fn location(cause: &Cause) -> Option<&Location> {
    cause.finding.sites.first()?.allocated_at.as_ref().filter(|p| p.line.is_some() && !p.file.is_empty())
}

/// Shortens a path for the tools of a repository: relative to its root, or to where the program ran.
pub fn in_repository<'p>(file: &'p str, root: &Path, program: &Program) -> &'p str {
    let root = root.to_string_lossy();
    match relative_path(file, &root) {
        whole if whole == file => relative_path(file, &program.cwd),
        inside => inside,
    }
}

/// Writes a finding in a line: `leak: 12.0 KiB (12,288 B) per step at train.py:26 loss, held by …`.
pub fn headline(cause: &Cause) -> String {
    let f = &cause.finding;
    let much = match wording::rate(f) {
        Some(pace) => pace,
        None => exact(f.live_bytes as f64),
    };
    let at = match f.sites.first() {
        Some(site) => {
            format!(" at {}", wording::location(site.allocated_at.as_ref(), &cause.program.cwd))
        }
        None => " in unattributed memory".to_owned(),
    };
    let held = f.holders.first().filter(|h| is_named(&h.path));
    let held = held.map_or_else(String::new, |h| format!(", {}", held_by(&h.path)));
    let alone = match cause.members.len() {
        1 => String::new(),
        n => format!(", in {n} processes"),
    };
    sanitize(&format!("{}: {much}{at}{held}{alone}", f.kind.name()))
}
