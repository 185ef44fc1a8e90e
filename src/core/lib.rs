//! What both halves of leaktrace share: the recording's format, the ledger, the verdicts, the step logic, the names of frames
//! and the report.
//!
//! Everything here is pure: bytes and events in, facts out. Nothing calls CUDA or Python, and nothing here is unsafe.

#![forbid(unsafe_code)]

pub mod entry_points;
pub mod format;
pub mod holders;
pub mod ledger;
pub mod report;
pub mod steps;
pub mod symbols;
