//! The writer of the recording: appends events from every thread, table entries and checkpoints to a
//! memory-mapped file.
//!
//! It knows bytes, not meaning: nothing here knows CUDA, Python, or what a leak is.

pub mod drain;
pub mod entries;
mod fault;
pub mod file;
pub mod recording;
pub mod segment_pool;
pub mod signals;

/// Held by a test that opens a recording, of which a process has one.
#[cfg(test)]
pub static ALONE: std::sync::RwLock<()> = std::sync::RwLock::new(());
