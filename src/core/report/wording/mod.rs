//! The words of reports: every sentence, label and figure as people read it, the same on a terminal, in a file, in JSON,
//! in HTML and in a gate. Knows the model and the verdicts; no layout, no colour, no format.

mod advice;
mod finding;
mod labels;
mod out_of_memory;
pub mod stack;
mod summary;
mod units;

pub use advice::advice;
pub use finding::explanation;
pub use labels::{
    block_count, confidence, found, held_by, is_named, kind, live, place, rate, reserved_growth, site_amount,
    time_to_oom,
};
pub use out_of_memory::explanation as out_of_memory;
pub use summary::{
    answer, coverage, ending, findings_suppressed, retained_heading, step_details, steps, untracked_calls,
};
pub use units::{count, exact, grouped, location, ordinal, relative_path, sanitize, size, words};
