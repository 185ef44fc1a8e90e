//! SARIF 2.1.0, the format of code scanning. Writes text only.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{Decision, SourceRoot, headline, shown_at};
use crate::ranks::{Cause, Gathered};
use leaktrace_core::ledger::verdict::Kind;
use leaktrace_core::report::wording::advice;
use leaktrace_core::report::{Frame, Location, Program};

/// Frames of a stack that are written at most.
const FRAMES: usize = 64;

/// What each kind of finding means, for the list of rules.
const RULES: [(Kind, &str); 9] = [
    (Kind::Leak, "GPU memory grows with the steps, and nothing releases it"),
    (Kind::Growing, "GPU memory grows, and the run does not show a bound"),
    (Kind::PendingGc, "GPU memory waits for Python's garbage collector"),
    (Kind::Residue, "GPU memory stayed when what it was set up with was released"),
    (Kind::LastLoop, "GPU memory grew in the loop that ran last, and may be released after it"),
    (Kind::AfterLast, "GPU memory was gathered after the last step, where no step was seen"),
    (Kind::Fragmentation, "A few blocks keep empty segments from going back to the driver"),
    (Kind::CarryOver, "GPU memory of one step is alive at the next one's peak"),
    (Kind::Periodic, "GPU memory accumulates and is released down to the same floor"),
];

/// Renders the whole log. `root`: the folder that the paths of a repository are relative to.
pub fn render(found: &Gathered, decisions: &[Decision], root: &SourceRoot) -> String {
    let rules: Vec<Value> = RULES.iter().map(|(kind, what)| rule(*kind, what)).collect();
    let results: Vec<Value> =
        found.causes.iter().zip(decisions).map(|(cause, decision)| result(cause, decision, root)).collect();
    let log = json!({
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "leaktrace",
                "version": env!("CARGO_PKG_VERSION"),
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "originalUriBaseIds": {"SRCROOT": {"uri": format!("file://{}/", encoded(&root.path().to_string_lossy()))}},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    // Numbers and strings only: that cannot fail.
    serde_json::to_string_pretty(&log).unwrap_or_default() + "\n"
}

fn rule_id(kind: Kind) -> String {
    format!("leaktrace/{}", kind.name())
}

fn rule(kind: Kind, what: &str) -> Value {
    let level = if kind == Kind::Leak { "error" } else { "warning" };
    json!({
        "id": rule_id(kind),
        "name": kind.name(),
        "shortDescription": {"text": what},
        "defaultConfiguration": {"level": level},
        "properties": {"tags": ["memory", "gpu"]},
    })
}

fn result(cause: &Cause, decision: &Decision, root: &SourceRoot) -> Value {
    let f = &cause.finding;
    let mut text = format!("{}. Why: {}", headline(cause), f.why);
    if let Some(advice) = advice(f) {
        let _ = write!(text, " Fix: {advice}.");
    }
    let level = match decision {
        Decision::Failed(_) | Decision::Accepted(..) => "error",
        Decision::Ignored if matches!(f.kind, Kind::Leak | Kind::Growing | Kind::Residue) => "warning",
        Decision::Ignored => "note",
    };
    let index = RULES.iter().position(|(kind, _)| *kind == f.kind);
    let at = f.sites.first().and_then(|s| s.allocated_at.as_ref());
    let file = at.map_or_else(String::new, |p| root.relative(&p.file, &cause.program));
    let function = at.map_or("", |p| p.function.as_str());
    let mut result = json!({
        "ruleId": rule_id(f.kind),
        "level": level,
        "message": {"text": text},
        "partialFingerprints": {
            "leaktraceCause/v1": format!("{}:{}:{file}:{function}", f.kind.name(), f.layer),
        },
        "properties": {
            "bytesPerStep": f.bytes_per_step,
            "growthBytesPerStep": f.growth_bytes_per_step,
            "liveBytes": f.live_bytes,
            "processes": cause.members.len(),
        },
    });
    if let Some(index) = index {
        result["ruleIndex"] = index.into();
    }
    if let Some((file, line)) = shown_at(cause, root) {
        let shown = Location { file, line: Some(line), function: function.to_owned() };
        result["locations"] = json!([json_location(&shown, root, &Program::default())]);
    }
    let others = f.sites.iter().skip(1).filter_map(|s| s.allocated_at.as_ref());
    let others: Vec<Value> = others
        .filter(|p| p.line.is_some() && !p.file.is_empty())
        .map(|p| {
            let mut at = json_location(p, root, &cause.program);
            at["message"] = json!({"text": format!("{} is part of the same cause", p.function)});
            at
        })
        .collect();
    if !others.is_empty() {
        result["relatedLocations"] = others.into();
    }
    if let Some(site) = f.sites.first().filter(|s| !s.stack.is_empty()) {
        // The innermost frames are those of the allocator, which have no lines.
        let lines = site.stack.iter().any(|f| f.frame.line.is_some());
        let frames = site.stack.iter().skip_while(|f| lines && f.frame.line.is_none()).take(FRAMES);
        let frames = frames.map(|f| frame(f, root, &cause.program));
        let frames: Vec<Value> = frames.collect();
        result["stacks"] = json!([{"message": {"text": "the stack of the allocation"}, "frames": frames}]);
    }
    if let Decision::Accepted(_, reason) = decision {
        result["suppressions"] = json!([{"kind": "external", "justification": reason}]);
    }
    result
}

fn json_location(p: &Location, root: &SourceRoot, program: &Program) -> Value {
    let mut physical = json!({"artifactLocation": artifact(&p.file, root, program)});
    if let Some(line) = p.line.filter(|&l| l > 0) {
        physical["region"] = json!({"startLine": line});
    }
    json!({"physicalLocation": physical, "logicalLocations": [{"fullyQualifiedName": p.function}]})
}

fn frame(f: &Frame, root: &SourceRoot, program: &Program) -> Value {
    let mut at = json!({"logicalLocations": [{"fullyQualifiedName": f.frame.function}]});
    if !f.frame.file.is_empty() {
        at = json_location(&f.location(), root, program);
    }
    json!({"location": at})
}

/// Writes a file as a URI: relative to the root where it is below that.
fn artifact(file: &str, root: &SourceRoot, program: &Program) -> Value {
    match root.relative(file, program) {
        whole if whole.starts_with('/') => json!({"uri": format!("file://{}", encoded(&whole))}),
        inside => json!({"uri": encoded(&inside), "uriBaseId": "SRCROOT"}),
    }
}

/// Percent-encodes a path for a URI.
fn encoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(byte as char)
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}
