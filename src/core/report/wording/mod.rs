//! The words of reports: every sentence, label and figure as people read it, the same on a terminal, in a file, in JSON,
//! in HTML and in a gate. Knows the model and the verdicts; no layout, no colour, no format.

mod advice;
mod finding;
mod labels;
mod non_leaks;
mod out_of_memory;
pub mod stack;
mod summary;
mod units;

pub use advice::{advice, arena};
pub use finding::{explanation, why};
pub use labels::{
    block_count, capitalized, common_path, confidence, device_word, found, held_by, held_by_whom, holder,
    is_garbage, is_named, kind, package_folder, place, place_in, rate, reserved_growth, site_amount,
    time_to_oom, title,
};
pub use non_leaks::{large_non_leaks, non_leaks};
pub use out_of_memory::{details as out_of_memory_details, explanation as out_of_memory};
pub use summary::{
    after_last, answer, command, coverage, final_failure, finding_of, findings_suppressed, how_it_ended,
    lacking, live_heading, run, step_details, untracked_calls, where_and_who,
};
pub use units::{
    base_folder, count, exact, file_line, grouped, location, moment, ordinal, relative_path, sanitize, size,
    words,
};
