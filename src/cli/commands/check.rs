//! `leaktrace check`: fails if recordings hold a leak.

use std::process::ExitCode;

use super::gate::{self, GateOptions};
use super::{BAD_INPUT, Check as Arguments, Failure, GATE, input, output, report};
use crate::gate::{Acceptance, Decision, baseline::Baseline};
use crate::render::terminal::{PLAIN, Page};
use leaktrace_core::report::wording::count;

pub fn check(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let suppressions = report::suppressions(arguments.suppressions.as_deref())?;
    let baseline = arguments.baseline.as_deref().filter(|_| !arguments.write_baseline);
    let baseline = baseline.map(gate::read_baseline).transpose()?;
    let files = input::files(&arguments.files)?;
    output::check(arguments.sarif.as_deref(), &files)?;
    output::check(arguments.baseline.as_deref().filter(|_| arguments.write_baseline), &files)?;
    let options = GateOptions {
        fail_on: &arguments.fail_on,
        max_bytes_per_step: arguments.max_bytes_per_step,
        baseline: baseline.as_ref(),
        suppressions: suppressions.as_ref(),
        allow_unjudged: arguments.allow_unjudged,
        source_root: arguments.source_root.as_deref(),
    };
    let mut result = gate::judge(&files, &options)?;
    let mut page = Page::new(output::width(None), arguments.color.is_on(None));
    if let Some(path) = arguments.baseline.as_deref().filter(|_| arguments.write_baseline) {
        let decided = result.found.causes.iter().zip(&result.decisions);
        let written =
            Baseline::of(decided.filter(|(_, d)| d.is_failed()).map(|(cause, _)| cause), &result.root);
        output::write(Some(path), &files, written.to_text().as_bytes())?;
        for decision in result.decisions.iter_mut().filter(|d| d.is_failed()) {
            *decision = Decision::Accepted(Acceptance::Baseline, "written to the baseline".to_owned());
        }
        result.failed = !arguments.allow_unjudged && !result.unjudged.is_empty();
        let line = format!("{} written to {}", count(written.len() as f64, "known leak"), path.display());
        page.wrap("", 2, &[(PLAIN, &line)]);
    }
    result.text(&mut page, arguments.github);
    // Before the SARIF file: a file that cannot be written must not keep this back.
    output::write(None, &[], page.into_text().as_bytes())?;
    let annotations = result.tools(arguments.github, arguments.sarif.as_deref(), &files)?;
    output::write(None, &[], annotations.as_bytes())?;
    Ok(ExitCode::from(match result.unread {
        true => BAD_INPUT,
        false if result.failed => GATE,
        false => 0,
    }))
}
