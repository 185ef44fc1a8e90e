//! Memory of ours in the traced process: bounded, however many threads write and however long the recording grows.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::common::programs::{compile, linked};
use crate::common::report::Report;
use crate::common::{Ran, Run};

/// As README promises: so much, and so much more per living block.
const OURS: u64 = 64 << 20;
const PER_BLOCK: u64 = 64;

/// The most memory that a process had at a time.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("VmHWM");
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// Blocks without a framework, as fast as they come: threads, events of each, blocks alive at most in each. Returns it, dead,
/// and the memory it had at most.
fn blocks(threads: u32, events: u32, live: u32, traced: bool, kept: &str) -> (Ran, u64, u64) {
    let standin =
        compile("blocks.c", "libstandin.so", &["-DSTANDIN", "-shared", "-fPIC", "-Wl,-soname,libstandin.so"]);
    let run = Run::new(linked("blocks.c", "blocks", &standin, &[]));
    let words = [threads * events, threads, live, 0].map(|n| n.to_string());
    let settings = [("LEAKTRACE_QUIET", "1"), ("LEAKTRACE_STACKS", "off"), ("LEAKTRACE_EVENTS", kept)];
    let mut run = settings.into_iter().fold(run.args(words).simulated(), |run, (name, to)| run.env(name, to));
    run.command.stdin(Stdio::piped());
    let mut running = run.traced_if(traced).start();
    let mut line = String::new();
    BufReader::new(running.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let alive = line.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{line:?}"));
    let peak = peak(running.child.id());
    (running.kill(), alive, peak)
}

#[test]
fn of_many_threads() {
    let (_, _, plain) = blocks(64, 60_000, 1000, false, "window");
    let (ran, alive, peak) = blocks(64, 60_000, 1000, true, "window");
    let report = Report::of(&ran.recording());
    assert_eq!(report.0["coverage"]["dropped_events"], 0);
    let ours = peak.saturating_sub(plain);
    assert!(ours <= OURS + PER_BLOCK * alive, "{ours} bytes of ours, {alive} blocks alive");
}

#[test]
fn of_a_recording_that_keeps_its_events() {
    let (_, _, plain) = blocks(1, 3_000_000, 1000, false, "all");
    let (ran, alive, peak) = blocks(1, 3_000_000, 1000, true, "all");
    let size = fs::metadata(ran.recording()).unwrap().len();
    assert!(size > 3_000_000 * 32, "{size} bytes are not all events");
    assert_eq!(Report::of(&ran.recording()).0["coverage"]["dropped_events"], 0);
    let ours = peak.saturating_sub(plain);
    assert!(ours <= OURS + PER_BLOCK * alive, "{ours} bytes of ours, {alive} blocks alive");
}
