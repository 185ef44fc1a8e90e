//! Writes a report down, one module per format. Decides nothing: every fact comes from `leaktrace_core::report`.

pub mod html;
mod source;
pub mod terminal;
