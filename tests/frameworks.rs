//! Programs whose loop is a framework's: the user's only line is that which calls it. The framework is a small one of
//! the tests' own; real ones are run by `scripts/dev/frameworks-check`.

use crate::common::grows::{flat, run_leaktrace, text};
use crate::common::programs::torch;
use crate::common::report::{Report, call};

#[track_caller]
fn trained(steps: &str) -> (Report, String) {
    let run = torch("frameworks/callback.py").arg(steps).env("LEAKTRACE_QUIET", "1").traced();
    let ran = run.run().success();
    let recording = ran.recording();
    let text = call([recording.as_os_str()]);
    (Report::of(&recording), String::from_utf8(text.stdout).unwrap())
}

#[test]
fn what_a_framework_allocates_for_one_line_is_told_by_its_frame() {
    let (report, text) = trained("40");
    let [leak] = report.findings() else { panic!("{:#?}", report.findings()) };
    let site = &leak["sites"][0];
    let file =
        |at: &str| site[at]["file"].as_str().unwrap_or_default().rsplit('/').next().unwrap().to_owned();
    // Not the `<string>` that the dataclass's `__init__` was made from.
    assert_eq!((file("allocated_at"), &site["allocated_at"]["line"]), ("callback.py".into(), &11.into()));
    assert_eq!(file("library_at"), "engine.py");
    assert_eq!(site["library_at"]["line"], 12);
    let words = "callback.py:11 <module>, in engine.py:12 Output.__post_init__";
    assert!(flat(&text).contains(words), "{text}");
}

#[test]
fn every_command_names_it_so() {
    let run = torch("frameworks/callback.py").arg("40").env("LEAKTRACE_QUIET", "1").traced();
    let ran = run.run().success();
    let (here, file) = (ran.folder(), ran.recording());
    let file = file.to_str().unwrap();
    let words = "callback.py:11 <module>, in engine.py:12 Output.__post_init__";
    let again = here.join("again.ltrace");
    std::fs::copy(file, &again).unwrap();
    for (args, status) in [
        (&["check", file][..], 1),
        (&["check", file, "--github"], 1),
        (&["diff", file, "again.ltrace"], 0),
        (&["top", "--once", file], 0),
    ] {
        let told = text(&run_leaktrace(&here, args), status);
        assert!(flat(&told).contains(words), "{args:?}: {told}");
    }
    text(&run_leaktrace(&here, &["check", file, "--sarif", "x.sarif"]), 1);
    text(&run_leaktrace(&here, &["report", file, "-o", "x.html"]), 0);
    for file in ["x.sarif", "x.html"] {
        let told = std::fs::read_to_string(here.join(file)).unwrap().replace("\\u003c", "<");
        assert!(told.contains(words), "{file}");
    }
}

#[test]
fn backward_passes_end_every_step_where_nothing_else_does() {
    // Before and after it is given up to wait for an optimizer.
    for steps in [20, 64, 65, 100] {
        let (report, text) = trained(&steps.to_string());
        // Each ends what the one before began.
        assert_eq!((report.steps(), report.source()), (steps - 1, "backward"), "{text}");
        let [leak] = report.findings() else { panic!("{:#?}", report.findings()) };
        assert_eq!(
            (&leak["bytes_per_step"], &leak["cohorts"]),
            (&512.0.into(), &(steps - 1).into()),
            "{text}"
        );
        report.assert_whole();
    }
}
