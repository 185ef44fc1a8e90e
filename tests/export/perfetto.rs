//! Perfetto's trace, read by the message types of the `perfetto` package as its trace processor would. That itself is not
//! in the package: what is there is a client, which downloads the program when it is first used, and tests have nothing
//! but packages.

use serde_json::Value;

use super::{export, leaking_line, list, native, number, read, text, trained};
use crate::common::report::Report;

#[test]
fn a_perfetto_trace() {
    let (ran, other) = (trained("outputs", "20").env("RANK", "1").run().success(), native("400"));
    let files = [ran.recording(), other.recording()];
    let report = Report::of(&files[0]);
    let (_folder, file) = export(&files, &["--to", "perfetto"]);
    let trace = read("read_perfetto.py", &file);
    let names: Vec<&str> = list(&trace["processes"]).iter().map(|p| text(&p["name"])).collect();
    assert!(
        names.len() == 2 && names[0] == "train.py rank 1" && names[1].starts_with("driver_calls_proc pid "),
        "{names:?}"
    );

    let (_folder, file) = export(&files[..1], &["--to", "perfetto"]);
    let trace = read("read_perfetto.py", &file);
    for (figure, counter) in [("live_bytes", "live"), ("reserved_bytes", "reserved")] {
        assert_eq!(
            trace["counters"][format!("device 0 {counter} bytes")],
            report.device(0, figure),
            "{figure}"
        );
    }
    let slices = list(&trace["slices"]);
    let of = |track: &'static str| slices.iter().filter(move |s| s["track"] == track);
    let steps: Vec<&Value> = of("steps").collect();
    assert_eq!((steps.len() as u64, &steps[19]["name"]), (report.steps(), &"step 20".into()));
    assert!(steps.windows(2).all(|s| s[0]["end"] == s[1]["begin"]));
    // Of each step one block of the leaking line is left when the program says that it ends; each lies in its step.
    let leaks =
        of("device 0 blocks").filter(|s| text(&s["name"]).contains(&format!("train.py:{})", leaking_line())));
    let leaks: Vec<&Value> = leaks
        .filter(|s| s["bytes"] == 3072 && s["end"].as_u64().is_none_or(|end| end > number(&steps[19]["end"])))
        .collect();
    assert_eq!(leaks.len(), 20);
    for (i, leak) in leaks.iter().enumerate() {
        let step = steps[number(&leak["step"]) as usize - 1];
        assert_eq!(number(&leak["step"]), i as u64 + 1);
        assert!(
            number(&step["begin"]) <= number(&leak["begin"])
                && number(&leak["begin"]) <= number(&step["end"])
        );
        assert!(text(&leak["stack"]).contains("forward"), "{leak}");
    }
    // Alive when the last step ended: what began before and ended after.
    let end = number(&steps[19]["end"]);
    let alive = of("device 0 blocks")
        .filter(|s| number(&s["begin"]) <= end && s["end"].as_u64().is_none_or(|e| e > end));
    assert_eq!(alive.map(|s| number(&s["bytes"])).sum::<u64>(), report.device(0, "block_bytes"));

    let few = export(&files[..1], &["--to", "perfetto", "--events", "10"]);
    let few = read("read_perfetto.py", &few.1);
    let told = list(&few["slices"]).iter().filter(|s| s["track"] != "steps").count();
    assert!(told <= 10, "{told}");
}
