//! Native stacks: every one that the fast unwinder takes is compared, inside the process, with the platform's own
//! (`LEAKTRACE_CHECK_STACKS=1`), on stacks of every kind; the recording says how that went.

use std::path::PathBuf;
use std::process::Command;

use crate::common::programs::{bare_cudart, linked, torch};
use crate::common::report::Report;
use crate::common::{Ran, Run, root};

/// How stacks were taken, all processes together.
#[derive(Debug, Default)]
struct Tally {
    /// By the fast unwinder.
    taken: u64,
    different: u64,
    /// By the platform's.
    replaced: u64,
}

impl Tally {
    fn of(ran: &Ran) -> Tally {
        let mut tally = Tally::default();
        for recording in ran.recordings() {
            let report = Report::of(&recording);
            let told = report.0["coverage"]["gaps"].as_array().expect("coverage.gaps");
            let told: Vec<&str> = told.iter().filter_map(|note| note.as_str()).collect();
            let mut sum =
                told.iter().filter_map(|note| note.strip_prefix("stack check: ")?.split_once(" captures, "));
            let sum = sum.next_back().unwrap_or_else(|| panic!("no stack was checked: {told:#?}"));
            let number = |text: &str| -> u64 { text.split(' ').next().unwrap().parse().unwrap() };
            tally.taken += number(sum.0);
            tally.different += number(sum.1);
            tally.replaced += number(sum.1.split_once(", ").unwrap().1);
            assert_eq!(tally.different, 0, "{told:#?}");
        }
        tally
    }
}

/// The program compiled with `flags`.
fn program(name: &str, flags: &[&str]) -> PathBuf {
    linked("unwinding.c", name, &bare_cudart(), flags)
}

fn optimised() -> PathBuf {
    program("unwinding", &["-O2", "-fomit-frame-pointer"])
}

fn checked(program: impl AsRef<std::path::Path>, args: &[&str]) -> Tally {
    let run = Run::new(program).args(args).traced();
    Tally::of(&run.env("LEAKTRACE_STACKS", "native").env("LEAKTRACE_CHECK_STACKS", "1").run().success())
}

#[test]
fn call_chains_of_four_threads() {
    for (name, flags) in [
        ("unwinding", &["-O2", "-fomit-frame-pointer"][..]),
        ("unwinding_pointers", &["-O1", "-fno-omit-frame-pointer"]),
        ("unwinding_aligned", &["-O2", "-mavx2", "-mstackrealign"]),
        ("unwinding_plain", &["-O0"]),
    ] {
        let tally = checked(program(name, flags), &["threads", "2000"]);
        assert!(tally.taken >= 50_000, "{name}: {tally:?}");
        // Chains deeper than what is kept.
        assert!(tally.replaced * 100 < tally.taken, "{name}: {tally:?}");
    }
}

#[test]
fn code_without_tables_ends_the_stack() {
    let flags = ["-O1", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    let tally = checked(program("unwinding_untold", &flags), &["threads", "100"]);
    assert!(tally.taken > 3_000, "{tally:?}");
}

#[test]
fn a_stack_that_ends_too_early_says_so() {
    let flags = ["-O1", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    for (program, truncated) in [(program("unwinding_untold", &flags), true), (optimised(), false)] {
        let run = Run::new(program).args(["keep"]).traced().env("LEAKTRACE_STACKS", "native");
        let report = Report::of(&run.run().success().recording());
        let stack = &report.retained()[0]["stack"];
        let last = stack.as_array().unwrap().last().unwrap();
        assert_eq!(last["function"] == "<the stack goes on>", truncated, "{stack:#}");
    }
}

/// Found with greenlets: the platform's unwinder looks for a signal frame's instructions at a return address that no
/// module has, and died of it.
#[test]
fn a_return_address_where_nothing_is() {
    let run = Run::new(optimised()).args(["stray"]).traced().env("LEAKTRACE_STACKS", "native");
    let report = Report::of(&run.run().success().recording());
    let stack = report.retained()[0]["stack"].as_array().unwrap();
    let functions: Vec<_> = stack.iter().map(|frame| frame["function"].as_str().unwrap()).collect();
    assert_eq!((functions[0], functions.len()), ("astray", 3), "{functions:?}");
    assert_eq!(functions[2], "<the stack goes on>", "{functions:?}");
}

#[test]
fn signal_handlers_on_either_stack() {
    let tally = checked(optimised(), &["signals"]);
    assert!(tally.taken > 4_000, "{tally:?}");
}

#[test]
fn after_every_instruction_of_a_call() {
    for (name, flags) in [
        ("unwinding", &["-O2", "-fomit-frame-pointer"][..]),
        ("unwinding_pointers", &["-O1", "-fno-omit-frame-pointer"]),
    ] {
        let tally = checked(program(name, flags), &["stepping"]);
        assert!(tally.taken > 1_000, "{name}: {tally:?}");
        assert!(tally.replaced < 10, "{name}: {tally:?}");
    }
}

#[test]
fn coroutines_whose_stacks_come_and_go() {
    let tally = checked(optimised(), &["fibers", "300"]);
    assert!(tally.taken > 4_000 && tally.replaced > 3_000, "{tally:?}");
}

#[test]
fn the_smallest_stacks_and_the_last_words_of_threads() {
    let tally = checked(optimised(), &["small"]);
    assert!(tally.taken > 9_000 && tally.replaced >= 50, "{tally:?}");
}

#[test]
fn libraries_that_follow_one_another() {
    let library = |size: &str| {
        let flags = ["-shared", "-fPIC", "-Wl,-z,lazy", &format!("-DPLUGIN={size}")];
        linked("unwinding.c", &format!("plugin_{size}.so"), &bare_cudart(), &flags)
    };
    // The same instructions at the same addresses, but for the size of the frames.
    let (small, large) = (library("1000"), library("3000"));
    let libraries = [small.to_str().unwrap(), large.to_str().unwrap()];
    let tally = checked(optimised(), &["plugins", "40", libraries[0], libraries[1]]);
    assert!(tally.taken > 1_500, "{tally:?}");
}

#[test]
fn forked_children_go_on() {
    let tally = checked(optimised(), &["children"]);
    assert!(tally.taken > 5 * 1_000, "{tally:?}");
}

/// A folder with greenlets for the Python that has PyTorch; why there is none.
fn greenlets() -> Result<PathBuf, String> {
    let made = Command::new(root().join("scripts/dev/greenlets-env")).output().map_err(|e| e.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if made.status.success() { Ok(text(&made.stdout).into()) } else { Err(text(&made.stderr)) }
}

/// Threads that train, from functions, generators, greenlets and hooks of a backward pass over CPU tensors.
#[test]
fn training_in_many_ways() {
    let greenlets = greenlets();
    for stacks in ["native", "mixed"] {
        let mut run = torch("unwinding.py").arg("60000").traced().env("LEAKTRACE_STACKS", stacks);
        match &greenlets {
            Ok(folder) => run = run.env("PYTHONPATH", folder),
            Err(why) => eprintln!("left out: greenlets, which cannot be had: {why}"),
        }
        let ran = run.env("LEAKTRACE_CHECK_STACKS", "1").run().success();
        let tally = Tally::of(&ran);
        println!(
            "{stacks}: {} stacks compared, {} differences; {}",
            tally.taken,
            tally.different,
            ran.text()
        );
        let turns: u64 = ran.text().split(' ').next().unwrap().parse().unwrap();
        assert!(turns > 20 || greenlets.is_err(), "{stacks}: {turns} turns of greenlets");
        assert!(tally.taken >= 50_000 && tally.replaced < 1_000, "{stacks}: {tally:?}");
    }
}
