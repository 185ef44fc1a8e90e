//! File descriptors, of which a program may have closed some, or need all: ours is never in its way.

use std::fs;

use crate::common::report::Report;
use crate::common::{Ran, Run};
use crate::hostile::{complaint, hostile, made_do, program, unchanged};

#[test]
fn closed_standard_descriptors() {
    for closed in ["0<&-", "1>&-", "2>&-", "0<&- 1>&-", "0<&- 1>&- 2>&-"] {
        let script = format!(r#"exec "$0" descriptors here {closed}"#);
        let run = || Run::new("sh").args(["-c", &script]).arg(program());
        let plain = run().run().success();
        // Not quiet: the summary must not land in a file that got the number of the closed stderr.
        let traced = run().traced().run().success();
        let told = |ran: &Ran| fs::read_to_string(ran.folder().join("here")).unwrap();
        assert_eq!(told(&traced), told(&plain), "{closed}");
        assert_eq!(traced.text(), plain.text(), "{closed}");
        let report = Report::of(&traced.recording());
        assert_eq!(report.device(0, "live_bytes"), 1001, "{closed}");
        report.assert_whole();
    }
}

#[test]
fn no_descriptor_left() {
    let ran = unchanged(|| hostile(&["no descriptors"]));
    assert!(complaint(&ran).contains("Too many open files"));
    assert_eq!(ran.files(), Vec::<String>::new());
}

#[test]
fn few_descriptors() {
    // The program may need the last one that it is allowed.
    for allowed in ["4", "5", "20"] {
        let script = format!(r#"ulimit -n {allowed}; exec "$0" descriptors here"#);
        let run = || Run::new("sh").args(["-c", &script]).arg(program());
        let plain = run().run().success();
        let traced = run().env("LEAKTRACE_QUIET", "1").traced().run().success();
        let told = |ran: &Ran| fs::read_to_string(ran.folder().join("here")).unwrap();
        assert_eq!((told(&traced), traced.text(), traced.stderr.as_str()), (told(&plain), plain.text(), ""));
        assert!(told(&plain).starts_with("next 3,"), "{}", told(&plain));
        assert_eq!(Report::of(&traced.recording()).device(0, "live_bytes"), 1001, "{allowed}");
    }
}

#[test]
fn a_program_that_closes_every_descriptor() {
    // Ours too, and then its own files have our number.
    let script = |count: &str| format!(r#"ulimit -n 1024; exec "$0" closes {count}"#);
    let ran = unchanged(|| Run::new("sh").args(["-c", &script("900")]).arg(program()));
    assert_eq!(ran.text(), "own: 5 bytes, 900 of 900 open, in the child all\ncloses is done\n");
    assert_eq!(ran.stderr, "");
    let report = Report::of(&ran.recording());
    report.assert_whole();
    assert_eq!((report.device(0, "live_bytes"), report.end()), (1001, "clean"));

    // And none is left for us to open it anew.
    let run = || Run::new("sh").args(["-c", &script("2000")]).arg(program());
    made_do(&unchanged(run));
    let ran = unchanged(|| run().env("LEAKTRACE_EVENTS", "all"));
    assert_eq!(ran.text(), "own: 5 bytes, 1021 of 1021 open, in the child all\ncloses is done\n");
    let report = Report::of(&ran.recording());
    assert!(report.coverage("dropped_events").as_u64().unwrap() > 10_000);
    assert!(complaint(&ran).contains("Too many open files"));
}
