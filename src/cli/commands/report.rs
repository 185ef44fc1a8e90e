//! `leaktrace report`: recordings in, a report out. Knows no format: each has a renderer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use super::input::{self, Reader};
use super::{By, Failure, Format, Report as Arguments, output};
use crate::ranks::{self, Gathered, Summary};
use crate::render::html::{self, Page, Pages};
use crate::render::terminal::{self, Look};
use leaktrace_core::format::printable::printable;
use leaktrace_core::format::tables::Tables;
use leaktrace_core::ledger::Ledger;
use leaktrace_core::report::suppress::Suppressions;
use leaktrace_core::report::text::{self, Layout};
use leaktrace_core::report::{self, Query};
use leaktrace_core::symbols::Names;

/// A moment that a report can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// When the most was live.
    Peak,
    /// When an allocation failed the last time.
    Failure,
    /// The end of a step.
    Step(u32),
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<At, String> {
        match (text, text.strip_prefix("step:").and_then(|n| n.parse().ok())) {
            ("peak", _) => Ok(At::Peak),
            ("oom", _) => Ok(At::Failure),
            (_, Some(step)) => Ok(At::Step(step)),
            _ => Err("it is peak, oom, or step:N".into()),
        }
    }
}

pub fn report(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let suppressions = suppressions(arguments.suppressions.as_deref())?;
    let files = input::files(&arguments.files)?;
    let output = arguments.output.as_deref();
    output::check(output, &files)?;
    let by = match arguments.by {
        By::Site => text::By::Site,
        By::File => text::By::File,
        By::Function => text::By::Function,
        By::Cohort => text::By::Cohort,
    };
    let step = match arguments.at {
        Some(At::Step(step)) => Some(step),
        _ => arguments.step,
    };
    if by == text::By::Cohort && step.is_some() {
        return Err(Failure(
            "--by cohort is about the end of a recording: leave out --step, or use --since".into(),
        ));
    }
    let asked = Query {
        step,
        since: arguments.since,
        all: arguments.all || matches!(arguments.by, By::File | By::Function),
        cohorts: by == text::By::Cohort,
    };
    let mut reader = Reader::from(asked);
    (reader.steps_by, reader.all_frames) = (arguments.steps_by, arguments.all_frames);
    reader.at_peak = arguments.at == Some(At::Peak);
    let look = Look {
        layout: Layout {
            width: output::width(output),
            by,
            all: arguments.all || arguments.all_frames,
            failure: arguments.at == Some(At::Failure),
        },
        colour: arguments.color.is_on(output),
    };
    let text = match &files[..] {
        files if matches!(arguments.format, Format::Html) => page(files, &reader, suppressions.as_ref())?,
        [file] => {
            let mut report = reader.report(file)?;
            if look.layout.failure && report.out_of_memory.is_empty() {
                return Err(input::failure(file, "--at oom: no allocation failed for want of memory"));
            }
            suppressions.iter().for_each(|s| s.apply(&mut report));
            match arguments.format {
                Format::Json => report.to_json(),
                _ => terminal::render(&report, &look),
            }
        }
        _ if matches!(arguments.at, Some(At::Peak | At::Failure)) => {
            return Err(Failure("--at peak and --at oom are about one recording".into()));
        }
        files => {
            let named = arguments.files.len() == files.len();
            let gathered = gather(files, &reader, suppressions.as_ref(), named)?;
            match arguments.format {
                Format::Json => ranks::json(&gathered),
                _ => terminal::ranks::render(&gathered, &look),
            }
        }
    };
    output::write(output, &files, text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Renders one page, with a chooser where there are several recordings.
fn page(files: &[PathBuf], reader: &Reader, suppressions: Option<&Suppressions>) -> Result<String, Failure> {
    let limits = html::Limits::of(files.len());
    let (mut pages, mut failures) = (Pages::default(), Vec::new());
    let make =
        |file: &Path, mut report: report::Report, ledger: &Ledger, tables: &Tables, names: &Names<'_>| {
            suppressions.iter().for_each(|s| s.apply(&mut report));
            let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
            Page::new(&printable(&name), report, ledger, tables, names, &limits)
        };
    reader.read_all(files, make, |file, made| match made {
        Ok(page) => pages.add(&page),
        Err(why) => failures.push(input::failure(file, &why)),
    });
    Failure::all(failures)?;
    Ok(html::render(&pages))
}

/// Joins the reports of several recordings. One that cannot be read is an error where it is `named`, and part
/// of the report where it lay in a folder.
fn gather(
    files: &[PathBuf],
    reader: &Reader,
    suppressions: Option<&Suppressions>,
    named: bool,
) -> Result<Gathered, Failure> {
    let (mut gathered, mut failures) = (Gathered::default(), Vec::new());
    reader.read_all(files, summarize(suppressions), |file, summary| match summary {
        Ok(summary) => gathered.add(summary),
        Err(why) => {
            gathered.unread(file, &why);
            failures.push(input::failure(file, &why));
        }
    });
    if named || gathered.is_empty() {
        Failure::all(failures)?;
    }
    gathered.finish();
    Ok(gathered)
}

/// Makes of a report what a report over many recordings keeps of it.
pub fn summarize(
    suppressions: Option<&Suppressions>,
) -> impl Fn(&Path, report::Report, &Ledger, &Tables, &Names<'_>) -> Summary + Sync {
    move |file, mut report, _, _, _| {
        suppressions.iter().for_each(|s| s.apply(&mut report));
        Summary::of(file, report)
    }
}

/// Reads the suppressions: from the file of the option, else from the one that the environment names.
pub fn suppressions(file: Option<&Path>) -> Result<Option<Suppressions>, Failure> {
    let named = std::env::var_os("LEAKTRACE_SUPPRESSIONS").filter(|name| !name.is_empty()).map(PathBuf::from);
    let Some(file) = file.map(Path::to_path_buf).or(named) else { return Ok(None) };
    let text = fs::read_to_string(&file).map_err(|e| input::failure(&file, &e.to_string()))?;
    Suppressions::read(&text).map(Some).map_err(|wrong| input::failure(&file, &wrong.to_string()))
}
