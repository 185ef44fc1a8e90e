//! PyTorch's snapshot, opened by PyTorch's own viewer.

use std::fs;

use serde_json::Value;

use super::{export, leaking_line, list, number, text, trained};
use crate::common::programs::torch_python;
use crate::common::report::Report;
use crate::common::{Run, root};

#[test]
fn a_pytorch_snapshot() {
    snapshot_of(trained("outputs", "20").arg("--churn"), "segment_alloc", Some("segment_free"));
}

#[test]
fn a_snapshot_of_expandable_segments() {
    let run = trained("outputs", "20").arg("--churn");
    snapshot_of(
        run.env("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        "segment_map",
        // Pages in use here and there in it: PyTorch unmaps none.
        None,
    );
}

#[track_caller]
fn snapshot_of(run: Run, grows: &str, shrinks: Option<&str>) {
    let ran = run.run().success();
    let recording = ran.recording();
    let report = Report::of(&recording);
    let (folder, file) = export(&[recording], &["--to", "snapshot"]);
    let visualizer = |args: &[&str]| {
        let viewer = Run::new(torch_python()).simulated().args(args).arg(&file);
        viewer.arg("-o").arg(folder.path().join("plot.html")).run().success().text()
    };
    let reader = root().join("tests/consumers/read_snapshot.py");
    let snapshot: Value = serde_json::from_str(&visualizer(&[reader.to_str().unwrap()])).unwrap();
    let blocks = list(&snapshot["blocks"]);
    assert_eq!(blocks.iter().map(|b| number(&b["bytes"])).sum::<u64>(), report.device(0, "live_bytes"));
    let objects = report.device(0, "driver_allocation_bytes");
    assert_eq!(number(&snapshot["reserved"]), report.device(0, "reserved_bytes") + objects);
    let leaks = blocks.iter().filter(|b| {
        b["frames"][0][2] == "Net.forward" || b["frames"].to_string().contains("\"Net.forward\"")
    });
    let leaks: Vec<&Value> = leaks.filter(|b| b["bytes"] == 3072).collect();
    assert_eq!(leaks.len(), 20);
    let own = list(&leaks[0]["frames"]).iter().find(|f| text(&f[0]).ends_with("train.py")).unwrap();
    assert_eq!(own[1], leaking_line());
    // What the trace leaves alive is what the blocks say.
    assert_eq!(snapshot["traces"][0]["held"], report.device(0, "live_bytes"));
    let counts = &snapshot["traces"][0];
    let count = |of: &str| counts[of].as_u64().unwrap_or(0);
    assert!(count(grows) > 1 && shrinks.is_none_or(|name| count(name) > 0), "{counts}");
    // PyTorch's own command draws it; the reader had the other one's function do so.
    visualizer(&["-m", "torch.cuda._memory_viz", "trace_plot"]);
    for plot in
        [fs::read_to_string(folder.path().join("plot.html")).unwrap(), text(&snapshot["plot"]).to_owned()]
    {
        assert!(plot.contains("add_local_files") && plot.len() > 10_000, "{} bytes", plot.len());
    }
}
