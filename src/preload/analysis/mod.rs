//! What becomes of the events inside the process: where steps end, the ledger that is kept of them, the
//! reports on the way.
//!
//! It runs outside the hooks' fast path, and knows no CUDA function and no Python object.

pub mod analyzer;
pub mod annotations;
pub mod answers;
pub mod captured;
pub mod counters;
pub mod frequency;
pub mod holders;
pub mod loop_entries;
pub mod loop_steps;
pub mod public_api;
mod report_files;
mod search_time;
pub mod step_boundaries;
mod step_schedule;
