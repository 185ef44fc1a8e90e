//! The paper: what a recording is made of, shared by the traced process (writer) and the `leaktrace` program (reader).
//!
//! It knows bytes, not meaning: nothing here knows CUDA, Python, or what a leak is.
//!
//! A recording (`*.ltrace`) is a file of equal segments. Segment 0 is the header; every other one is free, or holds
//! events, table entries, or a part of a checkpoint:
//!
//! ```text
//! ┌────────┬────────┬────────┬────────────┬────────┬───
//! │ header │ events │ tables │ checkpoint │ events │ …      SEGMENT bytes each
//! └────────┴────────┴────────┴────────────┴────────┴───
//! ```
//!
//! Events of all threads carry one dense sequence number; the truth at any moment is the newest whole checkpoint plus
//! the committed events from its sequence number on.

pub mod calm;
pub mod drain;
pub mod entry;
#[cfg_attr(test, allow(dead_code, reason = "its callers are not there, see `preload`"))]
mod file;
pub mod layout;
pub mod lock;
pub mod placed;
pub mod reader;
pub mod record;
#[cfg_attr(test, allow(dead_code, reason = "its callers are not there, see `preload`"))]
pub mod recording;
#[cfg_attr(test, allow(dead_code, reason = "its callers are not there, see `preload`"))]
mod space;
pub mod tables;
