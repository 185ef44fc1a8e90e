//! Steps that nobody announced: training loops of many styles on PyTorch.

mod common;

use common::programs::torch;
use common::report::Report;

/// `loops.py STYLE`: as many steps as iterations, and the program none the wiser.
#[track_caller]
fn counted(style: &str) {
    let run = || torch("loops.py").args([style, "23"]).env("LEAKTRACE_QUIET", "1");
    let ran = run().traced().run().success();
    assert_eq!(ran.text(), format!("{style}: 23 iterations\n"));
    let report = Report::of(&ran.recording());
    assert_eq!((report.steps(), report.source()), (23, "optimizer"), "{style}");
    report.assert_whole();
}

macro_rules! styles {
    ($($style:ident)+) => { $(#[test] fn $style() { counted(stringify!($style)); })+ };
}

styles! { plain evaluating scaler accumulating gan pair closure thread own compiled }

#[test]
fn other_sources() {
    for (setting, source) in [("backward", "backward"), ("call", "")] {
        let ran = torch("loops.py").arg("plain").env("LEAKTRACE_STEP", setting).traced().run().success();
        let report = Report::of(&ran.recording());
        // The backward pass that begins a step ends the one before.
        let count = if setting == "backward" { 22 } else { 0 };
        assert_eq!((report.steps(), report.source()), (count, source));
    }
}
