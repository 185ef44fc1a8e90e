//! The last words on stderr: at most eight lines.

use super::Report;
use super::explain::{count, size};
use super::phrases::{clean, found};
use super::text::wrap;
use crate::ledger::verdict::MIN_STEPS;

const LINES: usize = 8;

/// The top finding in a sentence, and how to read more. `path`: the recording.
pub fn render(report: &Report, path: &str) -> String {
    let steps = report.steps.count;
    let over = count(f64::from(steps), "step");
    let mut out = String::new();
    match report.findings.first() {
        Some(top) => {
            let found = found(&report.findings);
            wrap(
                &mut out,
                "leaktrace: ",
                11,
                &format!("{found} found over {over}. {}", clean(&top.explanation)),
            );
        }
        None if steps >= MIN_STEPS => {
            wrap(&mut out, "leaktrace: ", 11, &format!("no leak found over {over}."))
        }
        None => wrap(
            &mut out,
            "leaktrace: ",
            11,
            &format!("{over} seen, too few to judge ({MIN_STEPS} are needed)."),
        ),
    }
    for d in report.devices.iter().take(2) {
        let text = format!(
            "device {}: {} live, peak {}, reserved {}",
            d.index,
            size(d.live_bytes as f64),
            size(d.peak_bytes as f64),
            size(d.reserved_bytes as f64)
        );
        wrap(&mut out, "leaktrace: ", 11, &text);
    }
    let mut lines: Vec<&str> = out.lines().take(LINES - 1).collect();
    let more = format!("leaktrace: read more with: leaktrace report {}", clean(path));
    lines.push(&more);
    lines.join("\n") + "\n"
}
