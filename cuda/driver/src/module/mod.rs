//! Modules, libraries, functions, and what else is made of code.

pub mod functions;
pub mod libraries;
pub mod linker;
pub mod modules;
pub mod occupancy;
pub mod textures;
