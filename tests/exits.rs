//! However a process ends, it ends as it would have, and its recording says what it held.

use std::path::Path;

use crate::common::programs::{bare_cudart, driver_calls, linked, script, torch, torch_python, untraced};
use crate::common::report::Report;
use crate::common::truth::Truth;
use crate::common::{Ran, Run, simulated_libraries};

/// `endings HOW…` on the simulated GPU.
fn c_program(args: &[&str]) -> Run {
    let runtime = simulated_libraries().join("libcudart.so.12");
    Run::new(linked("endings.c", "endings", &runtime, &[])).simulated().args(args)
}

/// `endings.py HOW` on the simulated GPU.
fn python_program(how: &str) -> Run {
    Run::new(torch_python()).simulated().arg(script("endings.py")).arg(how)
}

/// Runs it without and with the preload: the same in all that can be seen of it.
#[track_caller]
fn unchanged(run: impl Fn() -> Run, code: i32) -> (Ran, Ran) {
    let run = || run().env("LEAKTRACE_QUIET", "1");
    let (plain, traced) = (untraced(|| run().run()), run().traced().run());
    assert_eq!(plain.code(), code, "{}", plain.transcript());
    assert_eq!(traced.status, plain.status, "{}", traced.transcript());
    assert_eq!((traced.text(), &traced.stderr), (plain.text(), &plain.stderr));
    assert_eq!(plain.files(), Vec::<String>::new());
    (plain, traced)
}

/// A recording of a process with such an end, that holds what the simulated GPU's log says. The status is known of one
/// that exited, and of no other.
#[track_caller]
fn holds(recording: &Path, end: &str, code: i32, truth: &Truth) {
    let report = Report::of(recording);
    assert_eq!(report.end(), end, "{}", recording.display());
    let status = (end == "clean").then_some(code);
    assert_eq!(report.0["program"]["exit_status"], serde_json::json!(status), "{}", recording.display());
    assert_eq!(report.driver_live(), truth.live(), "{}", recording.display());
    report.assert_whole();
}

/// One row: the same without and with the preload, and the one recording agrees with the log.
#[track_caller]
fn row(run: impl Fn() -> Run, code: i32, end: &str) -> Ran {
    let (_, traced) = unchanged(run, code);
    holds(&traced.recording(), end, code, &traced.truth());
    traced
}

#[track_caller]
fn c_rows(rows: &[(&str, i32, &str)]) {
    for (how, code, end) in rows {
        println!("{how}");
        row(|| c_program(&[how]), *code, end);
    }
}

#[track_caller]
fn python_rows(rows: &[(&str, i32, &str)]) {
    for (how, code, end) in rows {
        println!("{how}");
        row(|| python_program(how), *code, end);
    }
}

#[test]
fn in_good_order() {
    c_rows(&[
        ("return", 11, "clean"),
        ("exit", 12, "clean"),
        ("atexit", 13, "clean"),
        ("thread", 17, "clean"),
        ("pthread_exit", 0, "clean"),
    ]);
}

#[test]
fn at_once() {
    c_rows(&[
        ("_exit", 14, "clean"),
        ("quick_exit", 15, "clean"),
        ("handled", 18, "clean"),
        ("thread _exit", 20, "clean"),
        ("exec", 16, "replaced"),
    ]);
}

#[test]
fn by_a_signal() {
    c_rows(&[
        ("abort", 134, "killed"),
        ("terminated", 143, "killed"),
        ("killed", 137, "killed"),
        ("segfault", 139, "killed"),
    ]);
}

#[test]
fn of_a_program_that_hangs() {
    // What `timeout` reports: 124 for one that it asked to end, 137 for one that it killed (and itself with it).
    for (signal, code) in [("TERM", 124), ("KILL", 137)] {
        let program = linked("endings.c", "endings", &simulated_libraries().join("libcudart.so.12"), &[]);
        let run = || Run::new("timeout").simulated().args(["-s", signal, "2"]).arg(&program).arg("hang");
        row(run, code, "killed");
    }
}

#[test]
fn while_a_thread_is_cancelled() {
    // In the runtime that calls no driver: nothing on the way is a cancellation point but what is ours.
    let program = linked("endings.c", "endings", &bare_cudart(), &[]);
    let (_, traced) = unchanged(|| Run::new(&program).arg("cancel"), 21);
    let report = Report::of(&traced.recording());
    assert_eq!((report.end(), report.device(0, "live_bytes")), ("clean", 1001));
    report.assert_whole();
}

#[test]
fn in_a_signal_handler() {
    // `exit` from a handler that interrupts a hook, at many moments: nothing may be waited for that the interrupted
    // code holds. 19 whenever it is, and the recording whole but for the call under way.
    let program = linked("endings.c", "endings", &bare_cudart(), &[]);
    for turn in 0..60 {
        let moment = (500 + 371 * turn).to_string();
        let ran =
            Run::new(&program).arg("exit in handler").arg(&moment).traced().env("LEAKTRACE_QUIET", "1").run();
        assert_eq!((ran.code(), ran.stderr.as_str()), (19, ""), "after {moment} µs");
        let report = Report::of(&ran.recording());
        assert_eq!(report.end(), "clean");
        let live = report.device(0, "live_bytes");
        assert!([1001, 2001].contains(&live), "{live} after {moment} µs");
    }
}

#[test]
fn by_exec_of_itself() {
    // Three images of one process, each with a recording of its own: none takes the place of the one before.
    let (_, traced) = unchanged(|| c_program(&["exec itself", "2"]), 11);
    let mut recordings = traced.recordings();
    assert_eq!(recordings.len(), 3, "{:?}", traced.files());
    recordings.sort_by_key(|r| Report::of(r).end() == "clean");
    let log = traced.folder().with_file_name("truth.log");
    for (i, end) in ["replaced", "replaced", "clean"].iter().enumerate() {
        let log = format!("{}{}", log.display(), "+".repeat(i));
        holds(&recordings[i], end, 11, &Truth::read(Path::new(&log)));
    }
    let pid = |r: &Path| Report::of(r).0["program"]["pid"].clone();
    assert_eq!(pid(&recordings[0]), pid(&recordings[2]));
}

#[test]
fn of_python() {
    python_rows(&[
        ("return", 0, "clean"),
        ("exit", 3, "clean"),
        ("message", 1, "clean"),
        ("exception", 1, "clean"),
        // Python ends itself by the signal, after all is put away.
        ("interrupt", 130, "killed"),
        ("handled", 5, "clean"),
        ("thread", 0, "clean"),
        ("atexit", 0, "clean"),
        ("_exit", 4, "clean"),
        ("abort", 134, "killed"),
        ("terminate", 143, "killed"),
    ]);
}

#[test]
fn an_exception_that_nothing_caught_is_named() {
    for (how, name) in [("exception", serde_json::json!("RuntimeError")), ("exit", serde_json::Value::Null)] {
        let ran = python_program(how).env("LEAKTRACE_QUIET", "1").traced().run();
        assert_eq!(Report::of(&ran.recording()).0["program"]["exception"], name, "{how}");
    }
}

#[test]
fn of_python_with_threads_in_hooks() {
    // Daemon threads allocate while the interpreter is torn down; where each is stopped is chance.
    for _ in 0..5 {
        let run = || python_program("daemons").env("LEAKTRACE_QUIET", "1");
        let ran = run().traced().run().success();
        assert_eq!((ran.text().as_str(), ran.stderr.as_str()), ("ending by daemons\n", ""));
        let report = Report::of(&ran.recording());
        assert_eq!(report.end(), "clean");
        let (held, busy) = (report.device(0, "driver_live_bytes"), 7777);
        assert!(held >= 3003 && held <= 3003 + 4 * busy && (held - 3003) % busy == 0, "{held}");
    }
}

#[test]
fn of_a_forked_child_that_cannot_allocate() {
    // CUDA does not survive fork: the child's call fails as it would have, and leaves nothing.
    let ran = row(|| python_program("fork"), 0, "clean");
    assert_eq!(ran.text(), "ending by fork\nchild 3\nparent 7\n");
}

#[test]
fn signals_are_the_programs() {
    // No thread of ours may take a signal that the program waits for.
    row(|| python_program("sigwait"), 0, "clean");
}

#[test]
fn of_training() {
    for (how, code, end) in [("interrupt", 130, "killed"), ("kill", 137, "killed"), ("late", 0, "clean")] {
        let traced = row(|| torch("trained_end.py").arg(how), code, end);
        let report = Report::of(&traced.recording());
        assert!(report.device(0, "block_bytes") > 0, "{how}");
    }
}

#[test]
fn while_it_runs() {
    let run =
        Run::new(driver_calls("dlsym")).simulated().traced().args(["21", "200", "0", "1", "own", "progress"]);
    let folder = run.folder();
    let mut running = run.start();
    // Its second line: 200 operations are done, and nothing more happens until it is killed.
    let mut out = std::io::BufReader::new(running.child.stdout.take().unwrap());
    for _ in 0..2 {
        std::io::BufRead::read_line(&mut out, &mut String::new()).unwrap();
    }
    let mut files = std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path());
    let recording = files.find(|f| f.extension().is_some_and(|e| e == "ltrace")).unwrap();
    assert_eq!(Report::of(&recording).end(), "running");
    let ran = running.kill();
    holds(&recording, "killed", 0, &ran.truth());
}
