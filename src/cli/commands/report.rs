//! `leaktrace report`: recordings in, a report out. Knows no format: each has a renderer.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use super::input::{self, Reader};
use super::{BAD_INPUT, By, Failure, Format, Report as Arguments, output};
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
    let Inputs { files, named, missing } = inputs(&arguments.files)?;
    let output = arguments.output.as_deref();
    let format = arguments.format.unwrap_or_else(|| format_of(output));
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
        net: false,
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
    let (text, unread) = match &files[..] {
        files if matches!(format, Format::Html) => page(files, &reader, suppressions.as_ref())?,
        [file] => {
            let mut report = reader.report(file)?;
            if look.layout.failure && report.out_of_memory.is_empty() {
                return Err(input::failure(file, "--at oom: no allocation failed for want of memory"));
            }
            suppressions.iter().for_each(|s| s.apply(&mut report));
            let text = match format {
                Format::Json => report.to_json(),
                _ => terminal::render(&report, &look),
            };
            (text, false)
        }
        _ if matches!(arguments.at, Some(At::Peak | At::Failure)) => {
            return Err(Failure("--at peak and --at oom are about one recording".into()));
        }
        files => {
            let gathered = gather(files, &reader, suppressions.as_ref())?;
            // A file in a folder is part of the report; one that was named is an error beside it.
            let unread = named && gathered.iter().any(|g| !g.unread.is_empty());
            let text = match format {
                Format::Json => ranks::json(&gathered),
                _ => terminal::ranks::render(&gathered, &look),
            };
            (text, unread)
        }
    };
    match output {
        None if matches!(format, Format::Html) && io::stdout().is_terminal() => {
            let path = output::write_new(&PathBuf::from("leaktrace.html"), text.as_bytes())?;
            output::complain(&format!("the page is in {}; -o names another file", path.display()));
        }
        _ => output::write(output, &files, text.as_bytes())?,
    }
    Ok(ExitCode::from(if missing || unread { BAD_INPUT } else { 0 }))
}

/// The recordings that a report is about.
struct Inputs {
    files: Vec<PathBuf>,
    /// Whether each was named, and none lay in a folder.
    named: bool,
    /// Whether another was named that is not there.
    missing: bool,
}

/// Lists the recordings that are meant. Of several, one that is not there is told of, and the others are read. Where none is
/// named, they are those of the newest run in the working directory.
fn inputs(named: &[PathBuf]) -> Result<Inputs, Failure> {
    if named.is_empty() {
        let here = input::newest_run(Path::new("."))?;
        return Ok(Inputs { files: here, named: true, missing: false });
    }
    let (there, missing): (Vec<PathBuf>, Vec<PathBuf>) =
        named.iter().cloned().partition(|path| path.exists());
    if !there.is_empty() {
        missing.iter().for_each(|path| output::complain(&format!("{}: is not there", path.display())));
    }
    let files = input::files(if there.is_empty() { named } else { &there })?;
    let named = there.len() == files.len();
    Ok(Inputs { files, named, missing: !missing.is_empty() })
}

/// Returns the format that a file's name asks for.
fn format_of(output: Option<&Path>) -> Format {
    match output.and_then(Path::extension).and_then(OsStr::to_str) {
        Some("html" | "htm") => Format::Html,
        Some("json") => Format::Json,
        _ => Format::Text,
    }
}

/// Renders one page, with a page over all and a chooser where there are several recordings. Returns also whether one could
/// not be read.
fn page(
    files: &[PathBuf],
    reader: &Reader,
    suppressions: Option<&Suppressions>,
) -> Result<(String, bool), Failure> {
    let limits = html::Limits::of(files.len());
    let (mut pages, mut failures) = (Pages::of(files.len()), Vec::new());
    let (mut summaries, mut unread) = (Vec::new(), Vec::new());
    let make =
        |file: &Path, mut report: report::Report, ledger: &Ledger, tables: &Tables, names: &Names<'_>| {
            suppressions.iter().for_each(|s| s.apply(&mut report));
            let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
            let summary = (files.len() > 1).then(|| Summary::of(file, report.clone()));
            (summary, Page::new(&printable(&name), report, ledger, tables, names, &limits))
        };
    reader.read_all(files, make, |file, made| match made {
        Ok((summary, page)) => {
            pages.add(&page);
            summaries.extend(summary);
        }
        Err(why) => {
            unread.push((printable(&file.display().to_string()).into(), why.clone()));
            failures.push(input::failure(file, &why));
        }
    });
    let failed = !failures.is_empty();
    if summaries.is_empty() {
        Failure::all(failures)?;
    }
    if files.len() > 1 {
        pages.set_overview(&ranks::by_run(summaries, unread));
    }
    Ok((html::render(&pages), failed))
}

/// Joins the reports of several recordings, those of a run in one. Nothing that can be read is an error.
fn gather(
    files: &[PathBuf],
    reader: &Reader,
    suppressions: Option<&Suppressions>,
) -> Result<Vec<Gathered>, Failure> {
    let (mut summaries, mut unread, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    reader.read_all(files, summarize(suppressions), |file, summary| match summary {
        Ok(summary) => summaries.push(summary),
        Err(why) => {
            unread.push((printable(&file.display().to_string()).into(), why.clone()));
            failures.push(input::failure(file, &why));
        }
    });
    if summaries.is_empty() {
        Failure::all(failures)?;
    }
    Ok(ranks::by_run(summaries, unread))
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
