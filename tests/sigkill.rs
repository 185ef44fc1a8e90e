//! SIGKILL at any moment: the recording says what was alive, up to the one call in flight per thread.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};

use crate::common::programs::{driver_calls, torch};
use crate::common::report::Report;
use crate::common::truth::{Event, Live, Truth, live};
use crate::common::{Chance, Ran, Run};

const OPERATIONS: u64 = 8000;

/// Kills a program after so many lines; what it had printed.
fn kill_after(run: Run, lines: u64) -> (Ran, Vec<String>) {
    let mut running = run.traced().env("LEAKTRACE_QUIET", "1").start();
    let mut pipe = BufReader::new(running.child.stdout.take().unwrap());
    let mut said = Vec::new();
    let mut line = String::new();
    while (said.len() as u64) < lines && pipe.read_line(&mut line).unwrap() > 0 {
        said.push(std::mem::take(&mut line));
    }
    assert_eq!(said.len() as u64, lines, "the program ended early");
    let ran = running.kill();
    let mut rest = String::new();
    pipe.read_to_string(&mut rest).unwrap();
    // A line torn by the kill is none.
    said.extend(rest.split_inclusive('\n').filter(|l| l.ends_with('\n')).map(str::to_owned));
    (ran, said)
}

fn by_thread(truth: &Truth) -> Vec<Vec<Event>> {
    let mut threads: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
    for event in &truth.events {
        threads.entry(event.thread).or_default().push(event.clone());
    }
    // Threads are numbered as they are made.
    threads.into_values().collect()
}

/// All that may be in the recording: of each thread's events those that the log has, one less (an allocation, or the
/// unmapping that ended one, was not noted yet) or one more (a free is noted before it happens).
fn possible(killed: &Truth, whole: &Truth) -> Vec<Live> {
    let mut sums = vec![Live::new()];
    let (killed, whole) = (by_thread(killed), by_thread(whole));
    let same = |a: &Event, b: &Event| (a.begins, &a.api, a.bytes) == (b.begins, &b.api, b.bytes);
    let begins = |done: &[Event], all: &[Event]| {
        done.len() <= all.len() && done.iter().zip(all).all(|(a, b)| same(a, b))
    };
    assert!(killed.iter().all(|done| whole.iter().any(|all| begins(done, all))), "each run does the same");
    for all in &whole {
        // A thread that was killed before its first call is not in the log.
        let done = killed.iter().find(|done| begins(done, all)).map_or(&[][..], |done| &done[..]);
        let n = done.len();
        let mut choices = vec![live(done), live(&done[..n.saturating_sub(1)])];
        if let Some(next) = all.get(n).filter(|e| !e.begins) {
            // Addresses differ from run to run: by bytes and device instead.
            let mut without = live(done);
            *without.get_mut(&next.device).unwrap() -= next.bytes;
            choices.push(without);
        }
        sums = sums.iter().flat_map(|sum| choices.iter().map(|choice| plus(sum, choice))).collect();
    }
    sums.iter_mut().for_each(|s| s.retain(|_, bytes| *bytes > 0));
    sums
}

fn plus(a: &Live, b: &Live) -> Live {
    let mut sum = a.clone();
    b.iter().for_each(|(device, bytes)| *sum.entry(*device).or_default() += bytes);
    sum
}

/// `kills` kills of one program, each after a random number of its lines.
#[track_caller]
fn killed_driver_calls(flavour: &str, threads: u64, kills: u64) {
    let run = |end: &str| {
        let (operations, threads) = (OPERATIONS.to_string(), threads.to_string());
        Run::new(driver_calls(flavour)).simulated().args(["31", &operations, "0", &threads, "primary", end])
    };
    let whole = run("finish").run().success().truth();
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15 ^ threads);
    for _ in 0..kills {
        let lines = 1 + chance.below(OPERATIONS / 100 * 9 / 10);
        let (ran, said) = kill_after(run("progress"), lines);
        let recording = ran.recording();
        let report = Report::of(&recording);
        let candidates = possible(&ran.truth(), &whole);
        assert!(
            candidates.contains(&report.driver_live()),
            "killed after {lines} lines: {:?} is none of {candidates:?}",
            report.driver_live()
        );
        assert_eq!(report.end(), "killed");
        // A step ends before its line is printed.
        let steps = report.steps();
        assert!(
            steps == said.len() as u64 || steps == said.len() as u64 + 1,
            "{steps} steps, {} lines",
            said.len()
        );
        report.assert_whole();
        let text = std::fs::read_to_string(recording.with_extension("txt"));
        // A step's dump is written after its boundary, and before its line.
        let dumped = [said.len() as u64 >= 10, steps >= 10];
        assert!(dumped.contains(&text.is_ok()), "a dump from step 10 on: {steps} steps, {:?}", ran.files());
    }
}

#[test]
fn one_thread() {
    killed_driver_calls("dlsym", 1, 3);
}

#[test]
fn several_threads() {
    killed_driver_calls("proc", 3, 3);
}

#[test]
fn a_training_run() {
    let mut chance = Chance(77);
    for _ in 0..2 {
        let lines = 1 + chance.below(40);
        let run =
            torch("train.py").steps_by_print().args(["--leak", "losses", "--churn", "--steps", "100000"]);
        let (ran, said) = kill_after(run, lines);
        let (recording, truth) = (ran.recording(), ran.truth());
        let report = Report::of(&recording);
        let (n, last) = (truth.events.len(), truth.events.last().unwrap());
        let now = truth.live();
        let mut candidates = vec![now.clone()];
        if last.begins {
            candidates.push(truth.live_after(n - 1));
        }
        // A free that was noted but not made: of anything alive.
        for event in truth.events.iter().filter(|e| e.begins) {
            let mut without = now.clone();
            if let Some(bytes) = without.get_mut(&event.device) {
                *bytes = bytes.saturating_sub(event.bytes);
            }
            candidates.push(without);
        }
        assert!(candidates.contains(&report.driver_live()), "{:?} against {now:?}", report.driver_live());
        let steps = report.steps();
        assert!(
            steps == said.len() as u64 || steps == said.len() as u64 + 1,
            "{steps} steps, {} lines",
            said.len()
        );
        let step = said.len() as u64;
        let words: Vec<&str> = said[step as usize - 1].split_whitespace().collect();
        let at = Report::at(&recording, step);
        assert_eq!(at.device(0, "block_bytes").to_string(), words[3], "{words:?}");
        assert_eq!(at.device(0, "reserved_bytes").to_string(), words[5], "{words:?}");
        assert_eq!(report.end(), "killed");
        report.assert_whole();
    }
}
