//! Which findings fail a gate: by kind, by a limit, by a baseline. Pure: findings in, decisions out. Knows no
//! file and no exit status.

pub mod baseline;
pub mod github;
pub mod sarif;

use std::path::{Component, Path, PathBuf};

use crate::ranks::{Cause, Gathered};
use baseline::{Baseline, Known};
use leaktrace_core::ledger::verdict::Kind;
use leaktrace_core::report::Program;
use leaktrace_core::report::wording::{self, exact, held_by_whom, sanitize};

/// The rules that findings are held against.
pub struct Gate<'a> {
    pub fails_on: &'a dyn Fn(Kind) -> bool,
    /// What grows by no more per step is accepted.
    pub max_bytes_per_step: Option<f64>,
    pub baseline: Option<&'a Baseline>,
    pub root: &'a SourceRoot,
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
        let growth = baseline::growth(&found.causes, self.root);
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
        match self.baseline.map(|b| b.compare(cause, growth, self.root)) {
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

/// The folder that the paths of a repository are relative to.
pub struct SourceRoot(PathBuf);

impl SourceRoot {
    /// `folder`: an absolute path. It need not exist here: recordings may come from another machine.
    pub fn new(folder: &Path) -> SourceRoot {
        SourceRoot(normal(folder))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of a file in the repository; `None` for a file outside of it.
    pub fn inside(&self, file: &str, program: &Program) -> Option<String> {
        // A file that no path leads to, such as `<string>`, has none in the repository either.
        if file.is_empty() || file.starts_with('<') {
            return None;
        }
        let cwd = Path::new(&program.cwd);
        let whole = normal(&cwd.join(file));
        // A recording of another machine is taken to be of a program that ran at the root.
        let ran_in = Some(normal(cwd)).filter(|cwd| cwd != Path::new("/"));
        let below = whole.strip_prefix(&self.0).ok();
        let below = below.or_else(|| whole.strip_prefix(ran_in?).ok());
        below.map(|path| path.display().to_string()).filter(|path| !path.is_empty())
    }

    /// Returns the path in the repository, or the whole path of a file outside of it.
    pub fn relative(&self, file: &str, program: &Program) -> String {
        self.inside(file, program).unwrap_or_else(|| match file.starts_with('<') || file.is_empty() {
            true => file.to_owned(),
            false => normal(&Path::new(&program.cwd).join(file)).display().to_string(),
        })
    }
}

/// Takes `.` and `..` out of a path, without looking at what is there.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(normal.pop()),
            part => normal.push(part),
        }
    }
    normal
}

/// Returns the line that a cause is shown at: the one that allocates, or the innermost that called it and lies in the
/// repository.
pub fn shown_at(cause: &Cause, root: &SourceRoot) -> Option<(String, u32)> {
    let site = cause.finding.sites.first()?;
    let lines = site.allocated_at.iter().map(|p| (p.file.as_str(), p.line));
    let lines =
        lines.chain(site.stack.iter().filter(|f| f.own).map(|f| (f.frame.file.as_str(), f.frame.line)));
    let mut lines = lines.filter_map(|(file, line)| Some((file, line.filter(|&line| line > 0)?)));
    lines.find_map(|(file, line)| Some((root.inside(file, &cause.program)?, line)))
}

/// Writes a finding in a line: `leak: 12.0 KiB (12,288 B) per step at train.py:26 loss, held by …`.
pub fn headline(cause: &Cause) -> String {
    let f = &cause.finding;
    let much = match wording::rate(f) {
        Some(pace) => pace,
        // As the report says it: the median of all steps.
        None if f.kind == Kind::CarryOver => exact(f.bytes_per_step.round()),
        None => exact(f.live_bytes as f64),
    };
    let at = match f.sites.first() {
        Some(site) => {
            format!(" at {}", wording::place(site, &cause.program.base))
        }
        None => " in unattributed memory".to_owned(),
    };
    let held = held_by_whom(f).map_or_else(String::new, |held| format!(", {held}"));
    let alone = match cause.members.len() {
        1 => String::new(),
        n => format!(", in {n} processes"),
    };
    sanitize(&format!("{}: {much}{at}{held}{alone}", wording::kind(f.kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_repository() {
        let program = Program { cwd: "/home/me/repo/runs".into(), ..Program::default() };
        let root = SourceRoot::new(Path::new("/home/me/repo/"));
        for (file, path) in [
            ("../train.py", "train.py"),
            ("/home/me/repo/t4/../ddp.py", "ddp.py"),
            ("./own.py", "runs/own.py"),
            ("/opt/venv/lib/x.py", "/opt/venv/lib/x.py"),
            ("../../other/x.py", "/home/me/other/x.py"),
            ("<string>", "<string>"),
        ] {
            assert_eq!(root.relative(file, &program), path);
        }
        let elsewhere = SourceRoot::new(Path::new("/github/workspace"));
        assert_eq!(elsewhere.relative("/home/me/repo/runs/own.py", &program), "own.py");
        assert_eq!(elsewhere.inside("../train.py", &program), None);
    }
}
