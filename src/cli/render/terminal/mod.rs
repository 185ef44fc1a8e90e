//! Reports on a terminal: the report's styled text in colours, with source lines; comparisons, many processes, the live view.

pub mod diff;
pub mod live;
mod page;
pub mod ranks;

use leaktrace_core::report::Report;
use leaktrace_core::report::text::{self, Layout};

use super::source::Sources;
pub use leaktrace_core::report::text::Style::{
    Bad as BAD, Bold as BOLD, Dim as DIM, Good as GOOD, Plain as PLAIN, Warning as UNSURE,
};
pub use page::Page;

/// How a report is shown.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub layout: Layout,
    pub colour: bool,
}

/// Returns the whole report.
pub fn render(report: &Report, look: &Look) -> String {
    let text = text::styled(report, look.layout, &mut Sources::of(&report.program));
    if look.colour { page::coloured(&text) } else { text.to_string() }
}
