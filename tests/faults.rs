//! Calls of the driver that fail: each entry point of the list in turn, once and every time. The program sees
//! what it would have seen, and nothing of a failed call stays in the books.

use crate::common::Run;
use crate::common::programs::reaching;
use crate::common::report::Report;

macro_rules! symbols {
    ($($id:ident = $library:ident $name:literal $symbol:literal $since:literal $thread:literal
        $room:ident::$hook:ident [$($end:literal)*];)+) => {
        const LISTED: &[(&str, &str)] = &[$((stringify!($library), stringify!($id)),)+];
    };
}
leaktrace_core::entry_points!(symbols);

/// Runs the program with these failures, without and with the preload; returns how many calls failed.
#[track_caller]
fn failing(flavour: &str, fault: &str) -> u32 {
    let run = || Run::new(reaching("faults", flavour)).arg("6").simulated().env("SIMGPU_FAIL", fault);
    let (plain, traced) = (run().run(), run().traced().env("LEAKTRACE_QUIET", "1").run());
    assert_eq!(traced.status, plain.status, "{fault}: {}", traced.transcript());
    assert_eq!((traced.text(), &traced.stderr), (plain.text(), &plain.stderr), "{fault}");
    match traced.recordings().first() {
        Some(recording) => {
            let report = Report::of(recording);
            assert_eq!(report.driver_live(), traced.truth().live(), "{fault}");
            report.assert_whole();
        }
        // Then the driver was never reached.
        None => assert!(!traced.status.success(), "{fault}: no recording"),
    }
    plain.text().split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[test]
fn every_entry_point_once() {
    let mut met = 0;
    for (_, symbol) in LISTED.iter().filter(|(library, _)| *library == "Driver") {
        met += u32::from(failing("dlsym", &format!("{symbol}:2")) > 0);
    }
    assert!(met >= 40, "only {met} entry points were made to fail");
}

#[test]
fn every_entry_point_every_time() {
    for (_, symbol) in LISTED.iter().filter(|(library, _)| *library == "Driver") {
        failing("proc", &format!("{symbol}:*"));
    }
}

#[test]
fn many_at_once() {
    let fault =
        "cuMemFree:2-4,cuMemFreeAsync:1-3,cuMemUnmap:2,cuMemRelease:3-5,cuMemFreeHost:2,cuArrayDestroy:1-2";
    assert!(failing("link", fault) >= 10);
}
