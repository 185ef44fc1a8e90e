//! `leaktrace diff`: compares two runs, or two steps of one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::input::Reader;
use super::{Diff as Arguments, Failure, PlainFormat, output};
use crate::diff::{compare, json};
use crate::render::terminal::{self, Look};
use leaktrace_core::report::Query;
use leaktrace_core::report::text::Layout;

pub fn diff(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (a, at_a) = split(&arguments.a)?;
    let b = arguments.b.as_deref().map(split).transpose()?;
    let ((b, at_b), one) = match b {
        Some(b) => (b, false),
        None => ((a.clone(), None), true),
    };
    let (at_a, at_b) = match (&arguments.step[..], one) {
        ([], true) => {
            return Err(Failure(format!(
                "one recording alone: name another, or two of its steps (--step 10 --step 200, or {0}@10 {0}@200)",
                a.display()
            )));
        }
        ([], false) => (at_a, at_b),
        _ if at_a.is_some() || at_b.is_some() => {
            return Err(Failure("give a step by FILE@STEP or by --step, not by both".into()));
        }
        ([_], true) => {
            return Err(Failure("one step alone: give --step twice, or a second recording".into()));
        }
        ([step], false) => (Some(*step), Some(*step)),
        ([first, second], _) => (Some(*first), Some(*second)),
        _ => return Err(Failure("--step is given at most twice: for A and for B".into())),
    };
    let report = |file: &Path, step| Reader::from(Query { step, all: true, ..Query::default() }).report(file);
    let (then, now) = (report(&a, at_a)?, report(&b, at_b)?);
    let inputs = [a, b];
    let [a, b] = inputs.each_ref().map(|file| file.display().to_string());
    let diff = compare((&a, &then), (&b, &now));
    let output = arguments.output.as_deref();
    let text = match arguments.format {
        PlainFormat::Json => json(&diff),
        PlainFormat::Text => terminal::diff::render(
            &diff,
            &Look {
                layout: Layout { width: output::width(output), all: arguments.all, ..Layout::default() },
                colour: arguments.color.is_on(output),
            },
        ),
    };
    output::write(output, &inputs, text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Splits `FILE@STEP`, unless there is a file of that whole name.
fn split(path: &Path) -> Result<(PathBuf, Option<u32>), Failure> {
    let whole = (path.to_path_buf(), None);
    if path.exists() {
        return Ok(whole);
    }
    let Some((file, step)) = path.to_str().and_then(|p| p.rsplit_once('@')) else { return Ok(whole) };
    if !Path::new(file).exists() {
        return Ok(whole);
    }
    match step.parse() {
        Ok(step) => Ok((file.into(), Some(step))),
        Err(_) => {
            Err(Failure(format!("{}: '{step}' is not a step; FILE@STEP, such as {file}@10", path.display())))
        }
    }
}
