//! libleaktrace.so, the preload. Names its rooms; does nothing itself.

pub mod capture;
#[forbid(unsafe_code)]
pub mod ledger;
pub mod preload;
#[forbid(unsafe_code)]
pub mod report;
#[forbid(unsafe_code)]
pub mod steps;
#[forbid(unsafe_code)]
pub mod symbol;
pub mod trace;
