//! Steps that nobody announced: training loops of many styles on PyTorch.

mod common;

use common::Run;
use common::programs::{bare_cudart, pythons, script, torch};
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

/// `loops_found.py STYLE`: the steps a person would count, told by its loop.
#[track_caller]
fn found(style: &str, setting: &str) {
    let run = || torch("loops_found.py").arg(style).env("LEAKTRACE_QUIET", "1");
    let ran = run().env("LEAKTRACE_STEP", setting).traced().run().success();
    let told = ran.text();
    let told: u64 = told
        .trim()
        .strip_prefix(&format!("{style}: "))
        .and_then(|t| t.strip_suffix(" steps"))
        .unwrap()
        .parse()
        .unwrap();
    let report = Report::of(&ran.recording());
    let loops = &report.0["steps"]["loops"];
    assert_eq!((report.steps(), report.source()), (told, "loop"), "{style}: {loops}");
    let places = loops.as_array().unwrap();
    assert!(!places.is_empty() && places.iter().all(|p| p.as_str().unwrap().contains("loops_found.py:")));
    report.assert_whole();
}

macro_rules! loops {
    ($($style:ident)+) => { mod by_loop { $(#[test] fn $style() { super::found(stringify!($style), "loop"); })+ } };
}

loops! { epochs accumulating waiting generating evaluating decoding failing recursing serving long }

#[test]
fn a_program_without_optimizers_has_the_steps_of_its_loop() {
    found("decoding", "auto");
    found("serving", "auto");
}

#[test]
fn a_program_without_a_loop_has_none() {
    let ran = torch("loops_found.py").arg("none").traced().run().success();
    assert_eq!(Report::of(&ran.recording()).steps(), 0);
}

#[test]
fn loops_of_every_cpython() {
    let mut wrong = Vec::new();
    for (version, python) in pythons() {
        for style in ["nested", "single", "wrapped", "generator", "failing", "waiting"] {
            let ran = Run::new(&python).args([script("loops_bare.py"), bare_cudart()]).arg(style).traced();
            let ran = ran.env("LEAKTRACE_STEP", "loop").env("LEAKTRACE_QUIET", "1").run().success();
            let report = Report::of(&ran.recording());
            if ran.text().trim() != report.steps().to_string() {
                let loops = &report.0["steps"]["loops"];
                wrong.push(format!(
                    "{version} {style}: {} of {}: {loops}",
                    report.steps(),
                    ran.text().trim()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
