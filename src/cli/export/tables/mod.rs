//! Tables for DuckDB, pandas, Spark and the like:
//! `run=…/rank=…/{recordings,findings,steps,sites,cohorts,events}` in one folder, as CSV or Parquet. Their
//! columns are defined once; a sink writes rows of one format.

mod csv;
#[cfg(feature = "parquet")]
mod parquet;
mod partition;
mod rows;

use std::borrow::Cow;
use std::fs::{self, File};
use std::path::Path;

pub use partition::{Head, Partition, partitions};

use super::{Error, Input, Result};
use leaktrace_core::format::reader;
use leaktrace_core::report::Report;

/// The format of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Csv,
    #[cfg(feature = "parquet")]
    Parquet,
}

/// The type of a column; a row may lack any value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Int,
    Float,
    Text,
    Bool,
}

/// A value in a row.
#[derive(Clone, Debug, PartialEq)]
enum Field<'a> {
    Null,
    Int(i64),
    Float(f64),
    Text(Cow<'a, str>),
    Bool(bool),
}

/// A table: its name and columns.
struct Table {
    name: &'static str,
    columns: &'static [(&'static str, Type)],
}

/// Writes the rows of one table.
trait Sink {
    fn row(&mut self, row: &[Field<'_>]) -> Result<()>;
    fn finish(self: Box<Self>) -> Result<()>;
}

impl Form {
    fn open(self, folder: &Path, table: &'static Table) -> Result<Box<dyn Sink>> {
        match self {
            Form::Csv => Ok(Box::new(csv::Csv::create(folder, table)?)),
            #[cfg(feature = "parquet")]
            Form::Parquet => Ok(Box::new(parquet::Parquet::create(folder, table)?)),
        }
    }
}

/// Creates the file of a table, in place of one of an export before; what is no plain file, or a recording, is
/// left as it is.
fn create(folder: &Path, table: &Table, extension: &str) -> Result<File> {
    let path = folder.join(table.name).with_extension(extension);
    let refused = |why| Err(Error::Input(format!("{}: {why}", path.display())));
    match fs::symlink_metadata(&path) {
        Ok(there) if !there.is_file() => refused("is not a plain file, and is left as it is"),
        Ok(_) if reader::is_recording(&path) => refused("is a recording, and is left as it is"),
        _ => Ok(File::create(path)?),
    }
}

/// Writes the tables of one recording to its partition of `folder`. `events`: the most events written, the
/// last ones.
pub fn write(
    input: &Input,
    report: &Report,
    partition: &Partition,
    folder: &Path,
    form: Form,
    since: Option<u32>,
    events: u64,
) -> Result<()> {
    let folder = folder.join(partition.path());
    fs::create_dir_all(&folder).map_err(|e| Error::Input(format!("{}: {e}", folder.display())))?;
    let names = input.names();
    let table = |table, rows: &mut dyn FnMut(&mut dyn Sink) -> Result<()>| {
        let mut sink = form.open(&folder, table)?;
        rows(&mut *sink)?;
        sink.finish()
    };
    table(&rows::RECORDINGS, &mut |sink| rows::recording(input, report, sink))?;
    table(&rows::FINDINGS, &mut |sink| rows::findings(report, sink))?;
    table(&rows::STEPS, &mut |sink| rows::steps(input, sink))?;
    table(&rows::SITES, &mut |sink| rows::sites(input, &names, since, sink))?;
    table(&rows::COHORTS, &mut |sink| rows::cohorts(input, sink))?;
    table(&rows::EVENTS, &mut |sink| rows::events(input, events, sink))
}
