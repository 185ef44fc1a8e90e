//! However a process ends, it ends as it would have, and its recording says what it held.

mod common;

use common::Run;
use common::programs::{bare_cudart, driver_calls, linked};
use common::report::Report;

/// Runs `endings HOW` without and with the preload.
#[track_caller]
fn ending(how: &str, code: i32, end: &str, live: u64) {
    let program = linked("endings.c", "endings", &bare_cudart(), &[]);
    let run = || Run::new(&program).arg(how).env("LEAKTRACE_QUIET", "1");
    let (plain, traced) = (run().run(), run().traced().run());
    assert_eq!(plain.code(), code, "{}", plain.told());
    assert_eq!(traced.status, plain.status, "{how}: {}", traced.told());
    assert_eq!((traced.text(), &traced.stderr), (plain.text(), &plain.stderr), "{how}");
    let report = Report::of(&traced.recording());
    assert_eq!((report.end(), report.device(0, "live_bytes")), (end, live), "{how}");
    report.assert_whole();
}

#[test]
fn in_good_order() {
    ending("return", 11, "clean", 1001);
    ending("exit", 12, "clean", 1001);
    ending("thread", 17, "clean", 1001);
}

#[test]
fn with_handlers_that_allocate() {
    ending("atexit", 13, "clean", 4004);
}

#[test]
fn after_the_main_thread() {
    ending("pthread_exit", 0, "clean", 3003);
}

#[test]
fn at_once() {
    ending("_exit", 14, "killed", 1001);
    ending("quick_exit", 15, "killed", 1001);
    ending("handled", 18, "killed", 1001);
    ending("exec", 16, "killed", 1001);
}

#[test]
fn by_a_signal() {
    ending("abort", 134, "killed", 1001);
    ending("terminated", 143, "killed", 1001);
    ending("killed", 137, "killed", 1001);
    ending("segfault", 139, "killed", 1001);
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
    let report = Report::of(&recording);
    assert_eq!(report.end(), "killed");
    assert_eq!(report.driver_live(), ran.truth().live());
}
