//! The commands as a whole: help, usage errors that say what was meant, completions, the manual page, and
//! `run`, which hands signals on.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::grows::{python, run_leaktrace, text};
use crate::common::programs::{bare_cudart, line_of, script};
use crate::common::report::leaktrace;
use crate::common::{library, root};
use tempfile::TempDir;

const COMMANDS: [&str; 13] = [
    "run",
    "attach",
    "detach",
    "report",
    "check",
    "diff",
    "export",
    "top",
    "doctor",
    "jupyter",
    "completions",
    "man",
    "help",
];
const TOPICS: [&str; 10] =
    ["report", "steps", "stacks", "formats", "environment", "files", "exit-status", "limits", "ci", "fleet"];

#[test]
fn every_command_has_short_help_with_examples() {
    let all = text(&run_leaktrace(root(), &["--help"]), 0);
    for command in COMMANDS {
        assert!(all.contains(&format!("\n  {command} ")), "{command}\n{all}");
        let help = text(&run_leaktrace(root(), &[command, "--help"]), 0);
        let usage = format!("Usage: leaktrace {command}");
        assert!(help.contains(&usage), "{help}");
        assert!(help.lines().count() <= 50, "{command}: {} lines", help.lines().count());
        assert!(help.lines().all(|l| l.chars().count() <= 120), "{help}");
        // Examples are not broken in two on a terminal of 80 columns.
        let examples = help.lines().filter(|l| l.starts_with("  leaktrace ") || l.starts_with("  git "));
        assert!(examples.clone().all(|l| l.chars().count() <= 80), "{help}");
        if command != "man" {
            assert!(
                help.contains("Examples:") && help.contains(&format!("\n  leaktrace {command}")),
                "{help}"
            );
        }
    }
}

#[test]
fn the_reference_by_topic_is_part_of_the_manual() {
    let (all, page) = (text(&run_leaktrace(root(), &["help"]), 0), text(&run_leaktrace(root(), &["man"]), 0));
    assert_eq!(all, text(&run_leaktrace(root(), &["--help"]), 0));
    for topic in TOPICS {
        let told = text(&run_leaktrace(root(), &["help", topic]), 0);
        let first = told.lines().next().unwrap().trim_start_matches("-- ");
        let (title, what) = first.split_once(": ").unwrap_or((first, first));
        assert!(all.contains(&format!("\n  {topic:<12} {what}\n")), "{topic}\n{all}");
        let section = page.split_once(&format!("\n.SH \"{}\"\n", title.to_uppercase()));
        let section = section.or_else(|| page.split_once(&format!("\n.SH {}\n", title.to_uppercase())));
        let section = section.unwrap_or_else(|| panic!("{topic}: {page}")).1;
        let plain = |text: &str| text.replace("\\-", "-").replace("\\&", "");
        // The last line of a topic stands in the page as it does there.
        let last = told.lines().last().unwrap();
        assert!(
            plain(section).contains(&last.replace('\'', "\\*(Aq")) || plain(section).contains(last),
            "{last}"
        );
    }
    let run = text(&run_leaktrace(root(), &["help", "run"]), 0);
    assert!(run.contains("Usage: leaktrace run"), "{run}");
    let out = run_leaktrace(root(), &["help", "nothing"]);
    let why = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(2) && why.contains("exit-status"), "{why}");
}

/// Every variable that the sources name is described, and no other one.
#[test]
fn the_environment_is_described() {
    /// Variables of tests, benchmarks and parts of leaktrace among themselves.
    const INTERNAL: [&str; 5] = [
        "LEAKTRACE_BENCH",
        "LEAKTRACE_CHECK_STACKS",
        "LEAKTRACE_DRAW",
        "SIMGPU_TEST_CHILD",
        "SIMGPU_TEST_EXPORT",
    ];
    let told = text(&run_leaktrace(root(), &["help", "environment"]), 0);
    let described: BTreeSet<&str> =
        told.lines().filter_map(|l| l.strip_prefix("  ")?.split(' ').next()).collect();
    let is_ours = |name: &&str| name.starts_with("LEAKTRACE") || name.starts_with("SIMGPU_");
    let mut named = BTreeSet::new();
    for file in ["src", "cuda/driver"].iter().flat_map(|folder| sources(&root().join(folder))) {
        // Names are literals of their own.
        let source = fs::read_to_string(file).unwrap();
        let literals = source.split('"').filter(is_ours);
        let names = literals.filter(|l| l.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
        named.extend(names.filter(|n| !INTERNAL.contains(n)).map(str::to_owned));
    }
    let named: BTreeSet<&str> = named.iter().map(String::as_str).collect();
    let described: BTreeSet<&str> = described.into_iter().filter(is_ours).collect();
    assert_eq!(described, named);
}

/// The Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let below = |path: PathBuf| match path.is_dir() {
        true => sources(&path),
        false => vec![path].into_iter().filter(|p| p.extension().is_some_and(|e| e == "rs")).collect(),
    };
    entries.flat_map(below).collect()
}

#[test]
fn wrong_usage_tells_what_was_meant() {
    for (args, words) in [
        (&["reprot"][..], "'report'"),
        (&["report", "--formt", "json", "x"], "'--format'"),
        (&["check", "x", "--fail-on", "leaks"], "'leak'"),
        (&["report", "--format", "jsn", "x"], "'json'"),
        (&["report", "no-such.ltrace"], "no-such.ltrace: No such file"),
        (&["diff"], "<A>"),
        (&["run"], "<CMD>"),
        (&["run", "--otu", "x.ltrace", "--", "true"], "there is no option --otu"),
        (&["doctor", "-q", "true"], "there is no option -q"),
        (&["run", "--step", "every:", "--", "true"], "range:NAME"),
        (&["run", "--step", "optimiser", "--", "true"], "did you mean `optimizer`?"),
        (&["run", "-o", "/tmp", "--", "true"], "/tmp is a folder"),
        (&["run", "--out", "/proc/none/x.ltrace", "--", "true"], "/proc cannot be written"),
        (&["run", "--out", "x.%q.ltrace", "--", "true"], "%q is not understood"),
        (&["train.py", "--lr", "1"], "leaktrace run train.py --lr 1"),
        (&["python3", "train.py"], "leaktrace run python3 train.py"),
    ] {
        let out = run_leaktrace(root(), args);
        let why = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(2) && why.contains(words), "{args:?}: {why}");
    }
    assert_eq!(run_leaktrace(root(), &[]).status.code(), Some(2));
    for (variable, value, words) in [
        ("LEAKTRACE_STACKS", "pyton", "did you mean `python`?"),
        ("LEAKTRACE_STEP", "nvtx", "it takes auto, optimizer"),
        ("LEAKTRACE_DUMP_EVERY", "0", "a number of steps"),
        ("LEAKTRACE", "yes", "on or off"),
    ] {
        let mut command = leaktrace();
        command.env(variable, value).env("LEAKTRACE_LIBRARY", library());
        let out = command.args(["run", "--", "echo", "started"]).output().unwrap();
        let why = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!((out.status.code(), &out.stdout[..]), (Some(2), &b""[..]), "nothing was started: {why}");
        assert!(why.contains(words) && why.contains(&format!("{variable}={value}")), "{why}");
    }
}

/// Runs `leaktrace run -- COMMAND…` in a folder; returns how it ended and the lines on the standard error.
fn recorded(folder: &Path, command: &[&str]) -> (std::process::ExitStatus, Vec<String>) {
    let mut run = leaktrace();
    run.current_dir(folder).env("LEAKTRACE_LIBRARY", library()).env_remove("LEAKTRACE_QUIET");
    let out = run.args(["run", "--"]).args(command).output().unwrap();
    let lines = String::from_utf8_lossy(&out.stderr).lines().map(str::to_owned).collect();
    (out.status, lines)
}

#[test]
fn run_says_one_line_at_the_end() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let (status, lines) = recorded(here, &["sh", "-c", "exit 3"]);
    let none = "leaktrace: nothing was recorded: no process used the GPU, or no recording could be created (a line above says \
                why); the program: exit status 3";
    assert_eq!((status.code(), &lines[..]), (Some(3), &[none.to_owned()][..]));
    let (status, lines) = recorded(here, &["sh", "-c", "kill -SEGV $$"]);
    assert_eq!(status.signal(), Some(libc::SIGSEGV));
    assert!(lines.len() == 1 && lines[0].contains("the program: killed by SIGSEGV"), "{lines:?}");
    let (python, program, runtime) = (python(), script("grows.py"), bare_cudart());
    let grows = [python.to_str().unwrap(), program.to_str().unwrap(), runtime.to_str().unwrap()];
    let (status, lines) = recorded(here, &[&grows[..], &["40", "--first", "3072", "--kill", "30"]].concat());
    assert_eq!((status.signal(), lines.len()), (Some(9), 1), "{lines:?}");
    assert!(lines[0].starts_with("leaktrace: 1 leak: 3.0 KiB per step at "), "{lines:?}");
    assert!(
        lines[0].contains("; the program: killed by SIGKILL; read more: leaktrace report leaktrace."),
        "{lines:?}"
    );
    // Of several processes one line, too.
    let both = format!("{0} 40 --first 512; {0} 40 --first 512", grows.join(" "));
    let (status, lines) = recorded(here, &["sh", "-c", &both]);
    assert_eq!((status.code(), lines.len()), (Some(0), 1), "{lines:?}");
    let leak =
        format!("512 B per step at grows.py:{} first", line_of("grows.py", "# the first line that keeps"));
    assert!(
        lines[0].starts_with(&format!(
            "leaktrace: 1 leak in 2 recordings, on all of them: {leak}; the program: exit"
        )),
        "{lines:?}"
    );
    // The newest run is what a report without a name is about.
    let told = text(&run_leaktrace(here, &["report"]), 0);
    assert!(told.starts_with("1 leak in 2 recordings, on all of them"), "{told}");
    let all = text(&run_leaktrace(here, &["report", "."]), 0);
    assert!(all.starts_with("3 recordings of 2 runs, the newest first"), "{all}");
    let mut quiet = leaktrace();
    quiet.current_dir(here).env("LEAKTRACE_LIBRARY", library()).env("LEAKTRACE_QUIET", "1");
    assert_eq!(quiet.args(["run", "--", "true"]).output().unwrap().stderr, b"");
    let empty = TempDir::new().unwrap();
    let out = run_leaktrace(empty.path(), &["report"]);
    assert!(out.status.code() == Some(2) && String::from_utf8_lossy(&out.stderr).contains("leaktrace run"));
}

#[test]
fn the_program_does_not_outlive_a_run_that_is_killed() {
    let folder = TempDir::new().unwrap();
    let mut command = leaktrace();
    command.current_dir(folder.path()).env("LEAKTRACE_LIBRARY", library()).env_remove("LEAKTRACE_QUIET");
    command.stdout(Stdio::piped()).args(["run", "--", "sh", "-c", "echo ready; exec sleep 1000"]);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    child.kill().unwrap();
    child.wait().unwrap();
    // The pipe's last writer is gone.
    assert!(lines.next().is_none());
}

#[test]
fn completions_and_the_manual() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&run_leaktrace(root(), &["completions", shell]), 0);
        assert!(script.contains("write-baseline") && script.contains("leaktrace"), "{shell}");
    }
    let page = text(&run_leaktrace(root(), &["man"]), 0);
    assert!(page.contains(".TH leaktrace 1"), "{page}");
    for command in COMMANDS {
        assert!(page.contains(&format!(".SH LEAKTRACE {}", command.to_uppercase())), "{command}");
    }
    for section in ["ENVIRONMENT", "FILES", "EXIT STATUS"] {
        assert!(
            page.contains(&format!("\n.SH {section}\n")) || page.contains(&format!("\n.SH \"{section}\"\n")),
            "{section}"
        );
    }
    assert!(!page.contains("leaktrace\\-run(1)"), "pages that do not exist are not referred to");
}

#[test]
fn the_library_carries_nothing_of_the_programs() {
    use object::{Object, ObjectSymbol};
    let bytes = std::fs::read(crate::common::library()).unwrap();
    let library = object::File::parse(&*bytes).unwrap();
    // Mangled names alone: those of codegen units are hashes, in which any word may occur.
    let names = library.symbols().filter_map(|s| s.name().ok()).filter(|n| n.starts_with("_"));
    let names: Vec<&str> = names.collect();
    assert!(names.iter().any(|n| n.contains("leaktrace")), "the library has its symbols");
    for room in ["ratatui", "crossterm", "indicatif", "anstream", "clap", "signal_hook", "rustix"] {
        let carried: Vec<_> = names.iter().filter(|n| n.contains(room)).take(3).collect();
        assert!(carried.is_empty(), "{room}: {carried:?}");
    }
}

/// `leaktrace run --fail-on leak -- signals.py ARGS…`, ready for signals.
fn supervised(folder: &TempDir, args: &[&str]) -> (Child, impl FnMut() -> String) {
    let mut command = leaktrace();
    command.current_dir(folder.path()).env("LEAKTRACE_LIBRARY", library()).stdout(Stdio::piped());
    command.args(["run", "--fail-on", "leak", "--"]).arg(python()).arg(script("signals.py")).args(args);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line = move || lines.next().expect("a line").unwrap();
    assert_eq!(line(), "ready");
    (child, line)
}

fn send(child: &Child, signal: libc::c_int) {
    // SAFETY: a signal to a child of ours that was not waited for yet.
    unsafe { libc::kill(child.id() as i32, signal) };
}

#[test]
fn every_signal_goes_on_to_the_program_and_its_end_is_ours() {
    let folder = TempDir::new().unwrap();
    let (mut child, mut line) = supervised(&folder, &["SIGTERM"]);
    for (signal, name) in [
        (libc::SIGINT, "SIGINT"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGUSR1, "SIGUSR1"),
        (libc::SIGUSR2, "SIGUSR2"),
        (libc::SIGWINCH, "SIGWINCH"),
        (libc::SIGTERM, "SIGTERM"),
    ] {
        send(&child, signal);
        assert_eq!(line(), name);
    }
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM), "as the program ended");
    let (mut child, mut line) = supervised(&folder, &["SIGINT", "7"]);
    send(&child, libc::SIGINT);
    assert_eq!((line().as_str(), child.wait().unwrap().code()), ("SIGINT", Some(7)));
}

#[test]
fn the_terminals_keys_reach_the_program_once() {
    let folder = TempDir::new().unwrap();
    let mut command = Command::new(python());
    command.current_dir(folder.path()).env("LEAKTRACE_LIBRARY", library()).env("WORD", "ready");
    command.arg(script("terminal.py")).args(["80", "\x03", env!("CARGO_BIN_EXE_leaktrace")]);
    command.args(["run", "--"]).arg(python()).arg(script("signals.py"));
    let told = text(&command.args(["SIGUSR1", "0", "--echo"]).output().unwrap(), 0);
    // SIGUSR1 came after what leaktrace would have handed on of the key.
    assert_eq!(told.matches("SIGINT").count(), 1, "{told}");
    assert!(told.contains("SIGUSR1"), "{told}");
}

#[test]
fn what_was_ignored_stays_ignored_in_the_program() {
    let ignored = "trap '' HUP; exec \"$0\" run -- grep SigIgn /proc/self/status";
    let mut command = Command::new("sh");
    command.env("LEAKTRACE_LIBRARY", library()).args(["-c", ignored, env!("CARGO_BIN_EXE_leaktrace")]);
    let told = text(&command.output().unwrap(), 0);
    let mask = u64::from_str_radix(told.trim().rsplit('\t').next().unwrap(), 16).unwrap();
    assert_eq!(mask & 1, 1, "SIGHUP is ignored, as under nohup: {told}");
}
