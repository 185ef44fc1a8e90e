//! Workflow commands of GitHub Actions: a leak is annotated at its line in a pull request. Writes text only.

use std::path::Path;

use super::{Decision, headline, in_repository, location};
use crate::ranks::Gathered;
use leaktrace_core::format::printable::printable_but;
use leaktrace_core::report::wording::advice;

/// Writes one annotation per cause that failed or was accepted.
pub fn annotations(found: &Gathered, decisions: &[Decision], root: &Path) -> String {
    let mut out = String::new();
    for (cause, decision) in found.causes.iter().zip(decisions) {
        let (command, reason) = match decision {
            Decision::Failed(reason) => ("error", reason),
            Decision::Accepted(_, reason) => ("notice", reason),
            Decision::Ignored => continue,
        };
        let mut properties = Vec::new();
        if let Some(p) = location(cause) {
            properties.push(format!("file={}", property(in_repository(&p.file, root, &cause.program))));
            properties.extend(p.line.map(|line| format!("line={line}")));
        }
        properties.push(format!("title={}", property(&format!("GPU memory: {}", cause.finding.kind.name()))));
        let mut text = headline(cause);
        if !reason.is_empty() {
            text = format!("{text} ({reason})");
        }
        text = format!("{text}\n{}", cause.finding.explanation);
        if let Some(advice) = advice(&cause.finding) {
            text = format!("{text}\nFix: {advice}.");
        }
        out.push_str(&format!("::{command} {}::{}\n", properties.join(","), message(&text)));
    }
    out
}

/// Writes a warning that belongs to no line.
pub fn warning(text: &str) -> String {
    format!("::warning title=leaktrace::{}\n", message(text))
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
