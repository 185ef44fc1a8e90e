//! The report for machines: one JSON document of the schema `leaktrace.report/1`.

use super::Report;

/// The report as indented JSON with a line end.
pub fn render(report: &Report) -> String {
    // Only maps with keys that are no strings can fail to be written; there are none.
    let mut text = serde_json::to_string_pretty(report).unwrap_or_default();
    text.push('\n');
    text
}
