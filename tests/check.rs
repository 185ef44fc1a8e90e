//! `leaktrace check` and `leaktrace run --fail-on`: what fails, what is accepted, and what a pull request shows.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::grows::{flat, grown, line_of, python, run_leaktrace, text};
use crate::common::programs::{bare_cudart, consumed, script};
use crate::common::report::leaktrace;
use crate::common::{Ran, library};
use serde_json::Value;
use tempfile::TempDir;

fn check(ran: &Ran, args: &[&str]) -> Output {
    let recording = ran.recording();
    let mut all = vec!["check", recording.to_str().unwrap()];
    all.extend(args);
    run_leaktrace(&ran.folder(), &all)
}

#[test]
fn a_leak_fails_and_its_fixed_form_passes() {
    let leaks = grown(40, &["--first", "3072"]);
    let told = text(&check(&leaks, &[]), 1);
    assert!(told.starts_with("leaktrace: failed: 1 finding in 1 recording"), "{told}");
    assert!(flat(&told).contains("failed: leak: 3.0 KiB per step at "), "{told}");
    let fixed = grown(40, &[]);
    assert!(text(&check(&fixed, &[]), 0).starts_with("leaktrace: passed: 1 recording"));
    let told = text(&check(&leaks, &["--max-bytes-per-step", "3KiB"]), 0);
    assert!(told.contains("within the limit: leak"), "{told}");
    text(&check(&leaks, &["--max-bytes-per-step", "3071"]), 1);
    text(&check(&leaks, &["--fail-on", "residue,fragmentation"]), 0);
    text(&check(&leaks, &["--fail-on", "any"]), 1);
}

#[test]
fn what_cannot_be_judged_fails_with_its_reason() {
    let short = grown(5, &["--first", "512"]);
    let told = text(&check(&short, &[]), 1);
    assert!(told.starts_with("leaktrace: failed: not everything could be judged, in 1 recording"), "{told}");
    let reason = format!("not judged: {}: 5 steps seen, at least 14 are needed", short.recording().display());
    assert!(flat(&told).contains(&reason), "{told}");
    let told = text(&check(&short, &["--allow-unjudged"]), 0);
    assert!(told.starts_with("leaktrace: passed: 1 recording") && flat(&told).contains(&reason), "{told}");
    // One that is judged beside it makes it no better.
    let long = grown(40, &[]);
    let folder = TempDir::new().unwrap();
    fs::copy(long.recording(), folder.path().join("long.ltrace")).unwrap();
    fs::copy(short.recording(), folder.path().join("short.ltrace")).unwrap();
    let told = text(&run_leaktrace(folder.path(), &["check", "."]), 1);
    assert!(told.contains("not judged: ./short.ltrace: 5 steps seen"), "{told}");
    let annotated = text(&run_leaktrace(folder.path(), &["check", ".", "--github"]), 1);
    assert_eq!(annotated.matches("./short.ltrace").count(), 1, "{annotated}");
    assert!(annotated.contains("::error title=leaktrace::not judged: ./short.ltrace"), "{annotated}");
}

#[test]
fn github_shows_it_at_its_line() {
    let ran = grown(40, &["--first", "3072"]);
    let recording = ran.recording();
    let root = ["--source-root", "."];
    let github = |root: &[&str]| {
        let args = [&["check", recording.to_str().unwrap(), "--github"], root].concat();
        text(&run_leaktrace(&script("").join(".."), &args), 1)
    };
    let told = github(&root);
    let line = line_of("first line that keeps");
    let wanted =
        format!("::error file=programs/grows.py,line={line},title=GPU memory%3A leak::leak: 3.0 KiB");
    let annotation = told.lines().find(|l| l.starts_with("::")).unwrap_or_else(|| panic!("{told}"));
    assert!(annotation.starts_with(&wanted), "{annotation}");
    assert!(annotation.contains("%0AFix: "), "{annotation}");
    assert_eq!(told.matches("per step at").count(), 1, "a finding is told once: {told}");
    assert!(github(&["--source-root", ".."]).contains("::error file=tests/programs/grows.py,line="));
    // A file that lies outside is none that GitHub could show.
    assert!(github(&["--source-root", "programs/pytest"]).contains("::error title="));
    let passed = text(&check(&grown(40, &[]), &["--github"]), 0);
    assert!(!passed.contains("::"), "{passed}");
}

#[test]
fn a_baseline_accepts_what_is_known_until_it_grows() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("known.json");
    let file = file.to_str().unwrap();
    let known = grown(40, &["--first", "1024"]);
    let refused = check(&known, &["--baseline", file]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && why.contains("--write-baseline"), "{why}");
    text(&check(&known, &["--baseline", file, "--write-baseline"]), 0);
    let written: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(
        (&written["schema"], &written["leaks"][0]["function"]),
        (&"leaktrace.baseline/1".into(), &"first".into())
    );
    text(&check(&known, &["--baseline", file]), 0);
    // More steps are no growth; more bytes a step are, and another line is another leak.
    text(&check(&grown(60, &["--first", "1024"]), &["--baseline", file]), 0);
    let told = text(&check(&grown(40, &["--first", "2048"]), &["--baseline", file]), 1);
    assert!(
        flat(&told).contains(
            "in the baseline, but it grows faster: 2.0 KiB (2,048 B) per step, the baseline accepts 1.0 KiB"
        ),
        "{told}"
    );
    let told = text(&check(&grown(40, &["--first", "1024", "--second", "512"]), &["--baseline", file]), 1);
    assert!(flat(&told).contains("not in the baseline: ") && told.contains(" second"), "{told}");
    let told = text(&check(&grown(40, &[]), &["--baseline", file]), 0);
    let at = format!("{}:{}", script("grows.py").display(), line_of("first line that keeps"));
    let gone = format!("warning: in the baseline, but not found: leak at {at} first");
    assert!(flat(&told).contains(&gone), "{told}");
    fs::write(file, "{}").unwrap();
    assert_eq!(check(&known, &["--baseline", file]).status.code(), Some(2));
}

#[test]
fn suppressions_are_left_out() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("lived.with");
    fs::write(&file, "leak:grows.py:first # a known one\n").unwrap();
    let file = file.to_str().unwrap();
    let told = text(&check(&grown(40, &["--first", "1024"]), &["--suppressions", file]), 0);
    assert!(told.contains("suppressed: 1 finding") && !told.contains("suppressed nothing"), "{told}");
    fs::write(file, "leak:grows.py:first # a known one\n*:gone.py:*\n").unwrap();
    let told = text(&check(&grown(40, &["--first", "1024"]), &["--suppressions", file]), 0);
    assert!(told.contains("warning: suppressions that suppressed nothing: *:gone.py:* (line 2)"), "{told}");
    text(&check(&grown(40, &["--first", "1024", "--second", "64"]), &["--suppressions", file]), 1);
}

#[test]
fn sarif_is_what_its_schema_says() {
    let ran = grown(40, &["--first", "3072", "--second", "512"]);
    let folder = TempDir::new().unwrap();
    let (file, known) = (folder.path().join("out.sarif"), folder.path().join("known.json"));
    let (file, known) = (file.to_str().unwrap(), known.to_str().unwrap());
    let recording = ran.recording();
    let root = script("").join("..");
    let check = |more: &[&str], status| {
        let mut args = vec!["check", recording.to_str().unwrap(), "--sarif", file, "--source-root", "."];
        args.extend(more);
        text(&run_leaktrace(&root, &args), status);
        serde_json::from_slice::<Value>(&fs::read(file).unwrap()).expect("is JSON")
    };
    let log = check(&[], 1);
    let schema = root.join("schemas/sarif-2.1.0.json");
    let validate = || consumed("check_sarif.py", &[schema.to_str().unwrap(), file], folder.path());
    validate();
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert!(!results.is_empty());
    let at = &results[0]["locations"][0]["physicalLocation"];
    assert_eq!(at["artifactLocation"]["uri"], "programs/grows.py");
    let lines = [line_of("first line that keeps") as u64, line_of("second line that keeps") as u64];
    assert!(lines.contains(&at["region"]["startLine"].as_u64().unwrap()), "{at}");
    assert_eq!((&results[0]["ruleId"], &results[0]["level"]), (&"leaktrace/leak".into(), &"error".into()));
    // A schema that lets anything pass proves nothing.
    let mut broken = log.clone();
    broken["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] = "17".into();
    fs::write(file, broken.to_string()).unwrap();
    assert!(std::panic::catch_unwind(validate).is_err(), "{broken:#}");
    check(&["--baseline", known, "--write-baseline"], 0);
    let log = check(&["--baseline", known], 0);
    validate();
    assert_eq!(log["runs"][0]["results"][0]["suppressions"][0]["kind"], "external");
}

/// `leaktrace run ARGS… -- python grows.py …`
fn run(folder: &TempDir, gate: &[&str], args: &[&str]) -> Output {
    let mut command = leaktrace();
    command.current_dir(folder.path()).env("LEAKTRACE_LIBRARY", library()).env("LEAKTRACE_QUIET", "1");
    command
        .arg("run")
        .args(gate)
        .arg("--")
        .arg(python())
        .arg(script("grows.py"))
        .arg(bare_cudart())
        .args(args);
    command.output().unwrap()
}

#[test]
fn run_and_gate_in_one() {
    let folder = TempDir::new().unwrap();
    let out = run(&folder, &["--fail-on", "leak"], &["40", "--first", "3072"]);
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{err}");
    assert_eq!(out.stdout, b"ready\n", "the program's own output alone");
    assert!(err.contains("failed: leak"), "{err}");
    // An older recording of a leak beside it is not judged again.
    assert_eq!(run(&folder, &["--fail-on", "leak"], &["40"]).status.code(), Some(0));
    let limit = ["--fail-on", "leak", "--max-bytes-per-step", "4KiB", "--out", "here/%e.%p.ltrace"];
    fs::create_dir(folder.path().join("here")).unwrap();
    let out = run(&folder, &limit, &["40", "--first", "3072"]);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(
        String::from_utf8_lossy(&out.stderr).contains("within the limit: leak"),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    // The program's own failure wins, and the gate is told nevertheless.
    let out = run(&folder, &["--fail-on", "leak"], &["40", "--first", "3072", "--exit", "7"]);
    assert_eq!(out.status.code(), Some(7));
    assert!(String::from_utf8_lossy(&out.stderr).contains("failed: leak"));
    // Also where the results cannot be written.
    let unwritable = ["--fail-on", "leak", "--sarif", "/nowhere/at/all.sarif"];
    let out = run(&folder, &unwritable, &["40", "--first", "3072", "--exit", "7"]);
    assert_eq!(out.status.code(), Some(7));
    assert!(String::from_utf8_lossy(&out.stderr).contains("/nowhere/at/all.sarif"));
    let out = run(&folder, &["--fail-on", "leak"], &["40", "--first", "3072", "--kill", "30"]);
    assert_eq!(out.status.signal(), Some(9));
}

#[test]
fn run_says_it_to_the_same_tools_as_check() {
    let folder = TempDir::new().unwrap();
    let (sarif, known) = (folder.path().join("out.sarif"), folder.path().join("known.json"));
    let results = || {
        let log: Value = serde_json::from_slice(&fs::read(&sarif).unwrap()).expect("is JSON");
        log["runs"][0]["results"].as_array().unwrap().clone()
    };
    let root = script("");
    let root = root.to_str().unwrap();
    let fails = ["--fail-on", "leak", "--github", "--sarif", "out.sarif", "--source-root", root];
    let out = run(&folder, &fails, &["40", "--first", "1024"]);
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!((out.status.code(), &out.stdout[..]), (Some(1), &b"ready\n"[..]), "{err}");
    let line = line_of("first line that keeps");
    let annotation = err.lines().find(|l| l.starts_with("::error file=")).unwrap_or_else(|| panic!("{err}"));
    assert!(annotation.contains(&format!("grows.py,line={line},title=GPU memory%3A leak::")), "{annotation}");
    assert_eq!(results()[0]["ruleId"], "leaktrace/leak");
    // What check wrote, run accepts, until it grows.
    let recording = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path());
    let recording = recording.into_iter().find(|p| p.extension().is_some_and(|e| e == "ltrace")).unwrap();
    let names = [recording.to_str().unwrap(), known.to_str().unwrap()];
    text(
        &run_leaktrace(
            folder.path(),
            &["check", names[0], "--baseline", names[1], "--write-baseline", "--source-root", root],
        ),
        0,
    );
    let accepts = [&["--baseline", "known.json"], &fails[..]].concat();
    let out = run(&folder, &accepts, &["40", "--first", "1024"]);
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(0) && err.contains("(in the baseline)"), "{err}");
    assert!(err.contains("::notice file=") && !err.contains("::error"), "{err}");
    assert_eq!(results()[0]["suppressions"][0]["kind"], "external");
    let out = run(&folder, &accepts, &["40", "--first", "2048"]);
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        out.status.code() == Some(1) && flat(&err).contains("in the baseline, but it grows faster"),
        "{err}"
    );
    // A wrong baseline is told before anything runs; without a gate nothing asks for one.
    for wrong in
        [&["--fail-on", "leak", "--baseline", "missing.json"][..], &["--github"], &["--sarif", "out.sarif"]]
    {
        let out = run(&folder, wrong, &["40"]);
        assert_eq!((out.status.code(), &out.stdout[..]), (Some(2), &b""[..]), "{wrong:?}");
    }
    // Nothing recorded fails, and is an empty log, not the one of the run before.
    let mut command = leaktrace();
    command.current_dir(folder.path()).env("LEAKTRACE_LIBRARY", library());
    let out = command.arg("run").args(fails).args(["--", "true"]).output().unwrap();
    assert_eq!((out.status.code(), results().len()), (Some(1), 0));
}

#[test]
fn each_process_is_judged() {
    let folder = TempDir::new().unwrap();
    let program = format!(
        "for bytes in 0 0 2048; do '{}' '{}' '{}' 40 --first $bytes; done",
        python().display(),
        script("grows.py").display(),
        bare_cudart().display()
    );
    let mut command = leaktrace();
    command.current_dir(folder.path()).env("LEAKTRACE_LIBRARY", library()).env("LEAKTRACE_QUIET", "1");
    let out = command.args(["run", "--fail-on", "leak", "--", "sh", "-c", &program]).output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{err}");
    assert!(err.contains("1 finding in 3 recordings"), "{err}");
    let out = leaktrace()
        .current_dir(folder.path())
        .env("LEAKTRACE_LIBRARY", library())
        .args(["run", "--fail-on", "leak", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(err.contains("not judged: no process of it used the GPU, so nothing was recorded"), "{err}");
}

/// Runs git in a folder, as nobody in particular.
fn git(folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    command.args([
        "-c",
        "user.name=nobody",
        "-c",
        "user.email=nobody@localhost",
        "-c",
        "init.defaultBranch=main",
    ]);
    command.env("LEAKTRACE_LIBRARY", library()).env_remove("LD_PRELOAD");
    text(&command.args(args).output().expect("git"), 0)
}

#[test]
fn git_bisect_finds_the_commit_that_began_a_leak() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let program = |arguments: &str| {
        format!(
            "import runpy, sys\nsys.argv[1:] = ['{}', '40', {arguments}]\nrunpy.run_path('{}', run_name='__main__')\n",
            bare_cudart().display(),
            script("grows.py").display()
        )
    };
    git(here, &["init", "-q"]);
    let mut commits = Vec::new();
    for source in [
        program(""),
        program("'--exit', '0'"),
        "raise SystemExit('broken')\n".to_owned(),
        program("'--second', '0'"),
        program("'--first', '2048'"),
        program("'--first', '4096'"),
        program("'--first', '1024', '--second', '64'"),
    ] {
        fs::write(here.join("train.py"), source).unwrap();
        git(here, &["add", "train.py"]);
        git(here, &["commit", "-q", "-m", "one more"]);
        commits.push(git(here, &["rev-parse", "HEAD"]).trim().to_owned());
    }
    let (python, out) = (python().display().to_string(), here.join(".git/%p.ltrace").display().to_string());
    let gate = [env!("CARGO_BIN_EXE_leaktrace"), "run", "--out", &out, "--fail-on", "leak", "--bisect", "--"];
    let gate: Vec<&str> = gate.into_iter().chain([python.as_str(), "train.py"]).collect();
    git(here, &["bisect", "start", &commits[6], &commits[0]]);
    let told = git(here, &[&["bisect", "run"], &gate[..]].concat());
    assert!(told.contains(&format!("{} is the first bad commit", commits[4])), "{told}");
    // What git is told of each commit; 125 is one to skip.
    git(here, &["bisect", "reset"]);
    for (commit, status) in commits.iter().zip([0, 0, 125, 0, 1, 1, 1]) {
        git(here, &["checkout", "-q", commit]);
        let mut command = Command::new(gate[0]);
        command.current_dir(here).env("LEAKTRACE_LIBRARY", library()).args(&gate[1..]);
        let out = command.output().unwrap();
        assert_eq!(out.status.code(), Some(status), "{}", String::from_utf8_lossy(&out.stderr));
    }
}

#[test]
fn bad_usage_and_unreadable_files_are_status_2() {
    let ran = grown(20, &[]);
    for args in [&["--max-bytes-per-step", "3 potatoes"][..], &["--fail-on", "sin"], &["--write-baseline"]] {
        assert_eq!(check(&ran, args).status.code(), Some(2), "{args:?}");
    }
    fs::write(ran.folder().join("bad.ltrace"), b"no recording").unwrap();
    let out = run_leaktrace(&ran.folder(), &["check", "."]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("bad.ltrace"));
    // The others are judged.
    assert!(text(&out, 2).starts_with("leaktrace: passed: 1 recording"), "{out:?}");
}
