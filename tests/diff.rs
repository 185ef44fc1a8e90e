//! `leaktrace diff`: two runs, and two steps of one.

use std::ffi::OsStr;
use std::fs;

use crate::common::Run;
use crate::common::grows::{flat, grown, grows_at, line_of, python, run_leaktrace, text};
use crate::common::programs::{bare_cudart, script, torch};
use serde_json::Value;
use tempfile::TempDir;

#[test]
fn a_leaky_run_against_its_fixed_form() {
    let (leaks, fixed) = (grown(40, &["--first", "3072"]), grown(40, &[]));
    let (a, b) = (leaks.recording(), fixed.recording());
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let told = text(&run_leaktrace(&leaks.folder(), &["diff", a, b]), 0);
    assert!(told.starts_with("B does not leak any more: A grew by 3.0 KiB (3,072 B) per step."), "{told}");
    let at = format!("grows.py:{} first", line_of("first line that keeps"));
    assert!(
        flat(&told).contains("gone: 3.0 KiB (3,072 B) per step before, at") && told.contains(&at),
        "{told}"
    );
    assert!(flat(&told).contains("-120.0 KiB 120.0 KiB 0 B vanished"), "{told}");
    let told = text(&run_leaktrace(&leaks.folder(), &["diff", b, a]), 0);
    assert!(told.starts_with("B leaks and A does not") && told.contains("new:"), "{told}");
    let told = text(&run_leaktrace(&leaks.folder(), &["diff", b, b]), 0);
    assert!(told.contains("every line the same"), "{told}");
}

#[test]
fn the_same_line_leaking_more_is_seen() {
    let (less, more) = (
        grown(40, &["--first", "1024", "--second", "512"]),
        grown(40, &["--first", "2048", "--second", "512"]),
    );
    let (a, b) = (less.recording(), more.recording());
    let told = text(&run_leaktrace(&less.folder(), &["diff", a.to_str().unwrap(), b.to_str().unwrap()]), 0);
    let flat = flat(&told);
    assert!(flat.contains("more: 2.0 KiB (2,048 B) per step, 1.0 KiB (1,024 B) before at"), "{told}");
    assert!(flat.contains("same: 512 B per step at"), "{told}");
    assert!(flat.contains("+40.0 KiB 40.0 KiB 80.0 KiB grew"), "{told}");
}

#[test]
fn what_is_no_leak_comes_and_goes_too() {
    let carries = torch("holders/carried.py").traced().env("LEAKTRACE_QUIET", "1").run().success();
    let fixed = grown(40, &[]);
    let (a, b) = (carries.recording(), fixed.recording());
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let told = text(&run_leaktrace(&carries.folder(), &["diff", a, b]), 0);
    assert!(told.starts_with("Neither leaks. 1 other finding of A is gone. "), "{told}");
    assert!(told.contains("gone: carry-over at ") && told.contains("carried.py:9 Keep.forward\n"), "{told}");
    assert!(flat(&told).contains("after 40 steps, peak 4.0 KiB"), "{told}");
    let told = text(&run_leaktrace(&carries.folder(), &["diff", b, a]), 0);
    assert!(told.starts_with("Neither leaks. 1 other finding is new in B. "), "{told}");
    let told = text(&run_leaktrace(&carries.folder(), &["diff", a, a]), 0);
    assert!(!told.contains("gone") && !told.contains("new"), "{told}");
    let json = text(&run_leaktrace(&carries.folder(), &["diff", a, b, "--format", "json"]), 0);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["others"][0]["kind"], &json["others"][0]["after"]),
        (&"carry-over".into(), &Value::Null)
    );
}

#[test]
fn of_two_findings_in_one_function_the_one_that_is_gone_is_named() {
    let recorded =
        |args: &[&str]| torch("twins.py").args(args).traced().env("LEAKTRACE_QUIET", "1").run().success();
    let (both, mended) = (recorded(&[]), recorded(&["mended"]));
    let (a, b) = (both.recording(), mended.recording());
    let json = |args: [&std::path::Path; 2]| -> Value {
        let [a, b] = args.map(|path| path.to_str().unwrap());
        let json = text(&run_leaktrace(&both.folder(), &["diff", a, b, "--format", "json"]), 0);
        serde_json::from_str::<Value>(&json).unwrap()["others"].clone()
    };
    let is_small = |why: &Value| why.as_str().is_some_and(|why| why.contains("1 block (4.0 KiB"));
    let (gone, came) = (json([&a, &b]), json([&b, &a]));
    for others in [&gone, &came] {
        let others = others.as_array().unwrap();
        assert_eq!(others.len(), 2, "{others:#?}");
        assert_eq!(others.iter().filter(|o| !o["before"].is_null() && !o["after"].is_null()).count(), 1);
    }
    assert!(
        gone.as_array().unwrap().iter().any(|o| o["after"].is_null() && is_small(&o["before"])),
        "{gone:#}"
    );
    assert!(
        came.as_array().unwrap().iter().any(|o| o["before"].is_null() && is_small(&o["after"])),
        "{came:#}"
    );
}

#[test]
fn the_folder_a_run_was_started_in_makes_no_difference() {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("mine.py");
    fs::copy(script("grows.py"), &program).unwrap();
    let elsewhere = grows_at(&program, 40, &["--first", "1024"]).run().success();
    let out = folder.path().join("there.ltrace");
    let there = Run::new("/usr/bin/env").args([OsStr::new("-C"), folder.path().as_os_str()]).arg(python());
    let there = there.traced().env("LEAKTRACE_QUIET", "1").env("LEAKTRACE_OUT", &out);
    there.arg("mine.py").arg(bare_cudart()).args(["40", "--first", "1024"]).run().success();
    let (a, b) = (elsewhere.recording(), out);
    let told = text(&run_leaktrace(folder.path(), &["diff", a.to_str().unwrap(), b.to_str().unwrap()]), 0);
    assert!(told.starts_with("Both leak the same") && !told.contains("appeared"), "{told}");
}

#[test]
fn a_line_that_moved_is_the_same_line() {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("mine.py");
    let source = fs::read_to_string(script("grows.py")).unwrap();
    fs::write(&program, &source).unwrap();
    let before = grows_at(&program, 40, &["--first", "1024"]).run().success();
    fs::write(&program, source.replacen("def first", "\n\ndef first", 1)).unwrap();
    let after = grows_at(&program, 40, &["--first", "1024"]).run().success();
    let (a, b) = (before.recording(), after.recording());
    let told = text(&run_leaktrace(folder.path(), &["diff", a.to_str().unwrap(), b.to_str().unwrap()]), 0);
    let line = line_of("first line that keeps");
    assert!(flat(&told).contains(&format!("mine.py:{} first (line {line} in A)", line + 2)), "{told}");
    assert!(told.starts_with("Both leak the same") && !told.contains("appeared"), "{told}");
}

#[test]
fn two_steps_of_one() {
    let ran = grown(40, &["--first", "1024"]);
    let name = ran.recording().file_name().unwrap().to_str().unwrap().to_owned();
    let told = text(&run_leaktrace(&ran.folder(), &["diff", &name, "--step", "10", "--step", "30"]), 0);
    assert!(told.starts_with("Live memory changes by +20.0 KiB between the two steps."), "{told}");
    assert!(flat(&told).contains("+20.0 KiB 10.0 KiB 30.0 KiB grew"), "{told}");
    let at = |step: u32| format!("{name}@{step}");
    assert_eq!(text(&run_leaktrace(&ran.folder(), &["diff", &at(10), &at(30)]), 0), told);
    let json = text(&run_leaktrace(&ran.folder(), &["diff", &at(10), &at(30), "--format", "json"]), 0);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["schema"], "leaktrace.diff/1");
    let row = &json["rows"][0];
    assert_eq!(
        (&row["change"], &row["before"]["bytes"], &row["after"]["blocks"]),
        (&"grew".into(), &10_240.into(), &30.into())
    );
}

#[test]
fn wrong_usage_tells_what_was_meant() {
    let ran = grown(20, &[]);
    let name = ran.recording().file_name().unwrap().to_str().unwrap().to_owned();
    let (far, no_step) = (format!("{name}@99"), format!("{name}@ten"));
    for (args, words) in [
        (&["diff", &name][..], "name another, or two of its steps"),
        (&["diff", &name, "--step", "3"], "give --step twice"),
        (&["diff", &name, &far], "the steps are 1 to 20"),
        (&["diff", &name, &no_step], "'ten' is not a step"),
        (&["diff", &name, "missing.ltrace"], "missing.ltrace"),
    ] {
        let out = run_leaktrace(&ran.folder(), args);
        let why = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(2) && why.contains(words), "{args:?}: {why}");
        assert_eq!(why.lines().count(), 1, "{why}");
    }
}
