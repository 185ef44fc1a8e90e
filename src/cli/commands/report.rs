//! `leaktrace report`: recordings in, report out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::input::{self, Reading, Symbols};
use super::{By, Failure, Format, Report as Arguments, output};
use crate::ranks::{self, Gathered};
use crate::render::html::{self, Page, Pages};
use crate::render::terminal::{self, Look};
use leaktrace_core::report::suppress::Suppressions;
use leaktrace_core::report::{self, Asked};

pub fn report(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let suppressions = suppressions(arguments.suppressions.as_deref())?;
    let files = input::files(&arguments.files)?;
    let output = arguments.output.as_deref();
    let by = match arguments.by {
        By::Site => terminal::By::Site,
        By::File => terminal::By::File,
        By::Function => terminal::By::Function,
        By::Cohort => terminal::By::Cohort,
    };
    if by == terminal::By::Cohort && arguments.step.is_some() {
        return Err(Failure(
            "--by cohort tells of the end of a recording: leave out --step, or take --since".into(),
        ));
    }
    let asked = Asked {
        step: arguments.step,
        since: arguments.since,
        all: arguments.all || matches!(arguments.by, By::File | By::Function),
        cohorts: by == terminal::By::Cohort,
    };
    let reading = Reading { asked, steps_by: arguments.steps_by, all_frames: arguments.all_frames };
    let look = Look {
        width: output::width(output),
        colour: arguments.color.is_on(output),
        by,
        all: arguments.all || arguments.all_frames,
    };
    let text = match &files[..] {
        files if matches!(arguments.format, Format::Html) => page(files, reading, suppressions.as_ref())?,
        [file] => {
            let mut report = input::report(file, reading)?;
            suppressions.iter().for_each(|s| s.apply(&mut report));
            match arguments.format {
                Format::Json => report::json::render(&report),
                _ => terminal::render(&report, &look),
            }
        }
        files => {
            let gathered =
                gather(files, reading, suppressions.as_ref(), arguments.files.len() == files.len())?;
            match arguments.format {
                Format::Json => ranks::json(&gathered),
                _ => terminal::ranks::render(&gathered, &look),
            }
        }
    };
    output::write(output, text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// One page, with a chooser where there are several recordings.
fn page(files: &[PathBuf], reading: Reading, suppressions: Option<&Suppressions>) -> Result<String, Failure> {
    let room = html::Room::of(files.len());
    let symbols = Symbols::default();
    let mut pages = Pages::default();
    for file in files {
        let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
        let page = input::read(file, reading, &symbols, |mut report, ledger, tables, names| {
            suppressions.iter().for_each(|s| s.apply(&mut report));
            Page::new(&name, report, ledger, tables, names, &room)
        });
        pages.add(&page.map_err(|why| input::failure(file, &why))?);
    }
    Ok(html::render(&pages))
}

/// One report over several recordings. One that is named and cannot be read is an error; one that lay in a folder is told of.
fn gather(
    files: &[PathBuf],
    reading: Reading,
    suppressions: Option<&Suppressions>,
    named: bool,
) -> Result<Gathered, Failure> {
    let mut gathered = Gathered::default();
    let mut first = None;
    let make = |file: &Path, mut report: report::Report| {
        suppressions.iter().for_each(|s| s.apply(&mut report));
        ranks::One::of(file, report)
    };
    input::each(files, reading, make, |file, result| match result {
        Ok(one) => gathered.add(one),
        Err(why) => {
            gathered.unread(file, &why);
            first.get_or_insert_with(|| input::failure(file, &why));
        }
    });
    match first {
        Some(failure) if named || gathered.is_empty() => Err(failure),
        _ => {
            gathered.finish();
            Ok(gathered)
        }
    }
}

/// The rules of a file, if one is named: by the option, else by the environment.
pub(super) fn suppressions(file: Option<&Path>) -> Result<Option<Suppressions>, Failure> {
    let named = std::env::var_os("LEAKTRACE_SUPPRESSIONS").filter(|name| !name.is_empty()).map(PathBuf::from);
    let Some(file) = file.map(Path::to_path_buf).or(named) else { return Ok(None) };
    let failure = |why: String| Failure(format!("{}: {why}", file.display()));
    let text = fs::read_to_string(&file).map_err(|e| failure(e.to_string()))?;
    Suppressions::read(&text).map(Some).map_err(|wrong| failure(wrong.to_string()))
}
