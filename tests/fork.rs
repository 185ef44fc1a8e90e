//! Several processes: the parent's recording stays the parent's; a child that allocates has one of its own, any other none.

use crate::common::programs::{bare_cudart, linked, pythons, script, torch_python};
use crate::common::report::Report;
use crate::common::truth::Truth;
use crate::common::{Ran, Run};

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
    for how in ["alloc", "_exit"] {
        let (ran, children) = forked(how);
        assert_eq!(children.len(), 1, "{how}");
        let child = &children[0];
        assert_eq!(child.device(0, "live_bytes"), 2002 + 2004, "{how}");
        assert_eq!(child.end(), "clean", "{how}");
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
    let (_, python) = pythons().pop().expect("a CPython between 3.8 and 3.15");
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

#[test]
fn a_storm_of_forks() {
    // Threads of parent and children meet at every lock of ours, with ever new stacks: none waits for what is not there.
    let program = linked("storm.c", "storm", &bare_cudart(), &[]);
    let ran = Run::new(&program).arg("120").env("LEAKTRACE_QUIET", "1").traced().run().success();
    assert_eq!((ran.text().as_str(), ran.stderr.as_str()), ("120 children did well\n", ""));
    let recordings = ran.recordings();
    assert_eq!(recordings.len(), 1 + 120);
    for recording in recordings {
        let report = Report::of(&recording);
        assert_eq!(report.device(0, "live_bytes"), 0, "{}", recording.display());
        report.assert_whole();
    }
}

#[test]
fn a_child_made_without_its_handlers() {
    // `_Fork` runs no fork handler: the child shares the mapped recording, and must leave it alone.
    let (_, children) = forked("_Fork");
    assert_eq!(children.len(), 0);
}

/// Runs a Python program without and with the preload; bytes alive at the end and rank, of each recording.
fn processes(run: impl Fn() -> Run) -> Vec<(u64, String)> {
    let run = |traced: bool| {
        let run = run().env("LEAKTRACE_QUIET", "1").traced_if(traced);
        // Each process its own log.
        let log = run.folder().with_file_name("truth.%p");
        run.env("SIMGPU_LOG", log).run().success()
    };
    let (plain, traced) = (run(false), run(true));
    let sorted = |ran: &Ran| {
        let text = ran.text();
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&traced), sorted(&plain));
    assert_eq!(traced.stderr, plain.stderr);
    let mut found = Vec::new();
    for recording in traced.recordings() {
        let report = Report::of(&recording);
        report.assert_whole();
        let log = traced.folder().with_file_name(format!("truth.{}", report.0["program"]["pid"]));
        assert_eq!(report.driver_live(), Truth::read(&log).live(), "{}", recording.display());
        let rank = report.0["program"]["rank"].as_str().unwrap_or_default().to_owned();
        found.push((report.device(0, "driver_live_bytes"), rank));
    }
    found.sort();
    found
}

#[test]
fn processes_of_multiprocessing() {
    let python = |how: &str| {
        let how = how.to_owned();
        processes(move || Run::new(torch_python()).simulated().arg(script("processes.py")).arg(&how))
    };
    let none = String::new;
    assert_eq!(python("fork"), [(77, none())]);
    for how in ["spawn", "forkserver"] {
        assert_eq!(python(how), [(77, none()), (1001, none()), (1002, none())], "{how}");
    }
    let pool = python("pool");
    assert_eq!(pool.iter().map(|(bytes, _)| bytes).sum::<u64>(), 77 + 8 * 1000 + 36, "{pool:?}");
}

#[test]
fn ranks() {
    let ranks = |run: &dyn Fn() -> Run| {
        processes(|| run().env("LEAKTRACE_OUT", "rank%r.ltrace").env("OMP_NUM_THREADS", "1"))
    };
    // As `torchrun` starts them, and a launcher's environment alone.
    let two = || {
        let run = Run::new(torch_python()).simulated();
        run.args(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"])
            .arg(script("ranks.py"))
    };
    let segment = 2 << 20;
    assert_eq!(ranks(&two), [(segment, "0".to_owned()), (segment, "1".to_owned())]);
    let one = || Run::new(torch_python()).simulated().arg(script("ranks.py")).env("RANK", "5");
    assert_eq!(ranks(&one), [(segment, "5".to_owned())]);
}
