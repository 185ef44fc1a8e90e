//! libleaktrace.so, the library that `LD_PRELOAD` puts into a program that was not built for it.
//!
//! ```text
//! program ─▶ interpose ─▶ hooks, frameworks ─▶ stacks ─▶ writer ═▶ recording
//!                                              python, unwind   analysis reads it back at each step's end
//! ```
//!
//! `lifecycle` says whether anything is recorded at all. Nothing here decides what a leak is: that is `leaktrace_core`.

mod allocator;
mod analysis;
#[cfg(test)]
mod bench;
mod coverage_gaps;
mod frameworks;
mod hooks;
mod interpose;
mod lifecycle;
mod python;
mod recording_path;
mod settings;
mod shield;
mod stacks;
mod unwind;
mod writer;
