//! CuPy's pool, by a stand-in for the two of its modules that matter: CuPy itself has a runtime of CUDA's in it that runs on
//! devices only (`scripts/gpu-check`).

use std::fs;
use std::path::Path;

use crate::common::programs::{bare_cudart, compile, line_of, pythons, script};
use crate::common::report::Report;
use crate::common::{Ran, Run};

/// Makes the package in a folder.
fn make(folder: &Path, form: &[&str]) {
    let package = folder.join("cupy/cuda");
    fs::create_dir_all(&package).unwrap();
    for init in [folder.join("cupy/__init__.py"), package.join("__init__.py")] {
        fs::write(init, "").unwrap();
    }
    for (module, which) in [("memory_hook", "-DHOOKS"), ("memory", "-DPOOL"), ("pinned_memory", "-DOTHER")] {
        let flags = [&["-shared", "-fPIC", which], form].concat();
        let made = compile("cupy_pool.c", &format!("{module}.so"), &flags);
        fs::copy(made, package.join(format!("{module}.so"))).unwrap();
    }
}

fn run(python: &Path, form: &[&str], threads: &str) -> (Ran, Report) {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), form);
    let program = [script("cupy/pool.py"), folder.path().to_owned(), bare_cudart()];
    let ran =
        Run::new(python).args(program).arg(threads).env("LEAKTRACE_QUIET", "1").traced().run().success();
    let report = Report::of(&ran.recording());
    (ran, report)
}

fn line() -> u64 {
    line_of("cupy/pool.py", "# allocates")
}

#[test]
fn each_block_of_the_pool_is_seen_from_the_first_one_on_and_on_every_thread() {
    for (version, python) in pythons() {
        let (ran, report) = run(&python, &[], "3");
        let said = ran.text();
        assert!(said.contains("hooks ['leaktrace']"), "{version}: {said}");
        // What is kept goes back while the interpreter ends.
        assert_eq!(ran.stderr, "", "{version}");
        // What is in use at the end is what the forty steps kept.
        assert!(said.contains("used 163840"), "{version}: {said}");
        assert_eq!(report.device(0, "block_bytes"), 163_840, "{version}");
        let [finding] = report.findings() else { panic!("{version}: {:#?}", report.findings()) };
        assert_eq!(
            (&finding["kind"], &finding["bytes_per_step"]),
            (&"leak".into(), &4096.0.into()),
            "{version}: {finding:#}"
        );
        assert_eq!(finding["sites"][0]["allocated_at"]["line"], line(), "{version}: {finding:#}");
        report.assert_whole();
    }
}

#[test]
fn what_one_call_takes_is_of_one_step() {
    for (version, python) in pythons() {
        let (_, report) = run(&python, &[], "loop");
        assert_eq!((report.source(), report.steps()), ("loop", 60), "{version}: {:#}", report.0["steps"]);
    }
}

#[test]
fn hooks_of_another_form_are_left_alone_and_named() {
    let (_, python) = pythons().pop().unwrap();
    let (ran, report) = run(&python, &["-DOTHER_FORM"], "0");
    let said = ran.text();
    assert!(said.contains("used 163840"), "{said}");
    let gaps = report.coverage("gaps").to_string();
    assert!(gaps.contains("CuPy"), "{gaps}");
}
