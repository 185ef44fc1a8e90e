//! `leaktrace attach` and `detach`: programs that run untraced are recorded from some moment on, and are afterwards as they
//! were.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::programs::{driver_calls, free_threaded, line_of, pythons, script, torch};
use crate::common::report::{Report, leaktrace};
use crate::common::{Run, Running, library};
use tempfile::TempDir;

/// Returns whether gdb is here, which attaching to CPython before 3.14 takes, or lldb. Says so if not.
fn has_gdb() -> bool {
    has("gdb")
}

fn has(debugger: &str) -> bool {
    let here = Command::new(debugger).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !here {
        println!("skipped: {debugger} is not installed");
    }
    here
}

/// A program that runs, and the folder in which it looks for the file `stop`.
struct Program {
    run: Running,
    out: BufReader<std::process::ChildStdout>,
    folder: PathBuf,
}

impl Program {
    /// Starts it, and waits until it says `ready`.
    fn start(run: Run) -> Program {
        let folder = run.folder();
        let mut run = run.start();
        let mut program = Program { out: BufReader::new(run.child.stdout.take().unwrap()), run, folder };
        assert_eq!(program.line(), "ready");
        program
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn pid(&self) -> u32 {
        self.run.child.id()
    }

    /// … where no debugger is found but lldb.
    fn call_with_lldb(&self, folder: &Path, args: &[&str]) -> Output {
        let only = TempDir::new().unwrap();
        let found = Command::new("sh").args(["-c", "command -v lldb"]).output().unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        std::os::unix::fs::symlink(found.trim(), only.path().join("lldb")).unwrap();
        let mut command = leaktrace();
        command.env("LEAKTRACE_LIBRARY", library()).env("PATH", only.path()).current_dir(folder);
        command.args(args).arg(self.pid().to_string()).output().unwrap()
    }

    /// Runs `leaktrace ARGS… PID` in a folder.
    fn call(&self, folder: &Path, args: &[&str]) -> Output {
        call(folder, args, self.pid())
    }

    fn stop(&self) {
        fs::write(self.folder.join("stop"), "").unwrap();
    }

    /// Has it end, and returns what it said and its standard error.
    fn end(mut self) -> (String, String) {
        self.stop();
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        let ran = self.run.wait().success();
        (text, ran.stderr)
    }

    fn maps(&self) -> Vec<Mapping> {
        fs::read_to_string(format!("/proc/{}/maps", self.pid())).unwrap().lines().map(Mapping::of).collect()
    }

    /// Returns the words in the data of libraries and of the program that hold addresses of our library, and the words of
    /// `named` beside them: address and value.
    fn words(&self, named: &[u64]) -> BTreeMap<u64, u64> {
        let maps = self.maps();
        let ours: Vec<&Mapping> = maps.iter().filter(|m| m.path.contains("libleaktrace.so")).collect();
        let memory = fs::File::open(format!("/proc/{}/mem", self.pid())).unwrap();
        let mut found = BTreeMap::new();
        for m in maps.iter().filter(|m| m.path.starts_with('/') && !m.path.contains("libleaktrace.so")) {
            // The interpreter's queue of calls holds also those that were made, until others take their place.
            let name = m.path.rsplit('/').next().unwrap_or_default();
            let is_interpreter = name.starts_with("libpython") || name.starts_with("python");
            if m.is_code || !m.is_private || is_interpreter {
                continue;
            }
            let mut bytes = vec![0; (m.end - m.start) as usize];
            if memory.read_exact_at(&mut bytes, m.start).is_err() {
                continue;
            }
            for (i, word) in bytes.chunks_exact(8).enumerate() {
                let (address, value) = (m.start + 8 * i as u64, u64::from_le_bytes(word.try_into().unwrap()));
                if named.contains(&address) || ours.iter().any(|m| (m.start..m.end).contains(&value)) {
                    found.insert(address, value);
                }
            }
        }
        found
    }

    /// Returns the signals that it catches or ignores, and its threads.
    fn state(&self) -> (Vec<u64>, usize) {
        // The C library's own two, which it catches from the first thread on.
        const INTERNAL: u64 = 3 << 31;
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        fn of(line: &str) -> Option<&str> {
            line.strip_prefix("SigCgt:").or(line.strip_prefix("SigIgn:")).map(str::trim)
        }
        let mask = |text: &str| u64::from_str_radix(text, 16).unwrap() & !INTERNAL;
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap().count();
        (status.lines().filter_map(|line| of(line).map(mask)).collect(), tasks)
    }
}

struct Mapping {
    start: u64,
    end: u64,
    is_code: bool,
    is_private: bool,
    path: String,
}

impl Mapping {
    fn of(line: &str) -> Mapping {
        let fields: Vec<&str> = line.splitn(6, ' ').collect();
        let (start, end) = fields[0].split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        Mapping {
            start: number(start),
            end: number(end),
            is_code: fields[1].contains('x'),
            is_private: fields[1].ends_with('p'),
            path: fields.get(5).map_or("", |path| path.trim_start()).to_owned(),
        }
    }
}

fn call(folder: &Path, args: &[&str], pid: u32) -> Output {
    let mut command = leaktrace();
    command.env("LEAKTRACE_LIBRARY", library()).current_dir(folder);
    command.args(args).arg(pid.to_string()).output().unwrap()
}

/// Returns the standard output; the command must have ended with this status.
#[track_caller]
fn text(out: &Output, status: i32) -> String {
    let (text, err) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(status), "── stdout\n{text}\n── stderr\n{err}");
    text.into_owned()
}

/// Returns the one line by which the command says why it cannot.
#[track_caller]
fn refusal(out: &Output) -> String {
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!((out.status.code(), err.lines().count()), (Some(2), 1), "{err}");
    err
}

/// Returns the one recording in a folder.
#[track_caller]
fn recording(folder: &Path) -> PathBuf {
    let all = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let mut all: Vec<PathBuf> = all.filter(|p| p.extension().is_some_and(|e| e == "ltrace")).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// Returns the line that most of the live memory was allocated at.
fn first_line(report: &Report) -> u64 {
    report.retained()[0]["allocated_at"]["line"].as_u64().unwrap()
}

#[test]
fn a_leak_is_found_and_the_program_is_as_it_was() {
    if !has_gdb() {
        return;
    }
    let untraced = Program::start(torch("attached.py")).end();
    let program = Program::start(torch("attached.py"));
    let folder = TempDir::new().unwrap();
    let before = program.state();
    text(&program.call(folder.path(), &["attach"]), 0);
    let led_here = program.words(&[]);
    assert!(led_here.len() >= 6, "{led_here:x?}");
    text(&program.call(folder.path(), &["detach"]), 0);
    let addresses: Vec<u64> = led_here.keys().copied().collect();
    let put_back = program.words(&addresses);
    let ours: Vec<Mapping> =
        program.maps().into_iter().filter(|m| m.path.contains("libleaktrace.so")).collect();
    for (address, value) in &put_back {
        assert!(!ours.iter().any(|m| (m.start..m.end).contains(value)), "{address:x} still leads here");
    }
    assert_eq!(put_back.len(), led_here.len());
    assert_eq!(program.state(), before);
    // Once more, now with steps to wait for, and to another place.
    let out = program.call(folder.path(), &["attach", "--steps", "60", "--out", "second/%p.ltrace"]);
    let told = text(&out, 0);
    let line = line_of("attached.py", "the line that leaks");
    for words in [
        "1 leak: ",
        &format!("attached.py:{line} step, held by `history"),
        "detached after",
        "allocated before attaching ",
        "live bytes equal PyTorch's own counters",
    ] {
        assert!(told.contains(words), "{words}\n{told}");
    }
    assert_eq!(program.state(), before);
    assert_eq!(program.words(&[]), BTreeMap::new());
    let report = Report::of(&recording(&folder.path().join("second")));
    assert_eq!((report.end(), report.source()), ("detached", "optimizer"));
    for figure in ["frees_without_allocation", "dropped_events", "allocations_without_free"] {
        assert_eq!(report.coverage(figure), 0, "{figure}\n{told}");
    }
    assert!(report.device(0, "before_attaching_bytes") > 256 * 256 * 4, "{told}");
    assert_eq!(program.end(), untraced);
}

/// A gdb that notes each call, and ends only when the program has done what it was asked for, or not for a long while.
const GDB: &str = r#"#!/bin/sh
echo called >>"$GDB_CALLS"
for argument; do commands=$argument; done
"$REAL_GDB" "$@"
for _ in $(seq 200); do
    [ -e "${commands%/*}/taken" ] && break
    sleep 0.1
done
"#;

#[test]
fn the_main_thread_does_what_it_is_asked_for() {
    if !has_gdb() {
        return;
    }
    let real = Command::new("sh").args(["-c", "command -v gdb"]).output().unwrap();
    let folder = TempDir::new().unwrap();
    let gdb = folder.path().join("gdb");
    fs::write(&gdb, GDB).unwrap();
    fs::set_permissions(&gdb, fs::Permissions::from_mode(0o755)).unwrap();
    let calls = folder.path().join("calls");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let program = Program::start(torch("attached.py"));
    let mut command = leaktrace();
    command.env("LEAKTRACE_LIBRARY", library()).env("PATH", path).env("GDB_CALLS", &calls);
    command.env("REAL_GDB", String::from_utf8(real.stdout).unwrap().trim()).current_dir(folder.path());
    text(&command.args(["attach", "--timeout", "60"]).arg(program.pid().to_string()).output().unwrap(), 0);
    // A second call asks any thread.
    assert_eq!(fs::read_to_string(calls).unwrap(), "called\n");
    program.end();
}

#[test]
fn twice_and_not_at_all() {
    if !has_gdb() {
        return;
    }
    let program = Program::start(torch("attached.py"));
    let (folder, pid) = (TempDir::new().unwrap(), program.pid());
    assert!(
        refusal(&program.call(folder.path(), &["detach"])).contains(&format!("{pid} is not attached to"))
    );
    text(&program.call(folder.path(), &["attach"]), 0);
    let again = refusal(&program.call(folder.path(), &["attach", "--steps", "9"]));
    assert!(again.contains("already attached to: leaktrace."), "{again}");
    // Killed while it is recorded: all that was recorded stands.
    program.run.kill();
    let report = Report::of(&recording(folder.path()));
    assert_eq!(report.end(), "killed");
    assert!(refusal(&call(folder.path(), &["attach"], pid)).contains(&format!("no process {pid}")));
}

#[test]
fn one_that_ends_meanwhile() {
    if !has_gdb() {
        return;
    }
    let program = Program::start(torch("attached.py"));
    let folder = TempDir::new().unwrap();
    text(&program.call(folder.path(), &["attach"]), 0);
    let pid = program.pid();
    let file = recording(folder.path());
    program.end();
    let report = Report::of(&file);
    assert_eq!((report.end(), &report.0["program"]["exit_status"]), ("clean", &0.into()));
    assert!(refusal(&call(folder.path(), &["detach"], pid)).contains("no process"));
}

#[test]
fn a_main_thread_that_waits_for_another() {
    if !has_gdb() {
        return;
    }
    let program = Program::start(torch("attached.py").arg("--join"));
    let folder = TempDir::new().unwrap();
    let told = text(&program.call(folder.path(), &["attach", "--steps", "40"]), 0);
    assert!(told.contains("1 leak: "), "{told}");
    assert!(program.end().0.ends_with("[]\n"));
}

#[test]
fn lldb_asks_where_there_is_no_gdb() {
    if !has("lldb") {
        return;
    }
    let untraced = Program::start(torch("attached.py")).end();
    // Also where the main thread waits, so that another one is asked.
    for arguments in [&[][..], &["--join"]] {
        let program = Program::start(torch("attached.py").args(arguments));
        let folder = TempDir::new().unwrap();
        let before = program.state();
        let told =
            text(&program.call_with_lldb(folder.path(), &["attach", "--steps", "40", "--timeout", "60"]), 0);
        assert!(told.contains("1 leak: ") && told.contains("held by `history"), "{told}");
        assert_eq!((program.state(), program.words(&[])), (before, BTreeMap::new()));
        assert_eq!(program.end(), untraced);
    }
    // A program that runs no Python meanwhile goes on, and is told so.
    let waits = "import ctypes; ctypes.CDLL('libcuda.so.1'); print('ready', flush=True); ctypes.CDLL(None).sleep(8); print('over')";
    let (_, python) = pythons().into_iter().find(|(version, _)| version == "3.11").unwrap();
    let program = Program::start(Run::new(&python).simulated().args(["-c", waits]));
    let folder = TempDir::new().unwrap();
    let told = refusal(&program.call_with_lldb(folder.path(), &["attach", "--timeout", "1"]));
    assert!(told.contains("and it was left as it is"), "{told}");
    assert_eq!(program.end(), ("over\n".to_owned(), String::new()));
}

#[test]
fn one_in_a_long_call_is_left_as_it_is() {
    if !has_gdb() {
        return;
    }
    let waits = "import ctypes; ctypes.CDLL('libcuda.so.1'); print('ready', flush=True); ctypes.CDLL(None).sleep(8); print('over')";
    // One that gdb asks, and one that is asked by its own means, where that is here.
    for (version, python) in
        pythons().into_iter().filter(|(version, _)| version == "3.11" || version == "3.14")
    {
        let program = Program::start(Run::new(&python).simulated().args(["-c", waits]));
        let folder = TempDir::new().unwrap();
        let told = refusal(&program.call(folder.path(), &["attach", "--timeout", "2"]));
        assert!(
            told.contains("and was left as it is") || told.contains("and it was left as it is"),
            "{version}: {told}"
        );
        // Whoever was asked and comes late does nothing.
        assert_eq!(program.end(), ("over\n".to_owned(), String::new()), "{version}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn every_python() {
    let gdb = has_gdb();
    for (version, python) in pythons().into_iter().chain(free_threaded()) {
        let minor: u32 = version.trim_start_matches("3.").trim_end_matches('t').parse().unwrap();
        if !gdb && minor < 14 {
            continue;
        }
        println!("{version}");
        let program = Program::start(Run::new(&python).simulated().arg(script("attached_driver.py")));
        let folder = TempDir::new().unwrap();
        let before = program.state();
        text(&program.call(folder.path(), &["attach", "--seconds", "1"]), 0);
        assert_eq!((program.state(), program.words(&[])), (before, BTreeMap::new()), "{version}");
        let report = Report::of(&recording(folder.path()));
        assert_eq!(first_line(&report), line_of("attached_driver.py", "the line that takes"), "{version}");
        assert_eq!(program.end().1, "", "{version}");
    }
}

#[test]
fn what_cannot_be_attached_to() {
    let folder = TempDir::new().unwrap();
    let attach = |pid: u32| refusal(&call(folder.path(), &["attach"], pid));
    assert!(attach(u32::MAX - 1).contains("there is no process"));
    // A program that calls the driver, and has no Python to take the library in.
    let mut program = Run::new(driver_calls("link"))
        .simulated()
        .args(["11", "100", "3", "1", "primary", "progress"])
        .start();
    let mut line = String::new();
    BufReader::new(program.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told = attach(program.child.id());
    assert!(told.contains("not a Python program") && told.contains("leaktrace run"), "{told}");
    program.kill();
    // Python, and nothing that could use a GPU.
    let (version, python) = pythons().pop().unwrap();
    let idle = "import time; print('ready', flush=True)\nwhile True: time.sleep(0.01)";
    let program = Program::start(Run::new(&python).args(["-c", idle]));
    let told = attach(program.pid());
    assert!(told.contains("neither CUDA nor"), "{version}: {told}");
    // Another user's.
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } == 0 {
        let copy = folder.path().join("leaktrace");
        fs::copy(env!("CARGO_BIN_EXE_leaktrace"), &copy).unwrap();
        let mut command = Command::new(&copy);
        command.env("LEAKTRACE_LIBRARY", library()).current_dir("/").uid(65534).gid(65534);
        command.args(["attach", "--out", "/tmp/%p.ltrace", &program.pid().to_string()]);
        fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let told = refusal(&command.output().unwrap());
        assert!(told.contains("belongs to another user"), "{told}");
    }
    program.run.kill();
}

#[test]
fn one_that_was_started_with_leaktrace() {
    if !has_gdb() {
        return;
    }
    let program = Program::start(torch("attached.py").traced());
    let folder = TempDir::new().unwrap();
    let told = refusal(&program.call(folder.path(), &["attach"]));
    assert!(told.contains("recorded since it started: "), "{told}");
    let told = refusal(&program.call(folder.path(), &["detach"]));
    assert!(told.contains("started with leaktrace"), "{told}");
    program.run.kill();
}
