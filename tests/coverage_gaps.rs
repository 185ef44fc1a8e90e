//! What cannot be attributed is reported: memory that grows where no allocation is seen, forms of functions
//! that are newer than the list, memory of others.

use crate::common::Run;
use crate::common::programs::{compile, families, reaching};
use crate::common::report::{Report, call};

/// A report of the program `unseen`, and its text.
#[track_caller]
fn unseen(how: &str, steps: u32) -> (Report, String) {
    let run = Run::new(reaching("unseen", "proc")).simulated().traced().args([how, &steps.to_string()]);
    let ran = run.run().success();
    let recording = ran.recording();
    let text = crate::common::report::call([recording.as_os_str()]);
    (Report::of(&recording), String::from_utf8(text.stdout).unwrap())
}

#[test]
fn growth_that_nobody_asked_for_is_a_finding() {
    let (report, text) = unseen("keep", 80);
    let [finding] = report.findings() else { panic!("{:#?}", report.findings()) };
    assert_eq!((&finding["kind"], &finding["device"]), (&"growing".into(), &0.into()));
    assert_eq!(finding["growth_bytes_per_step"], f64::from(2 << 20));
    assert_eq!(finding["sites"].as_array().map(Vec::len), Some(0));
    let told = finding["explanation"].as_str().unwrap();
    assert!(told.contains("unattributed memory"), "{told}");
    assert!(text.contains("1 growth of unattributed memory: 2.0 MiB per step"), "{text}");
    // And what may be behind it is named.
    let markers = report.coverage("untracked_calls").as_array().unwrap();
    let loads = markers.iter().find(|m| m["entry_point"] == "cuModuleLoadData").expect("loads are counted");
    assert_eq!(loads["calls"], 80);
    assert_eq!(report.device(0, "unattributed_bytes") >> 21, 80);
}

#[test]
fn on_a_device_that_others_use_it_is_not_judged() {
    let (report, text) = unseen("shared", 80);
    assert_eq!(report.findings().len(), 0, "{:#?}", report.findings());
    assert!(report.device(0, "unattributed_bytes") >> 30 >= 2);
    assert!(text.contains("(CUDA context, other processes: whether it grows is not judged)"), "{text}");
}

#[test]
fn what_is_given_back_or_over_early_is_none() {
    for how in ["drop", "early"] {
        let (report, text) = unseen(how, 80);
        assert_eq!(report.findings().len(), 0, "{how}: {:#?}", report.findings());
        assert!(text.starts_with("No leak in "), "{text}");
    }
}

#[test]
fn whole_pages_that_seen_objects_take_are_no_growth_of_their_own() {
    let (report, text) = unseen("pages", 80);
    let [finding] = report.findings() else { panic!("{:#?}", report.findings()) };
    assert_eq!((&finding["bytes_per_step"], &finding["blocks_per_step"]), (&1048576.0.into(), &1.0.into()));
    assert!(report.device(0, "unattributed_bytes") >> 20 >= 80, "no page was rounded up: nothing tested");
    assert!(!text.contains("growth of unattributed memory"), "{text}");
}

#[test]
fn a_newer_form_of_a_known_function_is_a_hole_by_name() {
    let driver =
        compile("future_driver.c", "libcuda.so.1", &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]);
    let program = compile("future.c", "future", &[]);
    for how in ["proc", "dlsym"] {
        let run = || Run::new(&program).arg(how).env("LD_LIBRARY_PATH", driver.parent().unwrap());
        let (plain, traced) =
            (run().run().success(), run().traced().env("LEAKTRACE_QUIET", "1").run().success());
        assert_eq!(traced.stdout, plain.stdout);
        let report = Report::of(&traced.recording());
        let holes = report.coverage("gaps").as_array().unwrap();
        let [hole] = &holes[..] else { panic!("{how}: {holes:?}") };
        assert!(hole.as_str().unwrap().contains("cuMemAlloc_v3"), "{how}: {hole}");
        assert_eq!(report.device(0, "driver_live_bytes"), 1000, "{how}");
    }
}

#[test]
fn external_memory_counts_apart() {
    let ran = Run::new(families("proc")).simulated().traced();
    let ran = ran.args(["77", "4000", "20", "1", "primary", "keep"]).run().success();
    let report = Report::of(&ran.recording());
    let external = |s: &&serde_json::Value| {
        s["entry_point"] == "cuIpcOpenMemHandle" || s["entry_point"] == "cuImportExternalMemory"
    };
    let held: u64 =
        report.retained().iter().filter(external).map(|s| s["live_bytes"].as_u64().unwrap()).sum();
    assert!(held > 0, "no external memory was live: nothing tested");
    assert!(report.device(0, "external_bytes") >= held);
    for site in report.retained().iter().filter(external) {
        assert_eq!(site["layer"], "external", "{site:#}");
    }
    let text = String::from_utf8(call([ran.recording()]).stdout).unwrap();
    assert!(text.contains("(external,") && text.contains(", external "), "{text}");
    assert_eq!(report.driver_live(), ran.truth().live());
}
