//! `leaktrace export`: every format is opened by a reader that is not ours, and says what the report says.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::programs::{driver_calls, script, torch, torch_python};
use common::report::{Report, call, leaktrace};
use common::{Ran, Run, root};
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

/// What a reader of `tests/consumers` prints.
#[track_caller]
fn consumed<S: AsRef<std::ffi::OsStr>>(reader: &str, args: &[S], folder: &Path) -> String {
    let python = root().join("target/consumers/bin/python");
    assert!(python.exists(), "{} is missing: run scripts/consumers-env first", python.display());
    let out = Command::new(python)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(root().join("tests/consumers").join(reader))
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{reader}: {printed}\n{}", String::from_utf8_lossy(&out.stderr));
    printed
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

/// Bytes by the line that allocates, as `retained` lists them; of the device's own memory.
fn by_line(report: &Report) -> BTreeMap<(String, u64), u64> {
    let mut sums = BTreeMap::new();
    for site in report.retained().iter().filter(|s| s["device"] == 0) {
        let place = &site["allocated_at"];
        let key = (text(&place["function"]).to_owned(), place["line"].as_u64().unwrap_or(0));
        *sums.entry(key).or_default() += number(&site["live_bytes"]);
    }
    sums
}

fn total(folded: &str, of: &str) -> u64 {
    let bytes = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    folded.lines().filter(|l| l.contains(of)).map(bytes).sum()
}

#[test]
fn folded_stacks_and_the_flame_graph() {
    let ran = trained("outputs", "40").run().success();
    let files = [ran.recording()];
    let report = Report::of(&files[0]);
    let folded = |value: &str| {
        let out = run(&files, &["--to", "folded", "--value", value]);
        assert!(out.status.success());
        String::from_utf8(out.stdout).unwrap()
    };
    let live = folded("live");
    assert_eq!(total(&live, "device 0"), report.device(0, "live_bytes"));
    let (retained, growth, peak) = (folded("retained"), folded("growth"), folded("peak"));
    // What the last step left behind is alive, but not yet retained.
    let leak = format!("train.py:{})", leaking_line());
    assert!(total(&live, &leak) - total(&retained, &leak) >= 3072);
    assert!(total(&retained, &leak) >= 39 * 3072);
    assert!(total(&retained, "device 0") < total(&live, "device 0"));
    assert_eq!(total(&growth, &leak), 30 * 3072);
    assert_eq!(total(&growth, "device 0"), total(&growth, &leak));
    assert!(total(&peak, "device 0") > total(&live, "device 0"));
    assert_eq!(
        total(
            &String::from_utf8(run(&files, &["--to", "folded", "--value", "growth", "--since", "30"]).stdout)
                .unwrap(),
            &leak
        ),
        10 * 3072
    );

    let (_folder, svg) = export(&files, &["--to", "flamegraph", "--value", "growth"]);
    let svg = fs::read_to_string(svg).unwrap();
    // An XML parser takes it, and the leak is all of it.
    let parse = "import sys, xml.etree.ElementTree as t; print(t.parse(sys.argv[1]).getroot().tag)";
    let file = _folder.path().join("out");
    let out = Command::new(torch_python()).args(["-c", parse]).arg(file).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), "{http://www.w3.org/2000/svg}svg");
    assert!(
        svg.contains("growth bytes") && svg.contains(&format!("{leak} (92,160 bytes, 100.00%)")),
        "{svg}"
    );

    // Two processes stand apart.
    let both = [files[0].clone(), files[0].clone()];
    let out = String::from_utf8(run(&both, &["--to", "folded"]).stdout).unwrap();
    assert_eq!(total(&out, "device 0"), 2 * report.device(0, "live_bytes"));
    assert!(out.lines().all(|l| l.starts_with("pid ")), "{out}");
}

#[test]
fn a_pprof_profile() {
    let ran = trained("outputs", "40").run().success();
    let recording = ran.recording();
    let report = Report::of(&recording);
    let (_folder, file) = export(&[recording], &["--to", "pprof"]);
    let profile = read("read_pprof.py", &file);
    assert_eq!(profile["default"], "live_bytes");
    assert_eq!(
        (&profile["units"]["live_bytes"], &profile["units"]["live_blocks"], &profile["units"]["growth"]),
        (&"bytes".into(), &"count".into(), &"bytes".into())
    );
    let samples = list(&profile["samples"]);
    let sum = |layers: &[&str], value: &str| {
        let of = samples
            .iter()
            .filter(|s| s["labels"]["device"] == "0" && layers.contains(&text(&s["labels"]["layer"])));
        of.map(|s| s[value].as_i64().unwrap()).sum::<i64>() as u64
    };
    assert_eq!(sum(&["block", "driver"], "live_bytes"), report.device(0, "live_bytes"));
    assert_eq!(sum(&["block"], "live_bytes"), report.device(0, "block_bytes"));
    let blocks = report.retained().iter().filter(|s| s["device"] == 0).map(|s| number(&s["live_blocks"]));
    assert_eq!(sum(&["block", "driver"], "live_blocks"), blocks.sum::<u64>());
    // The same stacks, frame by frame; native ones beside Python's are examples, and folded for people.
    for site in report.retained() {
        let told = |f: &&Value| f["kind"] != "native";
        let frames: Vec<(&str, u64)> = list(&site["stack"])
            .iter()
            .filter(told)
            .map(|f| (text(&f["function"]), f["line"].as_u64().unwrap_or(0)))
            .collect();
        let same = |s: &&Value| {
            let stack = list(&s["stack"]).iter().map(|f| (text(&f["function"]), number(&f["line"])));
            s["live_bytes"] == site["live_bytes"]
                && (stack.clone().eq(frames.clone()) || stack.skip(1).eq(frames.clone()))
        };
        assert!(samples.iter().any(|s| same(&s)), "{site:#}");
    }
    let leaking = samples.iter().filter(|s| {
        list(&s["stack"])
            .iter()
            .any(|f| number(&f["line"]) == leaking_line() && text(&f["file"]).ends_with("train.py"))
    });
    let leaked: i64 = leaking.map(|s| s["growth"].as_i64().unwrap()).sum();
    assert_eq!(leaked, 30 * 3072);
}

#[test]
fn native_frames_of_a_profile_have_their_modules() {
    let ran = native("400");
    let recording = ran.recording();
    let report = Report::of(&recording);
    let (_folder, file) = export(&[recording], &["--to", "pprof"]);
    let profile = read("read_pprof.py", &file);
    let samples = list(&profile["samples"]);
    let on_device =
        samples.iter().filter(|s| s["labels"]["device"] == "0" && s["labels"]["layer"] != "borrowed");
    assert_eq!(on_device.map(|s| number(&s["live_bytes"])).sum::<u64>(), report.device(0, "live_bytes"));
    let pinned = samples.iter().filter(|s| s["labels"]["layer"] == "host");
    assert_eq!(pinned.map(|s| number(&s["live_bytes"])).sum::<u64>(), number(&report.0["host_bytes"]));
    let frames = samples.iter().flat_map(|s| list(&s["stack"]));
    let own: Vec<&Value> =
        frames.filter(|f| f["module"].as_str().is_some_and(|m| m.ends_with("driver_calls_proc"))).collect();
    let named = own.iter().find(|f| f["function"] == "allocate").expect("a frame of the program's own");
    assert!(text(&named["file"]).ends_with("driver_calls.c") && number(&named["line"]) > 0, "{named}");
    let build_id = text(&named["build_id"]);
    assert!(build_id.len() >= 16 && build_id.chars().all(|c| c.is_ascii_hexdigit()), "{build_id}");
}

#[test]
fn a_perfetto_trace() {
    let (ran, other) = (trained("outputs", "20").env("RANK", "1").run().success(), native("400"));
    let files = [ran.recording(), other.recording()];
    let report = Report::of(&files[0]);
    let (_folder, file) = export(&files, &["--to", "perfetto"]);
    let trace = read("read_perfetto.py", &file);
    let names: Vec<&str> = list(&trace["processes"]).iter().map(|p| text(&p["name"])).collect();
    assert!(
        names.len() == 2 && names[0] == "train.py rank 1" && names[1].starts_with("driver_calls_proc pid "),
        "{names:?}"
    );

    let (_folder, file) = export(&files[..1], &["--to", "perfetto"]);
    let trace = read("read_perfetto.py", &file);
    for (figure, counter) in [("live_bytes", "live"), ("reserved_bytes", "reserved")] {
        assert_eq!(
            trace["counters"][format!("device 0 {counter} bytes")],
            report.device(0, figure),
            "{figure}"
        );
    }
    let slices = list(&trace["slices"]);
    let of = |track: &'static str| slices.iter().filter(move |s| s["track"] == track);
    let steps: Vec<&Value> = of("steps").collect();
    assert_eq!((steps.len() as u64, &steps[19]["name"]), (report.steps(), &"step 20".into()));
    assert!(steps.windows(2).all(|s| s[0]["end"] == s[1]["begin"]));
    // Of each step one block of the leaking line is left when the program says that it ends; each lies in its step.
    let leaks =
        of("device 0 blocks").filter(|s| text(&s["name"]).contains(&format!("train.py:{})", leaking_line())));
    let leaks: Vec<&Value> = leaks
        .filter(|s| s["bytes"] == 3072 && s["end"].as_u64().is_none_or(|end| end > number(&steps[19]["end"])))
        .collect();
    assert_eq!(leaks.len(), 20);
    for (i, leak) in leaks.iter().enumerate() {
        let step = steps[number(&leak["step"]) as usize - 1];
        assert_eq!(number(&leak["step"]), i as u64 + 1);
        assert!(
            number(&step["begin"]) <= number(&leak["begin"])
                && number(&leak["begin"]) <= number(&step["end"])
        );
        assert!(text(&leak["stack"]).contains("forward"), "{leak}");
    }
    // Alive when the last step ended: what began before and ended after.
    let end = number(&steps[19]["end"]);
    let alive = of("device 0 blocks")
        .filter(|s| number(&s["begin"]) <= end && s["end"].as_u64().is_none_or(|e| e > end));
    assert_eq!(alive.map(|s| number(&s["bytes"])).sum::<u64>(), report.device(0, "block_bytes"));

    let few = export(&files[..1], &["--to", "perfetto", "--events", "10"]);
    let few = read("read_perfetto.py", &few.1);
    let told = list(&few["slices"]).iter().filter(|s| s["track"] != "steps").count();
    assert!(told <= 10, "{told}");
}

#[test]
fn a_pytorch_snapshot() {
    snapshot_of(trained("outputs", "20").arg("--churn"), "segment_alloc", Some("segment_free"));
}

#[test]
fn a_snapshot_of_expandable_segments() {
    let run = trained("outputs", "20").arg("--churn");
    snapshot_of(
        run.env("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        "segment_map",
        // Pages in use here and there in it: PyTorch unmaps none.
        None,
    );
}

#[track_caller]
fn snapshot_of(run: Run, grows: &str, shrinks: Option<&str>) {
    let ran = run.run().success();
    let recording = ran.recording();
    let report = Report::of(&recording);
    let (folder, file) = export(&[recording], &["--to", "snapshot"]);
    let said = |args: &[&str]| {
        let viewer = Run::new(torch_python()).simulated().args(args).arg(&file);
        viewer.arg("-o").arg(folder.path().join("plot.html")).run().success().text()
    };
    let reader = root().join("tests/consumers/read_snapshot.py");
    let snapshot: Value = serde_json::from_str(&said(&[reader.to_str().unwrap()])).unwrap();
    let blocks = list(&snapshot["blocks"]);
    assert_eq!(blocks.iter().map(|b| number(&b["bytes"])).sum::<u64>(), report.device(0, "live_bytes"));
    let objects = report.device(0, "object_bytes");
    assert_eq!(number(&snapshot["reserved"]), report.device(0, "reserved_bytes") + objects);
    let leaks = blocks.iter().filter(|b| {
        b["frames"][0][2] == "Net.forward" || b["frames"].to_string().contains("\"Net.forward\"")
    });
    let leaks: Vec<&Value> = leaks.filter(|b| b["bytes"] == 3072).collect();
    assert_eq!(leaks.len(), 20);
    let own = list(&leaks[0]["frames"]).iter().find(|f| text(&f[0]).ends_with("train.py")).unwrap();
    assert_eq!(own[1], leaking_line());
    // What the trace leaves alive is what the blocks say.
    assert_eq!(snapshot["traces"][0]["held"], report.device(0, "live_bytes"));
    let counts = &snapshot["traces"][0];
    let count = |of: &str| counts[of].as_u64().unwrap_or(0);
    assert!(count(grows) > 1 && shrinks.is_none_or(|name| count(name) > 0), "{counts}");
    // PyTorch's own command draws it; the reader had the other one's function do so.
    said(&["-m", "torch.cuda._memory_viz", "trace_plot"]);
    for plot in
        [fs::read_to_string(folder.path().join("plot.html")).unwrap(), text(&snapshot["plot"]).to_owned()]
    {
        assert!(plot.contains("add_local_files") && plot.len() > 10_000, "{} bytes", plot.len());
    }
}

/// Tables in `fleet` under a folder.
#[track_caller]
fn tabled(folder: &Path, form: &str, name: &str, files: &[PathBuf]) {
    let out = folder.join("fleet");
    let done = run(files, &["--to", form, "--run", name, "-o", out.to_str().unwrap()]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn asked(folder: &Path, sql: &str) -> Vec<Value> {
    let file = folder.join("query.sql");
    fs::write(&file, sql).unwrap();
    let answers: Value = serde_json::from_str(&consumed("ask_tables.py", &[&file], folder)).unwrap();
    list(&answers).to_vec()
}

#[track_caller]
fn tables_agree(form: &str) {
    let folder = TempDir::new().unwrap();
    let ran = trained("outputs", "40").run().success();
    let report = &Report::of(&ran.recording());
    tabled(folder.path(), form, "one", &[ran.recording()]);
    let at = |table: &str| format!("'fleet/run=one/rank=0/{table}.{form}'");
    let answers = asked(
        folder.path(),
        &format!(
            "SELECT function, line, sum(live_bytes) AS bytes FROM {} WHERE device = 0 AND live_blocks > 0 GROUP BY ALL;
             SELECT sum(c.live_bytes) AS bytes FROM {} c JOIN {} s USING (site) WHERE s.device = 0;
             SELECT step, live_bytes, reserved_bytes, at_s FROM {} WHERE device = 0 ORDER BY step;
             SELECT sum(CASE kind WHEN 'block_alloc' THEN bytes END) AS given, max(step) AS step, count(*) AS n,
                    bool_and(s.site IS NOT NULL) AS known
             FROM {} e LEFT JOIN (SELECT stack_id, min(site) AS site FROM {} GROUP BY 1) s USING (stack_id)
             WHERE kind = 'block_alloc';
             SELECT * FROM {};
             SELECT * FROM {} WHERE NOT benign",
            at("sites"), at("cohorts"), at("sites"),
            at("steps"), at("events"), at("sites"), at("recordings"), at("findings")
        ),
    );
    let lines: BTreeMap<(String, u64), u64> = list(&answers[0])
        .iter()
        .map(|r| {
            (
                (text(&r["function"]).to_owned(), r["line"].as_u64().unwrap_or(0)),
                r["bytes"].as_f64().unwrap() as u64,
            )
        })
        .collect();
    assert_eq!(lines, by_line(report), "sites");
    assert_eq!(answers[1][0]["bytes"].as_f64().unwrap() as u64, report.device(0, "live_bytes"), "cohorts");
    let series = list(&report.0["steps"]["series"]);
    assert_eq!(list(&answers[2]).len(), series.len());
    for (row, step) in list(&answers[2]).iter().zip(series) {
        assert_eq!((&row["step"], &row["at_s"]), (&step["step"], &step["at_s"]));
        for figure in ["live_bytes", "reserved_bytes"] {
            assert_eq!(row[figure], step["devices"][0][figure], "{figure} at {}", row["step"]);
        }
    }
    let events = &answers[3][0];
    assert!(events["known"] == true && number(&events["n"]) > 500, "{events}");
    let row = &answers[4][0];
    assert_eq!(
        (&row["end"], &row["steps"], &row["pid"]),
        (&"clean".into(), &40.into(), &report.0["program"]["pid"])
    );
    assert_eq!(number(&row["live_bytes"]), report.device(0, "live_bytes"));
    let findings = list(&answers[5]);
    assert_eq!(findings.len(), report.findings().len());
    for (row, finding) in findings.iter().zip(report.findings()) {
        let place = &finding["sites"][0]["allocated_at"];
        assert_eq!((&row["kind"], &row["explanation"]), (&finding["kind"], &finding["explanation"]));
        assert_eq!((&row["file"], &row["line"]), (&place["file"], &place["line"]));
    }
}

#[test]
fn tables_as_csv() {
    tables_agree("csv");
}

#[test]
fn tables_as_parquet() {
    tables_agree("parquet");
}

#[test]
fn a_fleet_is_judged_by_queries() {
    let folder = TempDir::new().unwrap();
    let ranks = ["0", "1"].map(|rank| trained("outputs", "40").env("RANK", rank).run().success());
    let fixed = trained("none", "40").run().success();
    tabled(folder.path(), "parquet", "train-1", &[fixed.recording()]);
    tabled(folder.path(), "parquet", "train-2", &ranks.each_ref().map(Ran::recording));
    let report = Report::of(&ranks[0].recording());
    let (finding, line) = (&report.findings()[0], leaking_line());
    let answers = asked(folder.path(), &fs::read_to_string(root().join("scripts/findings.sql")).unwrap());
    let [leak] = list(&answers[0]) else { panic!("one cause: {}", answers[0]) };
    let place = (&leak["run"], &leak["line"]);
    assert_eq!(place, (&"train-2".into(), &line.into()));
    assert_eq!((&leak["ranks"], &leak["of_ranks"]), (&2.into(), &2.into()));
    assert_eq!(leak["most_per_step"], finding["growth_bytes_per_step"]);
    let kept = list(&answers[1]);
    assert_eq!(kept.len(), 2, "{kept:?}");
    for row in kept {
        assert_eq!((&row["run"], &row["line"]), place);
        assert_eq!(row["bytes_per_step"], finding["bytes_per_step"]);
    }
    let [grown] = list(&answers[2]) else { panic!("one line: {}", answers[2]) };
    assert_eq!((&grown["run"], &grown["line"]), place);
    assert_eq!(grown["now"], 2.0 * 30.0 * 3072.0);
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
    let answers = asked(
        folder.path(),
        "SELECT min(seq) AS first, max(seq) - min(seq) + 1 = count(*) AS dense, bool_and(at_s >= 0) AS timed, max(step) AS step
         FROM 'fleet/*/*/events.parquet'; SELECT sum(live_bytes) AS bytes FROM 'fleet/*/*/sites.parquet' WHERE device = 0 AND layer <> 'borrowed'",
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
    let cases: [(&[PathBuf], &[&str], &str); 11] = [
        (&[], &["--to", "pprof", "-o", nowhere], "needs a recording"),
        (std::slice::from_ref(&torn), &["--to", "pprof", "-o", nowhere], "torn.ltrace"),
        (std::slice::from_ref(&torn), &["--to", "perfetto", "-o", nowhere], "torn.ltrace"),
        (std::slice::from_ref(&torn), &["--to", "parquet", "-o", nowhere], "torn.ltrace"),
        (&[good.clone(), good.clone()], &["--to", "snapshot", "-o", nowhere], "one recording"),
        (std::slice::from_ref(&good), &["--to", "folded", "-o", nowhere], nowhere),
        (std::slice::from_ref(&good), &["--to", "csv"], "-o"),
        (std::slice::from_ref(&good), &["--to", "csv", "-o", good.to_str().unwrap()], "Not a directory"),
        (std::slice::from_ref(&good), &["--to", "json-schema"], "no recording"),
        (&[good.clone(), torn.clone()], &["--to", "folded"], "torn.ltrace"),
        (&[good.clone(), torn.clone()], &["--to", "perfetto", "-o", nowhere], "torn.ltrace"),
    ];
    for (files, args, names) in cases {
        let out = run(files, args);
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), said.lines().count()), (Some(2), 1), "{args:?}: {said}");
        assert!(said.starts_with("leaktrace: ") && said.contains(names), "{args:?}: {said}");
        assert!(out.stdout.is_empty());
    }
    assert_eq!(run(&[good], &["--to", "vhs"]).status.code(), Some(2));
}
