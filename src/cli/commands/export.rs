//! `leaktrace export`: recordings in, another tool's format out. Knows no format: each has a file in
//! `export`.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;

use super::input::{self, Reader};
use super::{BAD_INPUT, Failure, output};
use crate::export::tables::{self, Form, Head};
use crate::export::{self, Error, Input, Value};
use crate::export::{folded::Folded, perfetto::Perfetto, pprof::Pprof, snapshot};
use leaktrace_core::report::Report;

/// Events that are written one by one in a format for people, by default.
const EVENTS: u64 = 1_000_000;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  leaktrace export *.ltrace --to flamegraph --value growth -o growth.svg
  leaktrace export run.ltrace --to pprof -o run.pb.gz
    go tool pprof -top -sample_index=growth run.pb.gz
  leaktrace export run.ltrace --to snapshot -o run.pickle
    python -m torch.cuda._memory_viz trace_plot run.pickle
  leaktrace export *.ltrace --to parquet -o fleet")]
pub struct Arguments {
    /// Recordings (*.ltrace)
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Format,
    /// Write to OUT instead of the standard output; csv and parquet: a folder
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// folded, flamegraph: write these bytes; retained: live and older than the last step; peak: of each stack
    #[arg(long, value_enum, value_name = "VALUE", default_value = "live")]
    value: Bytes,
    /// Count growth from the end of step N [default: the last step of the first quarter]
    #[arg(long, value_name = "N")]
    since: Option<u32>,
    /// Write the last N events one by one [default: 1000000; csv, parquet: all]
    #[arg(long, value_name = "N")]
    events: Option<u64>,
    /// csv, parquet: name the run of these recordings [default: the program and when it began]
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Stacks with their bytes, a line each
    Folded,
    /// Flame graph (SVG)
    Flamegraph,
    /// Profile for pprof (live_bytes, live_blocks, retained_bytes, growth, peak_bytes)
    Pprof,
    /// Trace for ui.perfetto.dev: counters, steps, allocations
    Perfetto,
    /// PyTorch memory snapshot, for its memory_viz
    Snapshot,
    /// Tables: recordings, findings, steps, sites, cohorts, events
    Csv,
    /// The same tables as Parquet
    #[cfg(feature = "parquet")]
    Parquet,
    /// JSON schema of `report --format json`; takes no FILE
    JsonSchema,
}

#[derive(Clone, Copy, ValueEnum)]
enum Bytes {
    Live,
    Retained,
    Growth,
    Peak,
}

pub fn export(arguments: Arguments) -> Result<ExitCode, Failure> {
    if arguments.to == Format::JsonSchema {
        if let Some(file) = arguments.files.first() {
            return Err(Failure(format!("{}: --to json-schema takes no recording", file.display())));
        }
        single(&arguments, |out| Ok(out.write_all(Report::json_schema().as_bytes())?))?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.files.is_empty() {
        return Err(Failure("export needs a recording: leaktrace export FILE… --to FORMAT".into()));
    }
    output::check(arguments.output.as_deref(), &arguments.files)?;
    let (several, events) = (arguments.files.len() > 1, arguments.events.unwrap_or(EVENTS));
    let unread = match arguments.to {
        Format::Folded | Format::Flamegraph => {
            let mut folded = Folded::new(arguments.value.into(), arguments.since, several);
            let unread = each(&arguments.files, |input| folded.add(input))?;
            let svg = arguments.to == Format::Flamegraph;
            single(&arguments, |out| if svg { folded.draw(out) } else { Ok(folded.write(out)?) })?;
            unread
        }
        Format::Pprof => {
            let mut pprof = Pprof::new(arguments.since, several);
            let unread = each(&arguments.files, |input| pprof.add(input))?;
            single(&arguments, |out| pprof.write(out))?;
            unread
        }
        Format::Perfetto => {
            // The output is written while recordings are read: a file that is none must be found before.
            let (files, unread) = readable(&arguments.files, |file| head(file).map(|_| file.clone()))?;
            single(&arguments, |out| {
                let mut perfetto = Perfetto::new(out, events);
                for file in &files {
                    let input = read(file).map_err(|Failure(line)| Error::Input(line))?;
                    perfetto.add(&input)?;
                }
                Ok(perfetto.finish()?)
            })?;
            unread
        }
        Format::Snapshot => {
            let [file] = &arguments.files[..] else {
                return Err(Failure("a snapshot is of one process: give one recording".into()));
            };
            let input = read(file)?;
            single(&arguments, |out| Ok(snapshot::write(&input, events, out)?))?;
            false
        }
        Format::Csv => write_tables(&arguments, Form::Csv)?,
        #[cfg(feature = "parquet")]
        Format::Parquet => write_tables(&arguments, Form::Parquet)?,
        Format::JsonSchema => false,
    };
    Ok(ExitCode::from(if unread { BAD_INPUT } else { 0 }))
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Value {
        match bytes {
            Bytes::Live => Value::Live,
            Bytes::Retained => Value::Retained,
            Bytes::Growth => Value::Growth,
            Bytes::Peak => Value::Peak,
        }
    }
}

fn read(file: &Path) -> Result<Input, Failure> {
    Input::read(file).map_err(|why| input::failure(file, &why))
}

/// Reads the facts about the process alone.
fn head(file: &Path) -> Result<Input, Failure> {
    Input::head(file).map_err(|why| input::failure(file, &why))
}

/// Takes of each recording what `take` makes of it. Of several, one that cannot be read is told of, and the others are
/// taken; returns also whether there was one.
fn readable<T>(
    files: &[PathBuf],
    take: impl FnMut(&PathBuf) -> Result<T, Failure>,
) -> Result<(Vec<T>, bool), Failure> {
    let (mut taken, mut failures) = (Vec::new(), Vec::new());
    for made in files.iter().map(take) {
        match made {
            Ok(made) => taken.push(made),
            Err(failure) => failures.push(failure),
        }
    }
    if taken.is_empty() {
        Failure::all(failures)?;
        return Ok((taken, false));
    }
    failures.iter().for_each(|Failure(line)| output::complain(line));
    Ok((taken, !failures.is_empty()))
}

/// Reads one recording after the other, so that only one is in memory. Returns whether one could not be read.
fn each(files: &[PathBuf], mut add: impl FnMut(&Input)) -> Result<bool, Failure> {
    let (_, unread) = readable(files, |file| read(file).map(|input| add(&input)))?;
    Ok(unread)
}

/// Writes one file, or the standard output.
fn single(
    arguments: &Arguments,
    write: impl FnOnce(&mut BufWriter<Box<dyn Write>>) -> export::Result<()>,
) -> Result<(), Failure> {
    let text = matches!(arguments.to, Format::Folded | Format::Flamegraph | Format::JsonSchema);
    let (out, name): (Box<dyn Write>, String) = match &arguments.output {
        Some(path) => {
            let name = path.display().to_string();
            (Box::new(output::create(path, &arguments.files)?), name)
        }
        None if !text && io::stdout().is_terminal() => {
            return Err(Failure("this format is not for a terminal: name a file with -o OUT".into()));
        }
        None => (Box::new(io::stdout()), "standard output".to_owned()),
    };
    let mut out = BufWriter::new(out);
    match write(&mut out).and_then(|()| Ok(out.flush()?)) {
        Err(Error::Output(e)) if e.kind() == ErrorKind::BrokenPipe && arguments.output.is_none() => Ok(()),
        Err(Error::Output(e)) => Err(Failure(format!("{name}: {e}"))),
        Err(Error::Input(line)) => Err(Failure(line)),
        Ok(()) => Ok(()),
    }
}

/// Writes a folder of tables. Returns whether a recording could not be read.
fn write_tables(arguments: &Arguments, form: Form) -> Result<bool, Failure> {
    let Some(folder) = &arguments.output else {
        return Err(Failure("tables are several files: name a folder for them with -o OUT".into()));
    };
    let (there, unread) =
        readable(&arguments.files, |file| head(file).map(|input| (file.clone(), Head::of(&input))))?;
    let (files, heads): (Vec<PathBuf>, Vec<Head>) = there.into_iter().unzip();
    let partitions = tables::partitions(&heads, arguments.run.as_deref());
    for (file, partition) in files.iter().zip(&partitions) {
        // The report drops its ledger before the recording is read again: only one is in memory.
        let report = Reader::default().report(file)?;
        let input = read(file)?;
        let events = arguments.events.unwrap_or(u64::MAX);
        tables::write(&input, &report, partition, folder, form, arguments.since, events).map_err(
            |e| match e {
                Error::Output(e) => Failure(format!("{}: {e}", folder.display())),
                Error::Input(line) => Failure(line),
            },
        )?;
    }
    Ok(unread)
}
