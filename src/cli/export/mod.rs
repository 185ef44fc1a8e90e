//! Recordings in the formats of other tools, one file per format. Knows the books, the names and the report; no CUDA,
//! no arguments. Every format takes recordings one after the other and keeps of each only what it needs: what is alive,
//! by site, not what happened.

mod figures;
pub mod folded;
mod input;
pub mod perfetto;
mod perfetto_proto;
mod pickle;
pub mod pprof;
mod pprof_proto;
pub mod snapshot;
mod story;
pub mod tables;
mod window;

pub use figures::Value;
pub use input::Input;

/// JSON schema of what `leaktrace report --format json` writes.
pub const REPORT_SCHEMA: &str = include_str!("../../core/report/schema.json");

/// Why an export was not finished: the output, or what it was to hold.
#[derive(Debug)]
pub enum Error {
    Output(std::io::Error),
    Input(String),
}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Error {
        Error::Output(e)
    }
}

pub type Result<T> = std::result::Result<T, Error>;
