//! What others do to a recording while it is written: they cut it off, replace it, take it away. The program goes on as
//! it would have; tracing ends with one line.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::common::programs::{bare_cudart, linked};
use crate::common::report::{Report, call};
use crate::common::{Ran, Run};

fn program() -> PathBuf {
    linked("outside.c", "outside", &bare_cudart(), &[])
}

/// Runs the program; when it is ready and has made a round of each size in `before`, has `harm` done to its recording,
/// and then a round of each size in `rounds`.
fn harmed(how: &str, before: &[u64], rounds: &[u64], harm: impl Fn(&Path), traced: bool) -> (Ran, String) {
    let mut run = Run::new(program()).arg(how).env("LEAKTRACE_OUT", "x.ltrace").env("LEAKTRACE_QUIET", "1");
    let folder = run.folder();
    run.command.stdin(Stdio::piped());
    let mut running = run.traced_if(traced).start();
    let (mut to, from) = (running.child.stdin.take().unwrap(), running.child.stdout.take().unwrap());
    let (mut from, mut said) = (BufReader::new(from), String::new());
    from.read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n");
    let mut round = |pairs: &u64| {
        writeln!(to, "{pairs}").unwrap();
        from.read_line(&mut said).unwrap();
    };
    before.iter().for_each(&mut round);
    if traced {
        harm(&folder.join("x.ltrace"));
    }
    rounds.iter().for_each(&mut round);
    drop(to);
    from.read_to_string(&mut said).unwrap();
    (running.wait(), said)
}

/// The same without and with the preload, but for the lines on stderr.
#[track_caller]
fn survived(how: &str, rounds: &[u64], harm: impl Fn(&Path)) -> Ran {
    survived_after(how, &[], rounds, harm)
}

#[track_caller]
fn survived_after(how: &str, before: &[u64], rounds: &[u64], harm: impl Fn(&Path)) -> Ran {
    let (plain, said) = harmed(how, before, rounds, &harm, false);
    let (ran, also_said) = harmed(how, before, rounds, &harm, true);
    assert_eq!((ran.status, also_said), (plain.status, said), "{how}: {}", ran.transcript());
    ran
}

#[track_caller]
fn one_line(ran: &Ran, part: &str) {
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.starts_with("leaktrace: ") && ran.stderr.contains(part), "{}", ran.stderr);
}

fn cut(length: u64) -> impl Fn(&Path) {
    move |file| OpenOptions::new().write(true).open(file).unwrap().set_len(length).unwrap()
}

#[test]
fn a_recording_that_is_cut_off() {
    // Right away, at the next piece of a segment, at the next segment, and in the fourth chunk.
    for rounds in [&[1][..], &[600], &[5000, 1], &[400_000, 1]] {
        for length in [0, 100, 140_000, 270_000] {
            one_line(&survived("plain", rounds, cut(length)), "x.ltrace was cut off");
        }
    }
}

#[test]
fn whoever_is_writing_there() {
    for how in ["steps", "threads", "blocked"] {
        for length in [0, 140_000] {
            one_line(&survived(how, &[10_000, 100, 20_000], cut(length)), "x.ltrace was cut off");
        }
    }
}

#[test]
fn a_recording_that_is_written_over() {
    // As `cp other x.ltrace` does, and a log rotation that copies and truncates.
    let copied = |file: &Path| fs::write(file, "something else").unwrap();
    one_line(&survived("plain", &[1000, 1000], copied), "x.ltrace was cut off");
    let rotated = |file: &Path| {
        fs::copy(file, file.with_extension("1")).unwrap();
        cut(0)(file);
        cut(1 << 20)(file);
    };
    let ran = survived("plain", &[1000, 1000], rotated);
    assert!(ran.stderr.lines().count() <= 1, "{}", ran.stderr);
}

#[test]
fn a_recording_that_is_taken_away() {
    let removed = |file: &Path| fs::remove_file(file).unwrap();
    let ran = survived("plain", &[1000, 200_000], removed);
    assert_eq!(ran.stderr, "");
    // Another's file that stands there then is not touched.
    let replaced = |file: &Path| {
        fs::rename(file, file.with_extension("moved")).unwrap();
        fs::write(file, "precious").unwrap();
    };
    let ran = survived("plain", &[1000, 200_000], replaced);
    assert_eq!(ran.stderr, "");
    assert_eq!(fs::read_to_string(ran.folder().join("x.ltrace")).unwrap(), "precious");
    let report = Report::of(&ran.folder().join("x.moved"));
    assert_eq!((report.device(0, "live_bytes"), report.end()), (1001, "clean"));
}

#[test]
fn faults_and_signals_of_the_programs_own() {
    let nothing = |_: &Path| {};
    for how in ["handler", "late", "fault", "signal", "ignored"] {
        let ran = survived(how, &[1000], nothing);
        assert_eq!(ran.stderr, "", "{how}");
        assert_eq!(Report::of(&ran.recording()).device(0, "live_bytes"), 1001, "{how}");
    }
    // A handler that is set later is seen when the next segment is taken.
    one_line(&survived_after("late", &[5000], &[1000], cut(0)), "x.ltrace was cut off");
    // After one of ours too.
    for how in ["handler", "fault", "signal"] {
        one_line(&survived(how, &[1000], cut(0)), "x.ltrace was cut off");
    }
}

#[test]
fn an_exec_that_fails() {
    let ran = survived("exec fails", &[10], |_| {});
    assert_eq!(ran.status.signal(), Some(libc::SIGKILL));
    let report = Report::of(&ran.recording());
    assert_eq!((report.end(), report.device(0, "live_bytes")), ("killed", 1004));
}

#[test]
fn killed_while_being_created() {
    // As the file is at each moment of that: empty, with room, with a first word or two.
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("x.ltrace");
    let version = [&[0; 8][..], &1u32.to_le_bytes(), &(128u32 << 10).to_le_bytes()].concat();
    for (begin, length) in [(&[][..], 0), (&[], 4 << 20), (&[], 128 << 10), (&version, 128 << 10)] {
        fs::write(&file, begin).unwrap();
        cut(length)(&file);
        let out = call([&file]);
        let line = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), line.lines().count()), (Some(2), 1), "{line}");
        assert!(line.contains("killed while it was being created"), "{line}");
    }
}
