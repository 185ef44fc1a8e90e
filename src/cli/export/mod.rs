//! Recordings in the formats of other tools, one file per format. Knows the ledger, the names and the report;
//! no CUDA and no arguments. Every format takes recordings one after the other and keeps of each only what it
//! writes.

pub mod folded;
mod input;
pub mod perfetto;
mod perfetto_proto;
mod pickle;
pub mod pprof;
mod pprof_proto;
mod range;
pub mod snapshot;
mod stats;
pub mod tables;
mod timeline;

pub use input::{Input, replay};
pub use stats::Value;

/// Why an export was not finished: the output could not be written, or the input has nothing to write.
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
