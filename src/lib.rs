//! libleaktrace.so, the preload. Names its rooms; does nothing itself.

#[cfg_attr(test, allow(dead_code, reason = "its callers are not there, see `preload`"))]
mod capture;
#[forbid(unsafe_code)]
pub mod holders;
#[forbid(unsafe_code)]
pub mod ledger;
// Not in the unit tests' own process: it would get our `dlsym`.
#[cfg(not(test))]
mod preload;
#[forbid(unsafe_code)]
pub mod report;
#[forbid(unsafe_code)]
pub mod steps;
#[forbid(unsafe_code)]
pub mod symbol;
pub mod trace;
