//! Inside someone else's process: the unsafe wing.
//!
//! Calls come in through `doors`, pass a hook, and are noted. `life` says whether there is anything to note at all.
//! Nothing here knows what a leak is, nor the names of functions it does not hook.

pub mod api;
pub mod boundary;
pub mod doors;
pub mod driver;
pub mod elf;
pub mod elf_format;
pub mod entry_points;
pub mod guard;
pub mod holes;
pub mod hooks;
mod host;
pub mod life;
pub mod lookup;
mod looped;
mod marks;
pub mod memory;
pub mod note;
pub mod opening;
pub mod owners;
pub mod patch;
pub mod program;
pub mod python;
pub mod route;
pub mod scope;
pub mod settings;
pub mod torch;
