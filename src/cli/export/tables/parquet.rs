//! Rows as Parquet: collected by column and written a group at a time, so that memory stays bounded.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type as Schema;

use super::{Field, Result, Sink, Table, Type};

/// Rows in one group.
const GROUP: usize = 128 * 1024;

/// The values of one column in the rows that have one.
enum Values {
    Int(Vec<i64>),
    Float(Vec<f64>),
    Text(Vec<ByteArray>),
    Bool(Vec<bool>),
}

struct Column {
    values: Values,
    /// For each row 1 if it has a value, else 0.
    levels: Vec<i16>,
    /// Texts that came before, since most come again.
    known: HashMap<String, ByteArray>,
}

/// Texts of a column that are kept to be shared at most.
const KNOWN: usize = 1024;

pub struct Parquet {
    writer: SerializedFileWriter<File>,
    columns: Vec<Column>,
    rows: usize,
}

fn failed(e: ParquetError) -> super::Error {
    super::Error::Output(std::io::Error::other(e))
}

impl Parquet {
    pub fn create(folder: &Path, table: &Table) -> Result<Parquet> {
        let file = super::create(folder, table, "parquet")?;
        let fields = table.columns.iter().map(|&(name, r#type)| field(name, r#type).map(Arc::new));
        let fields = fields.collect::<std::result::Result<Vec<_>, _>>().map_err(failed)?;
        let schema = Schema::group_type_builder(table.name).with_fields(fields).build().map_err(failed)?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer =
            SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties)).map_err(failed)?;
        let columns = table.columns.iter().map(|&(_, r#type)| Column {
            values: match r#type {
                Type::Int => Values::Int(Vec::new()),
                Type::Float => Values::Float(Vec::new()),
                Type::Text => Values::Text(Vec::new()),
                Type::Bool => Values::Bool(Vec::new()),
            },
            levels: Vec::new(),
            known: HashMap::new(),
        });
        Ok(Parquet { writer, columns: columns.collect(), rows: 0 })
    }

    fn write_group(&mut self) -> std::result::Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            let Some(mut out) = group.next_column()? else { break };
            let levels = Some(&column.levels[..]);
            match &mut column.values {
                Values::Int(v) => out.typed::<Int64Type>().write_batch(v, levels, None).map(|_| v.clear()),
                Values::Float(v) => out.typed::<DoubleType>().write_batch(v, levels, None).map(|_| v.clear()),
                Values::Text(v) => {
                    out.typed::<ByteArrayType>().write_batch(v, levels, None).map(|_| v.clear())
                }
                Values::Bool(v) => out.typed::<BoolType>().write_batch(v, levels, None).map(|_| v.clear()),
            }?;
            column.levels.clear();
            out.close()?;
        }
        self.rows = 0;
        group.close().map(|_| ())
    }
}

fn field(name: &str, r#type: Type) -> std::result::Result<Schema, ParquetError> {
    let physical = match r#type {
        Type::Int => Physical::INT64,
        Type::Float => Physical::DOUBLE,
        Type::Text => Physical::BYTE_ARRAY,
        Type::Bool => Physical::BOOLEAN,
    };
    let logical = (r#type == Type::Text).then_some(LogicalType::String);
    Schema::primitive_type_builder(name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()
}

impl Sink for Parquet {
    fn row(&mut self, row: &[Field<'_>]) -> Result<()> {
        for (column, field) in self.columns.iter_mut().zip(row) {
            let present = match (&mut column.values, field) {
                (Values::Int(v), Field::Int(n)) => push(v, *n),
                (Values::Float(v), Field::Float(x)) => push(v, *x),
                (Values::Text(v), Field::Text(text)) => push(v, shared(&mut column.known, text)),
                (Values::Bool(v), Field::Bool(yes)) => push(v, *yes),
                _ => 0,
            };
            column.levels.push(present);
        }
        self.rows += 1;
        if self.rows == GROUP { self.write_group().map_err(failed) } else { Ok(()) }
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        if self.rows > 0 {
            self.write_group().map_err(failed)?;
        }
        self.writer.close().map(|_| ()).map_err(failed)
    }
}

fn shared(known: &mut HashMap<String, ByteArray>, text: &str) -> ByteArray {
    if let Some(known) = known.get(text) {
        return known.clone();
    }
    let new = ByteArray::from(text.as_bytes().to_vec());
    if known.len() < KNOWN {
        known.insert(text.to_owned(), new.clone());
    }
    new
}

fn push<T>(values: &mut Vec<T>, value: T) -> i16 {
    values.push(value);
    1
}
