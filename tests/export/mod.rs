//! `leaktrace export`: every format is opened by a reader that is not ours, and says what the report says.

mod perfetto;
mod snapshot;
mod stacks;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::programs::{bare_cudart, consumed, driver_calls, script, torch, torch_python};
use crate::common::report::{Report, call, leaktrace};
use crate::common::{Ran, Run, root};
use serde_json::Value;
use tempfile::TempDir;

/// A training that keeps an activation of every step, or none.
fn trained(leak: &str, steps: &str) -> Run {
    torch("train.py").args(["--leak", leak, "--steps", steps]).traced().env("LEAKTRACE_QUIET", "1")
}

/// Driver memory of all kinds, from native code.
fn native(operations: &str) -> Ran {
    let args = ["7", operations, "20", "2", "own", "keep"];
    Run::new(driver_calls("proc")).simulated().traced().env("LEAKTRACE_QUIET", "1").args(args).run().success()
}

fn run(recordings: &[PathBuf], args: &[&str]) -> Output {
    leaktrace().arg("export").args(recordings).args(args).output().unwrap()
}

/// Exports to a file and returns it.
#[track_caller]
fn export(recordings: &[PathBuf], args: &[&str]) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("out");
    let out = run(recordings, &[args, &["-o", file.to_str().unwrap()]].concat());
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.is_empty() && out.stdout.is_empty(), "{args:?}: {said}");
    (folder, file)
}

#[track_caller]
fn read(reader: &str, file: &Path) -> Value {
    serde_json::from_str(&consumed(reader, &[file], &root().join("target"))).unwrap()
}

/// The line of `train.py` that the leak is from.
fn leaking_line() -> u64 {
    let source = fs::read_to_string(script("train.py")).unwrap();
    1 + source.lines().position(|l| l.contains("y = torch.relu(self.inner(x))")).unwrap() as u64
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("a list: {value}"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number: {value}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("a text: {value}"))
}

/// A recording of which old events were given back: only a checkpoint knows what was before.
#[test]
fn a_window_of_the_events() {
    let ran = native("150000");
    let recording = ran.recording();
    let report = Report::of(&recording);
    let files = [recording];
    let folder = TempDir::new().unwrap();
    let out = run(&files, &["--to", "parquet", "-o", folder.path().join("fleet").to_str().unwrap()]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let answers = tables::asked(
        folder.path(),
        "SELECT min(seq) AS first, max(seq) - min(seq) + 1 = count(*) AS dense, bool_and(at_s >= 0) AS timed, max(step) AS step
         FROM 'fleet/*/*/events.parquet'; SELECT sum(live_bytes) AS bytes FROM 'fleet/*/*/sites.parquet' WHERE device = 0 AND layer <> 'external'",
    );
    let events = &answers[0][0];
    assert!(
        number(&events["first"]) > 100_000 && events["dense"] == true && events["timed"] == true,
        "{events}"
    );
    assert!(number(&events["step"]) >= report.steps(), "{events}");
    assert_eq!(answers[1][0]["bytes"].as_f64().unwrap() as u64, report.device(0, "live_bytes"));
    let trace = read("read_perfetto.py", &export(&files, &["--to", "perfetto", "--events", "20000"]).1);
    assert_eq!(trace["counters"]["device 0 live bytes"], report.device(0, "live_bytes"));
    let (_folder, file) = export(&files, &["--to", "snapshot"]);
    let reader = root().join("tests/consumers/read_snapshot.py");
    let told = Run::new(torch_python()).simulated().arg(reader).arg(&file).run().success();
    let snapshot: Value = serde_json::from_str(&told.text()).unwrap();
    assert!(!list(&snapshot["blocks"]).is_empty());
}

/// Where the loop is chosen when the program ends.
#[test]
fn events_have_the_steps_that_were_found_out_about_later() {
    let loops = Run::new(torch_python()).args([script("loops_bare.py"), bare_cudart()]).arg("single");
    let ran = loops.traced().env("LEAKTRACE_QUIET", "1").run().success();
    let recording = ran.recording();
    assert_eq!(Report::of(&recording).steps(), 30);
    let folder = TempDir::new().unwrap();
    let out = run(&[recording], &["--to", "parquet", "-o", folder.path().join("fleet").to_str().unwrap()]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let answers = tables::asked(
        folder.path(),
        "SELECT step, count(*) AS allocations FROM 'fleet/*/*/events.parquet' WHERE kind = 'alloc' GROUP BY step ORDER BY step",
    );
    let steps: Vec<(u64, u64)> =
        list(&answers[0]).iter().map(|row| (number(&row["step"]), number(&row["allocations"]))).collect();
    assert_eq!(steps, (1..=30).map(|step| (step, 3)).collect::<Vec<_>>());
}

#[test]
fn reports_keep_to_the_schema() {
    let folder = TempDir::new().unwrap();
    let schema = run(&[], &["--to", "json-schema"]);
    assert!(schema.status.success());
    fs::write(folder.path().join("schema.json"), schema.stdout).unwrap();
    let mut files = vec!["schema.json".to_owned()];
    let mut report = |name: &str, recording: &Path, args: &[&str]| {
        let mut all = vec![recording.to_str().unwrap(), "--format", "json"];
        all.extend(args);
        fs::write(folder.path().join(name), call(all).stdout).unwrap();
        files.push(name.to_owned());
    };
    let (leaky, drivers) = (trained("outputs", "40").run().success(), native("400"));
    let oom = torch("memory_out.py")
        .arg("caught")
        .traced()
        .env("LEAKTRACE_QUIET", "1")
        .env("SIMGPU_MEM", "512M")
        .run();
    report("leaky.json", &leaky.recording(), &[]);
    report("step.json", &leaky.recording(), &["--step", "7"]);
    report("drivers.json", &drivers.recording(), &[]);
    report("oom.json", &oom.recordings()[0], &[]);
    consumed("check_schema.py", &files, folder.path());

    // And the schema can refuse.
    let leaky: Value = serde_json::from_slice(&fs::read(folder.path().join("leaky.json")).unwrap()).unwrap();
    assert!(!list(&leaky["findings"]).is_empty());
    let spoil = |what: &dyn Fn(&mut Value)| {
        let mut spoilt = leaky.clone();
        what(&mut spoilt);
        fs::write(folder.path().join("spoilt.json"), spoilt.to_string()).unwrap();
        let refused = std::panic::catch_unwind(|| {
            consumed("check_schema.py", &["schema.json", "spoilt.json"], folder.path())
        });
        assert!(refused.is_err(), "{spoilt:#}");
    };
    spoil(&|r| r["findings"][0]["kind"] = "cache".into());
    spoil(&|r| r["findings"][0]["new"] = 1.into());
    spoil(&|r| r["devices"][0]["live_bytes"] = (-1).into());
    spoil(&|r| drop(r.as_object_mut().unwrap().remove("coverage")));
}

#[test]
fn what_cannot_be_exported() {
    let folder = TempDir::new().unwrap();
    let torn = folder.path().join("torn.ltrace");
    fs::write(&torn, b"LTRACE\r\nbut no more").unwrap();
    let ran = native("100");
    let good = ran.recording();
    let nowhere = "/nowhere/at/all";
    let cases: [(&[PathBuf], &[&str], &str); 9] = [
        (&[], &["--to", "pprof", "-o", nowhere], "needs a recording"),
        (std::slice::from_ref(&torn), &["--to", "pprof", "-o", nowhere], "torn.ltrace"),
        (std::slice::from_ref(&torn), &["--to", "perfetto", "-o", nowhere], "torn.ltrace"),
        (std::slice::from_ref(&torn), &["--to", "parquet", "-o", nowhere], "torn.ltrace"),
        (&[good.clone(), good.clone()], &["--to", "snapshot", "-o", nowhere], "one recording"),
        (std::slice::from_ref(&good), &["--to", "folded", "-o", nowhere], nowhere),
        (std::slice::from_ref(&good), &["--to", "csv"], "-o"),
        (std::slice::from_ref(&good), &["--to", "csv", "-o", good.to_str().unwrap()], "is an input"),
        (std::slice::from_ref(&good), &["--to", "json-schema"], "no recording"),
    ];
    for (files, args, names) in cases {
        let out = run(files, args);
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), said.lines().count()), (Some(2), 1), "{args:?}: {said}");
        assert!(said.starts_with("leaktrace: ") && said.contains(names), "{args:?}: {said}");
        assert!(out.stdout.is_empty());
    }
    assert_eq!(run(std::slice::from_ref(&good), &["--to", "vhs"]).status.code(), Some(2));

    // Of several, one that cannot be read is told of, and the others are exported.
    let missing = folder.path().join("missing.ltrace");
    for form in ["folded", "pprof", "perfetto", "csv"] {
        let (alone, beside) =
            (folder.path().join(format!("{form}-1")), folder.path().join(format!("{form}-3")));
        let to = |out: &Path| ["--to", form, "-o", out.to_str().unwrap()].map(str::to_owned);
        let out =
            run(&[missing.clone(), good.clone(), torn.clone()], &to(&beside).each_ref().map(String::as_str));
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), said.lines().count()), (Some(2), 2), "{form}: {said}");
        assert!(said.contains("missing.ltrace") && said.contains("torn.ltrace"), "{form}: {said}");
        let out = run(std::slice::from_ref(&good), &to(&alone).each_ref().map(String::as_str));
        assert!(out.status.success() && alone.exists() && beside.exists(), "{form}");
        if form == "perfetto" {
            assert_eq!(fs::read(&alone).unwrap(), fs::read(&beside).unwrap());
        }
    }
}
