//! The black-box tests: each runs real processes with the preload, and compares what the report says with what is
//! true.
//!
//! They must not link `leaktrace_preload`, which would bring that crate's own `dlsym` into the tests.

mod backward;
mod cases;
mod check;
mod cli;
mod common;
mod coverage;
mod diff;
mod dist;
mod doctor;
mod entry_points;
mod exits;
mod export;
mod families;
mod faults;
mod fork;
mod frameworks;
mod holders;
mod hostile;
mod html;
mod inert;
mod interposers;
mod leaving;
mod memory;
mod notebook;
mod oom;
mod outside;
mod places;
mod printing;
mod ranks;
mod report;
mod settings;
mod stacks;
mod steps;
mod symbol_lookup;
mod terminal;
mod top;
mod torn;
mod unseen;
mod unwinding;
mod variants;
mod verdicts;
