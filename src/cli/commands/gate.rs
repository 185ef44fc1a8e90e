//! What `check` and `run --fail-on` share: recordings in, what fails out, printed for people and for other
//! tools.

use std::path::{Path, PathBuf};
use std::{env, fs};

use super::input::{self, Reader};
use super::{FailOn, Failure, output, report};
use crate::gate::{Decision, Gate, baseline::Baseline, github, headline, sarif};
use crate::ranks::Gathered;
use crate::render::terminal::{BAD, BOLD, DIM, GOOD, PLAIN, Page, UNSURE};
use leaktrace_core::cpython;
use leaktrace_core::ledger::verdict::MIN_STEPS;
use leaktrace_core::report::suppress::Suppressions;
use leaktrace_core::report::wording::{advice, count, sanitize};

/// What fails, what is accepted, and what is ignored.
pub struct GateOptions<'a> {
    pub fail_on: &'a [FailOn],
    pub max_bytes_per_step: Option<f64>,
    pub baseline: Option<&'a Baseline>,
    pub suppressions: Option<&'a Suppressions>,
    pub strict: bool,
}

/// The findings of all recordings, and what was decided about them.
pub struct GateResult {
    pub found: Gathered,
    /// One for each cause.
    pub decisions: Vec<Decision>,
    /// What could not be judged, one line each.
    pub warnings: Vec<String>,
    pub failed: bool,
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
pub fn baseline(path: &Path) -> Result<Baseline, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|e| input::failure(path, &format!("{e}; `leaktrace check --write-baseline` writes one")))?;
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
    Failure::all(failures)?;
    found.finish();
    let fails_on = |kind| options.fail_on.iter().any(|f| f.includes(kind));
    let gate = Gate {
        fails_on: &fails_on,
        max_bytes_per_step: options.max_bytes_per_step,
        baseline: options.baseline,
    };
    let decisions = gate.judge(&found);
    let warnings = warnings(&found);
    let failed = decisions.iter().any(Decision::is_failed) || (options.strict && !warnings.is_empty());
    Ok(GateResult { found, decisions, warnings, failed })
}

/// Lists what could not be judged.
fn warnings(found: &Gathered) -> Vec<String> {
    let mut warnings = Vec::new();
    if found.judged() == 0 {
        let most = found.processes.iter().map(|p| p.steps).max().unwrap_or(0);
        warnings.push(format!(
            "not judged: {} were seen, at least {MIN_STEPS} are needed",
            count(f64::from(most), "step")
        ));
    }
    for &i in &found.ended_early {
        let p = &found.processes[i];
        warnings.push(format!("{} ended early, after {}", p.name(), count(f64::from(p.steps), "step")));
    }
    if found.dropped_events > 0 {
        warnings.push(format!("{} lost", count(found.dropped_events as f64, "event")));
    }
    warnings.extend(found.gaps.iter().map(|gap| gap.0.clone()).filter(|gap| cpython::is_interpreters(gap)));
    warnings
}

impl GateResult {
    /// Writes what a person reads.
    pub fn text(&self, page: &mut Page) {
        let failed = self.decisions.iter().filter(|d| d.is_failed()).count();
        let over = count(self.found.processes.len() as f64, "recording");
        let verdict = match (self.failed, failed) {
            (true, 0) => format!("failed: not everything could be judged, in {over}"),
            (true, n) => format!("failed: {} in {over}", count(n as f64, "finding")),
            (false, _) => format!("passed: {over}"),
        };
        page.wrap("", 2, &[(if self.failed { BAD } else { GOOD }, &format!("leaktrace: {verdict}"))]);
        for (cause, decision) in self.found.causes.iter().zip(&self.decisions) {
            let line = headline(cause);
            match decision {
                Decision::Failed(reason) => {
                    page.wrap("  ", 8, &[(BAD, "failed:"), (BOLD, &line)]);
                    if !reason.is_empty() {
                        page.wrap("        ", 8, &[(PLAIN, reason)]);
                    }
                    page.wrap("        ", 8, &[(PLAIN, &sanitize(&cause.finding.explanation))]);
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
        if self.found.suppressed > 0 {
            let n = count(f64::from(self.found.suppressed), "finding");
            page.wrap("  ", 8, &[(DIM, &format!("suppressed: {n}"))]);
        }
        for warning in &self.warnings {
            page.wrap("  ", 8, &[(UNSURE, "warning:"), (PLAIN, &sanitize(warning))]);
        }
    }

    /// Writes the SARIF file and returns the annotations that were asked for. Paths are relative to the
    /// working directory. `files`: the recordings.
    pub fn tools(&self, github: bool, sarif: Option<&Path>, files: &[PathBuf]) -> Result<String, Failure> {
        let root = env::current_dir().unwrap_or_default();
        if let Some(path) = sarif {
            let log = sarif::render(&self.found, &self.decisions, &root);
            output::write(Some(path), files, log.as_bytes())?;
        }
        if !github {
            return Ok(String::new());
        }
        let warnings: String = self.warnings.iter().map(|w| github::warning(w)).collect();
        Ok(github::annotations(&self.found, &self.decisions, &root) + &warnings)
    }
}
