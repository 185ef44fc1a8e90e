//! Fork: the parent's recording stays the parent's; a child that allocates has one of its own, any other none.

mod common;

use common::programs::{bare_cudart, linked, pythons, script};
use common::report::Report;
use common::{Ran, Run};

/// Runs `forks HOW`; the parent's report, and that of the others.
#[track_caller]
fn forked(how: &str) -> (Ran, Vec<Report>) {
    let program = linked("forks.c", "forks", &bare_cudart(), &[]);
    let run = || Run::new(&program).arg(how).env("LEAKTRACE_QUIET", "1");
    assert_eq!(run().run().code(), 0, "{how} without the preload");
    let ran = run().traced().run().success();
    assert_eq!(ran.stderr, "", "{how}");
    let (mut parents, mut children) = (Vec::new(), Vec::new());
    for recording in ran.recordings() {
        let report = Report::of(&recording);
        report.assert_whole();
        let pid = report.0["program"]["pid"].as_u64().unwrap();
        assert!(
            recording.ends_with(format!("leaktrace.{pid}.ltrace")),
            "{pid} wrote {}",
            recording.display()
        );
        let live = report.device(0, "live_bytes");
        if live == 1001 + 4004 { parents.push(live) } else { children.push(report) }
    }
    assert_eq!(parents.len(), 1, "{how}: the parent's recording in {:?}", ran.files());
    (ran, children)
}

#[test]
fn children_that_do_nothing_leave_nothing() {
    for how in ["nothing", "exec", "vfork"] {
        let (_, children) = forked(how);
        assert_eq!(children.len(), 0, "{how}");
    }
}

#[test]
fn children_that_allocate_have_their_own() {
    for (how, end) in [("alloc", "clean"), ("_exit", "killed")] {
        let (ran, children) = forked(how);
        assert_eq!(children.len(), 1, "{how}");
        let child = &children[0];
        assert_eq!(child.device(0, "live_bytes"), 2002 + 2004, "{how}");
        assert_eq!(child.end(), end, "{how}");
        assert_eq!(ran.text(), format!("child {}\n", child.0["program"]["pid"]));
    }
}

#[test]
fn grandchildren_too() {
    let (_, children) = forked("again");
    assert_eq!(children.len(), 1);
    assert_eq!(children[0].device(0, "live_bytes"), 2002 + 2004);
}

#[test]
fn a_fork_during_the_first_allocation() {
    let program = linked("forks.c", "forks", &bare_cudart(), &[]);
    let ran = Run::new(&program).arg("race").env("LEAKTRACE_QUIET", "1").traced().run().success();
    assert_eq!(ran.stderr, "");
    let recordings = ran.recordings();
    assert_eq!(recordings.len(), 2 * 24, "{:?}", ran.files());
    for recording in recordings {
        let live = Report::of(&recording).device(0, "live_bytes");
        assert!([3 * 2002, 6 * 2002].contains(&live), "{live} in {}", recording.display());
    }
}

#[test]
fn a_fork_between_threads_that_allocate() {
    // 40 children from a process whose other threads are inside hooks nearly all the time: none may hang.
    let (_, python) = pythons().pop().expect("a CPython between 3.8 and 3.13");
    let run = || Run::new(&python).arg(script("forking.py")).arg(bare_cudart()).env("LEAKTRACE_QUIET", "1");
    let plain = run().run().success();
    let ran = run().traced().run().success();
    assert_eq!(ran.text(), plain.text());
    let recordings = ran.recordings();
    assert_eq!(recordings.len(), 1 + 40, "{:?}", ran.files());
    let mut children = 0;
    for recording in recordings {
        let report = Report::of(&recording);
        report.assert_whole();
        let own = report.retained().iter().filter(|s| s["live_bytes"] == 777_777).count();
        children += own;
    }
    assert_eq!(children, 40, "each child holds what it allocated, the parent nothing of theirs");
}
