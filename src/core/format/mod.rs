//! The recording format: what the traced process writes and the program reads.
//!
//! It knows bytes, not meaning: it must not know CUDA, Python, or what a leak is.
//!
//! A recording (`*.ltrace`) is a file of equal segments. Segment 0 is the header; every other one is free, or
//! holds events, table entries, or a part of a checkpoint:
//!
//! ```text
//! ┌────────┬────────┬────────┬────────────┬────────┬───
//! │ header │ events │ tables │ checkpoint │ events │ …      SEGMENT bytes each
//! └────────┴────────┴────────┴────────────┴────────┴───
//! ```
//!
//! Events of all threads carry one dense sequence number; the truth at any moment is the newest whole
//! checkpoint plus the committed events from its sequence number on.

pub mod backfilled;
pub mod corrections;
pub mod entry;
pub mod event;
pub mod file_layout;
pub mod printable;
pub mod reader;
pub mod tables;
