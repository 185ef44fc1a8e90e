//! The report: what a recording says, ready for any format. `model` is data only, built by `build` from the ledger, the
//! tables and the names; `wording` has the sentences, `text` the one layout as text. Knows no CUDA and no file.

mod build;
mod model;
#[cfg(feature = "schema")]
mod schema;
mod steps;
pub mod suppress;
#[cfg(test)]
mod tests;
pub mod text;
pub mod wording;

pub use build::{Query, Run, StepUnknown, listed_frames};
pub use model::*;
pub use steps::*;
