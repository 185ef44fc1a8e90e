//! A process that allocates nothing on a GPU stays as it was: no file, no output, no other exit status.

use crate::common::programs::{bare_cudart, driver_calls, free_threaded, linked, pythons};
use crate::common::report::Report;
use crate::common::{Ran, Run};

fn same(plain: &Ran, traced: &Ran) {
    assert_eq!(plain.code(), traced.code(), "{}", traced.transcript());
    assert_eq!(plain.text(), traced.text());
    assert_eq!(plain.stderr, traced.stderr);
}

#[track_caller]
fn inert(program: &str, args: &[&str]) {
    let run = || Run::new(program).args(args);
    let (plain, traced) = (run().run(), run().traced().run());
    same(&plain, &traced);
    assert_eq!(plain.files(), traced.files(), "{program} {args:?} left a file");
}

#[test]
fn programs_without_cuda() {
    inert("true", &[]);
    inert("false", &[]);
    inert("sh", &["-c", "echo out; echo err >&2; exit 3"]);
    inert("sh", &["-c", "ls / | wc -l; (exit 4) || kill -TERM $$"]);
    inert("git", &["--version"]);
    inert("python3", &["-c", "pass"]);
    inert("python3", &["-c", "import ctypes, os; print(ctypes.CDLL(None).getpid() == os.getpid())"]);
    inert("python3", &["-c", "import subprocess; print(subprocess.run(['true']).returncode)"]);
}

#[test]
fn every_python() {
    for (version, python) in pythons().into_iter().chain(free_threaded()) {
        inert(python.to_str().unwrap(), &["-c", "import ctypes, threading; print('ok')"]);
        println!("{version}: {}", python.display());
    }
}

#[test]
fn a_driver_that_is_only_asked() {
    let ask = "import ctypes
driver = ctypes.CDLL('libcuda.so.1')
count, free = ctypes.c_int(), ctypes.c_size_t()
assert driver.cuInit(0) == 0
assert driver.cuDeviceGetCount(ctypes.byref(count)) == 0
assert driver.cuMemFree_v2(ctypes.c_ulonglong(0)) != 12345
print(count.value)";
    let run = || Run::new("python3").simulated().args(["-c", ask]);
    let (plain, traced) = (run().run().success(), run().traced().run());
    same(&plain, &traced);
    assert_eq!(plain.text(), "1\n");
    assert_eq!(traced.files(), Vec::<String>::new());
}

#[test]
fn switched_off() {
    let program = driver_calls("proc");
    let run = || Run::new(&program).simulated().args(["11", "300", "3", "1", "primary", "keep"]);
    // Each line ends with the length of the simulated GPU's log, which names the thread: its number may have
    // more digits in one of the runs.
    let lines = |ran: &Ran| -> Vec<String> {
        ran.text().lines().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    };
    let plain = run().run().success();
    for value in ["off", "0"] {
        let traced = run().traced().env("LEAKTRACE", value).run().success();
        assert_eq!(lines(&plain), lines(&traced));
        assert_eq!(plain.stderr, traced.stderr);
        assert_eq!(traced.files(), Vec::<String>::new());
    }
}

#[test]
fn quiet_or_a_few_lines() {
    let program = driver_calls("dlsym");
    let run = || Run::new(&program).simulated().traced().args(["12", "300", "12", "1", "primary", "keep"]);
    let quiet = run().env("LEAKTRACE_QUIET", "1").run().success();
    assert_eq!(quiet.stderr, "");
    let told = run().run().success();
    let lines: Vec<&str> = told.stderr.lines().collect();
    assert!((1..=8).contains(&lines.len()), "{}", told.stderr);
    let recording = told.recording();
    let name = recording.file_name().unwrap().to_str().unwrap();
    assert!(lines.last().unwrap().contains(&format!("leaktrace report {name}")), "{}", told.stderr);
    assert!(lines[0].starts_with("leaktrace: "), "{}", told.stderr);
}

#[test]
fn children_of_a_traced_program_are_left_alone() {
    let program = linked("endings.c", "endings", &bare_cudart(), &[]);
    let script = format!("true; git --version; '{}' return; exit $?", program.display());
    let ran = Run::new("sh").traced().args(["-c", &script]).env("LEAKTRACE_QUIET", "1").run();
    assert_eq!(ran.code(), 11, "{}", ran.transcript());
    assert_eq!(Report::of(&ran.recording()).device(0, "live_bytes"), 1001);
}
