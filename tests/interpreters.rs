//! The CPythons: what is seen of each, and what a report says where an interpreter is not known, or not what it seems.
//!
//! 3.14, 3.15 and the free-threaded ones are those of `scripts/dev/debian-python`; without them the others are tested.

use std::path::Path;

use crate::common::grows::flat;
use crate::common::programs::{bare_cudart, free_threaded, linked, named, pythons, script};
use crate::common::report::{Report, leaktrace};
use crate::common::{Ran, Run};

fn kinds(report: &Report) -> Vec<&str> {
    report.findings().iter().filter_map(|f| f["kind"].as_str()).collect()
}

#[test]
fn runs_of_the_collector_are_seen() {
    for (version, python) in pythons().into_iter().chain(free_threaded()) {
        let run = Run::new(&python).arg(script("holders/collected.py")).env("LEAKTRACE_STEP", "api");
        let report = Report::of(&run.traced().run().success().recording());
        assert_eq!(kinds(&report), ["pending-gc"], "{version}: {:#}", report.0["coverage"]);
        if !version.ends_with('t') {
            assert_eq!(report.coverage("gaps").to_string(), "[]", "{version}");
        }
    }
}

#[test]
fn code_is_known_by_strings_of_the_programs_own_class_and_with_a_very_long_line_table() {
    for (version, python) in pythons().into_iter().chain(free_threaded()) {
        let run = Run::new(&python).arg(script("odd_code.py")).arg(bare_cudart());
        // More than the recording keeps of the command line.
        let run = run.args((0..200).map(|_| "x".repeat(1000))).env("LEAKTRACE_STEP", "api");
        let report = Report::of(&run.traced().run().success().recording());
        let gaps = report.coverage("gaps").to_string();
        assert!(!gaps.contains("unexpected") && !gaps.contains("call stacks"), "{version}: {gaps}");
        for (file, function, line) in
            [("named.py", "in_class", 2), ("\u{4e3b}.py", "\u{1f600}", 2), ("long.py", "with_long_table", 1)]
        {
            let is_it =
                |f: &serde_json::Value| f["file"] == file && f["function"] == function && f["line"] == line;
            let mut of_it = report
                .retained()
                .iter()
                .filter(|r| r["live_blocks"] == 1000 && r["stack"].as_array().unwrap().iter().any(is_it));
            assert!(of_it.next().is_some(), "{version}, {file}: {:#?}", report.retained());
        }
        assert!(report.0["program"]["argv"].as_array().unwrap().len() > 100, "{version}");
        let label = report.0["steps"]["annotations"][0]["name"].as_str().unwrap();
        assert!(label.starts_with("xxx"), "{version}: {label}");
    }
}

/// Returns what a report says first, a run at its end, `check`, and the page.
fn said(ran: &Ran) -> [String; 4] {
    let recording = ran.recording();
    let told = |before: &[&str], after: &[&str]| {
        let out = leaktrace().args(before).arg(&recording).args(after).output().unwrap();
        flat(&String::from_utf8_lossy(&out.stdout))
    };
    let report = told(&["report"], &[]);
    let first = report.split("Live after").next().unwrap_or_default().to_owned();
    let page = told(&["report"], &["--format", "html"]);
    [first, flat(&ran.transcript()), told(&["check"], &[]), page]
}

#[test]
fn what_an_unknown_interpreter_takes_away_is_said_first_and_everywhere() {
    let flags = ["-rdynamic", "-DTEXT=\"3.99.0 (main)\""];
    let program = linked("odd_python.c", "odd_python_told", &bare_cudart(), &flags);
    let ran = Run::new(program).traced().run().success();
    let gap = "CPython 3.99.0: unknown frame layout; Python stacks, holders, steps from loops and runs of the garbage \
               collector are not seen";
    for said in said(&ran) {
        assert!(said.contains(gap), "{said}");
    }
    assert_eq!(Report::of(&ran.recording()).coverage("gaps")[0], gap);
}

/// An interpreter, a word of which was changed: nothing that rests on it is followed, and the program runs as ever.
fn changed(python: &Path, symbol: &str, word: &str, by: i32) -> Ran {
    let run = Run::new(python).simulated().traced().arg(script("other_offsets.py")).args([symbol, word]);
    let run = run.arg(by.to_string()).arg(script("holders/bare.py"));
    run.env("LEAKTRACE_STEP", "api").run().success()
}

fn names_holders(report: &Report) -> bool {
    report.findings().iter().any(|f| f["holders"][0]["path"].is_string())
}

#[test]
fn what_is_not_seen_of_a_free_threaded_interpreter_is_said_first_and_everywhere() {
    for (version, python) in free_threaded() {
        let run = Run::new(&python).simulated().traced().arg(script("holders/bare.py"));
        let ran = run.env("LEAKTRACE_STEP", "api").env("PYTHON_GIL", "0").run().success();
        let report = Report::of(&ran.recording());
        assert!(
            kinds(&report).contains(&"leak") && !names_holders(&report),
            "{version}: {:#?}",
            kinds(&report)
        );
        let gap = format!("{}: holders are not searched for", named(&version));
        for said in said(&ran) {
            assert!(said.contains(&gap), "{version}: {said}");
        }
        let why = "who holds what is not searched: the interpreter is free-threaded";
        assert!(report.coverage("gaps").to_string().contains(why), "{version}: {:#}", report.0["coverage"]);
        assert_eq!(report.0["program"]["python"], named(&version));
    }
}

/// Threads that keep blocks of their own, each at a line of its own, in loops of their own.
#[test]
fn leaks_of_threads_that_run_at_once_are_found() {
    for (version, python) in free_threaded() {
        let run = Run::new(&python).args([script("free_leaks.py"), bare_cudart()]).env("PYTHON_GIL", "0");
        let report = Report::of(&run.traced().run().success().recording());
        assert_eq!(report.source(), "loop", "{version}: {:#}", report.0["steps"]);
        let mut lines: Vec<_> =
            report.findings().iter().map(|f| f["sites"][0]["stack"].to_string()).collect();
        lines.retain(|stack| stack.contains("keeps"));
        assert_eq!((lines.len(), report.findings().len()), (1, 1), "{version}: {:#?}", report.findings());
    }
}

#[test]
fn objects_that_are_not_as_expected_are_found_out() {
    for (version, python) in pythons() {
        // The size of a generator says where the variables of its frame begin.
        if version[2..].parse::<u32>().unwrap() < 11 {
            continue;
        }
        let ran = changed(&python, "PyGen_Type", "4", 8);
        let report = Report::of(&ran.recording());
        let gap = format!("CPython {version}: unexpected layout of types; holders are not searched for");
        assert!(report.coverage("gaps").to_string().contains(&gap), "{:#}", report.0["coverage"]);
        assert!(!names_holders(&report), "{version}");
        assert!(said(&ran).iter().all(|said| said.contains(&gap)), "{:#?}", said(&ran));
    }
}

#[test]
fn an_interpreter_that_contradicts_what_is_known_is_found_out() {
    // A word of `_Py_DebugOffsets` in 3.14 and 3.15, what it is changed by, and the gap.
    let changes: [(&str, [&str; 2], i32, &str); 7] = [
        ("version", ["1", "1"], 1 << 16, "unknown frame layout"),
        ("thread.current_frame", ["26", "26"], 8, "unknown frame layout"),
        ("frame.executable", ["33", "41"], 8, "unknown frame layout"),
        ("frame.localsplus", ["35", "43"], -8, "unexpected layout of objects"),
        ("tuple.ob_item", ["57", "69"], -8, "unexpected layout of objects"),
        ("list.ob_item", ["60", "72"], 8, "unexpected layout of objects"),
        ("gc.collecting", ["82", "95"], 8, "runs of the garbage collector are not seen"),
    ];
    let mut met = 0;
    for (version, python) in pythons() {
        let Some(index) = ["3.14", "3.15"].iter().position(|v| *v == version) else { continue };
        for (what, words, by, why) in changes {
            let ran = changed(&python, "_PyRuntime", words[index], by);
            let report = Report::of(&ran.recording());
            assert_eq!(names_holders(&report), what == "gc.collecting", "{version}, {what}");
            for said in said(&ran) {
                assert!(
                    said.contains(&format!("CPython {version}")) && said.contains(why),
                    "{version}, {what}: {said}"
                );
            }
        }
        met += 1;
    }
    if met == 0 {
        println!("not run: no CPython 3.14 or 3.15 here (scripts/dev/debian-python 3.14)");
    }
}

#[test]
fn a_free_threaded_interpreter_that_contradicts_what_is_known_is_found_out() {
    let unknown = "unknown frame layout; Python stacks, holders";
    // A word of `_Py_DebugOffsets` in 3.13, 3.14 and 3.15, what it is changed by, and the gap.
    let changes: [(&str, [Option<&str>; 3], i32, &str); 7] = [
        ("free_threaded", [Some("2"), Some("2"), Some("2")], -1, unknown),
        ("object.ob_type", [Some("45"), Some("51"), Some("59")], -16, unknown),
        ("code.filename", [Some("35"), Some("40"), Some("48")], -16, unknown),
        ("code.co_tlbc", [None, Some("49"), Some("57")], -8, unknown),
        ("frame.tlbc_index", [None, Some("38"), Some("46")], 4, unknown),
        ("frame.localsplus", [Some("32"), Some("35"), Some("43")], -8, "holders are not searched for"),
        (
            "gc.collecting",
            [Some("72"), Some("82"), Some("95")],
            8,
            "runs of the garbage collector are not seen",
        ),
    ];
    for (version, python) in free_threaded() {
        let Some(index) = ["3.13t", "3.14t", "3.15t"].iter().position(|v| *v == version) else { continue };
        for (what, words, by, why) in changes {
            let Some(word) = words[index] else { continue };
            let ran = changed(&python, "_PyRuntime", word, by);
            let report = Report::of(&ran.recording());
            assert!(!names_holders(&report), "{version}, {what}");
            let retained = report.retained().iter();
            let lines = retained.filter(|r| r["stack"].to_string().contains("bare.py")).count();
            assert_eq!(lines == 0, why == unknown, "{version}, {what}: {lines}");
            for said in said(&ran) {
                let plain = version.trim_end_matches('t');
                assert!(
                    said.contains(&format!("CPython {plain}")) && said.contains(why),
                    "{version}, {what}: {said}"
                );
            }
        }
    }
}
