//! Memory of ours in the traced process: bounded, however many threads write and however long the recording grows.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::programs::{bare_cudart, compile, linked, pythons, script};
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

/// `crowd.c`: very many of one thing.
fn crowd(words: &[&str]) -> Run {
    Run::new(linked("crowd.c", "crowd", &bare_cudart(), &[])).args(words)
}

/// Runs it to its end; also returns the most memory that it ever had, with what is done at its end.
fn to_its_end(mut run: Run) -> (Run, String, u64) {
    let mut child = run.command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let (status, peak) = end_of(child);
    assert_eq!(status, 0, "{said}");
    (run, said, peak)
}

/// Waits for a child; returns its status and the most memory that it had.
fn end_of(child: Child) -> (i32, u64) {
    // SAFETY: room for both; the child was not waited for yet.
    let (status, usage) = unsafe {
        let (mut status, mut usage) = (0, std::mem::zeroed::<libc::rusage>());
        assert_eq!(libc::wait4(child.id() as i32, &mut status, 0, &mut usage), child.id() as i32);
        (status, usage)
    };
    (status, (usage.ru_maxrss as u64) << 10)
}

/// The one recording in a folder.
fn recording_in(run: &Run) -> PathBuf {
    let entries = fs::read_dir(run.folder()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|e| e == "ltrace")).last().expect("a recording")
}

#[test]
fn of_very_many_stacks() {
    // Beyond any bound, all freed: what is kept of each is less and less, and the report says from where on.
    let words = ["stacks", "300000"];
    let (_, _, plain) = to_its_end(crowd(&words));
    let (run, _, peak) = to_its_end(crowd(&words).traced());
    assert!(peak - plain <= OURS, "{} bytes of ours", peak - plain);
    let report = Report::of(&recording_in(&run));
    assert_eq!((report.device(0, "live_bytes"), report.end()), (1001, "clean"));
    assert_eq!(report.coverage("dropped_events"), 0);
    let gaps = report.coverage("gaps").to_string();
    assert!(gaps.contains("outer frames of new call stacks: after 35840 different ones"), "{gaps}");
    assert!(!gaps.contains("too many different"), "{gaps}");
}

#[test]
fn of_very_many_functions() {
    let (_, python) = pythons().into_iter().next_back().expect("a Python");
    let run = || {
        Run::new(&python)
            .arg(script("many_codes.py"))
            .arg(bare_cudart())
            .arg("150000")
            .env("LEAKTRACE_STEP", "api")
    };
    let (_, _, plain) = to_its_end(run());
    let (run, _, peak) = to_its_end(run().traced());
    assert!(peak - plain <= OURS, "{} bytes of ours", peak - plain);
    let report = Report::of(&recording_in(&run));
    assert_eq!((report.device(0, "live_bytes"), report.end()), (1001, "clean"));
    assert_eq!(report.coverage("dropped_events"), 0);
    let gaps = report.coverage("gaps").to_string();
    // The line that all of them call stays known to the end.
    for (after, innermost) in [(35_840, 16), (43_008, 4), (50_176, 1)] {
        let cut = format!("outer frames of new call stacks: after {after} different ones");
        let keeps = format!("each keeps its {innermost} innermost");
        assert!(gaps.contains(&cut) && gaps.contains(&keeps), "{gaps}");
    }
    assert!(!gaps.contains("too many different"), "{gaps}");
}

#[test]
fn of_more_than_can_be_summed_up_at_exit() {
    // The reader is left what would take a program longer than a second; that is said wherever somebody looks.
    for (what, alive, live) in [("stacks", 7000, 7000 * 64), ("blocks", 1_000_000, 1_000_000 * 512)] {
        let count = alive.to_string();
        let words = [what, &count, "keep"];
        let (_, _, plain) = to_its_end(crowd(&words));
        let (run, said, peak) = to_its_end(crowd(&words).traced());
        let line = said.lines().next().unwrap_or_default();
        assert!(line.starts_with("leaktrace: too much to sum up in the program ("), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        let recording = recording_in(&run);
        assert_eq!(fs::read_to_string(recording.with_extension("txt")).unwrap(), said);
        let report = Report::of(&recording);
        assert_eq!((report.device(0, "live_bytes"), report.end()), (live + 1001, "clean"));
        assert_eq!(report.coverage("dropped_events"), 0);
        assert!(report.coverage("gaps").to_string().contains("too much to sum up"), "{:#}", report.0);
        let bound = if what == "stacks" { OURS } else { OURS + PER_BLOCK * alive };
        assert!(peak - plain <= bound, "{what}: {} bytes of ours", peak - plain);
    }
}

#[test]
fn of_a_report_that_there_is_none_for() {
    let program = linked("crowd.c", "crowd", &bare_cudart(), &[]);
    let mut kinds = [0; 2];
    for limit in (36_000..=120_000).step_by(6000) {
        let script = format!("ulimit -v {limit}; exec \"$0\" stacks 5000 keep");
        let ran = Run::new("sh").args(["-c", &script]).arg(&program).traced().run();
        assert_eq!(ran.code(), 0, "{limit} KiB: {}", ran.transcript());
        let report = Report::of(&ran.recording());
        assert_eq!(report.device(0, "live_bytes"), 5000 * 64 + 1001, "{limit} KiB");
        let is_left = ran.stderr.starts_with("leaktrace: too little memory to sum up");
        assert!(is_left || ran.stderr.contains("GPU 0: live"), "{limit} KiB: {}", ran.transcript());
        kinds[usize::from(is_left)] += 1;
    }
    assert!(kinds[0] > 0 && kinds[1] > 0, "{kinds:?}");
}

#[test]
fn of_very_many_threads_at_one_time() {
    let (_, _, plain) = to_its_end(crowd(&["threads", "3000"]));
    let (run, _, peak) = to_its_end(crowd(&["threads", "3000"]).traced());
    let recording = recording_in(&run);
    let (ours, size) = (peak - plain, fs::metadata(&recording).unwrap().len());
    // What a hook needs of a thread's own stack comes to it, some pages each.
    assert!(ours <= OURS + 3000 * (16 << 10), "{ours} bytes of ours");
    assert!(size <= 64 << 20, "{size} bytes of recording");
    let report = Report::of(&recording);
    assert_eq!(
        (report.device(0, "live_bytes"), report.coverage("dropped_events")),
        (30_000 + 1001, &0.into())
    );
    assert!(report.coverage("gaps").to_string().contains("Python's stacks of threads"), "{:#}", report.0);
}

#[test]
fn of_very_many_modules() {
    let plugin = linked("crowd_plugin.c", "crowd_plugin.so", &bare_cudart(), &["-shared", "-fPIC"]);
    let words = ["modules", "1500", plugin.to_str().unwrap()];
    let (_, _, plain) = to_its_end(crowd(&words));
    let (run, _, peak) = to_its_end(crowd(&words).traced());
    assert!(peak - plain <= OURS / 2, "{} bytes of ours", peak - plain);
    let report = Report::of(&recording_in(&run));
    assert_eq!((report.device(0, "live_bytes"), report.end()), (1001, "clean"));
    report.assert_whole();
}

/// Reads a file, which may be damaged; returns the exit status, what is said, and the most memory that took.
fn reading(file: &Path) -> (i32, String, u64) {
    let mut reader = Command::new(env!("CARGO_BIN_EXE_leaktrace"));
    reader.arg("report").arg(file).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = reader.spawn().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let (status, peak) = end_of(child);
    (status, said, peak)
}

#[test]
fn of_the_reader_of_a_file_that_claims_more_than_it_holds() {
    const SEGMENT: usize = 128 << 10;
    let recording = Run::new(linked("crowd.c", "crowd", &bare_cudart(), &[])).args(["blocks", "3"]).traced();
    let ran = recording.env("LEAKTRACE_QUIET", "1").run().success();
    let whole = fs::read(ran.recording()).unwrap();
    let (_, _, usual) = reading(&ran.recording());
    // Each segment has one page on the disk, and claims to be full: of a checkpoint that is none, of entries, of events.
    for (usage, status) in [(3u64, 0), (2, 0), (1, 0), (7, 0), (0, 2)] {
        let claimed = whole.len().div_ceil(SEGMENT) as u64 + 4000;
        let bomb = ran.folder().join("bomb.ltrace");
        let file = fs::File::create(&bomb).unwrap();
        file.write_all_at(&whole, 0).unwrap();
        file.write_all_at(&claimed.to_le_bytes(), 32).unwrap();
        file.set_len(claimed * SEGMENT as u64).unwrap();
        for segment in claimed - 4000..claimed {
            let words = [usage, u64::from(usage != 0), (SEGMENT - 64) as u64];
            let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            file.write_all_at(&words, segment * SEGMENT as u64).unwrap();
        }
        let (code, said, peak) = reading(&bomb);
        assert_eq!(libc::WEXITSTATUS(code), status, "{usage}: {said}");
        assert!(libc::WIFEXITED(code) && said.lines().count() <= 1, "{usage}: {said}");
        assert!(peak <= usual + (16 << 20), "{usage}: {} bytes more than usual", peak - usual);
    }
}
