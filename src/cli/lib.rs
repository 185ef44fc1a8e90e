//! The `leaktrace` program: runs programs under the preload and reads their recordings.
//!
//! # Code map
//!
//! * `commands`: one file per command. Each turns arguments into calls of the other modules, and an error
//!   into one line.
//! * `render`: a report as text for a terminal and as one HTML file.
//! * `export`: recordings in other tools' formats, one file per format.
//! * `gate`: whether findings may pass: kinds, a limit, a baseline; as text, GitHub annotations and SARIF.
//! * `diff`: two reports compared; `ranks`: one report over many processes; `runs`: which
//!   recordings are of one run.
//! * `native_symbols`: names of native frames, which the preload never looks up.
//!
//! # Invariants
//!
//! **Architecture invariant:** the program never links the preload, which would bring its own `dlsym` into
//! it. It finds `libleaktrace.so` as a file, beside itself or where it was built.
//!
//! **Architecture invariant:** the exit status is 0 where all is well, 1 where the gate failed, and 2 on bad
//! usage or unreadable input, which one line explains: which file, what is wrong, where.
//!
//! **Architecture invariant:** nothing here decides what a leak is. Every fact comes from
//! `leaktrace_core::report`, and the same fact has the same words in every format.
//!
//! **Architecture invariant:** a traced program is neither stopped nor asked anything: `top` and `report`
//! read its recording.

#![forbid(unsafe_code)]

mod commands;
mod diff;
mod export;
mod gate;
mod native_symbols;
mod ranks;
mod render;
mod runs;

pub use commands::main;
pub use render::html;
