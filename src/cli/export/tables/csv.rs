//! Rows as CSV with a header; an absent value is empty. A text that a spreadsheet would take for a formula has
//! an apostrophe before it.

use std::fs::File;
use std::path::Path;

use csv::Writer;

use super::{Field, Result, Sink, Table};

pub struct Csv(Writer<File>);

impl Csv {
    pub fn create(folder: &Path, table: &Table) -> Result<Csv> {
        let mut writer = Writer::from_writer(super::create(folder, table, "csv")?);
        writer.write_record(table.columns.iter().map(|(name, _)| name)).map_err(failed)?;
        Ok(Csv(writer))
    }
}

fn failed(e: csv::Error) -> super::Error {
    super::Error::Output(e.into())
}

impl Sink for Csv {
    fn row(&mut self, row: &[Field<'_>]) -> Result<()> {
        for field in row {
            let written = match field {
                Field::Null => self.0.write_field(""),
                Field::Int(n) => self.0.write_field(n.to_string()),
                Field::Float(x) => self.0.write_field(x.to_string()),
                Field::Text(text) if text.starts_with(['=', '+', '-', '@', '\t', '\r']) => {
                    self.0.write_field(format!("'{text}"))
                }
                Field::Text(text) => self.0.write_field(text.as_bytes()),
                Field::Bool(yes) => self.0.write_field(yes.to_string()),
            };
            written.map_err(failed)?;
        }
        self.0.write_record(None::<&[u8]>).map_err(failed)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        Ok(self.0.flush()?)
    }
}
