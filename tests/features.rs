//! What PyTorch has beside eager mode: CUDA graphs, compiled modules, pools of the program's own, fused attention, ranks
//! that talk by NCCL. Steps, the leak and its holder are as in any training.

use crate::common::programs::{line_of, torch};
use crate::common::report::Report;

/// The steps that `features.py FEATURE` says it made, and the reports of its processes.
fn reports(feature: &str, devices: &str, mended: bool) -> (u64, Vec<Report>) {
    let run = torch("features.py").arg(feature).args(mended.then_some("--mended"));
    let ran = run.env("SIMGPU_DEVICES", devices).env("LEAKTRACE_QUIET", "1").traced().run().success();
    let text = ran.text();
    let steps = text.trim().strip_suffix(" steps").unwrap_or_else(|| panic!("{text}")).parse().unwrap();
    (steps, ran.recordings().iter().map(|file| Report::of(file)).collect())
}

#[track_caller]
fn told(feature: &str, devices: &str) {
    let line = line_of("features.py", "# kept");
    let (steps, kept) = reports(feature, devices, false);
    assert_eq!(kept.len().to_string(), devices, "{feature}");
    for report in kept {
        assert_eq!((report.steps(), report.source()), (steps, "optimizer"), "{feature}");
        let [leak] = report.findings() else { panic!("{feature}: {:#?}", report.findings()) };
        assert_eq!(
            (&leak["kind"], &leak["sites"][0]["allocated_at"]["line"], &leak["bytes_per_step"]),
            (&"leak".into(), &line.into(), &512.0.into()),
            "{feature}: {leak:#}"
        );
        let holder = leak["holders"][0]["path"].as_str().unwrap_or_default();
        assert!(holder.contains("kept[*]"), "{feature}: {leak:#}");
        report.assert_whole();
    }
    for report in reports(feature, devices, true).1 {
        assert_eq!(
            (report.steps(), report.findings().len()),
            (steps, 0),
            "{feature}: {:#?}",
            report.findings()
        );
    }
}

macro_rules! features {
    ($($feature:ident)+) => { $(#[test] fn $feature() { told(stringify!($feature), "1"); })+ };
}

features! {
    step_in_a_graph passes_in_a_graph adversaries_in_graphs compiled compiled_to_graphs pool flash
}

#[test]
fn ranks() {
    told("ranks", "2");
}
