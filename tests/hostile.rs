//! Hostile surroundings: full disks, limits, closed descriptors, sandboxes. The program goes on as it would have; the
//! recording is readable up to where it could be written; and the reason is one line.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::programs::{bare_cudart, compile, linked};
use crate::common::report::Report;
use crate::common::{Ran, Run};

pub fn program() -> PathBuf {
    linked("hostile.c", "hostile", &bare_cudart(), &[])
}

pub fn hostile(args: &[&str]) -> Run {
    Run::new(program()).args(args)
}

/// The one line on stderr.
#[track_caller]
pub fn complaint(ran: &Ran) -> String {
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{}", ran.transcript());
    assert!(lines[0].starts_with("leaktrace: "), "{}", lines[0]);
    lines[0].to_owned()
}

/// Runs it without and with the preload: all is the same but for what leaktrace says on stderr.
#[track_caller]
pub fn unchanged(run: impl Fn() -> Run) -> Ran {
    let run = || run().env("LEAKTRACE_QUIET", "1");
    let (plain, traced) = (run().run(), run().traced().run());
    assert_eq!(plain.stderr, "", "{}", plain.transcript());
    assert_eq!((traced.status, traced.text()), (plain.status, plain.text()), "{}", traced.transcript());
    traced
}

/// A shell script in a mount namespace of its own, `$1` being the program; `None` where that is not allowed.
fn in_namespace(script: &str, args: &[&str]) -> Option<Run> {
    let allowed = Command::new("unshare").args(["-rm", "true"]).stderr(Stdio::null()).status();
    if !allowed.is_ok_and(|s| s.success()) {
        println!("skipped: unshare -rm is refused here");
        return None;
    }
    // The preload is for the program, not for the shell and `mount`.
    let script = format!("preload=$LD_PRELOAD; unset LD_PRELOAD; set -e\n{script}");
    Some(Run::new("unshare").args(["-rm", "sh", "-c", &script, "sh"]).arg(program()).args(args))
}

const FULL: &str = "No space left on device";

#[test]
fn a_disk_that_is_full() {
    let script = r#"mkdir d; mount -t tmpfs -o size=16k none d; cd d
        LD_PRELOAD=$preload "$@""#;
    if in_namespace(script, &[]).is_some() {
        let ran = unchanged(|| in_namespace(script, &["churn", "10"]).unwrap());
        let line = complaint(&ran);
        assert!(line.contains("nothing is recorded") && line.contains(FULL), "{line}");
    }
}

/// `churn 200000` where its 400 000 events have no room: some 90 000 go into the first 4 MiB. The report says how much
/// is missing, and why.
#[track_caller]
fn cut_off(ran: &Ran, reason: &str) {
    let report = Report::of(&ran.recording());
    let line = complaint(ran);
    assert!(line.contains(reason) && line.contains("events are lost"), "{line}");
    let dropped = report.coverage("dropped_events").as_u64().unwrap();
    assert!((250_000..330_000).contains(&dropped), "{dropped} dropped");
    let notes = format!("{} {}", report.0["coverage"]["gaps"], report.0["warnings"]);
    assert!(notes.contains(reason), "{notes}");
    assert_eq!(report.end(), "clean");
}

/// The same where only the latest events are kept: old ones make room, and nothing is missing.
#[track_caller]
pub fn made_do(ran: &Ran) {
    assert_eq!(ran.stderr, "");
    let report = Report::of(&ran.recording());
    report.assert_whole();
    assert_eq!((report.device(0, "live_bytes"), report.end()), (1001, "clean"));
    let bytes = fs::metadata(ran.recording()).unwrap().len();
    assert_eq!(bytes, 4 << 20);
}

#[test]
fn a_disk_that_fills_up() {
    let script = r#"mkdir d; mount -t tmpfs -o size=6m none d
        (cd d; LD_PRELOAD=$preload "$@") || exit $?
        if [ -n "$preload" ]; then cp d/*.ltrace .; fi"#;
    if in_namespace(script, &[]).is_some() {
        let run = || in_namespace(script, &["churn", "200000"]).unwrap();
        made_do(&unchanged(run));
        cut_off(&unchanged(|| run().env("LEAKTRACE_EVENTS", "all")), FULL);
    }
}

#[test]
fn a_disk_that_another_fills() {
    // Full from right after the recording was begun, and free again later: what comes then is recorded again.
    let script = r#"mkdir d; mount -t tmpfs -o size=20m none d
        (cd d; LD_PRELOAD=$preload "$@") || exit $?
        if [ -n "$preload" ]; then cp d/*.ltrace .; fi"#;
    if in_namespace(script, &[]).is_some() {
        let ran = unchanged(|| in_namespace(script, &["filled"]).unwrap().env("LEAKTRACE_EVENTS", "all"));
        let report = Report::of(&ran.recording());
        complaint(&ran);
        let dropped = report.coverage("dropped_events").as_u64().unwrap();
        assert!(dropped > 10_000, "{dropped} dropped");
        // The last block was allocated when there was room again.
        let live = report.device(0, "live_bytes");
        assert!((1002..=2 * 1002 + 6).contains(&live), "{live}");
        assert_eq!(report.end(), "clean");
    }
}

#[test]
fn a_file_size_limit_on_the_way() {
    // Growing past it would raise SIGXFSZ in the program.
    let script = r#"ulimit -f 12000; exec "$0" churn 200000"#;
    let run = || Run::new("sh").args(["-c", script]).arg(program());
    made_do(&unchanged(run));
    cut_off(&unchanged(|| run().env("LEAKTRACE_EVENTS", "all")), "File too large");
}

#[test]
fn a_read_only_file_system() {
    let script = r#"mkdir d; mount -t tmpfs -o ro none d; cd d
        LD_PRELOAD=$preload "$@""#;
    if in_namespace(script, &[]).is_some() {
        let ran = unchanged(|| in_namespace(script, &["churn", "10"]).unwrap());
        assert!(complaint(&ran).contains("Read-only file system"));
    }
}

#[test]
fn no_proc() {
    let script = r#"mount -t tmpfs none /proc
        LD_PRELOAD=$preload "$@""#;
    if in_namespace(script, &[]).is_some() {
        let ran = unchanged(|| in_namespace(script, &["churn", "1000"]).unwrap());
        assert_eq!(ran.stderr, "");
        let report = Report::of(&ran.recording());
        assert_eq!(report.device(0, "live_bytes"), 1001);
        report.assert_whole();
    }
}

#[test]
fn odd_places() {
    for name in ["with space, and more", "größe-ж-漢", "a\nb", "-rf", "'\"$HOME`", "%"] {
        let run = || hostile(&["churn", "10"]);
        let ran = unchanged(|| {
            let run = run();
            fs::create_dir(run.folder().with_file_name("place")).unwrap();
            let out = run.folder().with_file_name("place").join(name.replace('%', "%%"));
            run.env("LEAKTRACE_OUT", out)
        });
        assert_eq!(ran.stderr, "", "{name}");
        let recording = ran.folder().with_file_name("place").join(name);
        assert_eq!(Report::of(&recording).device(0, "live_bytes"), 1001, "{name}");
    }
    let ran = unchanged(|| {
        let run = hostile(&["churn", "10"]);
        run.env("LEAKTRACE_OUT", std::ffi::OsStr::from_bytes(b"not\xff\xfeutf8"))
    });
    let path = ran.folder().join(std::ffi::OsStr::from_bytes(b"not\xff\xfeutf8"));
    assert_eq!(Report::of(&path).device(0, "live_bytes"), 1001);
}

#[test]
fn absurd_places() {
    let long = "x".repeat(5000);
    let lines = "/proc/no\nsuch\ndirectory/x";
    // The program writes reports beside the recording: under other names than its own.
    for out in ["report.txt", "a.draft", "b.oom.txt"] {
        let ran = unchanged(|| hostile(&["churn", "10"]).env("LEAKTRACE_OUT", out));
        assert_eq!(Report::of(&ran.folder().join(out)).device(0, "live_bytes"), 1001, "{out}");
        assert_eq!(ran.stderr, "");
    }
    for (out, why) in [
        ("fifo", "not a plain file"),
        ("link", "symbolic link"),
        ("/dev/null", "not a plain file"),
        ("/dev/full", "not a plain file"),
        ("/dev/tty", "not a plain file"),
        ("/", "directory"),
        (".", "directory"),
        ("", ""),
        ("/proc/self/mem", ""),
        ("/proc/nowhere/at/all.ltrace", "No such file"),
        (&long, "too long"),
        (lines, "No such file"),
    ] {
        let ran = unchanged(|| {
            let run = hostile(&["churn", "10"]);
            let place = run.folder().with_file_name("place");
            fs::create_dir(&place).unwrap();
            fs::write(place.join("file"), "precious").unwrap();
            std::os::unix::fs::symlink("file", place.join("link")).unwrap();
            assert!(Command::new("mkfifo").arg(place.join("fifo")).status().unwrap().success());
            let out = if matches!(out, "fifo" | "link") { place.join(out) } else { out.into() };
            run.env("LEAKTRACE_OUT", out)
        });
        let place = ran.folder().with_file_name("place");
        assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "precious", "{out}");
        if out.is_empty() {
            assert_eq!(ran.stderr, "");
            continue;
        }
        let line = complaint(&ran);
        assert!(line.contains("nothing is recorded") && line.contains(why), "{why} is not in {line}");
        assert!(line.len() < 500, "{} bytes in one line", line.len());
        assert_eq!(ran.files(), Vec::<String>::new(), "{out:?}");
    }
}

#[test]
fn signs_after_a_percent() {
    for (out, file, fault) in [("x%", "x%", true), ("x%q.ltrace", "x%q.ltrace", true), ("x%%q", "x%q", false)]
    {
        let ran = unchanged(|| hostile(&["churn", "10"]).env("LEAKTRACE_OUT", out));
        assert_eq!(Report::of(&ran.folder().join(file)).device(0, "live_bytes"), 1001, "{out}");
        if fault {
            let line = complaint(&ran);
            assert!(line.contains("LEAKTRACE_OUT") && line.contains("%p"), "{line}");
        } else {
            assert_eq!(ran.stderr, "");
        }
    }
}

#[test]
fn a_memory_limit() {
    // From too little for the program itself to enough for all: nowhere does it end otherwise than without us.
    let run = |limit: usize, pairs: u64, traced: bool| {
        let script = format!(r#"ulimit -v {limit}; exec "$0" churn {pairs}"#);
        let run = Run::new("sh").args(["-c", &script]).arg(program()).env("LEAKTRACE_QUIET", "1");
        run.traced_if(traced).run()
    };
    // Below that the loader has no room for the library, or for what comes after it (127).
    let lacking = (2000..16_000).step_by(250).rev().find(|limit| run(*limit, 1, true).code() == 127);
    let mut loads = lacking.expect("too little memory") + 250;
    // The runtime opens the driver by itself, and reports what the loader says as a failed allocation (91).
    if run(loads, 1, true).code() == 91 {
        loads += 250;
    }
    let mut kinds = [0; 3];
    for limit in (loads..loads + 26_000).step_by(2000) {
        let (plain, traced) = (run(limit, 200_000, false), run(limit, 200_000, true));
        assert_eq!(plain.code(), 0, "{}", plain.transcript());
        assert_eq!((traced.code(), traced.text()), (0, plain.text()), "{limit} KiB: {}", traced.transcript());
        let lines = traced.stderr.lines().count();
        let kind = match traced.recordings().first() {
            None => {
                assert_eq!(traced.files(), Vec::<String>::new(), "{limit} KiB");
                0
            }
            Some(file) => 1 + usize::from(Report::of(file).coverage("dropped_events") == 0),
        };
        let no_summary = traced.stderr.contains("too little memory to sum up");
        assert_eq!(lines, usize::from(kind < 2 || no_summary), "{limit} KiB: {}", traced.transcript());
        kinds[kind] += 1;
    }
    println!("nothing recorded, cut off, whole: {kinds:?}");
    assert!(kinds[0] > 0 && kinds[2] > 0, "{kinds:?}");
}

#[test]
fn small_stacks() {
    for stacks in ["auto", "native", "mixed", "off"] {
        let ran = unchanged(|| hostile(&["threads", "64", "16384"]).env("LEAKTRACE_STACKS", stacks));
        assert_eq!(ran.stderr, "", "{stacks}");
        let report = Report::of(&ran.recording());
        assert_eq!(report.device(0, "live_bytes"), 640, "{stacks}");
        report.assert_whole();
    }
}

#[test]
fn small_stacks_that_make_room() {
    // So many events that some of these threads have to write checkpoints: on the stacks they have.
    let ran = unchanged(|| hostile(&["threads", "8", "16384", "60000"]));
    assert_eq!(ran.stderr, "");
    let report = Report::of(&ran.recording());
    assert_eq!((report.device(0, "live_bytes"), report.end()), (80, "clean"));
    report.assert_whole();
}

#[test]
fn many_short_threads() {
    // A thread's place in the recording goes to the next one: 6000 of them need no more of the file than eight.
    for stacks in ["auto", "off"] {
        let ran = unchanged(|| hostile(&["threads", "6000", "0"]).env("LEAKTRACE_STACKS", stacks));
        let report = Report::of(&ran.recording());
        assert_eq!(report.device(0, "live_bytes"), 60_000, "{stacks}");
        report.assert_whole();
        let bytes = fs::metadata(ran.recording()).unwrap().len();
        assert!(bytes <= 8 << 20, "{bytes} bytes of recording with stacks {stacks}");
    }
}

#[test]
fn a_sandbox() {
    let launcher = compile("refuse.c", "refuse", &[]);
    let refused = |errno: i32, calls: &[&str]| {
        let run = || {
            let run = Run::new(&launcher).arg(errno.to_string()).args(calls).arg("--");
            run.arg(program()).args(["churn", "100"])
        };
        if run().run().code() == 77 {
            println!("skipped: seccomp is refused here");
            return None;
        }
        Some(unchanged(run))
    };
    for errno in [libc::EPERM, libc::ENOSYS] {
        // Without a file there is no recording.
        for calls in [&["create"][..], &["ftruncate"], &["fallocate", "pwrite"]] {
            let Some(ran) = refused(errno, calls) else { return };
            let line = complaint(&ran);
            assert!(line.contains("nothing is recorded"), "{calls:?}: {line}");
        }
        // What can be done without, is.
        for calls in [
            &["flock"][..],
            &["fallocate"],
            &["fcntl"],
            &["prlimit"],
            &["rename"],
            &["uname"],
            &["nanosleep"],
        ] {
            let Some(ran) = refused(errno, calls) else { return };
            assert_eq!(ran.stderr, "", "{calls:?}");
            let report = Report::of(&ran.recording());
            assert_eq!(report.device(0, "live_bytes"), 1001, "{calls:?}");
            report.assert_whole();
        }
    }
}

#[test]
fn a_sandbox_that_the_program_shuts_itself_into() {
    // Whatever it forbids itself afterwards, nothing of ours asks for it: the recording has come to its end before.
    for way in ["prctl", "seccomp", "strict"] {
        let run = || hostile(&["sandboxed", way]);
        if run().run().code() == 77 {
            println!("skipped: seccomp is refused here");
            return;
        }
        let ran = unchanged(run);
        let line = complaint(&ran);
        assert!(line.contains("shuts itself into a sandbox (seccomp): tracing ends here"), "{way}: {line}");
        let report = Report::of(&ran.recording());
        assert_eq!((report.device(0, "live_bytes"), report.end()), (1001, "clean"), "{way}");
        assert!(report.coverage("gaps").to_string().contains("sandbox"), "{way}");
    }
    // Before its first call of CUDA there is no recording; in the sandbox nothing could be said any more.
    let ran = unchanged(|| hostile(&["sandboxed", "early"]));
    let line = complaint(&ran);
    assert!(line.contains("sandbox (seccomp) before its first CUDA call: nothing is recorded"), "{line}");
    assert_eq!(ran.files(), Vec::<String>::new());
    // To ask is not to shut.
    let ran = unchanged(|| hostile(&["sandboxed", "question"]));
    assert_eq!(ran.stderr, "");
    Report::of(&ran.recording()).assert_whole();
}

#[test]
fn nobody_reads_the_summary() {
    // A pipe without a reader: writing to it would raise SIGPIPE in the program.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut run = hostile(&["churn", "10"]).traced();
    run.command.stderr(writer).stdout(Stdio::null());
    let mut child = run.command.spawn().unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{status:?}");
}

#[test]
fn a_summary_that_would_be_too_large() {
    // A file on stderr that may not grow: writing to it would raise SIGXFSZ in the program.
    let script = r#"head -c 6000000 /dev/zero >err; ulimit -f 11000; exec "$0" churn 10 2>>err"#;
    let ran = Run::new("sh").args(["-c", script]).arg(program()).traced().run().success();
    assert_eq!(fs::metadata(ran.folder().join("err")).unwrap().len(), 6_000_000);
    assert_eq!(Report::of(&ran.recording()).device(0, "live_bytes"), 1001);
}

/// Wherever a handler interrupts us, inside of the writer's or the step's critical section too, it does not wait for the
/// thread it stands on, and what it reports is recorded or counted.
#[test]
fn a_signal_handler_that_allocates() {
    let standin =
        compile("blocks.c", "libstandin.so", &["-DSTANDIN", "-shared", "-fPIC", "-Wl,-soname,libstandin.so"]);
    let run = Run::new(linked("signals.c", "signals", &standin, &[])).args(["60000", "200"]).traced();
    let run = run.env("LEAKTRACE_STACKS", "native").env("LEAKTRACE_STEP", "api").env("LEAKTRACE_QUIET", "1");
    let ran = run.run().success();
    let reported: u64 = ran.text().trim().parse().expect("a number of blocks");
    assert!(reported > 100, "the handler ran {reported} times");
    let report = Report::of(&ran.recording());
    let dropped = report.coverage("dropped_events").as_u64().unwrap();
    assert_eq!(report.device(1, "live_bytes") / 512 + dropped, reported, "{dropped} dropped");
    assert_eq!(report.device(0, "live_bytes"), 0);
    assert_eq!((report.steps(), report.end()), (301, "clean"));
}
