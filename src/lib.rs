//! leaktrace
pub mod trace;
