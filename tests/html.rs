//! `leaktrace report --format html`: the numbers in the file are the report's; a real browser shows them, by mouse and by
//! keyboard, without a request and without a complaint. Where no browser can be had, the file alone is looked at, and
//! the test says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::grows::grows;
use crate::common::programs::{compile, driver_calls, line_of, linked, torch};
use crate::common::report::{Report, call, leaktrace};
use crate::common::{Chance, Ran, Run, library, root};
use serde_json::Value;
use tempfile::TempDir;

/// Writes the page of some recordings; returns the file and the data in it.
#[track_caller]
fn page(folder: &Path, recordings: &[PathBuf], more: &[&str]) -> (PathBuf, Value) {
    let out = folder.join("report.html");
    let mut command = leaktrace();
    command.args(["report", "--format", "html", "-o"]).arg(&out).args(recordings).args(more);
    let said = command.output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert_eq!(said.stdout, b"");
    let text = fs::read_to_string(&out).unwrap();
    let data = data(&text);
    (out, data)
}

/// The data of a page, which must be whole in every way that a browser needs.
#[track_caller]
fn data(text: &str) -> Value {
    assert!(text.starts_with("<!doctype html>") && text.trim_end().ends_with("</html>"));
    // What the page needs is in it: nothing is named that a browser would fetch.
    for fetched in [" src=", "<link", "@import", "url(", "fetch(", "XMLHttpRequest", "sendBeacon"] {
        assert!(!text.contains(fetched), "{fetched}");
    }
    assert!(text.contains("Content-Security-Policy") && text.contains("default-src 'none'"));
    for licence in ["The MIT License (MIT)", "Leon Sorokin", "Mike Bostock"] {
        assert!(text.contains(licence), "{licence}");
    }
    assert_eq!(text.matches("<script").count(), 5, "whatever a recording says is no script");
    assert_eq!(text.matches("</script>").count(), 5);
    let (before, rest) = text.split_once("id=\"data\">").expect("data");
    let (json, after) = rest.split_once("</script>").expect("an end");
    let parts = [
        "data",
        "style",
        "uplot.css",
        "uplot.js",
        "d3.js",
        "model",
        "timeline",
        "icicle",
        "segments",
        "overview",
        "ranks",
        "page",
    ];
    for mark in parts.map(|m| format!("/*{m}*/")) {
        assert!(!before.contains(&mark) && !after.contains(&mark), "{mark} is missing");
    }
    serde_json::from_str(json).expect("the data is JSON")
}

fn number(v: &Value) -> u64 {
    v.as_u64().unwrap_or_else(|| panic!("{v} is no figure"))
}

/// Bytes by site at the end of a point, and its totals by group.
fn live(history: &Value, point: usize) -> (Vec<i64>, Vec<u64>) {
    let mut bytes = vec![0; history["sites"].as_array().unwrap().len()];
    let points = &history["points"].as_array().unwrap()[..=point];
    for change in points.iter().flat_map(|p| p["changes"].as_array().unwrap().chunks(3)) {
        bytes[number(&change[0]) as usize] += change[2].as_i64().unwrap();
    }
    let totals = points[point]["totals"].as_array().unwrap().iter().map(|t| number(&t[0])).collect();
    (bytes, totals)
}

/// What the page says of one recording is what its JSON report says.
#[track_caller]
fn agrees(page: &Value, recording: &Path) {
    let report = Report::of(recording);
    let told = &page["report"];
    for part in ["program", "devices", "host_bytes", "coverage", "warnings", "holder_searches"] {
        assert_eq!(told.get(part), report.0.get(part), "{part}");
    }
    assert_eq!(told["steps"]["count"], report.0["steps"]["count"]);
    for part in ["findings", "non_leaks", "retained"] {
        let mut expected = report.0[part].clone();
        for item in expected.as_array_mut().unwrap() {
            let sites = item.get_mut("sites").and_then(Value::as_array_mut);
            sites.into_iter().flatten().for_each(|s| s["stack"] = Vec::<Value>::new().into());
            if item.get("stack").is_some() {
                item["stack"] = Vec::<Value>::new().into();
            }
        }
        assert_eq!(told[part], expected, "{part}");
    }
    let history = &page["history"];
    let (sites, points) = (history["sites"].as_array().unwrap(), history["points"].as_array().unwrap());
    let group_of = |s: &Value| number(&s["group"]) as usize;
    let groups = history["groups"].as_array().unwrap();
    let mut bytes = vec![0; sites.len()];
    for (i, point) in points.iter().enumerate() {
        for change in point["changes"].as_array().unwrap().chunks(3) {
            bytes[number(&change[0]) as usize] += change[2].as_i64().unwrap();
        }
        let mut sums = vec![0; groups.len()];
        sites.iter().zip(&bytes).for_each(|(s, b)| sums[group_of(s)] += b);
        let totals = point["totals"].as_array().unwrap().iter();
        let totals: Vec<i64> = totals.map(|t| number(&t[0]) as i64).collect();
        assert_eq!(sums, totals, "the sites are all of what is live at point {i}");
        let step = number(&point["step"]);
        if step > 0 && i % (points.len() / 8 + 1) == 0 {
            let at = Report::at(recording, step);
            for (group, total) in groups.iter().zip(&totals) {
                if let Some(device) = group["device"].as_u64() {
                    assert_eq!(at.device(device, "live_bytes") as i64, *total, "step {step}");
                }
            }
        }
    }
    // The flame graph's figures, and the table's at the last point, are those that the report lists.
    for (slot, s) in sites.iter().enumerate() {
        assert_eq!(number(&s["retained_bytes"]) as i64, bytes[slot], "{s}");
    }
    for (r, slot) in report.retained().iter().zip(page["retained_sites"].as_array().unwrap()) {
        let site = &sites[number(slot) as usize];
        assert_eq!(
            (&site["retained_bytes"], &site["retained_blocks"]),
            (&r["live_bytes"], &r["live_blocks"])
        );
        assert_eq!(stack(page, site), frames(&r["stack"]));
    }
    for (f, slots) in report.findings().iter().zip(page["finding_sites"].as_array().unwrap()) {
        for (s, slot) in f["sites"].as_array().unwrap().iter().zip(slots.as_array().unwrap()) {
            let site = &sites[number(slot) as usize];
            assert_eq!(stack(page, site), frames(&s["stack"]));
            assert_eq!(site["layer"], f["layer"]);
        }
    }
}

type Named = Vec<(String, u64, String)>;

/// A site's stack as the page has it, innermost first.
fn stack(page: &Value, site: &Value) -> Named {
    let stacks = &page["stacks"];
    let name = |id: &Value| stacks["names"][number(id) as usize].as_str().unwrap().to_owned();
    let mut node = site["stack"].as_i64().unwrap();
    let mut out = Vec::new();
    while node >= 0 {
        let frame = &stacks["frames"][number(&stacks["nodes"][node as usize]) as usize];
        out.push((name(&frame[2]), number(&frame[3]), name(&frame[4])));
        node = stacks["parents"][node as usize].as_i64().unwrap();
    }
    out
}

fn frames(stack: &Value) -> Named {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let frames = stack.as_array().unwrap().iter();
    frames.map(|f| (text(&f["file"]), f["line"].as_u64().unwrap_or(0), text(&f["function"]))).collect()
}

fn trained(args: &[&str]) -> Ran {
    torch("train.py").args(args).traced().steps_by_print().env("LEAKTRACE_QUIET", "1").run().success()
}

/// Calls of the driver, steps told by `source`.
fn called(source: &str) -> Ran {
    Run::new(driver_calls("proc"))
        .simulated()
        .traced()
        .args(["51", "800", "15", "2", "own", "keep"])
        .env("LEAKTRACE_STEP", source)
        .run()
        .success()
}

#[test]
fn the_numbers_are_the_reports() {
    let ran = trained(&["--leak", "losses", "--steps", "60"]);
    let recording = ran.recording();
    let (_, pages) = page(&ran.folder(), std::slice::from_ref(&recording), &[]);
    let page = &pages[0];
    agrees(page, &recording);
    let report = Report::of(&recording);
    assert_eq!(report.findings().len(), 1);
    assert_eq!(page["history"]["points"].as_array().unwrap().len(), 60);
    // The leak grew by 512 bytes a step since the middle of the run.
    let site = &page["history"]["sites"][number(&page["finding_sites"][0][0]) as usize];
    assert_eq!(number(&site["growth_bytes"]), 30 * 512);
    // The map is of the last step, though the teardown has freed all of it since.
    let map = &page["segments"];
    assert_eq!(number(&map["bytes"]), report.device(0, "reserved_bytes"));
    assert_eq!(number(&map["used"]), report.device(0, "block_bytes"));
    let listed = map["segments"].as_array().unwrap();
    let cells = listed.iter().flat_map(|s| s["cells"].as_array().unwrap().chunks(6));
    assert_eq!(cells.map(|c| number(&c[2])).sum::<u64>(), report.device(0, "block_bytes"));
}

/// Ten thousand steps are some two thousand points; no peak is lost, and what lies between them is not either.
#[test]
fn long_runs_are_summed_up() {
    let standin =
        compile("blocks.c", "libstandin.so", &["-DSTANDIN", "-shared", "-fPIC", "-Wl,-soname,libstandin.so"]);
    let run = Run::new(linked("blocks.c", "blocks", &standin, &[])).simulated().traced();
    let ran = run.args(["200000", "1", "3000", "20"]).run().success();
    let recording = ran.recording();
    let (file, pages) = page(&ran.folder(), std::slice::from_ref(&recording), &[]);
    agrees(&pages[0], &recording);
    let report = Report::of(&recording);
    assert_eq!(report.steps(), 10_000);
    let history = &pages[0]["history"];
    let points = history["points"].as_array().unwrap();
    assert!((1000..=2000).contains(&points.len()), "{} points", points.len());
    assert_eq!(points.last().unwrap()["step"], 10_000);
    let series = report.0["steps"]["series"].as_array().unwrap();
    assert_eq!(series.len(), 10_000);
    let most = series.iter().map(|s| number(&s["devices"][0]["live_bytes"])).max();
    assert_eq!(points.iter().map(|p| number(&p["totals"][0][0])).max(), most);
    let peak = points.iter().map(|p| number(&p["totals"][0][1])).max();
    assert_eq!(peak, Some(report.device(0, "peak_bytes")));
    assert!(fs::metadata(file).unwrap().len() < 2 << 20);
}

#[test]
fn a_step_that_is_asked_for() {
    let ran = trained(&["--leak", "losses", "--steps", "40"]);
    let recording = ran.recording();
    let (_, pages) = page(&ran.folder(), std::slice::from_ref(&recording), &["--step", "20"]);
    let (page, at) = (&pages[0], Report::at(&recording, 20));
    assert_eq!(page["report"]["devices"], at.0["devices"]);
    let history = &page["history"];
    let point = number(&history["at"]) as usize;
    assert_eq!(history["points"][point]["step"], 20);
    for (r, slot) in at.retained().iter().zip(page["retained_sites"].as_array().unwrap()) {
        assert_eq!(history["sites"][number(slot) as usize]["retained_bytes"], r["live_bytes"]);
    }
}

#[test]
fn segments_that_are_mapped_piece_by_piece_or_given_back_at_the_end() {
    for allocator in ["expandable_segments:True", "expandable_segments:False"] {
        let run = torch("train.py").args(["--leak", "losses", "--steps", "30"]).traced().steps_by_print();
        let ran = run.env("PYTORCH_CUDA_ALLOC_CONF", allocator).env("LEAKTRACE_QUIET", "1").run().success();
        let recording = ran.recording();
        let (_, pages) = page(&ran.folder(), std::slice::from_ref(&recording), &[]);
        let (map, report) = (&pages[0]["segments"], Report::of(&recording));
        assert_eq!(number(&map["bytes"]), report.device(0, "reserved_bytes"), "{allocator}");
        assert_eq!(number(&map["used"]), report.device(0, "block_bytes"), "{allocator}");
        let starts: Vec<&str> =
            map["segments"].as_array().unwrap().iter().map(|s| s["start"].as_str().unwrap()).collect();
        assert_eq!(starts.len() as u64, number(&map["count"]), "{allocator}");
    }
}

#[test]
fn a_run_without_steps_and_several_runs() {
    let (one, two) = (called("optimizer"), called("api"));
    let (_, pages) = page(&one.folder(), &[one.recording(), two.recording()], &[]);
    assert_eq!(pages.as_array().unwrap().len(), 2);
    agrees(&pages[0], &one.recording());
    agrees(&pages[1], &two.recording());
    assert_eq!(pages[0]["history"]["points"].as_array().unwrap().len(), 1);
}

/// A program's own words, however chosen, stay words.
#[test]
fn words_of_a_recording_are_no_markup() {
    let folder = tempfile::TempDir::new().unwrap();
    let odd = folder.path().join("</script><!--<script>alert(1)/*page*/");
    fs::create_dir_all(&odd).unwrap();
    let program = odd.join("x");
    fs::copy(driver_calls("proc"), &program).unwrap();
    let run = Run::new(&program).simulated().traced().args(["51", "80", "15", "2", "own", "keep"]);
    let ran = run.run().success();
    let (file, pages) = page(&ran.folder(), &[ran.recording()], &[]);
    let argv = pages[0]["report"]["program"]["argv"][0].as_str().unwrap();
    assert!(argv.ends_with("</script><!--<script>alert(1)/*page*/x"), "{argv}");
    if let Some(saw) = browse(&file, "driver") {
        assert_eq!(saw["console"], Value::Array(Vec::new()));
    }
}

/// The page is the program's: the library that is preloaded has nothing of it.
#[test]
fn the_preload_carries_none_of_it() {
    let has = |file: &Path| {
        let bytes = fs::read(file).unwrap();
        ["uPlot", "Content-Security-Policy"].map(|w| bytes.windows(w.len()).any(|b| b == w.as_bytes()))
    };
    assert_eq!(has(env!("CARGO_BIN_EXE_leaktrace").as_ref()), [true, true]);
    assert_eq!(has(library()), [false, false]);
}

#[test]
fn a_damaged_recording() {
    let ran = called("api");
    let good = fs::read(ran.recording()).unwrap();
    let (file, out) = (ran.folder().join("torn"), ran.folder().join("torn.html"));
    let mut chance = Chance(99);
    let mut read = 0;
    for _ in 0..60 {
        let mut bytes = good.clone();
        for _ in 0..8 {
            let at = chance.below(bytes.len().min(400_000) as u64) as usize;
            bytes[at] = chance.below(256) as u8;
        }
        fs::write(&file, &bytes).unwrap();
        let said =
            call([file.as_os_str(), "--format".as_ref(), "html".as_ref(), "-o".as_ref(), out.as_ref()]);
        let line = String::from_utf8_lossy(&said.stderr);
        match said.status.code() {
            Some(0) => {
                data(&fs::read_to_string(&out).unwrap());
                read += 1;
            }
            Some(2) => assert_eq!(line.lines().count(), 1, "{line}"),
            code => panic!("exit status {code:?}: {line}"),
        }
    }
    assert!(read > 0);
}

/// What a browser shows; `None`, and a word about it, where there is none.
fn browse(file: &Path, term: &str) -> Option<Value> {
    driven("drive.py", &[file, Path::new(term)])
}

/// What a script of `tests/html` saw in a browser.
fn driven(script: &str, args: &[&Path]) -> Option<Value> {
    let made = Command::new(root().join("scripts/dev/browser-env")).output().unwrap();
    if made.status.code() == Some(3) {
        println!("skipped: {}", String::from_utf8_lossy(&made.stderr).trim_end());
        return None;
    }
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let place = PathBuf::from(String::from_utf8_lossy(&made.stdout).trim_end());
    let mut python = Command::new(place.join("venv/bin/python"));
    python.arg(root().join("tests/html").join(script)).arg(place.join("browser")).args(args);
    let out = python.env_remove("LD_PRELOAD").output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    Some(serde_json::from_slice(&out.stdout).expect("what was seen"))
}

#[test]
fn a_browser_shows_it() {
    let ran = trained(&["--leak", "outputs", "--steps", "60"]);
    let recording = ran.recording();
    let report = Report::of(&recording);
    let (file, pages) = page(&ran.folder(), &[recording], &[]);
    let Some(saw) = browse(&file, "forward") else { return };
    let none = Value::Array(Vec::new());
    assert_eq!(saw["console"], none);
    assert!(saw["requests"].as_array().unwrap().iter().all(|r| r.as_str().unwrap().starts_with("file://")));
    assert_eq!(saw["requests"].as_array().unwrap().len(), 2, "the file itself, in two browsers");
    assert_eq!((&saw["nameless"], &saw["sideways"]), (&none, &false.into()));
    let heading = saw["heading"].as_str().unwrap();
    assert!(heading.starts_with("1 leak: ") && heading.contains(" per step at "), "{heading}");
    let line = line_of("train.py", "y = torch.relu(self.inner(x))");
    let finding = saw["findings"][0].as_str().unwrap();
    assert!(finding.contains(&format!("train.py:{line} Net.forward")), "{finding}");
    assert!(finding.contains(report.findings()[0]["why"].as_str().unwrap()), "{finding}");
    // The head has all that matters, and the lines are there to be read.
    for words in
        ["Leak (confirmed)", " per step, ", "held by ", "called from", "y = torch.relu(self.inner(x))"]
    {
        assert!(finding.contains(words), "{words}: {finding}");
    }
    assert!(
        finding.contains("Fix: ")
            && finding.contains("store .detach().cpu() (or .item(), if it is one number) in "),
        "{finding}"
    );
    let sections = ["Findings", "Timeline", "Flame graph", "Segments", "Holders", "Coverage"];
    assert_eq!(saw["sections"], Value::from(sections.to_vec()));

    // The table under the timeline at the end, at a point clicked, and at one reached by key.
    let history = &pages[0]["history"];
    let check = |at: &Value, step: u64| {
        assert_eq!(at["heading"], format!("Live at the end of step {step}"));
        let (mut bytes, totals) = live(history, step as usize - 1);
        assert_eq!(number(&at["total"]), totals[0]);
        bytes.retain(|b| *b > 0);
        bytes.sort_unstable_by_key(|b| std::cmp::Reverse(*b));
        let rows: Vec<i64> = at["rows"].as_array().unwrap().iter().map(|r| r[1].as_i64().unwrap()).collect();
        assert_eq!(rows, bytes[..rows.len()], "step {step}");
        assert!(rows.len() >= bytes.len().min(20));
    };
    check(&saw["live"], 60);
    let heading = saw["clicked"]["heading"].as_str().unwrap();
    let clicked: u64 = heading.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((25..=36).contains(&clicked), "{heading}");
    check(&saw["clicked"], clicked);
    let reached = |text: &Value, step| text.as_str().unwrap().starts_with(&format!("step {step}, "));
    assert!(reached(&saw["focused"], clicked) && reached(&saw["right"], clicked + 1), "{saw:#}");
    check(&saw["home"], 1);
    assert!(saw["said"].as_str().unwrap().starts_with("Step 1: "));
    assert!(saw["compared"].as_array().unwrap().contains(&"Since step 1".into()));
    assert!(!saw["stack"].as_array().unwrap().is_empty());

    let flame = &saw["flame"];
    let sum = |figure: &str| -> u64 {
        history["sites"].as_array().unwrap().iter().map(|s| number(&s[figure])).sum()
    };
    for mode in ["live", "retained", "growth", "peak"] {
        assert_eq!(number(&flame[mode]["total"]), sum(&format!("{mode}_bytes")), "{mode}");
    }
    assert!(number(&flame["own"]["frames"]) < number(&flame["retained"]["frames"]));
    assert!(number(&flame["search"]["hits"]) > 0);
    assert!(flame["search"]["found"].as_str().unwrap().contains("frame"));
    assert_eq!(flame["own"]["hits"], 0);
    assert!(saw["frame"].as_str().unwrap().contains(" · "));
    assert!(number(&saw["zoomed"]) > 0);
    assert_eq!(saw["zoomed out"], 0);
    assert_eq!(saw["segments"], pages[0]["segments"]["count"]);
    assert!(saw["block"].as_str().unwrap().contains(" at +"));
    assert_ne!(saw["grounds"][0], saw["grounds"][1], "light and dark");
}

#[test]
fn a_browser_opens_several_recordings_with_all_of_them() {
    let folder = TempDir::new().unwrap();
    for (r, steps) in [(0, 40), (1, 40), (2, 20)] {
        let out = folder.path().join(format!("rank{r}.ltrace"));
        let run = grows(steps, &["--first", "1024"]).env("LEAKTRACE_OUT", &out).env("RANK", r.to_string());
        run.run().success();
    }
    let recordings: Vec<PathBuf> = (0..3).map(|r| folder.path().join(format!("rank{r}.ltrace"))).collect();
    let (file, _) = page(folder.path(), &recordings, &[]);
    let Some(saw) = driven("overview.py", &[&file]) else { return };
    assert_eq!(saw["console"], Value::Array(Vec::new()));
    let heading = saw["heading"].as_str().unwrap();
    assert!(heading.starts_with("1 leak in 3 ranks, on all of them: 1.0 KiB per step at "), "{heading}");
    assert!(heading.ends_with("; rank 2 ended first, at step 20: exit status 0"), "{heading}");
    assert_eq!(saw["back"], heading);
    let overview = saw["overview"].as_str().unwrap();
    for words in
        ["1.0 KiB (1 allocation) per step", "all 3 ranks", "ranks 0 and 1", "step 20 of 40", "ended first"]
    {
        assert!(overview.contains(words), "{words}: {overview}");
    }
    assert_eq!(saw["sideways"], Value::from(vec![false, false]));
    assert!(saw["opened"].as_str().unwrap().starts_with("1 leak: 1.0 KiB per step at"), "{saw:#}");
    assert_eq!(saw["hidden"], true);
    let widths: Vec<f64> = saw["text"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
    assert!(!widths.is_empty() && widths.iter().all(|&share| share > 0.9), "{widths:?}");
}
