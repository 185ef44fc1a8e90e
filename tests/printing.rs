//! What is printed of names that a program, or a file, was given: nothing in them steers a terminal, opens a tag, is a
//! formula, or is a command to the CI service that reads the log.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tempfile::TempDir;

use crate::common::Run;
use crate::common::grows::run_leaktrace;
use crate::common::programs::{bare_cudart, pythons, script};

/// Checks what was written for people and for logs.
#[track_caller]
fn harmless(what: &str, written: &[u8]) {
    let text = std::str::from_utf8(written).unwrap();
    let steers = |c: char| {
        (c.is_control() && c != '\n')
            || ('\u{2028}'..='\u{202e}').contains(&c)
            || ('\u{2066}'..='\u{2069}').contains(&c)
    };
    if let Some(line) = text.lines().find(|line| line.chars().any(steers)) {
        panic!("{what}: {line:?}");
    }
    for line in text.lines() {
        // The annotations that were asked for are commands, and each is one of ours.
        let own = ["::error file=", "::error title=", "::warning title=leaktrace::", "::notice "];
        let is_own = what.contains("--github") && own.iter().any(|own| line.starts_with(own));
        assert!(is_own || !line.trim_start().starts_with("::"), "{what}: {line}");
        let is_old = |at: usize| line[at + 2..].trim_start_matches(char::is_alphanumeric).starts_with('[');
        assert!(!line.match_indices("##").any(|(at, _)| is_old(at)), "{what}: {line}");
    }
}

#[test]
fn names_that_a_program_chose() {
    let (_, python) = pythons().pop().expect("a CPython between 3.8 and 3.15");
    let run = Run::new(python).arg(script("names.py")).arg(bare_cudart()).arg("40").traced();
    let ran = run.env("LEAKTRACE_OUT", "x.ltrace").env("LEAKTRACE_STEP", "api").run().success();
    let folder = ran.folder();
    harmless("summary", ran.stderr.as_bytes());
    harmless("x.txt", &fs::read(folder.join("x.txt")).unwrap());
    for args in [
        &["report", "x.ltrace"][..],
        &["report", "x.ltrace", "--all", "--all-frames"],
        &["report", "x.ltrace", "--by", "cohort"],
        &["report", "x.ltrace", "--by", "function"],
        &["report", "x.ltrace", "--format", "json"],
        &["report", ".", "x.ltrace"],
        &["check", "x.ltrace", "--github"],
        &["check", ".", "x.ltrace", "--github", "--sarif", "x.sarif"],
        &["check", "x.ltrace", "--write-baseline", "--baseline", "x.json", "--github"],
        &["diff", "x.ltrace@5", "x.ltrace@30", "--all"],
        &["diff", "x.ltrace@5", "x.ltrace@30", "--format", "json"],
        &["top", "--once", "x.ltrace"],
        &["export", "x.ltrace", "--to", "folded"],
        &["export", "x.ltrace", "--to", "flamegraph"],
        &["report", "x.ltrace", "--format", "html", "-o", "x.html"],
        &["export", "x.ltrace", "--to", "csv", "--run", "r", "-o", "out"],
    ] {
        let out = run_leaktrace(&folder, args);
        assert!(out.status.code().is_some_and(|code| code < 2), "{args:?}: {out:?}");
        harmless(&args.join(" "), &out.stdout);
        harmless(&args.join(" "), &out.stderr);
    }
    for file in ["x.sarif", "x.json"] {
        harmless(file, &fs::read(folder.join(file)).unwrap());
    }
    let page = fs::read_to_string(folder.join("x.html")).unwrap();
    assert!(!page.contains("<script>alert") && !page.contains("</script><script>"), "a tag of the program's");
    let mut cells = 0;
    for table in fs::read_dir(folder.join("out/run=r/rank=0")).unwrap().map(|e| e.unwrap().path()) {
        harmless("csv", &fs::read(&table).unwrap());
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_path(&table).unwrap();
        for cell in
            reader.records().flat_map(|row| row.unwrap().iter().map(str::to_owned).collect::<Vec<_>>())
        {
            let is_number = cell.parse::<f64>().is_ok();
            assert!(is_number || !cell.starts_with(['=', '+', '-', '@', '\t', '\r']), "{cell}");
            cells += usize::from(cell.starts_with("'="));
        }
    }
    assert!(cells > 0, "a formula was exported");
}

#[test]
fn names_of_files() {
    let names = ["x\x1b]0;title\x07\n::error::injected", "\n::error::y", "##[error]z", "\u{202e}trace", "\r"];
    for name in names {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join(format!("{name}.ltrace"));
        fs::write(&file, "junk").unwrap();
        let named = file.file_name().unwrap().to_str().unwrap();
        for args in [
            &["check", ".", "--github"][..],
            &["report", "."],
            &["report", named],
            &["export", named, "--to", "folded"],
            &["diff", named, named],
            &["report", ".", "-o", named],
            &["check", ".", "--suppressions", named],
            &["check", ".", "--baseline", named],
        ] {
            let out = run_leaktrace(folder.path(), args);
            assert_eq!(out.status.code(), Some(2), "{args:?}: {out:?}");
            harmless("error", &out.stderr);
            harmless("error", &out.stdout);
            assert!(out.stderr.starts_with(b"leaktrace: "));
        }
    }
    let folder = TempDir::new().unwrap();
    let raw = Path::new(OsStr::from_bytes(b"raw\xff\x1b.ltrace"));
    fs::write(folder.path().join(raw), "junk").unwrap();
    harmless("error", &run_leaktrace(folder.path(), &["report", "."]).stderr);
}

#[test]
fn names_in_the_environment() {
    for (variable, value) in [
        ("LEAKTRACE_OUT", "/dev/null/\x1b[31m\n::error::x"),
        ("LEAKTRACE_STEP", "\n::error::y"),
        ("LEAKTRACE_STACKS", "\u{202e}##[error]z"),
    ] {
        let program = crate::common::programs::linked("hostile.c", "hostile", &bare_cudart(), &[]);
        let ran = Run::new(program).args(["churn", "3"]).traced().env(variable, value).run().success();
        harmless(variable, ran.stderr.as_bytes());
        assert!(ran.stderr.lines().all(|line| line.starts_with("leaktrace: ")), "{}", ran.stderr);
    }
}
