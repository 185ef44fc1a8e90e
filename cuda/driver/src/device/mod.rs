//! Initialisation, devices and contexts.

pub mod contexts;
pub mod devices;
pub mod green;
pub mod primary;
