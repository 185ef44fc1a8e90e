//! Python stacks against `traceback.extract_stack`, on every CPython of this machine, through a runtime that ctypes
//! loads RTLD_LOCAL and calls without the GIL.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::programs::{
    bare_cudart, compile, free_threaded, linked, named, pythons, script, torch, torch_at, torch_python,
};
use crate::common::report::{Report, call, frames};
use crate::common::{Run, folded};
use serde_json::Value;

/// Places from the innermost out, each with the names it may go by.
type Places = Vec<Place>;
type Place = (String, u64, Vec<String>);

/// The stacks that Python told of: where, bytes, number.
fn expected(told: &Value) -> Vec<(Places, u64, u64)> {
    let mut sums: BTreeMap<Places, (u64, u64)> = BTreeMap::new();
    for (bytes, stack) in told.as_object().unwrap() {
        let places = stack.as_array().unwrap().iter().map(|frame| {
            let names = frame[2].as_array().unwrap().iter().map(|n| n.as_str().unwrap().to_owned());
            (frame[0].as_str().unwrap().to_owned(), frame[1].as_u64().unwrap(), names.collect())
        });
        let sum = sums.entry(folded(places.collect(), |a, b| (&a.0, &a.2) == (&b.0, &b.2))).or_default();
        *sum = (sum.0 + bytes.parse::<u64>().unwrap(), sum.1 + 1);
    }
    sums.into_iter().map(|(places, (bytes, blocks))| (places, bytes, blocks)).collect()
}

/// Compares places, whose recursion is folded, with the frames of a report.
fn agree(places: &Places, frames: Vec<(String, u64, String)>) -> bool {
    let frames = folded(frames, |a, b| (&a.0, &a.2) == (&b.0, &b.2));
    let is_at = |(place, f): (&Place, &(String, u64, String))| {
        place.0 == f.0 && place.1 == f.1 && place.2.contains(&f.2)
    };
    places.len() == frames.len() && places.iter().zip(&frames).all(is_at)
}

/// A virtual environment, and a Python that has all of itself in its executable (Debian's; conda's are like it).
fn other_builds(folder: &Path, pythons: &[(String, PathBuf)]) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    let (version, python) = pythons.last().unwrap();
    let made = Command::new(python).args(["-m", "venv", "--without-pip"]).arg(folder).status();
    assert!(made.unwrap().success());
    found.push((version.clone(), folder.join("bin/python")));
    let whole = Path::new("/usr/bin/python3");
    let libraries = Command::new("ldd").arg(whole).output().map(|out| out.stdout).unwrap_or_default();
    if !libraries.is_empty() && !String::from_utf8_lossy(&libraries).contains("libpython") {
        let ask = "import sys; print('%d.%d' % sys.version_info[:2])";
        let said = Command::new(whole).args(["-c", ask]).output().unwrap().stdout;
        found.push((String::from_utf8(said).unwrap().trim().to_owned(), whole.to_owned()));
    } else {
        println!("no Python without a shared libpython at {}", whole.display());
    }
    found
}

#[test]
fn python_stacks_are_pythons_own() {
    let mut pythons = pythons();
    assert!(!pythons.is_empty(), "no CPython 3.8 to 3.15 on this machine");
    let folder = tempfile::tempdir().unwrap();
    pythons.extend(other_builds(folder.path(), &pythons));
    pythons.extend(free_threaded());
    let mut wrong = Vec::new();
    for (version, python) in pythons {
        let run = Run::new(&python).args([script("stacks.py"), bare_cudart()]).env("LEAKTRACE_STEP", "api");
        let ran = run.traced().run().success();
        let told: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let report = Report::of(&ran.recording());
        let mut retained: Vec<&Value> = report.retained().iter().collect();
        let expected = expected(&told);
        for (places, bytes, blocks) in &expected {
            let found = retained.iter().position(|r| {
                (&r["live_bytes"], &r["live_blocks"]) == (&Value::from(*bytes), &Value::from(*blocks))
            });
            match found {
                Some(at) => {
                    let got = frames(&retained.remove(at)["stack"], "python");
                    if !agree(places, got.clone()) {
                        wrong.push(format!("{version}: {bytes} bytes: got {got:#?}, not {places:#?}"));
                    }
                }
                None => wrong.push(format!(
                    "{version}: nothing of {bytes} bytes in {blocks}, allocated at {places:?}"
                )),
            }
        }
        assert!(expected.len() > 35, "{version}: {} stacks", expected.len());
        if !retained.is_empty() {
            wrong.push(format!("{version}: nobody told of {retained:#?}"));
        }
        let said = report.0["program"]["python"].as_str().unwrap_or_default();
        assert!(said.contains(&named(&version)), "program.python is {said:?} on {version}");
        println!("{version}, {}: {} stacks", python.display(), expected.len());
    }
    assert!(wrong.is_empty(), "{} differences; the first: {}", wrong.len(), wrong[0]);
}

/// From 3.11 on an instruction calls from elsewhere, and without C in between, once it was specialised.
#[test]
fn a_place_is_one_stack_before_and_after_it_is_specialised() {
    for (version, python) in pythons() {
        let run = Run::new(&python).args([script("specialised.py"), bare_cudart()]).traced().run().success();
        let report = Report::of(&run.recording());
        let [finding] = report.findings() else { panic!("{version}: {:#?}", report.findings()) };
        let seen = (&finding["first_step"], &finding["cohorts"]);
        assert_eq!(seen, (&1.into(), &60.into()), "{version}: {finding:#}");
    }
}

/// Without a GIL, while other threads end, and code goes away: from 3.14 on each thread runs copies of its own.
#[test]
fn stacks_of_threads_that_run_at_once() {
    for (version, python) in free_threaded() {
        let run = Run::new(&python).args([script("free_threads.py"), bare_cudart()]).env("PYTHON_GIL", "0");
        let ran = run.env("LEAKTRACE_STEP", "api").traced().run().success();
        let told: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let report = Report::of(&ran.recording());
        let mut sums: BTreeMap<Places, (u64, u64)> = BTreeMap::new();
        for retained in report.retained() {
            let places =
                frames(&retained["stack"], "python").into_iter().map(|f| (f.0, f.1, vec![f.2])).collect();
            let sum = sums.entry(folded(places, |a: &Place, b| (&a.0, &a.2) == (&b.0, &b.2))).or_default();
            sum.0 += retained["live_bytes"].as_u64().unwrap();
            sum.1 += retained["live_blocks"].as_u64().unwrap();
        }
        let expected: BTreeMap<Places, (u64, u64)> =
            expected(&told).into_iter().map(|(places, bytes, blocks)| (places, (bytes, blocks))).collect();
        assert!(expected.len() > 25, "{version}: {} stacks", expected.len());
        let wrong: Vec<_> = sums.iter().filter(|(places, sum)| expected.get(*places) != Some(sum)).collect();
        assert!(wrong.is_empty() && sums.len() == expected.len(), "{version}: {wrong:#?}, not {expected:#?}");
        // The one that is always there.
        assert_eq!(report.coverage("gaps").as_array().map(Vec::len), Some(1), "{:#}", report.0["coverage"]);
    }
}

/// Where memory cannot be read by the kernel: the program runs as ever, and lines that may be wrong are said to be.
#[test]
fn copies_of_bytecode_in_a_sandbox() {
    let launcher = compile("refuse.c", "refuse", &[]);
    for (version, python) in free_threaded() {
        let run = Run::new(&launcher).args([libc::EPERM.to_string().as_str(), "process_vm_readv", "--"]);
        let run = run.arg(&python).args([script("free_threads.py"), bare_cudart()]).env("PYTHON_GIL", "0");
        let ran = run.env("LEAKTRACE_STEP", "api").traced().run();
        if ran.code() == 77 {
            println!("skipped: seccomp is refused here");
            return;
        }
        let ran = ran.success();
        let report = Report::of(&ran.recording());
        let gap = "the copies of bytecode that threads run cannot be read";
        let told = report.coverage("gaps").to_string().contains(gap);
        // Of 3.13 threads share what they run.
        assert_eq!(told, version != "3.13t", "{version}: {:#}", report.0["coverage"]);
        let is_first = |r: &&Value| {
            let stack = frames(&r["stack"], "python");
            stack.iter().any(|f| f.2 == "<module>") && stack[0].2 == "allocate" && stack[0].1 == 35
        };
        assert!(report.retained().iter().any(|r| is_first(&r)), "{version}: the first thread's are right");
    }
}

#[test]
fn stacks_as_asked_for() {
    let (_, python) = pythons().pop().expect("a CPython between 3.8 and 3.15");
    for (setting, with_python, with_native) in [
        ("auto", true, true),
        ("python", true, false),
        ("mixed", true, true),
        ("native", false, true),
        ("off", false, false),
    ] {
        let code = "import ctypes, sys\nrt = ctypes.CDLL(sys.argv[1])\nrt.cudaMalloc(ctypes.byref(ctypes.c_void_p()), 4321)";
        let ran = Run::new(&python).args(["-c", code]).arg(bare_cudart()).traced();
        let ran = ran.env("LEAKTRACE_STACKS", setting).run().success();
        let report = Report::of(&ran.recording());
        assert_eq!(report.retained().len(), 1, "{setting}");
        let stack = &report.retained()[0]["stack"];
        assert_eq!(!frames(stack, "python").is_empty(), with_python, "{setting}: {stack:#}");
        assert_eq!(!frames(stack, "native").is_empty(), with_native, "{setting}: {stack:#}");
    }
}

/// Whichever stacks are taken, the search for holders at the very end finds the interpreter: here it is the only one,
/// since no report is written between the steps.
#[test]
fn holders_are_searched_for_at_the_end_whatever_stacks_are_taken() {
    let (_, python) = pythons().pop().expect("a CPython between 3.8 and 3.15");
    for setting in ["auto", "python", "native", "off"] {
        let run = Run::new(&python).args([script("late_leak.py"), bare_cudart()]).traced();
        let report = Report::of(&run.env("LEAKTRACE_STACKS", setting).run().success().recording());
        let [finding] = report.findings() else { panic!("{setting}: {:#?}", report.findings()) };
        let holder = &finding["holders"][0]["path"];
        assert_eq!(holder, "__main__.kept[*]", "{setting}: {:#}", report.0["coverage"]);
    }
}

#[test]
fn a_search_that_cannot_run_at_the_end_is_a_coverage_gap() {
    let (_, python) = pythons().pop().expect("a CPython between 3.8 and 3.15");
    let run = Run::new(&python).args([script("late_leak.py"), bare_cudart(), "exit".into()]).traced();
    let report = Report::of(&run.run().success().recording());
    assert_eq!(report.findings().len(), 1, "{:#?}", report.findings());
    let said = report.coverage("gaps").to_string() + &report.0["warnings"].to_string();
    assert!(said.contains("who holds what is not searched: the interpreter was not free"), "{said}");
}

#[test]
fn a_program_that_the_loader_was_asked_to_run() {
    let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
    let program = linked("endings.c", "endings", &bare_cudart(), &["-rdynamic"]);
    let run = Run::new(loader).arg(program).arg("return").traced().env("LEAKTRACE_QUIET", "1");
    let report = Report::of(&run.run().recording());
    let native = frames(&report.retained()[0]["stack"], "native");
    assert!(native.iter().any(|f| f.2 == "main"), "{native:?}");
}

#[test]
fn builds_that_nobody_knows_the_frames_of_are_refused_by_name() {
    for (name, text, flag, why) in [
        ("debug", "3.11.2 (main, Jan  1 2024) [GCC]", Some("-DDEBUG_BUILD"), "3.11.2: a debug build"),
        ("threaded", "3.13.0 experimental free-threading build (main)", None, "3.13.0: unknown frame layout"),
        ("later", "3.99.0 (main)", None, "3.99.0: unknown frame layout"),
        ("early", "3.13.0a2 (main)", None, "3.13.0a2: not a known release"),
    ] {
        let text = format!("-DTEXT=\"{text}\"");
        let mut flags = vec!["-rdynamic", &text];
        flags.extend(flag);
        let program = linked("odd_python.c", &format!("odd_python_{name}"), &bare_cudart(), &flags);
        let ran = Run::new(program).traced().run().success();
        let report = Report::of(&ran.recording());
        let lost = "Python stacks, holders, steps from loops and runs of the garbage collector are not seen";
        assert_eq!(report.0["program"]["python"], format!("CPython {why}; {lost}"));
        // Native stacks go on.
        let native = frames(&report.retained()[0]["stack"], "native");
        assert!(native.iter().any(|f| f.2 == "main"), "{name}: {native:?}");
    }
}

#[test]
fn code_in_another_interpreter() {
    let mut met = 0;
    for (version, python) in pythons().into_iter().filter(|(v, _)| v[2..].parse::<u32>().unwrap() >= 11) {
        let run = Run::new(&python).args([script("interpreters.py"), bare_cudart()]).traced();
        let report = Report::of(&run.run().success().recording());
        let of = |bytes: u64| {
            let found = report.retained().iter().find(|r| r["live_bytes"] == bytes);
            let stack = &found.unwrap_or_else(|| panic!("{version}: nothing of {bytes} bytes"))["stack"];
            frames(stack, "python").into_iter().map(|f| f.2).collect::<Vec<_>>()
        };
        assert_eq!((of(1111), of(2222)), (vec!["first".into(), "<module>".into()], of(1111)), "{version}");
        let told = report.coverage("gaps").to_string().contains("more than one Python interpreter");
        let inside = of(4321);
        if version == "3.11" {
            assert!(told, "{version}: {:#}", report.0["coverage"]);
            assert_eq!(inside, ["second", "<module>"], "{version}");
        } else {
            assert!(!told, "{version}");
            assert_eq!(inside, ["inside", "<module>"], "{version}");
        }
        met += 1;
    }
    assert!(met > 0, "no CPython from 3.11 on, on this machine");
}

/// `columns.py` with stacks as asked for: its report, and its recording.
fn columns(stacks: &str) -> (Report, PathBuf, crate::common::Ran) {
    let run = torch("columns.py").env("LEAKTRACE_STACKS", stacks).env("LEAKTRACE_STEP", "api").traced();
    let ran = run.run().success();
    let recording = ran.recording();
    (Report::of(&recording), recording, ran)
}

/// Functions of native frames.
fn functions(frames: &Value) -> Vec<&str> {
    let frames = frames.as_array().unwrap().iter().filter(|f| f["kind"] == "native");
    frames.map(|f| f["function"].as_str().unwrap()).collect()
}

#[test]
fn python_operator_and_allocator_in_one_column() {
    let (report, recording, _ran) = columns("mixed");
    let arguments = |more: &[&str]| {
        let mut arguments = vec![recording.to_str().unwrap().to_owned()];
        arguments.extend(more.iter().map(|&a| a.to_owned()));
        String::from_utf8(call(arguments).stdout).unwrap()
    };
    let all: Value = serde_json::from_str(&arguments(&["--format", "json", "--all-frames"])).unwrap();
    let sites = |report: &Value| report["findings"][0]["sites"].as_array().unwrap().clone();
    assert_eq!(sites(&report.0).len(), 2, "{:#}", report.0["findings"]);
    for (site, whole) in sites(&report.0).iter().zip(&sites(&all)) {
        let (stack, whole) = (site["stack"].as_array().unwrap(), whole["stack"].as_array().unwrap());
        let folded: u64 = stack.iter().map(|f| f["hidden_frames"].as_u64().unwrap_or(0)).sum();
        assert!(folded > 5 && stack.len() as u64 + folded == whole.len() as u64, "{site:#}");
        assert!(whole.iter().all(|f| f.get("hidden_frames").is_none()));
        let (shown, all) =
            (functions(&site["stack"]).join("\n"), functions(&Value::from(whole.clone())).join("\n"));
        for (machinery, expected) in [
            ("PyEval_", false),
            ("c10::impl::wrap_kernel_functor", false),
            ("VariableType::", false),
            ("at::", true),
        ] {
            assert_eq!(
                (shown.contains(machinery), all.contains(machinery)),
                (expected, true),
                "{machinery}: {shown}"
            );
        }
        // Innermost the allocator, then the operator, then the line: not one list after the other.
        let kinds: Vec<&str> = stack.iter().map(|f| f["kind"].as_str().unwrap()).collect();
        let line = kinds.iter().position(|k| *k == "python").unwrap();
        assert_eq!(stack[line]["function"], "keep");
        assert!(line >= 2 && kinds[line..].iter().filter(|k| **k == "python").count() == 3, "{kinds:?}");
    }
    let text = arguments(&["--all"]);
    let operator = text.find("mul").unwrap();
    let clean = ["PyEval_", "python3.11+0x", "wrap_kernel"].iter().all(|machinery| !text.contains(machinery));
    assert!(clean && text[operator..].contains("columns.py:12 keep\n"), "{text}");
    assert!(arguments(&["--all-frames"]).contains("PyEval_"));
}

#[test]
fn a_site_under_suspicion_tells_each_way_into_the_allocator() {
    for stacks in ["auto", "python"] {
        let (report, recording, _ran) = columns(stacks);
        // One line is one site, whichever operator it runs.
        let [finding] = report.findings() else { panic!("{:#?}", report.findings()) };
        let [site] = &finding["sites"].as_array().unwrap()[..] else { panic!("{finding:#}") };
        assert_eq!(site["allocated_at"]["function"], "keep");
        if stacks == "python" {
            assert!(
                functions(&site["stack"]).is_empty() && site.get("other_native_stacks").is_none(),
                "{site:#}"
            );
            continue;
        }
        // The first was seen at once, the others only because somebody went on looking: the product, and from PyTorch 2.15
        // on the workspace for it.
        let ways = site["other_native_stacks"].as_array().unwrap_or_else(|| panic!("{site:#}"));
        let first = functions(&site["stack"]).join(" ");
        let others = ways.iter().map(|way| functions(way).join(" "));
        let (workspaces, products): (Vec<_>, Vec<_>) = others.partition(|way| way.contains("Workspace"));
        let is_product = |way: &String| way.contains("mm") && !way.contains("mul_Tensor");
        assert!(first.contains("mul") && !first.contains("mm"), "{site:#}");
        assert!(products.len() == 1 && products.iter().all(is_product) && workspaces.len() <= 1, "{site:#}");
        let text = String::from_utf8(call([recording.as_os_str(), "--all".as_ref()]).stdout).unwrap();
        let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(plain.contains("other paths ") && plain.contains("mul"), "{text}");
    }
}

#[test]
fn packages_installed_in_any_folder_are_not_the_users() {
    // As `pip install --target` leaves it, on PYTHONPATH.
    let folder = tempfile::TempDir::new().unwrap();
    let library = torch_python().parent().unwrap().parent().unwrap().join("lib");
    let python = std::fs::read_dir(library).unwrap().map(|e| e.unwrap().path());
    let installed = python.map(|p| p.join("site-packages")).find(|p| p.exists()).unwrap();
    for entry in std::fs::read_dir(installed).unwrap().map(|e| e.unwrap().path()) {
        let name = entry.file_name().unwrap().to_str().unwrap();
        if name.starts_with("torch") || name == "functorch" {
            std::os::unix::fs::symlink(&entry, folder.path().join(name)).unwrap();
        }
    }
    let program = folder.path().join("train.py");
    std::fs::copy(script("train.py"), &program).unwrap();
    let run =
        torch_at(&program).args(["--leak", "outputs", "--steps", "40"]).env("PYTHONPATH", folder.path());
    let report = Report::of(&run.env("LEAKTRACE_QUIET", "1").traced().run().success().recording());
    let [leak] = report.findings() else { panic!("{:#?}", report.findings()) };
    let site = &leak["sites"][0];
    assert_eq!(site["allocated_at"]["file"].as_str(), program.to_str());
    let own = |f: &&serde_json::Value| f["own"] == true;
    assert!(
        site["stack"].as_array().unwrap().iter().filter(own).all(|f| f["file"].as_str() == program.to_str())
    );
}

/// The wheels' allocator has no symbols: where Python frames are not taken, the operator is the line.
#[test]
fn native_stacks_alone_name_the_operator_not_the_allocator() {
    let run = torch("train.py").args(["--leak", "losses", "--steps", "60"]).traced();
    let ran = run.env("LEAKTRACE_STACKS", "native").env("LEAKTRACE_QUIET", "1").run().success();
    let report = Report::of(&ran.recording());
    let [finding] = report.findings() else { panic!("{:#?}", report.findings()) };
    let at = |place: &Value| place["allocated_at"]["function"].as_str().unwrap_or_default().to_owned();
    let operator = at(&finding["sites"][0]);
    assert!(operator.starts_with("at::"), "{operator}");
    let retained: Vec<String> = report.retained().iter().map(at).collect();
    assert!(retained.iter().all(|at| !at.starts_with("libc10")), "{retained:#?}");
    assert!(retained.iter().any(|at| *at != operator), "{retained:#?}");
    // The allocator is one frame of the stack, and the report's first words are the operator's, without parameters.
    let stack = finding["sites"][0]["stack"].as_array().unwrap();
    let inner = stack.iter().filter(|f| f["module"].as_str().is_some_and(|m| m.contains("libc10"))).count();
    assert_eq!(inner, 1, "{stack:#?}");
    let text = String::from_utf8(call([ran.recording()]).stdout).unwrap();
    assert!(text.starts_with("1 leak: ") && text.contains(" at at::"), "{text}");
    assert!(!text.contains("at libc10") && !text.contains("at::Tensor const&"), "{text}");
}
