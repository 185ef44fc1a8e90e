//! `leaktrace report` on what is no recording, or no whole one: one clear line, exit status 2, never a panic.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use crate::common::grows::{grown, on_terminal, text};
use crate::common::programs::{bare_cudart, driver_calls, linked};
use crate::common::report::{Report, call, leaktrace};
use crate::common::{Chance, Ran, Run, root};
use tempfile::TempDir;

#[track_caller]
fn refused(out: &Output, names: &str) {
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{names}: {said}");
    assert_eq!(out.stdout, b"", "{names}");
    assert_eq!(said.lines().count(), 1, "{names}: {said}");
    assert!(said.starts_with("leaktrace: ") && said.contains(names), "{names}: {said}");
}

/// Whatever the bytes are: a report, or one line and status 2.
#[track_caller]
fn survives(file: &Path, what: &str) -> bool {
    let out = call([file.as_os_str(), "--format".as_ref(), "json".as_ref()]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.signal(), None, "{what}: {said}");
    assert!(said.lines().count() <= 1 && !said.contains("panicked"), "{what}: {said}");
    match out.status.code() {
        Some(0) => {
            serde_json::from_slice::<serde_json::Value>(&out.stdout).expect(what);
            for args in [&["report"][..], &["top", "--once"]] {
                let out = leaktrace().args(args).arg(file).output().unwrap();
                assert_eq!(out.status.code(), Some(0), "{what}: {out:?}");
                assert!(!out.stdout.contains(&b'\x1b'), "{what}");
            }
            true
        }
        Some(2) => {
            refused(&out, file.file_name().unwrap().to_str().unwrap());
            false
        }
        code => panic!("{what}: exit status {code:?}: {said}"),
    }
}

/// A good recording.
fn recorded() -> Ran {
    Run::new(driver_calls("proc"))
        .simulated()
        .traced()
        .args(["51", "800", "15", "2", "own", "keep"])
        .run()
        .success()
}

#[test]
fn what_is_no_recording() {
    let folder = TempDir::new().unwrap();
    let put = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let mut chance = Chance(4711);
    let noise: Vec<u8> = (0..300_000).map(|_| chance.below(256) as u8).collect();
    let mut headed = b"LTRACE\r\n".to_vec();
    headed.extend(&noise);
    let files = [
        folder.path().join("missing"),
        folder.path().to_owned(),
        put("empty", b""),
        put("one", b"L"),
        put("random", &noise),
        put("headed", &headed),
        put("text", b"once upon a time\n"),
        put("zeroes", &[0; 300_000]),
        "/dev/null".into(),
        "/dev/zero".into(),
        root().join("Cargo.toml"),
        env!("CARGO_BIN_EXE_leaktrace").into(),
    ];
    for file in files {
        refused(&call([&file]), file.to_str().unwrap());
    }
}

#[test]
fn cut_off_anywhere() {
    let ran = recorded();
    let (recording, folder) = (ran.recording(), TempDir::new().unwrap());
    let whole = fs::read(&recording).unwrap();
    assert!(survives(&recording, "the whole one"));
    let cut = folder.path().join("cut.ltrace");
    let mut chance = Chance(99);
    let mut lengths: Vec<usize> =
        vec![0, 1, 7, 8, 16, 63, 64, 128 * 1024 - 1, 128 * 1024, 128 * 1024 + 1, 256 * 1024];
    lengths.extend((0..30).map(|_| chance.below(whole.len() as u64) as usize));
    let mut refusals = 0;
    for length in lengths {
        fs::write(&cut, &whole[..length]).unwrap();
        if survives(&cut, &format!("cut at {length}")) {
            // Only what is not in use yet may be missing.
            let told = call([cut.as_os_str(), "--format".as_ref(), "json".as_ref()]).stdout;
            let full = call([recording.as_os_str(), "--format".as_ref(), "json".as_ref()]).stdout;
            assert!(told == full, "cut at {length}: another report");
        } else {
            refusals += 1;
        }
    }
    assert!(refusals >= 10, "{refusals}");
}

#[test]
fn damaged_anywhere() {
    let ran = recorded();
    let folder = TempDir::new().unwrap();
    let whole = fs::read(ran.recording()).unwrap();
    // What was written lies at the front; the rest is room not used yet.
    let used = whole.iter().rposition(|b| *b != 0).unwrap() + 1;
    let mut chance = Chance(5);
    for round in 0..60u64 {
        let mut bytes = whole.clone();
        let file = folder.path().join(format!("damaged{round}.ltrace"));
        for _ in 0..1 + round % 20 * 5 {
            // Every third one hits the head, where the figures are that all else hangs on.
            let at = chance.below(if round % 3 == 0 { 80 } else { used as u64 }) as usize;
            bytes[at] = chance.below(256) as u8;
        }
        if round % 7 == 0 {
            let (from, to) = (chance.below(used as u64) as usize, chance.below(used as u64) as usize);
            let length = 4096.min(used - from.max(to));
            bytes.copy_within(from..from + length, to);
        }
        fs::write(&file, &bytes).unwrap();
        survives(&file, &format!("damage {round}"));
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn wrong_usage() {
    let ran = recorded();
    let recording = ran.recording();
    let recording = recording.to_str().unwrap();
    for args in
        [vec![], vec!["--format", "xml", recording], vec!["--step", "x", recording], vec!["--unknown"]]
    {
        let out = call(&args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert_eq!(out.stdout, b"");
    }
    for step in ["0", "16", "4294967295"] {
        refused(&call(["--step", step, recording]), recording);
    }
    refused(&call([recording, "-o", "/nowhere/at/all"]), "/nowhere/at/all");
}

#[test]
fn where_the_report_goes() {
    let ran = recorded();
    let (recording, folder) = (ran.recording(), TempDir::new().unwrap());
    let file = folder.path().join("report.json");
    let args = |more: &[&str]| {
        let mut args = vec![recording.to_str().unwrap().to_owned()];
        args.extend(more.iter().map(|a| (*a).to_owned()));
        args
    };
    let printed = call(args(&["--format", "json"]));
    let written = call(args(&["--format", "json", "-o", file.to_str().unwrap()]));
    assert!(printed.status.success() && written.status.success());
    assert_eq!(written.stdout, b"");
    assert_eq!(fs::read(&file).unwrap(), printed.stdout);

    let text = call(args(&[]));
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("driver_calls_proc") && !text.contains('\x1b'), "{text}");

    // Nobody reads on: `leaktrace report … | head -0`.
    let mut child =
        leaktrace().arg("report").args(args(&[])).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    drop(child.as_mut().unwrap().stdout.take());
    let out = child.unwrap().wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stderr), "");
}

#[test]
fn the_recording_is_only_read() {
    let ran = recorded();
    let recording = ran.recording();
    let before = fs::read(&recording).unwrap();
    let (first, second) = (Report::of(&recording), Report::of(&recording));
    assert_eq!(first.0, second.0);
    assert!(fs::read(&recording).unwrap() == before);
}

#[test]
fn run_gives_the_program_the_library() {
    let program = linked("endings.c", "endings", &bare_cudart(), &[]);
    let folder = TempDir::new().unwrap();
    let run = |args: &[&str]| {
        let mut command = leaktrace();
        command
            .current_dir(folder.path())
            .env("LEAKTRACE_LIBRARY", crate::common::library())
            .env("LEAKTRACE_QUIET", "1");
        command.arg("run").args(args).output().unwrap()
    };
    let out = run(&["--out", "here.%p.ltrace", "--step", "api", "--", program.to_str().unwrap(), "return"]);
    assert_eq!(out.status.code(), Some(11), "{out:?}");
    assert_eq!(out.stdout, b"ending by return\n");
    let files: Vec<PathBuf> = fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().path()).collect();
    let recording = files.iter().find(|f| f.extension().is_some_and(|e| e == "ltrace")).expect("a recording");
    assert!(recording.file_name().unwrap().to_str().unwrap().starts_with("here."));
    assert_eq!(Report::of(recording).device(0, "live_bytes"), 1001);
    // By signal, as the program itself would.
    assert_eq!(run(&["--", program.to_str().unwrap(), "killed"]).status.signal(), Some(9));
    refused(&run(&["--", "./no-such-program"]), "no-such-program");
    assert_eq!(run(&[]).status.code(), Some(2));
}

#[test]
fn the_format_that_a_file_is_called_by() {
    let ran = recorded();
    let file = ran.recording();
    let report = |out: &str| {
        let out = ran.folder().join(out);
        assert!(call([file.as_os_str(), "-o".as_ref(), out.as_os_str()]).status.success());
        fs::read_to_string(out).unwrap()
    };
    assert!(report("x.html").starts_with("<!doctype html>"));
    assert!(report("x.json").starts_with("{"));
    assert!(report("x.txt").starts_with("No leak in 15 steps."), "{}", report("x.txt"));
    // A terminal is no place for a page.
    let name = file.to_str().unwrap();
    for page in ["leaktrace.html", "leaktrace-2.html"] {
        let told =
            text(&on_terminal(&ran.folder(), 100, "", "", &["report", name, "--format", "html"], true), 0);
        assert!(told.contains(page) && told.lines().count() == 1, "{told}");
        assert!(fs::read_to_string(ran.folder().join(page)).unwrap().starts_with("<!doctype html>"));
    }
}

#[test]
fn a_step_is_judged_by_what_came_up_to_it() {
    // What leaks begins to leak in step 60.
    let ran = grown(100, &["--first", "1024", "--from", "60"]);
    let file = ran.recording();
    let told = |step: &str| text(&call([file.to_str().unwrap(), "--step", step]), 0);
    assert!(told("50").starts_with("No leak in 50 steps."), "{}", told("50"));
    assert!(told("99").starts_with("1 leak: 1.0 KiB per step"), "{}", told("99"));
}
