//! The commands as a whole: help that helps, usage errors that tell what was meant, completions, the manual page.

use crate::common::grows::{said, text};
use crate::common::root;

const COMMANDS: [&str; 9] =
    ["run", "report", "check", "diff", "export", "top", "doctor", "completions", "man"];

#[test]
fn every_command_has_short_help_with_examples() {
    let all = text(&said(root(), &["--help"]), 0);
    for command in COMMANDS {
        assert!(all.contains(&format!("\n  {command} ")), "{command}\n{all}");
        let help = text(&said(root(), &[command, "--help"]), 0);
        let usage = format!("Usage: leaktrace {command}");
        assert!(help.contains(&usage), "{help}");
        assert!(help.lines().count() <= 50, "{command}: {} lines", help.lines().count());
        assert!(help.lines().all(|l| l.chars().count() <= 120), "{help}");
        if command != "man" {
            assert!(
                help.contains("Examples:") && help.contains(&format!("\n  leaktrace {command}")),
                "{help}"
            );
        }
    }
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
    ] {
        let out = said(root(), args);
        let why = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(2) && why.contains(words), "{args:?}: {why}");
    }
    assert_eq!(said(root(), &[]).status.code(), Some(2));
}

#[test]
fn completions_and_the_manual() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&said(root(), &["completions", shell]), 0);
        assert!(script.contains("write-baseline") && script.contains("leaktrace"), "{shell}");
    }
    let page = text(&said(root(), &["man"]), 0);
    assert!(page.contains(".TH leaktrace 1"), "{page}");
    for command in COMMANDS {
        assert!(page.contains(&format!(".SH LEAKTRACE {}", command.to_uppercase())), "{command}");
    }
}

#[test]
fn the_library_carries_nothing_of_the_programs() {
    use object::{Object, ObjectSymbol};
    let bytes = std::fs::read(crate::common::library()).unwrap();
    let library = object::File::parse(&*bytes).unwrap();
    let names: Vec<&str> = library.symbols().filter_map(|s| s.name().ok()).collect();
    assert!(names.iter().any(|n| n.contains("leaktrace")), "the library has its symbols");
    for room in ["ratatui", "crossterm", "indicatif", "anstream", "clap", "signal_hook", "terminal_size"] {
        let carried: Vec<_> = names.iter().filter(|n| n.contains(room)).take(3).collect();
        assert!(carried.is_empty(), "{room}: {carried:?}");
    }
}
