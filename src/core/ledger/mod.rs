//! The ledger: from events to totals. What is live, which site allocated it, in which step it was born, what
//! each step retained.
//!
//! A pure replay, which must not know files, CUDA or Python. The traced process runs it at each boundary, the
//! program again over what came after the last checkpoint; being the same code, the two cannot disagree. No
//! event can make it panic: sums wrap, look-ups may fail, ranges saturate.
//!
//! Every layer sees only what lies below it:
//!
//! ```text
//!   verdict/            is it a leak: one rule per file
//!   query/              what can be asked: totals, what is alive, what was retained, the map of segments
//!   replay              Ledger: each event to its layer, and what happens at a boundary
//!   out_of_memory  fragmentation  graphs
//!   after_last  ◂ driver  blocks  releases  carry_over  steps
//!   block_table  books  ◂ sites ◂ made, devices  sequence  annotations  phases  step_sources  untracked  allocation  cohort
//! ```

mod after_last;
mod allocation;
mod allocation_trend;
mod annotations;
mod block_table;
mod blocks;
mod carry_over;
mod cohort;
mod devices;
mod driver;
mod fragmentation;
mod free_history;
mod graphs;
mod out_of_memory;
mod phases;
mod query;
mod releases;
mod replay;
mod sequence;
mod sites;
mod step_sources;
mod steps;
#[cfg(test)]
mod tests;
mod totals;
mod untracked;
pub mod verdict;

pub use allocation::Extent;
pub use annotations::Annotation;
pub use devices::{Device, DeviceAt};
pub use out_of_memory::OutOfMemory;
pub use phases::Phases;
pub use query::live::LiveAllocation;
pub use query::retained::{retained, retained_since};
pub use query::segment_map::Segment;
pub use replay::Ledger;
pub use sites::{Layer, Retained, Site};
pub use step_sources::BoundarySource;
pub use steps::StepRecord;
pub use untracked::UntrackedCalls;
