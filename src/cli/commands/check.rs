//! `leaktrace check`: the gate for CI.

use std::process::ExitCode;

use super::gate::{self, Asks};
use super::{Check as Arguments, Failure, GATE, input, output, report};
use crate::gate::{Passage, baseline::Baseline};
use crate::render::terminal::Page;
use leaktrace_core::report::explain::count;

pub fn check(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let suppressions = report::suppressions(arguments.suppressions.as_deref())?;
    let known = arguments.baseline.as_deref().filter(|_| !arguments.write_baseline).map(gate::known);
    let known = known.transpose()?;
    let files = input::files(&arguments.files)?;
    let asks = Asks {
        fail_on: &arguments.fail_on,
        max_bytes_per_step: arguments.max_bytes_per_step,
        baseline: known.as_ref(),
        suppressions: suppressions.as_ref(),
        strict: arguments.strict,
    };
    let mut judged = gate::judge(&files, &asks)?;
    let mut page = Page::new(output::width(None), arguments.color.is_on(None));
    if let Some(path) = arguments.baseline.as_deref().filter(|_| arguments.write_baseline) {
        let fails = judged.passages.iter().map(|p| matches!(p, Passage::Fails(_)));
        let causes = judged.found.causes.iter().zip(fails).filter(|(_, fails)| *fails).map(|(c, _)| c);
        let written = Baseline::of(causes);
        output::write(Some(path), written.to_text().as_bytes())?;
        for p in &mut judged.passages {
            if matches!(p, Passage::Fails(_)) {
                *p = Passage::Accepted("written to the baseline".to_owned());
            }
        }
        judged.failed = arguments.strict && !judged.doubts.is_empty();
        let said = format!("{} written to {}", count(written.len() as f64, "known leak"), path.display());
        page.wrap("", 2, &[(crate::render::terminal::PLAIN, &said)]);
    }
    judged.text(&mut page);
    // First what people read: SARIF that cannot be written must not keep it back.
    output::write(None, page.into_text().as_bytes())?;
    let annotations = judged.tools(arguments.github, arguments.sarif.as_deref())?;
    output::write(None, annotations.as_bytes())?;
    Ok(ExitCode::from(if judged.failed { GATE } else { 0 }))
}
