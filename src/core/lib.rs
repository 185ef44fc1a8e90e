//! The pure half of leaktrace, linked by the preload and by the program: bytes and events in, facts out.
//!
//! # The way of the data
//!
//! ```text
//! program ─▶ interpose ─▶ hooks ─▶ stacks ─▶ writer ═▶ recording ═▶ ledger ─▶ verdict ─▶ report ─▶ render
//!            └────────── leaktrace-preload ─────────┘             └─── leaktrace-core ───┘     leaktrace
//! ```
//!
//! The traced process appends events to a recording. The ledger replays them: inside the process at each step
//! boundary, and again in the program over what was committed after the last boundary. The verdict judges
//! what the ledger knows, and the report is what any format writes down.
//!
//! # Code map
//!
//! * [`mod@entry_points`]: the one table of the functions that are hooked, and of those that have no hook,
//!   with the reason.
//! * [`mod@format`]: what a recording consists of, drawn bit by bit, and its reader.
//! * [`frameworks`]: the one table of the frameworks whose blocks are seen: their files, the words of their advice.
//! * [`ledger`]: the pure replay, and under `ledger::verdict` the rules, one per file, that say what is a
//!   leak.
//! * [`steps`]: step sources merged to one stream of boundaries, and the search for the loop whose iterations
//!   are steps.
//! * [`holders`]: the search for the shortest named reference path to the blocks of a finding.
//! * [`symbols`]: frames from stacks of numbers, after the process has ended, and which of them are the
//!   user's code.
//! * [`int_map`]: the one map, and the one hasher, of integer keys.
//! * [`report`]: the model of a report, and the sentences about it. The formats are the program's.
//!
//! # Invariants
//!
//! **Architecture invariant:** nothing here is unsafe, and nothing here calls CUDA, Python or the loader. The
//! ledger knows no file; the report knows no CUDA.
//!
//! **Architecture invariant:** what the process says and what the reader says cannot differ, because both run
//! this ledger.
//!
//! **Architecture invariant:** a verdict rests on the identity of blocks (which step allocated them, and what
//! they outlived), never on a curve. A report never claims more than that.
//!
//! **Architecture invariant:** nothing in a recording can make the ledger or the reader panic: sums wrap,
//! lookups may fail, ranges saturate, and no length that was read is trusted. `tests/fuzz` holds them to it.
//!
//! **Architecture invariant:** every prefix of a recording is readable, and memory and disk do not grow with
//! the length of a run: events are folded into checkpoints, and the past is thinned out.
//!
//! **Architecture invariant:** fields of the JSON report (schema `leaktrace.report/1`) may be added after the
//! first published release, and never renamed.

#![forbid(unsafe_code)]

pub mod cpython;
pub mod entry_points;
pub mod format;
pub mod frameworks;
pub mod holders;
pub mod int_map;
pub mod ledger;
pub mod report;
pub mod settings;
pub mod steps;
pub mod symbols;
