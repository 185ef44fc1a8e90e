//! `leaktrace top --once` on processes that really run.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::common::Running;
use crate::common::grows::{flat, grown, grows, on_terminal, run_leaktrace, text};
use tempfile::TempDir;

/// Started, and all its steps made.
fn ready(folder: &TempDir, rank: u32, steps: u32, args: &[&str]) -> Running {
    let out = folder.path().join(format!("rank{rank}.ltrace"));
    let mut run =
        grows(steps, args).arg("--wait").env("LEAKTRACE_OUT", out).env("RANK", rank.to_string()).start();
    let mut line = String::new();
    BufReader::new(run.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    run
}

#[test]
fn a_running_process_by_its_pid() {
    let folder = TempDir::new().unwrap();
    let run = ready(&folder, 0, 40, &["--first", "1024"]);
    let pid = run.child.id().to_string();
    let told = text(&run_leaktrace(folder.path(), &["top", "--once", &pid]), 0);
    let flat = flat(&told);
    for words in [
        "leaktrace top: 1 of 1 processes running",
        &format!("{pid} rank 0 running 40"),
        " 1 leak ",
        "1.0 KiB/step 30.0 KiB 30 1 ",
        "findings leak (confirmed): 1.0 KiB per step",
    ] {
        assert!(flat.contains(words), "{words}\n{told}");
    }
    let ended = run.kill();
    assert!(ended.status.code().is_none(), "it ran until it was killed");
    let out = run_leaktrace(folder.path(), &["top", "--once", &pid]);
    assert_eq!(out.status.code(), Some(2));
    let told = text(&run_leaktrace(folder.path(), &["top", "--once", "rank0.ltrace"]), 0);
    assert!(told.contains("0 of 1 processes running") && told.contains("killed"), "{told}");
}

#[test]
fn several_ranks_and_too_few_steps() {
    let folder = TempDir::new().unwrap();
    let _runs = [ready(&folder, 0, 10, &["--first", "1024"]), ready(&folder, 1, 10, &["--first", "2048"])];
    let told = text(&run_leaktrace(folder.path(), &["top", "--once", "."]), 0);
    let flat = flat(&told);
    for words in [
        "2 of 2 processes running",
        "rank 0 running 10",
        "rank 1 running 10",
        "none yet: 4 steps more are needed",
        "2.0 KiB/step 15.0 KiB 10 2 ",
    ] {
        assert!(flat.contains(words), "{words}\n{told}");
    }
}

#[test]
fn what_is_no_recording_and_what_is_no_terminal() {
    let ran = grown(20, &[]);
    let out = run_leaktrace(&ran.folder(), &["top", "."]);
    assert!(out.status.code() == Some(2) && String::from_utf8_lossy(&out.stderr).contains("--once"));
    // Of this process, others that run now are children.
    let mut idle = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let out = run_leaktrace(&ran.folder(), &["top", "--once", &idle.id().to_string()]);
    drop(idle.stdin.take());
    idle.wait().unwrap();
    assert!(String::from_utf8_lossy(&out.stderr).contains("leaktrace run"), "{out:?}");
    let out = run_leaktrace(&ran.folder(), &["top", "--once", "4194304999"]);
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn on_a_terminal_until_a_key_ends_it() {
    let folder = TempDir::new().unwrap();
    let _run = ready(&folder, 0, 20, &["--first", "1024"]);
    let out = on_terminal(folder.path(), 120, "q", "confirmed", &["top", "rank0.ltrace"], true);
    let told = text(&out, 0);
    assert!(
        told.contains("leaktrace top") && told.contains("\x1b[?1049l"),
        "the screen is given back: {told}"
    );
}

#[test]
fn the_first_recording_is_waited_for() {
    let folder = TempDir::new().unwrap();
    let out = on_terminal(folder.path(), 120, "q", "waiting for the first recording", &["top", "."], true);
    text(&out, 0);
    let out =
        on_terminal(folder.path(), 120, "q", "waiting for the first recording", &["top", "x.ltrace"], true);
    text(&out, 0);
    let out = on_terminal(folder.path(), 120, "q", "none/x.ltrace", &["top", "none/x.ltrace"], true);
    text(&out, 2);
}

#[test]
fn what_comes_in_the_first_steps_is_no_growth() {
    let folder = TempDir::new().unwrap();
    // 300 KiB before the first step, as weights are.
    let _run = ready(&folder, 0, 30, &["--first", "512", "--before", "307200"]);
    let told = text(&run_leaktrace(folder.path(), &["top", "--once", "."]), 0);
    assert!(flat(&told).contains("512 B/step 10.0 KiB 20 1 "), "{told}");
}
