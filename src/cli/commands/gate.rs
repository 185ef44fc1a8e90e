//! What `check` and `run --fail-on` share: recordings in, what fails out, printed for people and for other
//! tools.

use std::path::{Path, PathBuf};
use std::{env, fs};

use super::input::{self, Reader};
use super::{FailOn, Failure, output, report};
use crate::gate::baseline::{self, Baseline};
use crate::gate::github::{self, Severity};
use crate::gate::{Decision, Gate, SourceRoot, headline, sarif};
use crate::ranks::{Gathered, Process};
use crate::render::terminal::{BAD, BOLD, DIM, GOOD, PLAIN, Page, UNSURE};
use leaktrace_core::cpython;
use leaktrace_core::ledger::verdict::MIN_STEPS;
use leaktrace_core::report::suppress::Suppressions;
use leaktrace_core::report::wording::{advice, count, sanitize};

/// Recordings that one reason names.
const NAMED: usize = 8;

/// What fails, what is accepted, and what is ignored.
pub struct GateOptions<'a> {
    pub fail_on: &'a [FailOn],
    pub max_bytes_per_step: Option<f64>,
    pub baseline: Option<&'a Baseline>,
    pub suppressions: Option<&'a Suppressions>,
    pub allow_unjudged: bool,
    /// The folder that paths are written relative to, if not the repository's root.
    pub source_root: Option<&'a Path>,
}

/// The findings of all recordings, and what was decided about them.
pub struct GateResult {
    pub found: Gathered,
    /// One for each cause.
    pub decisions: Vec<Decision>,
    /// What could not be judged, and why, one line each.
    pub unjudged: Vec<String>,
    /// Suppressions and entries of the baseline that nothing matched.
    pub warnings: Vec<String>,
    pub failed: bool,
    /// Whether a recording could not be read; the others are judged.
    pub unread: bool,
    pub root: SourceRoot,
    allow_unjudged: bool,
}

/// Parses a number of bytes: `4096`, `64KiB`, `1.5MiB`, `2GB`.
pub fn bytes(text: &str) -> Result<f64, String> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        _ => return Err(format!("'{unit}' is not a unit: B, KiB, MiB, GiB, KB, MB, GB")),
    };
    let number: f64 =
        number.parse().map_err(|_| "a number of bytes is needed, such as 4096 or 64KiB".to_owned())?;
    Ok(number * factor)
}

/// Reads a baseline.
pub fn read_baseline(path: &Path) -> Result<Baseline, Failure> {
    let text = fs::read_to_string(path).map_err(|e| {
        input::failure(
            path,
            &format!("{e}; `leaktrace check RECORDING --baseline FILE --write-baseline` writes it"),
        )
    })?;
    Baseline::read(&text).map_err(|why| input::failure(path, &why))
}

/// Reads the recordings and decides about their findings.
pub fn judge(files: &[PathBuf], options: &GateOptions<'_>) -> Result<GateResult, Failure> {
    let (mut found, mut failures) = (Gathered::default(), Vec::new());
    let summarize = report::summarize(options.suppressions);
    Reader::default().read_all(files, summarize, |file, summary| match summary {
        Ok(summary) => found.add(summary),
        Err(why) => failures.push(input::failure(file, &why)),
    });
    if found.is_empty() {
        Failure::all(failures)?;
        failures = Vec::new();
    }
    // What can be read is judged nevertheless.
    failures.iter().for_each(|Failure(line)| output::complain(line));
    let unread = !failures.is_empty();
    found.finish();
    let root = options.source_root.map_or_else(repository, Path::to_path_buf);
    let root = SourceRoot::new(&env::current_dir().unwrap_or_default().join(root));
    let fails_on = |kind| options.fail_on.iter().any(|f| f.includes(kind));
    let gate = Gate {
        fails_on: &fails_on,
        max_bytes_per_step: options.max_bytes_per_step,
        baseline: options.baseline,
        root: &root,
    };
    let decisions = gate.judge(&found);
    let mut warnings = Vec::new();
    warnings.extend(options.suppressions.and_then(|s| s.unused(|rule| found.rules.contains(rule))));
    if let Some(gone) = options.baseline.map(|b| b.unused(&baseline::growth(&found.causes, &root))) {
        warnings.extend(gone.iter().map(|entry| format!("in the baseline, but not found: {entry}")));
    }
    let unjudged = unjudged(&found);
    let failed =
        decisions.iter().any(Decision::is_failed) || (!options.allow_unjudged && !unjudged.is_empty());
    let allow_unjudged = options.allow_unjudged;
    Ok(GateResult { found, decisions, unjudged, warnings, failed, unread, root, allow_unjudged })
}

/// Returns the root of the repository that the working directory lies in, or the working directory.
fn repository() -> PathBuf {
    let here = env::current_dir().unwrap_or_default();
    here.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(&here).to_path_buf()
}

/// Lists what could not be judged, and why; recordings of one reason in one line.
fn unjudged(found: &Gathered) -> Vec<String> {
    if found.processes.is_empty() {
        return vec!["no process of it used the GPU, so nothing was recorded".to_owned()];
    }
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    let mut say = |p: &Process, why: String| match reasons.iter_mut().find(|(known, _)| *known == why) {
        Some((_, names)) => names.push(p.recording()),
        None => reasons.push((why, vec![p.recording()])),
    };
    for (i, p) in found.processes.iter().enumerate() {
        let steps = count(f64::from(p.steps), "step");
        // What never had memory has none to leak.
        if p.steps < MIN_STEPS && p.peak_bytes > 0 {
            say(p, format!("{steps} seen, at least {MIN_STEPS} are needed"));
        }
        if found.ended_early.contains(&i) {
            say(p, format!("{} after {steps}, and others made {}", p.ended, found.most_steps(p)));
        }
        if p.dropped_events > 0 {
            say(p, format!("{} lost", count(p.dropped_events as f64, "event")));
        }
    }
    let line = |(why, mut names): (String, Vec<String>)| {
        let more = match names.len().saturating_sub(NAMED) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        names.truncate(NAMED);
        format!("{}{more}: {why}", names.join(", "))
    };
    // What an interpreter hides was not judged either.
    let hidden = found.gaps.iter().map(|(gap, _)| gap.clone()).filter(|gap| cpython::is_interpreters(gap));
    reasons.into_iter().map(line).chain(hidden).collect()
}

impl GateResult {
    /// Writes what a person reads. `annotated`: annotations tell the findings, and they are not told twice.
    pub fn text(&self, page: &mut Page, annotated: bool) {
        let failed = self.decisions.iter().filter(|d| d.is_failed()).count();
        let over = count(self.found.processes.len() as f64, "recording");
        let verdict = match (self.failed, failed) {
            (true, 0) => format!("failed: not everything could be judged, in {over}"),
            (true, n) => format!("failed: {} in {over}", count(n as f64, "finding")),
            (false, _) => format!("passed: {over}"),
        };
        page.wrap("", 2, &[(if self.failed { BAD } else { GOOD }, &format!("leaktrace: {verdict}"))]);
        if self.found.suppressed > 0 {
            let n = count(f64::from(self.found.suppressed), "finding");
            page.wrap("  ", 8, &[(DIM, &format!("suppressed: {n}"))]);
        }
        if annotated {
            return;
        }
        for (cause, decision) in self.found.causes.iter().zip(&self.decisions) {
            let line = headline(cause);
            match decision {
                Decision::Failed(reason) => {
                    page.wrap("  ", 8, &[(BAD, "failed:"), (BOLD, &line)]);
                    if !reason.is_empty() {
                        page.wrap("        ", 8, &[(PLAIN, reason)]);
                    }
                    page.wrap("        ", 8, &[(DIM, "why:"), (PLAIN, &sanitize(&cause.finding.why))]);
                    if let Some(advice) = advice(&cause.finding) {
                        page.wrap("        ", 8, &[(DIM, "fix:"), (PLAIN, &sanitize(&advice))]);
                    }
                }
                Decision::Accepted(by, reason) => {
                    let mark = format!("{}:", by.name());
                    page.wrap("  ", 8, &[(GOOD, &mark), (PLAIN, &line), (DIM, &format!("({reason})"))]);
                }
                Decision::Ignored => page.wrap("  ", 8, &[(DIM, "ignored:"), (PLAIN, &line)]),
            }
        }
        for unjudged in &self.unjudged {
            let style = if self.allow_unjudged { UNSURE } else { BAD };
            page.wrap("  ", 8, &[(style, "not judged:"), (PLAIN, &sanitize(unjudged))]);
        }
        if !self.unjudged.is_empty() && !self.allow_unjudged {
            page.wrap("        ", 8, &[(DIM, "--allow-unjudged accepts that")]);
        }
        for warning in &self.warnings {
            page.wrap("  ", 8, &[(UNSURE, "warning:"), (PLAIN, &sanitize(warning))]);
        }
    }

    /// Returns whether a finding fails, not only what could not be judged.
    pub fn has_failed_finding(&self) -> bool {
        self.decisions.iter().any(Decision::is_failed)
    }

    /// Writes the SARIF file and returns the annotations that were asked for. `files`: the recordings.
    pub fn tools(&self, github: bool, sarif: Option<&Path>, files: &[PathBuf]) -> Result<String, Failure> {
        if let Some(path) = sarif {
            let log = sarif::render(&self.found, &self.decisions, &self.root);
            output::write(Some(path), files, log.as_bytes())?;
        }
        if !github {
            return Ok(String::new());
        }
        let severity = if self.allow_unjudged { Severity::Warning } else { Severity::Error };
        let mut text = github::annotations(&self.found, &self.decisions, &self.root);
        let unjudged = self.unjudged.iter().map(|why| github::line(severity, &format!("not judged: {why}")));
        text.extend(unjudged);
        text.extend(self.warnings.iter().map(|why| github::line(Severity::Warning, why)));
        Ok(text)
    }
}
