//! Workflow commands of GitHub Actions: a leak is annotated at its line in a pull request. Writes text only.

use super::{Decision, SourceRoot, headline, shown_at};
use crate::ranks::Gathered;
use leaktrace_core::format::printable::printable_but;
use leaktrace_core::report::wording::advice;

/// Writes one annotation per cause that failed or was accepted.
pub fn annotations(found: &Gathered, decisions: &[Decision], root: &SourceRoot) -> String {
    let mut out = String::new();
    for (cause, decision) in found.causes.iter().zip(decisions) {
        let (command, reason) = match decision {
            Decision::Failed(reason) => ("error", reason),
            Decision::Accepted(_, reason) => ("notice", reason),
            Decision::Ignored => continue,
        };
        let mut properties = Vec::new();
        if let Some((file, line)) = shown_at(cause, root) {
            properties.push(format!("file={},line={line}", property(&file)));
        }
        properties.push(format!("title={}", property(&format!("GPU memory: {}", cause.finding.kind.name()))));
        let mut text = headline(cause);
        if !reason.is_empty() {
            text = format!("{text} ({reason})");
        }
        text = format!("{text}\nWhy: {}", cause.finding.why);
        if let Some(advice) = advice(&cause.finding) {
            text = format!("{text}\nFix: {advice}.");
        }
        out.push_str(&format!("::{command} {}::{}\n", properties.join(","), message(&text)));
    }
    out
}

/// How bad an annotation is.
#[derive(Clone, Copy)]
pub enum Severity {
    Error,
    Warning,
}

/// Writes an annotation that belongs to no line of a file.
pub fn line(severity: Severity, text: &str) -> String {
    let command = match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    format!("::{command} title=leaktrace::{}\n", message(text))
}

fn message(text: &str) -> String {
    let text = printable_but(text, &['\r', '\n']);
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    message(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::{message, property};

    #[test]
    fn what_would_end_a_command_is_escaped() {
        assert_eq!(message("100 %\r\nx: a,b"), "100 %25%0D%0Ax: a,b");
        assert_eq!(property("a,b:c%\n"), "a%2Cb%3Ac%25%0A");
    }
}
