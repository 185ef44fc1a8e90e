//! What a backward pass allocates is told with the line of the forward pass that caused it.

use crate::common::programs::{line_of, torch};
use crate::common::report::{Report, frames};

/// The line of the program whose comment says so.
fn line(comment: &str) -> u64 {
    line_of("backward.py", comment)
}

#[track_caller]
fn finding(which: &str, stacks: &str) -> serde_json::Value {
    let run = torch("backward.py").arg(which).env("LEAKTRACE_STACKS", stacks).env("LEAKTRACE_QUIET", "1");
    let ran = run.traced().run().success();
    assert_eq!(ran.text(), "40 kept\n");
    let report = Report::of(&ran.recording());
    report.assert_whole();
    let [finding] = report.findings() else { panic!("{:#?}", report.findings()) };
    assert_eq!((&finding["kind"], &finding["bytes_per_step"]), (&"leak".into(), &12288.0.into()));
    let [site] = &finding["sites"].as_array().unwrap()[..] else { panic!("{finding:#}") };
    site.clone()
}

#[test]
fn a_kept_gradient_belongs_to_the_forward_line() {
    for stacks in ["auto", "python", "mixed"] {
        let site = finding("plain", stacks);
        let at = line("belongs to the backward pass of this line");
        assert_eq!(site["forward_site"]["line"], at, "{stacks}: {site:#}");
        assert_eq!(site["allocated_at"]["line"], at, "{stacks}: {site:#}");
        let nodes = frames(&site["stack"], "autograd");
        assert_eq!(nodes.iter().map(|n| n.2.as_str()).collect::<Vec<_>>(), ["SigmoidBackward0"], "{stacks}");
        let native = frames(&site["stack"], "native").len();
        assert_eq!(native > 0, stacks != "python", "{stacks}: {site:#}");
    }
}

#[test]
fn a_function_of_ones_own_keeps_its_own_stack() {
    let site = finding("custom", "auto");
    assert_eq!(site["allocated_at"]["line"], line("custom: the kept block is made here"), "{site:#}");
    assert_eq!(site["forward_site"]["line"], line("custom: and belongs to this line"), "{site:#}");
    let kinds: Vec<_> =
        site["stack"].as_array().unwrap().iter().map(|f| f["kind"].as_str().unwrap()).collect();
    let node = kinds.iter().position(|k| *k == "autograd").expect("the node");
    assert!(node > 0 && node + 1 < kinds.len(), "its own frames, the node, the forward frames: {kinds:?}");
}

#[test]
fn what_no_operation_of_the_forward_pass_made_belongs_to_the_call() {
    let site = finding("copied", "auto");
    assert_eq!(site["allocated_at"]["line"], line("copied: no operation"), "{site:#}");
    let nodes = frames(&site["stack"], "autograd");
    assert_eq!(nodes.iter().map(|n| n.2.as_str()).collect::<Vec<_>>(), ["AccumulateGrad"]);
}
