//! `leaktrace report` as a person sees it: the answer first, the line with its source, and never a wrong line.

use std::fs;

use crate::common::grows::{flat, grown, grows_at, line_of, on_terminal, run_leaktrace, text};
use crate::common::programs::script;
use tempfile::TempDir;

#[test]
fn the_answer_comes_first_then_where_and_the_fix() {
    let ran = grown(40, &["--first", "3072"]);
    let recording = ran.recording();
    let name = recording.to_str().unwrap();
    let told = text(&run_leaktrace(&ran.folder(), &["report", name]), 0);
    let lines: Vec<&str> = told.lines().collect();
    let answer = flat(&lines[..5].join(" "));
    assert!(answer.starts_with("1 leak: 3.0 KiB per step at "), "{told}");
    assert!(answer.contains("): exit status 0 after "), "how it ended: {told}");
    let at = format!("grows.py:{} first", line_of("first line that keeps"));
    let flat = flat(&told);
    for words in [
        "1. Leak (confirmed): 3.0 KiB (1 allocation) per step, 120.0 KiB so far",
        &format!("allocated at {at}"),
        "| runtime.cudaMalloc(ctypes.byref(place), size)",
        "called from ",
        "growth 3.0 KiB (step 1)",
        "█ 120.0 KiB (step 40)",
        "fix free what cudaMalloc allocated",
        "Live after step 40 120.0 KiB",
        "<- leak 1",
        "Checked: ",
    ] {
        assert!(flat.contains(&crate::common::grows::flat(words)), "{words}\n{told}");
    }
    assert!(told.find("fix  ").unwrap() < told.find("Live after step").unwrap(), "findings first:\n{told}");
    assert!(told.lines().all(|l| l.chars().count() <= 100 || !l.trim().contains(' ')), "{told}");
}

#[test]
fn a_file_that_changed_since_is_not_shown() {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("mine.py");
    fs::copy(script("grows.py"), &program).unwrap();
    let ran = grows_at(&program, 30, &["--first", "512"]).run().success();
    let name = ran.recording();
    let report = || text(&run_leaktrace(&ran.folder(), &["report", name.to_str().unwrap()]), 0);
    let line = "| runtime.cudaMalloc(ctypes.byref(place), size)";
    assert!(report().contains(line), "{}", report());

    let source = fs::read_to_string(&program).unwrap();
    fs::write(&program, format!("# one line more\n{source}")).unwrap();
    let told = report();
    assert!(!told.contains("| "), "a line of another text is shown:\n{told}");
    assert!(
        flat(&told).contains("mine.py are shown: it may have changed since the recording began"),
        "{told}"
    );
    // As it was, but nobody can know.
    fs::write(&program, source).unwrap();
    assert!(!report().contains(line));
    fs::remove_file(&program).unwrap();
    let told = report();
    assert!(!told.contains(line) && told.contains("mine.py:"), "{told}");
}

#[test]
fn colours_only_where_they_are_wanted() {
    let ran = grown(30, &["--first", "512"]);
    let name = ran.recording();
    let name = name.to_str().unwrap();
    let plain = text(&run_leaktrace(&ran.folder(), &["report", name]), 0);
    assert!(!plain.contains('\x1b'), "no terminal: no colours");
    assert_eq!(text(&run_leaktrace(&ran.folder(), &["report", name, "--color", "never"]), 0), plain);
    let coloured = text(&run_leaktrace(&ran.folder(), &["report", name, "--color", "always"]), 0);
    assert!(coloured.contains("\x1b[1m"), "{coloured}");
    let mut stripped = String::new();
    for (i, part) in coloured.split('\x1b').enumerate() {
        stripped.push_str(if i == 0 { part } else { part.split_once('m').unwrap().1 });
    }
    assert_eq!(stripped, plain);
}

#[test]
fn what_came_since_and_by_what() {
    let ran = grown(40, &["--first", "1024", "--second", "2048", "--newest", "4096"]);
    let name = ran.recording();
    let name = name.to_str().unwrap();
    let report = |args: &[&str]| {
        let mut all = vec!["report", name];
        all.extend(args);
        text(&run_leaktrace(&ran.folder(), &all), 0)
    };
    let row = |told: &str, words: &str| {
        let told = told.split_once("ive after step").unwrap().1;
        let row = told.lines().find(|l| l.contains(words)).unwrap_or_else(|| panic!("{words} in {told}"));
        flat(row)
    };
    assert!(row(&report(&[]), " second").starts_with("80.0 KiB 40 "));
    assert!(row(&report(&["--step", "10"]), " second").starts_with("20.0 KiB 10 "));
    assert!(row(&report(&["--since", "30"]), " second").starts_with("20.0 KiB 10 "));
    assert!(row(&report(&["--since", "10", "--step", "15"]), " first").starts_with("5.0 KiB 5 "));
    // Of what is replaced, the newest: there are as many as before.
    assert!(row(&report(&["--since", "38"]), " newest").starts_with("8.0 KiB 2 "));
    assert!(row(&report(&["--since", "12", "--step", "15"]), " newest").starts_with("12.0 KiB 3 "));
    assert!(row(&report(&["--by", "file"]), "grows.py").starts_with("140.0 KiB 85 "));
    assert!(row(&report(&["--by", "function"]), "first in ").starts_with("40.0 KiB 40 "));
    let cohorts = report(&["--by", "cohort", "--since", "38"]);
    assert!(row(&cohorts, "step 39,").starts_with("7.0 KiB 3 "));
    assert!(!cohorts.contains("step 38, most"), "{cohorts}");
    let refused = run_leaktrace(&ran.folder(), &["report", name, "--by", "cohort", "--step", "3"]);
    assert_eq!(refused.status.code(), Some(2));
    let refused = run_leaktrace(&ran.folder(), &["report", name, "--since", "99"]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && why.contains("the steps are 1 to 40"), "{why}");
}

#[test]
fn what_was_live_at_a_moment() {
    let ran = grown(40, &["--first", "1024"]);
    let name = ran.recording();
    let at = |moment: &str| run_leaktrace(&ran.folder(), &["report", name.to_str().unwrap(), "--at", moment]);
    let told = text(&at("peak"), 0);
    for words in ["At the peak, in step 4", "<- leak 1", "Without leak 1 the peak would be lower by up to "] {
        assert!(told.contains(words), "{words}\n{told}");
    }
    assert!(!told.contains("Live after"), "{told}");
    let step = run_leaktrace(&ran.folder(), &["report", name.to_str().unwrap(), "--step", "10"]);
    assert_eq!(text(&at("step:10"), 0), text(&step, 0));
    for (moment, why) in [("oom", "no allocation failed"), ("never", "it is peak, oom, or step:N")] {
        let refused = at(moment);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && said.contains(why), "{moment}: {said}");
    }
}

#[test]
fn on_a_terminal_it_is_coloured_and_as_wide() {
    let ran = grown(30, &["--first", "512"]);
    let name = ran.recording().file_name().unwrap().to_str().unwrap().to_owned();
    let plain = |columns| text(&on_terminal(&ran.folder(), columns, "", "", &["report", &name], true), 0);
    assert!(!plain(100).contains('\x1b'), "NO_COLOR");
    assert!(text(&on_terminal(&ran.folder(), 100, "", "", &["report", &name], false), 0).contains("\x1b["));
    let longest = |told: &str| told.lines().map(|l| l.chars().count()).max().unwrap();
    let (narrow, wide) = (plain(60), plain(200));
    assert!(narrow.lines().count() > wide.lines().count(), "{narrow}");
    assert!(longest(&wide) > 110 && longest(&wide) <= 200, "{wide}");
    // A word alone may be longer than what a table's figures leave of a line: a path that is broken cannot be copied.
    let fits = |l: &str| l.chars().count() <= 60 || l.split_whitespace().any(|w| w.len() > 60 - 28);
    assert!(narrow.lines().all(fits), "{narrow}");
}

#[test]
fn a_long_read_shows_how_far_it_is_on_a_terminal_only() {
    let ran = grown(20, &["--first", "512"]);
    let (one, folder) = (ran.recording(), tempfile::TempDir::new().unwrap());
    let many = folder.path().join("many");
    fs::create_dir(&many).unwrap();
    for n in 0..20 {
        fs::copy(&one, many.join(format!("{n}.ltrace"))).unwrap();
    }
    // As long as a recording of millions of events; most of it is room that was never used.
    let long = folder.path().join("long.ltrace");
    fs::copy(&one, &long).unwrap();
    fs::File::options().write(true).open(&long).unwrap().set_len(80 << 20).unwrap();
    fs::copy(&one, folder.path().join("short.ltrace")).unwrap();
    for (name, bar) in [("many", " of 20 recordings"), ("long.ltrace", " %"), ("short.ltrace", "")] {
        let told = text(&on_terminal(folder.path(), 100, "", "", &["report", name], true), 0);
        assert_eq!(told.contains("reading "), !bar.is_empty(), "{name}: {told:?}");
        assert!(told.contains(bar) && told.contains("1 leak"), "{name}: {told:?}");
        let piped = run_leaktrace(folder.path(), &["report", name]);
        let (report, bars) = (text(&piped, 0), String::from_utf8_lossy(&piped.stderr).into_owned());
        assert!(report.contains("1 leak") && bars.is_empty(), "{name}: {bars}");
    }
}
