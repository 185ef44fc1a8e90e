//! Reads the events back at the end of each step: feeds the ledger, writes the step, the checkpoint and the reports.
//!
//! It runs outside the hooks' fast path and knows no CUDA function.

pub mod analyzer;
pub mod annotations;
pub mod holders;
pub mod loop_steps;
pub mod public_api;
pub mod step_boundaries;
