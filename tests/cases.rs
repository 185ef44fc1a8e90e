//! Training programs whose truth is known: the program runs as without the preload, every step's figures are
//! PyTorch's own, and the leak is found at its line. `scripts/dev/matrix` runs all cases in every
//! combination.

use std::path::Path;

use crate::common::programs::{line_of, torch, torch_at, torch_python, torch_pythons, untraced};
use crate::common::report::Report;
use crate::common::{Ran, Run, root};
use serde_json::Value;

const EXPANDABLE: &str = "expandable_segments:True";
const ASYNC: &str = "backend:cudaMallocAsync";

/// Runs a program without and with the preload; compares what it printed, and the report's figures of each
/// step with PyTorch's and with the truth log.
#[track_caller]
fn figures_agree(run: impl Fn() -> Run, allocator: &str, pins_elsewhere: bool) -> (Ran, Report) {
    let run = |traced: bool| {
        let run = run().steps_by_print().env("LEAKTRACE_QUIET", "1");
        let run = if allocator.is_empty() { run } else { run.env("PYTORCH_CUDA_ALLOC_CONF", allocator) };
        let lengths = run.folder().with_file_name("lengths");
        run.env("STEPS_LOG", lengths).traced_if(traced).run()
    };
    let (plain, traced) = (untraced(|| run(false)), run(true));
    assert_eq!(traced.status, plain.status, "{}", traced.transcript());
    assert_eq!(traced.text(), plain.text());
    assert_eq!(plain.files(), Vec::<String>::new());

    let recording = traced.recording();
    let report = Report::of(&recording);
    let truth = traced.truth();
    let lengths = std::fs::read_to_string(traced.folder().with_file_name("lengths")).unwrap();
    let mut steps = 0;
    let printed = traced.text();
    let prints: Vec<&str> = printed.lines().filter(|l| l.starts_with("step ")).collect();
    // Every step of a short run, some 40 of a long one (`scripts/dev/matrix` looks at all).
    let stride = prints.len() / 40 + 1;
    for (line, length) in prints.iter().zip(lengths.lines()) {
        steps += 1;
        if steps > 3 && steps < prints.len() && steps % stride != 0 {
            continue;
        }
        let steps = steps as u64;
        let at = Report::at(&recording, steps);
        let figure = match allocator {
            // With that allocator PyTorch reports the pool's own figure, which includes the pool's rounding.
            ASYNC => "pool_used_bytes",
            _ => "block_bytes",
        };
        let words: Vec<&str> = line.split_whitespace().skip(2).collect();
        assert!(words.len() >= 4, "{line}");
        for (device, figures) in (0u64..).zip(words.chunks(4)) {
            let ["alloc", allocated, "reserved", reserved] = figures else { panic!("{line}") };
            assert_eq!(at.device(device, figure).to_string(), *allocated, "{figure} at {line}");
            assert_eq!(at.device(device, "reserved_bytes").to_string(), *reserved, "reserved at {line}");
        }
        let length = length.split(' ').next().and_then(|n| n.parse().ok()).unwrap();
        let (mut reported, mut logged) = (at.driver_live(), truth.live_at(length));
        if pins_elsewhere {
            // A thread of the data loader pins memory between the reading of the log's length and the end of
            // the step.
            reported.remove(&-1);
            logged.remove(&-1);
        }
        assert_eq!(reported, logged, "driver memory at {line}");
    }
    assert!(steps > 0, "{}", traced.transcript());
    assert_eq!((report.steps(), report.source()), (steps as u64, "api"));
    assert_eq!(report.driver_live(), truth.live(), "at the very end");
    report.assert_whole();
    (traced, report)
}

/// Checks the figures of a run of `tests/programs/train.py`; returns its report.
#[track_caller]
fn trained(args: &[&str], devices: &str, allocator: &str) -> Report {
    figures_agree(
        || torch("train.py").args(args).env("SIMGPU_DEVICES", devices),
        allocator,
        args.contains(&"--workers"),
    )
    .1
}

#[test]
fn the_native_allocator() {
    trained(&["--churn", "--steps", "30"], "1", "");
}

#[test]
fn expandable_segments() {
    trained(&["--churn", "--steps", "30"], "1", EXPANDABLE);
}

#[test]
fn the_drivers_own_pools() {
    trained(&["--churn", "--steps", "30"], "1", ASYNC);
}

#[test]
fn two_devices() {
    let report = trained(&["--churn", "--devices", "2", "--steps", "20"], "2", "");
    assert!(report.device(0, "live_bytes") > 0 && report.device(1, "live_bytes") > 0);
}

#[test]
fn workers_that_fork() {
    trained(&["--workers", "fork", "--steps", "12"], "1", "");
}

#[test]
fn workers_that_are_spawned() {
    trained(&["--workers", "spawn", "--steps", "12"], "1", "");
}

#[test]
fn workers_of_a_fork_server() {
    trained(&["--workers", "forkserver", "--steps", "12"], "1", "");
}

#[test]
fn leaks_are_found_at_their_line() {
    for (leak, text, function, bytes) in [
        ("losses", "return prediction.square().mean()", "loss_of", 512.0),
        ("outputs", "y = torch.relu(self.inner(x))", "Net.forward", 3072.0),
    ] {
        let report = trained(&["--leak", leak, "--steps", "60"], "1", "");
        let [finding] = report.findings() else { panic!("one leak expected: {:#?}", report.findings()) };
        assert_eq!((&finding["kind"], &finding["layer"]), (&"leak".into(), &"block".into()));
        assert_eq!(
            (&finding["bytes_per_step"], &finding["growth_step_ratio"]),
            (&bytes.into(), &1.0.into()),
            "{leak}"
        );
        let line = &finding["sites"][0]["allocated_at"];
        assert_eq!(
            (&line["line"], &line["function"]),
            (&line_of("train.py", text).into(), &function.into()),
            "{leak}"
        );
        assert!(line["file"].as_str().unwrap().ends_with("train.py"));
        assert!(finding["explanation"].as_str().unwrap().contains("leak"));
    }
}

#[test]
fn what_does_not_leak_is_not_called_a_leak() {
    let report = trained(&["--leak", "none", "--steps", "60"], "1", "");
    assert_eq!(report.findings(), Vec::<Value>::new());
}

/// Checks the figures of a run of a known case, and its leaks against those in `expected.json`.
#[track_caller]
fn known_case(case: &str, args: &[&str]) {
    known_case_with(&torch_python(), case, args);
}

#[track_caller]
fn known_case_with(python: &Path, case: &str, args: &[&str]) {
    let folder = root().join("tests/cases").join(case);
    let program = folder.join("train.py");
    let run = || Run::new(python).simulated().arg(&program).args(args).args(["--device", "cuda"]);
    let (_, report) = figures_agree(run, "", false);
    let expected: Value =
        serde_json::from_slice(&std::fs::read(folder.join("expected.json")).unwrap()).unwrap();
    let runs = expected["runs"].as_array().unwrap();
    let this = runs.iter().find(|r| r["args"] == Value::from(args.to_vec())).expect("this run is expected");
    let leaks: Vec<&Value> = report.findings().iter().filter(|f| f["kind"] == "leak").collect();
    let wanted = this["findings"].as_array().unwrap().iter().filter(|f| f["kind"] == "leak");
    let mut count = 0;
    for wanted in wanted {
        count += 1;
        let lines: Vec<&str> =
            wanted["allocated_at"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
        let is_at = |f: &Value| {
            let frame = &f["sites"][0]["allocated_at"];
            let file = frame["file"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default();
            lines.contains(&format!("{file}:{}", frame["line"]).as_str())
        };
        assert!(leaks.iter().any(|f| is_at(f)), "{case} {args:?}: no leak at {lines:?} in {leaks:#?}");
    }
    assert!(count > 0 || leaks.is_empty(), "{case} {args:?}: no leak here, but {leaks:#?}");
}

#[test]
fn one_loss_kept_each_step() {
    known_case("torchtitan_losses", &[]);
}

#[test]
fn a_fixed_program() {
    known_case("torchtitan_losses", &["--fixed"]);
}

#[test]
fn a_spike_at_the_end() {
    known_case("not_leak_eval_spike", &[]);
}

/// `scripts/test` makes the oldest; `scripts/dev/versions` scores the verdicts with every one.
#[test]
fn other_versions_of_pytorch() {
    for python in &torch_pythons()[1..] {
        for case in ["torchtitan_losses", "leaky_layer", "simpletuner_unload"] {
            known_case_with(python, case, &[]);
        }
    }
}

#[test]
fn an_error_in_the_second_step() {
    known_case("leaky_layer", &["--variant", "midnet"]);
}

/// The carried bytes hang on the context of a function of one's own, whose graph two variables hold. Where a node of such a
/// graph keeps its Python object differs between the versions of PyTorch.
#[test]
fn a_functions_context_is_held_by_whoever_holds_its_graph() {
    let program = root().join("tests/cases/espnet_retval/train.py");
    for python in torch_pythons() {
        let run = Run::new(&python).simulated().arg(&program).args(["--device", "cuda"]).traced();
        let ran = run.env("LEAKTRACE_QUIET", "1").run().success();
        let report = Report::of(&ran.recording());
        let carried = report.findings().iter().find(|f| f["kind"] == "carry-over");
        let holders = carried.and_then(|f| f["holders"].as_array()).cloned().unwrap_or_default();
        let by = |name: &str| {
            let path = |h: &Value| h["path"].as_str().unwrap_or_default().to_owned();
            holders.iter().map(path).any(|p| p.contains(name) && p.ends_with("RNNTBackward.grads"))
        };
        assert!(by("`loss`.grad_fn") && by("`retval`[0].grad_fn"), "{}: {holders:#?}", python.display());
    }
}

#[test]
fn what_stays_after_its_unloading_stays_with_every_allocator() {
    let program = root().join("tests/cases/simpletuner_unload/train.py");
    for allocator in ["backend:native", ASYNC] {
        let run = torch_at(&program).args(["--device", "cuda"]).traced();
        let run = run.env("PYTORCH_CUDA_ALLOC_CONF", allocator);
        let report = Report::of(&run.env("LEAKTRACE_QUIET", "1").run().success().recording());
        let residue = report.findings().iter().find(|f| f["kind"] == "residue");
        let line = residue.map_or(&Value::Null, |f| &f["sites"][0]["allocated_at"]["line"]);
        assert!(
            [60, 61].contains(&line.as_u64().unwrap_or_default()),
            "{allocator}: {:#?}",
            report.findings()
        );
        assert_eq!(residue.map(|f| &f["live_blocks"]), Some(&52.into()), "{allocator}");
        let emptied = report.0["steps"]["annotation_counts"].to_string();
        assert!(emptied.contains("empty-cache"), "{allocator}: {emptied}");
    }
}
