//! The `leaktrace` program: runs programs under the preload and reads their recordings.
//!
//! It never links the preload, which would carry its own `dlsym` into it.

#![forbid(unsafe_code)]

mod commands;
mod diff;
mod export;
mod gate;
mod native_symbols;
mod ranks;
mod render;

pub use commands::main;
pub use render::html;
