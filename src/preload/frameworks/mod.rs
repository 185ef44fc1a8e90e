//! Where a framework's blocks, steps and failures are seen.
//!
//! It knows the symbols of the frameworks. What a step is, and what becomes of a block, is not decided here.

pub mod pjrt;
pub mod torch;
