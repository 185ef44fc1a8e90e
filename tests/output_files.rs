//! Whose file is it: a recording, its reports and exports go to names that nothing had, or that leaktrace made itself;
//! whatever else stands there is as it was afterwards. And what a reader is given may be anything.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::common::grows::{run_leaktrace, text};
use crate::common::programs::{bare_cudart, linked};
use crate::common::report::{Report, leaktrace};
use crate::common::{Ran, Run};

fn program() -> PathBuf {
    linked("hostile.c", "hostile", &bare_cudart(), &[])
}

/// `churn` in a folder that was prepared, quiet but for what has to be said.
fn churn(out: &str, prepare: impl FnOnce(&Path)) -> Ran {
    let run = Run::new(program()).args(["churn", "20"]).traced();
    prepare(&run.folder());
    let ran = run.env("LEAKTRACE_OUT", out).env("LEAKTRACE_QUIET", "1").run().success();
    assert_eq!(ran.text(), "churn is done\n");
    ran
}

/// A recording of a program that is done.
fn recorded(folder: &Path, name: &str) -> PathBuf {
    let ran = churn("x.ltrace", |_| {});
    let file = folder.join(name);
    fs::copy(ran.folder().join("x.ltrace"), &file).unwrap();
    file
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// What may stand under a name: how it is made, and how it is after all that happened.
const THINGS: &[&str] = &["file", "empty", "zeros", "script", "fifo", "socket", "link", "dangling", "folder"];

fn make(thing: &str, path: &Path) {
    match thing {
        "file" => fs::write(path, "precious").unwrap(),
        "empty" => fs::write(path, "").unwrap(),
        "zeros" => fs::write(path, [&[0; 1024][..], b"precious"].concat()).unwrap(),
        "script" => {
            fs::write(path, "#!/bin/sh\n").unwrap();
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
        }
        "fifo" => fifo(path),
        "socket" => drop(UnixListener::bind(path).unwrap()),
        "link" => {
            fs::write(path.with_file_name("victim"), "precious").unwrap();
            symlink("victim", path).unwrap();
        }
        "dangling" => symlink("nobody", path).unwrap(),
        _ => fs::create_dir(path).unwrap(),
    }
}

#[track_caller]
fn as_it_was(thing: &str, path: &Path) {
    let kind = fs::symlink_metadata(path).unwrap().file_type();
    let reads = |path: &Path, wanted: &[u8]| assert_eq!(fs::read(path).unwrap(), wanted, "{thing}");
    match thing {
        "file" => reads(path, b"precious"),
        "empty" => reads(path, b""),
        "zeros" => reads(path, &[&[0; 1024][..], b"precious"].concat()),
        "script" => reads(path, b"#!/bin/sh\n"),
        "fifo" => assert!(kind.is_fifo()),
        "socket" => assert!(kind.is_socket()),
        "link" => {
            assert!(kind.is_symlink());
            reads(&path.with_file_name("victim"), b"precious");
        }
        "dangling" => assert!(kind.is_symlink() && !path.with_file_name("nobody").exists()),
        _ => assert!(kind.is_dir()),
    }
}

#[test]
fn a_name_that_is_taken() {
    for thing in THINGS {
        let ran = churn("x.ltrace", |folder| make(thing, &folder.join("x.ltrace")));
        as_it_was(thing, &ran.folder().join("x.ltrace"));
        assert_eq!(ran.stderr.lines().count(), 1, "{thing}: {}", ran.stderr);
        if matches!(*thing, "file" | "empty" | "zeros" | "script") {
            assert!(ran.stderr.contains("is left as it is; recording to x-2.ltrace"), "{}", ran.stderr);
            assert_eq!(Report::of(&ran.folder().join("x-2.ltrace")).device(0, "live_bytes"), 1001, "{thing}");
        } else {
            assert!(ran.stderr.contains("nothing is recorded"), "{thing}: {}", ran.stderr);
        }
    }
}

#[test]
fn names_of_reports_that_are_taken() {
    for thing in THINGS {
        let ran = churn("x.ltrace", |folder| {
            make(thing, &folder.join("x.txt"));
            make(thing, &folder.join("x.draft"));
        });
        as_it_was(thing, &ran.folder().join("x.txt"));
        as_it_was(thing, &ran.folder().join("x.draft"));
        assert_eq!(ran.stderr.lines().count(), 1, "{thing}: {}", ran.stderr);
        assert!(ran.stderr.contains("x.txt was not written by this run"), "{thing}: {}", ran.stderr);
        let report = fs::read_to_string(ran.folder().join("x-2.txt")).unwrap();
        assert!(report.contains("step"), "{report}");
        assert!(!ran.files().contains(&"x-2.draft".to_owned()), "{:?}", ran.files());
    }
}

#[test]
fn what_was_recorded_stays() {
    // Of a program that ended and of one that was killed: the same name again and again.
    let ran = churn("x.ltrace", |folder| {
        let run = |how: &str| {
            let script = format!("cd '{}'; {how}", folder.display());
            let run = Run::new("sh").args(["-c", &script]).arg(program()).traced();
            run.env("LEAKTRACE_OUT", "x.ltrace").env("LEAKTRACE_QUIET", "1").run()
        };
        assert_eq!(run(r#""$0" churn 7"#).stderr, "");
        run(r#"exec "$0" closes 9 & wait; (exec "$0" threads 8 0)"#);
    });
    assert_eq!(ran.stderr, "");
    let all: Vec<String> = ran.files().into_iter().filter(|f| f.ends_with(".ltrace")).collect();
    assert_eq!(all, ["x-2.ltrace", "x-3.ltrace", "x-4.ltrace", "x.ltrace"]);
    assert_eq!(Report::of(&ran.folder().join("x-3.ltrace")).device(0, "live_bytes"), 80);
    for file in all {
        Report::of(&ran.folder().join(file)).assert_whole();
    }
}

#[test]
fn folders_that_are_missing() {
    let ran = churn("runs/of %e/%p.ltrace", |_| {});
    let folder = ran.folder().join("runs/of hostile");
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!((files.len(), ran.stderr.as_str()), (2, ""), "{files:?}");
    // One that cannot be made: a file is in the way, or it is not ours to make.
    for out in ["taken/x.ltrace", "/proc/1/x/y.ltrace", "/dev/null/x.ltrace"] {
        let ran = churn(out, |folder| fs::write(folder.join("taken"), "precious").unwrap());
        assert!(
            ran.stderr.contains("nothing is recorded") && ran.stderr.lines().count() == 1,
            "{}",
            ran.stderr
        );
        assert_eq!(ran.files(), ["taken"]);
    }
}

#[test]
fn a_recording_takes_the_space_it_needs() {
    let ran = churn("x.ltrace", |_| {});
    let there = fs::metadata(ran.recording()).unwrap();
    let (length, bytes) = (there.len(), there.blocks() * 512);
    assert!(bytes <= 128 << 10 && length < 1 << 20, "{bytes} bytes for 41 events, {length} long");
    assert_eq!(there.mode() & 0o777 & !0o644, 0);
}

/// Every byte below a folder.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all.into_iter().filter(|p| p.is_file()).map(|p| (p.clone(), fs::read(p).unwrap())).collect()
}

#[track_caller]
fn refused(out: &Output, part: &str) {
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!((out.status.code(), err.lines().count()), (Some(2), 1), "{err}");
    assert!(err.starts_with("leaktrace: ") && err.contains(part), "{err}");
}

#[test]
fn an_output_that_is_an_input() {
    let folder = TempDir::new().unwrap();
    recorded(folder.path(), "x.ltrace");
    recorded(folder.path(), "other.bin");
    fs::hard_link(folder.path().join("x.ltrace"), folder.path().join("hard")).unwrap();
    symlink("x.ltrace", folder.path().join("soft")).unwrap();
    let before = contents(folder.path());
    for name in ["x.ltrace", "./x.ltrace", "hard", "soft"] {
        for args in [
            &["report", "x.ltrace", "-o", name][..],
            &["report", "x.ltrace", "--format", "html", "-o", name],
            &["report", ".", "--format", "json", "-o", name],
            &["export", "x.ltrace", "--to", "perfetto", "-o", name],
            &["export", "x.ltrace", "--to", "snapshot", "-o", name],
            &["check", "x.ltrace", "--sarif", name],
            &["check", "x.ltrace", "--baseline", name, "--write-baseline"],
            &["diff", "x.ltrace@1", "x.ltrace", "-o", name],
        ] {
            if args[0] == "diff" {
                // There are no steps to compare: also no output.
                assert_eq!(run_leaktrace(folder.path(), args).status.code(), Some(2));
            } else {
                refused(&run_leaktrace(folder.path(), args), "is an input of this command");
            }
        }
    }
    for to in ["pprof", "folded", "json-schema"] {
        let args = ["export", "--to", to, "-o", "other.bin", "x.ltrace"];
        let out = run_leaktrace(folder.path(), if to == "json-schema" { &args[..5] } else { &args });
        refused(&out, "other.bin: is a recording");
    }
    assert_eq!(contents(folder.path()), before);
    // What leaktrace wrote before is written anew.
    for _ in 0..2 {
        text(&run_leaktrace(folder.path(), &["report", "x.ltrace", "-o", "x.txt"]), 0);
    }
}

#[test]
fn an_output_that_a_program_is_recording_to() {
    let run = Run::new(linked("outside.c", "outside", &bare_cudart(), &[])).arg("plain").traced();
    let folder = run.folder();
    let mut run = run.env("LEAKTRACE_OUT", "x.ltrace").env("LEAKTRACE_QUIET", "1");
    run.command.stdin(Stdio::piped());
    let mut running = run.start();
    let mut to = running.child.stdin.take().unwrap();
    let mut from = BufReader::new(running.child.stdout.take().unwrap());
    from.read_line(&mut String::new()).unwrap();
    recorded(&folder, "mine.ltrace");
    for args in [
        &["report", "mine.ltrace", "-o", "x.ltrace"][..],
        &["export", "mine.ltrace", "--to", "folded", "-o", "x.ltrace"],
        &["check", "mine.ltrace", "--sarif", "x.ltrace"],
    ] {
        refused(&run_leaktrace(&folder, args), "x.ltrace: is a recording");
    }
    writeln!(to, "1000").unwrap();
    drop(to);
    let ran = running.wait();
    assert_eq!((ran.status.code(), ran.stderr.as_str()), (Some(7), ""));
    assert_eq!(Report::of(&folder.join("x.ltrace")).device(0, "live_bytes"), 1001);
}

#[test]
fn tables_beside_what_is_not_theirs() {
    let folder = TempDir::new().unwrap();
    recorded(folder.path(), "x.ltrace");
    let export = ["export", "x.ltrace", "--to", "csv", "--run", "r", "-o", "out"];
    text(&run_leaktrace(folder.path(), &export), 0);
    text(&run_leaktrace(folder.path(), &export), 0);
    let table = folder.path().join("out/run=r/rank=0/sites.csv");
    for thing in ["fifo", "link", "dangling", "folder", "socket"] {
        match table.is_dir() {
            true => fs::remove_dir(&table).unwrap(),
            false => fs::remove_file(&table).unwrap(),
        }
        make(thing, &table);
        refused(&run_leaktrace(folder.path(), &export), "sites.csv: is not a plain file");
        as_it_was(thing, &table);
    }
}

#[test]
fn a_folder_with_what_is_no_file() {
    let folder = TempDir::new().unwrap();
    recorded(folder.path(), "a.ltrace");
    fifo(&folder.path().join("b.ltrace"));
    drop(UnixListener::bind(folder.path().join("c.ltrace")).unwrap());
    symlink("/dev/zero", folder.path().join("d.ltrace")).unwrap();
    for args in
        [&["report", "."][..], &["check", ".", "--allow-unjudged"], &["report", ".", "--format", "html"]]
    {
        let out = run_leaktrace(folder.path(), args);
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), err.lines().count()), (Some(0), 3), "{args:?}: {err}");
        assert!(err.lines().all(|l| l.ends_with("is not a plain file; passed over")), "{err}");
    }
    text(&run_leaktrace(folder.path(), &["top", "--once", "."]), 0);
    for (name, kind) in [("b", "FIFO"), ("c", "socket"), ("d", "device"), ("", "no recording")] {
        let name = if name.is_empty() { "empty".to_owned() } else { format!("{name}.ltrace") };
        let _ = fs::create_dir(folder.path().join("empty"));
        refused(&run_leaktrace(folder.path(), &["report", &name]), kind);
        refused(&run_leaktrace(folder.path(), &["check", &name]), kind);
    }
}

#[test]
fn a_file_that_claims_to_be_large() {
    let folder = TempDir::new().unwrap();
    let whole = fs::read(recorded(folder.path(), "a.ltrace")).unwrap();
    const SEGMENT: u64 = 128 << 10;
    for (name, segments, length) in [
        ("bomb", (1u64 << 40) / SEGMENT, 1u64 << 40),
        ("more", 1 << 62, 1 << 42),
        ("most", u64::MAX, 1 << 43),
        ("tens", 200, 200 * SEGMENT),
    ] {
        let mut bytes = whole.clone();
        bytes[32..40].copy_from_slice(&segments.to_le_bytes());
        let file = folder.path().join(format!("{name}.ltrace"));
        fs::write(&file, &bytes).unwrap();
        OpenOptions::new().write(true).open(&file).unwrap().set_len(length).unwrap();
        for command in ["report", "check", "top --once"] {
            let script = format!("ulimit -v 1000000; exec \"$0\" {command} {name}.ltrace");
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).arg(leaktrace().get_program()).current_dir(folder.path());
            refused(&shell.output().unwrap(), &format!("{name}.ltrace: is "));
        }
    }
}
