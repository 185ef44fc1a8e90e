//! Hooks that signal handlers come to, or leave: the program goes on as it would have, and so does the recording.
//! What no report can know is named.

use std::path::PathBuf;

use crate::common::programs::{bare_cudart, compile, free_threaded, linked, pythons, script, sources};
use crate::common::report::Report;
use crate::common::{Ran, Run};

/// A runtime whose calls may be interrupted anywhere.
fn runtime() -> PathBuf {
    let map = format!("-Wl,--version-script,{}", sources().join("bare_cudart.map").display());
    let flags = ["-shared", "-fPIC", "-Wl,-soname,libcudart.so.12", &map];
    compile("leaving_cudart.c", "libcudart.so.12", &flags)
}

/// `leaving HOW TIMES`, on that runtime.
fn leaving(how: &str, times: u32) -> Run {
    Run::new(linked("leaving.c", "leaving", &runtime(), &[]))
        .args([how, &times.to_string()])
        .env("LEAKTRACE_QUIET", "1")
}

/// Runs it without and with the preload: nothing differs that can be seen of it.
#[track_caller]
fn unchanged(how: &str, times: u32) -> Ran {
    let (plain, traced) = (leaving(how, times).run(), leaving(how, times).traced().run());
    assert_eq!(plain.code(), 0, "{}", plain.transcript());
    assert_eq!(traced.status, plain.status, "{how}: {}", traced.transcript());
    assert_eq!((traced.text(), &traced.stderr), (plain.text(), &plain.stderr), "{how}");
    traced
}

/// Whether the 1001 bytes that a program allocates last are there.
fn has_last(report: &Report) -> bool {
    report.retained().iter().any(|entry| entry.to_string().contains("\"last\""))
}

#[test]
fn a_handler_that_forks() {
    // Wherever it interrupts the program, also beside a thread that is busy with locks. Every other child goes
    // on, and records itself.
    for how in ["forks", "forks beside a thread"] {
        let traced = unchanged(how, 60);
        let recordings = traced.recordings();
        assert_eq!(recordings.len(), 1 + 30, "{how}: {:?}", traced.files());
        for recording in recordings {
            let report = Report::of(&recording);
            assert_eq!((report.end(), report.device(0, "live_bytes")), ("clean", 1001), "{how}");
            report.assert_whole();
        }
    }
}

#[test]
fn a_handler_that_annotates_ends_steps_and_dumps() {
    // In the middle of the very same calls, and of stacks that are new.
    let traced = unchanged("speaks", 400);
    let report = Report::of(&traced.recording());
    assert_eq!(report.end(), "clean");
    report.assert_whole();
    assert!(has_last(&report), "{:#}", report.0);
    // Those of the handler, one for each of the main thread's four turns, and the last.
    assert!(report.steps() > 400, "{}", report.steps());
    let marks = report.0["annotations"].to_string();
    assert!(report.0.to_string().contains("in a handler"), "{marks}");
}

/// The gap that is named where calls did not return.
const LEFT: &str = "left in the middle";

#[test]
fn threads_that_end_inside_of_a_call() {
    // A destructor of the thread allocates 512 bytes more, and is seen. What the call did that never returned is
    // not known, and that is said.
    let rows = [
        ("cancelled at once", 512 + 1001 + 100, false),
        ("cancelled in an allocation", 512 + 1001, true),
        ("exits in an allocation", 512 + 1001, true),
        ("cancelled in a free", 512 + 1001, true),
    ];
    for (how, live, is_left) in rows {
        let report = Report::of(&unchanged(how, 0).recording());
        assert_eq!((report.end(), report.device(0, "live_bytes")), ("clean", live), "{how}");
        let gaps = report.coverage("gaps").to_string();
        assert_eq!(gaps.contains(LEFT), is_left, "{how}: {gaps}");
        assert_eq!(report.coverage("dropped_events"), 0);
    }
}

#[test]
fn threads_that_are_cut_off_at_any_moment() {
    // Asynchronous cancellation: most of them are in a hook at that moment, where no unwinding may begin.
    let report = Report::of(&unchanged("cut off at any moment", 60).recording());
    assert_eq!(report.end(), "clean");
    assert!(has_last(&report), "{:#}", report.0);
    // The hooks are there too where nothing is recorded.
    let ran = leaving("cut off at any moment", 20).traced().env("LEAKTRACE_OUT", "/dev/null/x").run();
    assert_eq!((ran.code(), ran.text().as_str()), (0, "20 cancelled\ndone\n"), "{}", ran.transcript());
    assert!(ran.stderr.contains("nothing is recorded"), "{}", ran.stderr);
}

#[test]
fn exceptions_of_cpp_through_a_call() {
    let throws = || {
        let flags = ["-x", "none", "-lstdc++"];
        Run::new(linked("throws.cc", "throws", &runtime(), &flags)).env("LEAKTRACE_QUIET", "1")
    };
    let (plain, traced) = (throws().run(), throws().traced().run());
    assert_eq!(plain.text(), "from below\nfrom below\ndone\n", "{}", plain.transcript());
    assert_eq!((traced.status, traced.text()), (plain.status, plain.text()), "{}", traced.transcript());
    assert_eq!(traced.stderr, "");
    // The block whose free was left is there or not; nobody can know, and that is said.
    let report = Report::of(&traced.recording());
    assert_eq!(report.end(), "clean");
    assert_eq!(report.coverage("dropped_events"), 0);
    assert!([1001, 1101].contains(&report.device(0, "live_bytes")), "{:#}", report.0);
    assert!(report.coverage("gaps").to_string().contains(LEFT), "{:#}", report.0);
}

#[test]
fn jumps_out_of_a_call_and_out_of_handlers() {
    // Whatever the jump left, what the program allocates afterwards is seen; the calls it left are named.
    for (how, times) in
        [("jumps out of an allocation", 0), ("jumps out of a handler", 400), ("jumps out of new stacks", 400)]
    {
        let report = Report::of(&unchanged(how, times).recording());
        assert_eq!(report.end(), "clean", "{how}");
        assert!(has_last(&report), "{how}: {:#}", report.0);
        // A jump out of the very append of an event loses that one, and it is counted.
        let dropped = report.coverage("dropped_events").as_u64().unwrap();
        assert!(dropped <= u64::from(times), "{how}: {dropped}");
        let gaps = report.coverage("gaps").to_string();
        assert!(gaps.contains(LEFT), "{how}: {gaps}");
    }
}

#[test]
fn an_interpreter_that_ends() {
    // Whoever allocates meanwhile, of whatever version it is: nothing is asked of it that it does not take any more.
    for (version, python) in pythons().into_iter().chain(free_threaded()) {
        for whose in ["main", "thread"] {
            let run = || {
                let run = Run::new(&python).arg(script("at_exit.py")).arg(bare_cudart()).arg(whose);
                run.env("LEAKTRACE_QUIET", "1")
            };
            let (plain, traced) = (run().run(), run().traced().run());
            assert_eq!(plain.code(), 0, "{version}: {}", plain.transcript());
            assert_eq!(traced.status, plain.status, "{version}, {whose}: {}", traced.transcript());
            assert_eq!((traced.text(), &traced.stderr), (plain.text(), &plain.stderr), "{version}, {whose}");
            let report = Report::of(&traced.recording());
            assert_eq!((report.end(), report.device(0, "live_bytes")), ("clean", 0), "{version}, {whose}");
        }
    }
}
