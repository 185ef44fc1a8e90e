//! Initialisation, devices and contexts.

pub mod contexts;
pub mod devices;
pub mod green;
mod management;
pub mod primary;
