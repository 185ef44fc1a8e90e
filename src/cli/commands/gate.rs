//! What `check` and `run --fail-on` share: recordings in, a judgement printed, an exit status out.

use std::path::{Path, PathBuf};
use std::{env, fs};

use super::{FailOn, Failure, input, output};
use crate::gate::{Gate, Passage, baseline::Baseline, github, headline, sarif};
use crate::ranks::{Gathered, One};
use crate::render::terminal::{BAD, BOLD, DIM, GOOD, PLAIN, Page, UNSURE};
use leaktrace_core::ledger::verdict::MIN_STEPS;
use leaktrace_core::report::Asked;
use leaktrace_core::report::advice::advice;
use leaktrace_core::report::explain::count;
use leaktrace_core::report::phrases::clean;
use leaktrace_core::report::suppress::Suppressions;

/// What a gate is asked.
pub struct Asks<'a> {
    pub fail_on: &'a [FailOn],
    pub max_bytes_per_step: Option<f64>,
    pub baseline: Option<&'a Baseline>,
    pub suppressions: Option<&'a Suppressions>,
    pub strict: bool,
}

/// What came of it.
pub struct Judged {
    pub found: Gathered,
    pub passages: Vec<Passage>,
    /// What could not be judged, one line each.
    pub doubts: Vec<String>,
    pub failed: bool,
}

/// `4096`, `64KiB`, `1.5MiB`, `2GB`.
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
        _ => return Err(format!("'{unit}' is no unit: B, KiB, MiB, GiB, KB, MB, GB")),
    };
    let number: f64 =
        number.parse().map_err(|_| "a number of bytes is needed, such as 4096 or 64KiB".to_owned())?;
    Ok(number * factor)
}

/// What is known and lived with.
pub fn known(path: &Path) -> Result<Baseline, Failure> {
    let failure = |why: String| Failure(format!("{}: {why}", path.display()));
    let text = fs::read_to_string(path)
        .map_err(|e| failure(format!("{e}; `leaktrace check --write-baseline` writes one")))?;
    Baseline::read(&text).map_err(failure)
}

/// Reads and judges.
pub fn judge(files: &[PathBuf], asks: &Asks<'_>) -> Result<Judged, Failure> {
    let mut found = Gathered::default();
    let mut wrong = None;
    let make = |file: &Path, mut report: leaktrace_core::report::Report| {
        asks.suppressions.iter().for_each(|s| s.apply(&mut report));
        One::of(file, report)
    };
    input::each(files, Asked::default(), make, |file, result| match result {
        Ok(one) => found.add(one),
        Err(why) => {
            wrong.get_or_insert_with(|| input::failure(file, &why));
        }
    });
    if let Some(failure) = wrong {
        return Err(failure);
    }
    found.finish();
    let fails_on = |kind| asks.fail_on.iter().any(|f| f.includes(kind));
    let gate =
        Gate { fails_on: &fails_on, max_bytes_per_step: asks.max_bytes_per_step, baseline: asks.baseline };
    let passages = gate.judge(&found);
    let doubts = doubts(&found);
    let failed =
        passages.iter().any(|p| matches!(p, Passage::Fails(_))) || (asks.strict && !doubts.is_empty());
    Ok(Judged { found, passages, doubts, failed })
}

fn doubts(found: &Gathered) -> Vec<String> {
    let mut doubts = Vec::new();
    if found.judged() == 0 {
        let most = found.processes.iter().map(|p| p.steps).max().unwrap_or(0);
        doubts.push(format!(
            "not judged: {} were seen, at least {MIN_STEPS} are needed",
            count(f64::from(most), "step")
        ));
    }
    for &i in &found.ended_early {
        let p = &found.processes[i];
        doubts.push(format!("{} ended early, after {}", p.name(), count(f64::from(p.steps), "step")));
    }
    if found.dropped_events > 0 {
        doubts.push(format!("{} lost", count(found.dropped_events as f64, "event")));
    }
    doubts
}

impl Judged {
    /// What a person reads.
    pub fn text(&self, page: &mut Page) {
        let fails = self.passages.iter().filter(|p| matches!(p, Passage::Fails(_))).count();
        let over = count(self.found.processes.len() as f64, "recording");
        let said = match (self.failed, fails) {
            (true, 0) => format!("failed: what must be judged could not be, in {over}"),
            (true, n) => format!("failed: {} in {over}", count(n as f64, "finding")),
            (false, _) => format!("passed: {over}"),
        };
        page.wrap("", 2, &[(if self.failed { BAD } else { GOOD }, &format!("leaktrace: {said}"))]);
        for (cause, passage) in self.found.causes.iter().zip(&self.passages) {
            let line = headline(cause);
            match passage {
                Passage::Fails(reason) => {
                    page.wrap("  ", 8, &[(BAD, "fail:"), (BOLD, &line)]);
                    if !reason.is_empty() {
                        page.wrap("        ", 8, &[(PLAIN, reason)]);
                    }
                    page.wrap("        ", 8, &[(PLAIN, &clean(&cause.finding.explanation))]);
                    if let Some(advice) = advice(&cause.finding) {
                        page.wrap("        ", 8, &[(DIM, "to change:"), (PLAIN, &clean(&advice))]);
                    }
                }
                Passage::Accepted(reason) => {
                    page.wrap("  ", 8, &[(GOOD, "accepted:"), (PLAIN, &line), (DIM, &format!("({reason})"))]);
                }
                Passage::Passes => page.wrap("  ", 8, &[(DIM, "passes:"), (PLAIN, &line)]),
            }
        }
        if self.found.suppressed > 0 {
            let n = count(f64::from(self.found.suppressed), "finding");
            page.wrap("  ", 8, &[(DIM, &format!("suppressed: {n}"))]);
        }
        for doubt in &self.doubts {
            page.wrap("  ", 8, &[(UNSURE, "note:"), (PLAIN, &clean(doubt))]);
        }
    }

    /// What it says to other tools: the annotations that were asked for, and the file; paths are told from where we are.
    pub fn tools(&self, github: bool, sarif: Option<&Path>) -> Result<String, Failure> {
        let root = env::current_dir().unwrap_or_default();
        if let Some(path) = sarif {
            self.sarif(&root, path)?;
        }
        Ok(if github { self.github(&root) } else { String::new() })
    }

    /// Annotations for GitHub.
    fn github(&self, root: &Path) -> String {
        let doubts: String = self.doubts.iter().map(|d| github::warning(d)).collect();
        github::annotations(&self.found, &self.passages, root) + &doubts
    }

    /// Writes SARIF there.
    fn sarif(&self, root: &Path, path: &Path) -> Result<(), Failure> {
        output::write(Some(path), sarif::render(&self.found, &self.passages, root).as_bytes())
    }
}
