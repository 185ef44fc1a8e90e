//! Bytes by stack: folded, as a flame graph, as a profile.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::{export, leaking_line, list, native, number, read, run, text, trained};
use crate::common::folded;
use crate::common::programs::torch_python;
use crate::common::report::Report;

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
        // Examples have every round of a recursion.
        let frames = folded(frames, |a, b| a.0 == b.0);
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
        samples.iter().filter(|s| s["labels"]["device"] == "0" && s["labels"]["layer"] != "external");
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
