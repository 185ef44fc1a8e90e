//! The environment: a wrong value is one clear line, and never the program's trouble.

use std::fs;

use crate::common::programs::{bare_cudart, driver_calls, linked, script, torch_python};
use crate::common::report::Report;
use crate::common::{Ran, Run};

fn endings() -> Run {
    Run::new(linked("endings.c", "endings", &bare_cudart(), &[]))
        .arg("return")
        .traced()
        .env("LEAKTRACE_QUIET", "1")
}

#[track_caller]
fn unchanged(ran: &Ran) {
    assert_eq!((ran.code(), ran.text().as_str()), (11, "ending by return\n"), "{}", ran.transcript());
}

/// The one line on stderr.
#[track_caller]
fn complaint(ran: &Ran) -> String {
    unchanged(ran);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{}", ran.stderr);
    assert!(lines[0].starts_with("leaktrace: "), "{}", lines[0]);
    lines[0].to_owned()
}

#[test]
fn wrong_values() {
    for (variable, value, takes) in [
        ("LEAKTRACE", "yes please", "off"),
        ("LEAKTRACE_STEP", "sometimes", "optimizer"),
        ("LEAKTRACE_STEP", "every:soon", "every:SECONDS"),
        ("LEAKTRACE_STEP", "every:-1", "every:SECONDS"),
        ("LEAKTRACE_STACKS", "all", "mixed"),
        ("LEAKTRACE_DUMP_EVERY", "0", "number"),
        ("LEAKTRACE_DUMP_EVERY", "often", "number"),
        ("LEAKTRACE_EVENTS", "some", "window"),
    ] {
        let ran = endings().env(variable, value).run();
        let line = complaint(&ran);
        for part in [variable, value, takes] {
            assert!(line.contains(part), "{part} is not in: {line}");
        }
        // Tracing goes on with the default.
        assert_eq!(Report::of(&ran.recording()).device(0, "live_bytes"), 1001, "{variable}={value}");
    }
}

#[test]
fn right_values() {
    for (variable, value) in [
        ("LEAKTRACE", "on"),
        ("LEAKTRACE_STEP", "auto"),
        ("LEAKTRACE_STEP", "every:0.5"),
        ("LEAKTRACE_STACKS", "mixed"),
        ("LEAKTRACE_DUMP_EVERY", "7"),
        ("LEAKTRACE_EVENTS", "all"),
        ("LEAKTRACE_OUT", ""),
    ] {
        let ran = endings().env(variable, value).run();
        unchanged(&ran);
        assert_eq!(ran.stderr, "", "{variable}={value}");
        assert_eq!(Report::of(&ran.recording()).device(0, "live_bytes"), 1001, "{variable}={value}");
    }
}

/// They are what the program began with, whatever it does with its environment before it uses the GPU.
#[test]
fn a_program_that_clears_its_environment() {
    let cleared =
        || Run::new(torch_python()).arg(script("clears_environment.py")).arg(bare_cudart()).traced();
    let ran = cleared().env("LEAKTRACE_QUIET", "1").run().success();
    assert_eq!((ran.text().as_str(), ran.stderr.as_str()), ("cleared\n", ""));
    assert_eq!(Report::of(&ran.recording()).device(0, "live_bytes"), 20 * 1001);
    assert_eq!(cleared().env("LEAKTRACE", "off").run().success().files(), Vec::<String>::new());
}

#[test]
fn a_recording_that_cannot_be_written() {
    for out in ["/proc/nowhere/at/all.ltrace", "/", "/dev/full", "/proc/self/x.ltrace", "."] {
        let ran = endings().env("LEAKTRACE_OUT", out).run();
        let line = complaint(&ran);
        assert!(line.contains("nothing is recorded"), "{line}");
        assert_eq!(ran.files(), Vec::<String>::new(), "{out}");
    }
}

#[test]
fn a_file_size_limit() {
    // Growing past it would raise SIGXFSZ in the program.
    let program = linked("endings.c", "endings", &bare_cudart(), &[]);
    let script = format!("ulimit -f 64; exec '{}' return", program.display());
    let ran = Run::new("sh").traced().args(["-c", &script]).env("LEAKTRACE_QUIET", "1").run();
    assert!(complaint(&ran).contains("nothing is recorded"));
}

#[test]
fn where_the_recording_goes() {
    let run = endings().env("LEAKTRACE_OUT", "%e-%r-%%-%h.%p.lt").env("RANK", "3");
    let ran = run.run();
    unchanged(&ran);
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned();
    let name = ran.files().into_iter().find(|f| f.ends_with(".lt")).expect("a recording");
    let report = Report::of(&ran.folder().join(&name));
    assert_eq!(name, format!("endings-3-%-{host}.{}.lt", report.0["program"]["pid"]));
    assert_eq!(report.0["program"]["rank"], "3");
    assert_eq!(report.0["program"]["host"], host);
    assert_eq!(report.0["program"]["argv"][1], "return");
}

#[test]
fn one_name_for_two_processes() {
    let args = |end: &'static str| ["41", "200", "0", "1", "own", end];
    let first = Run::new(driver_calls("dlsym")).simulated().traced().args(args("progress"));
    let folder = first.folder();
    let first = first.env("LEAKTRACE_OUT", folder.join("same.ltrace")).env("LEAKTRACE_QUIET", "1");
    let mut running = first.start();
    let mut out = std::io::BufReader::new(running.child.stdout.take().unwrap());
    for _ in 0..2 {
        std::io::BufRead::read_line(&mut out, &mut String::new()).unwrap();
    }
    let second = Run::new(driver_calls("dlsym")).simulated().traced().args(args("finish"));
    let second = second.env("LEAKTRACE_OUT", folder.join("same.ltrace")).env("LEAKTRACE_QUIET", "1");
    let second = second.run().success();
    let pid = u64::from(running.child.id());
    let ran = running.kill();
    let mut pids = Vec::new();
    for recording in ran.recordings() {
        let report = Report::of(&recording);
        let (mine, truth) = (report.0["program"]["pid"] == pid, [ran.truth().live(), second.truth().live()]);
        assert_eq!(report.driver_live(), truth[usize::from(!mine)], "{}", recording.display());
        assert_eq!(recording.ends_with("same.ltrace"), mine, "the first keeps the name");
        pids.push(report.0["program"]["pid"].as_u64().unwrap());
        report.assert_whole();
    }
    assert_eq!(pids.len(), 2, "{:?}", ran.files());
    assert_ne!(pids[0], pids[1]);

    // The first was killed: what it left is the evidence, and stays.
    let third = Run::new(driver_calls("dlsym")).simulated().traced().args(args("finish"));
    let third = third.env("LEAKTRACE_OUT", folder.join("same.ltrace")).run().success();
    let report = Report::of(&folder.join("same-3.ltrace"));
    assert_eq!((report.driver_live(), report.end()), (third.truth().live(), "clean"));
    let first = Report::of(&folder.join("same.ltrace"));
    assert_eq!((first.driver_live(), first.end()), (ran.truth().live(), "killed"));
}

#[test]
fn dumps_beside_the_recording() {
    // 12 steps: a dump at step 10 and at the end; every third step where that is asked for.
    let run =
        || Run::new(driver_calls("proc")).simulated().traced().args(["42", "600", "12", "1", "own", "keep"]);
    let ran = run().run().success();
    let text = fs::read_to_string(ran.recording().with_extension("txt")).expect("a dump");
    assert!(text.contains("driver_calls_proc"), "{text}");
    assert_eq!(ran.files().len(), 2, "{:?}", ran.files());

    let stopped = |dump_every: &str| {
        // Killed in its sixth step, after the fifth line: the dump there is the one of step 5, or none.
        let run = Run::new(driver_calls("proc"))
            .simulated()
            .traced()
            .args(["43", "500", "0", "1", "own", "progress"]);
        let mut running = run.env("LEAKTRACE_DUMP_EVERY", dump_every).start();
        let mut out = std::io::BufReader::new(running.child.stdout.take().unwrap());
        for _ in 0..5 {
            std::io::BufRead::read_line(&mut out, &mut String::new()).unwrap();
        }
        running.kill().files().iter().any(|f| f.ends_with(".txt"))
    };
    assert!(stopped("5"));
    assert!(!stopped("6"));
}
