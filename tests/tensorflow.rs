//! TensorFlow on the simulated GPU: the blocks of its own allocator, where no hook of CUDA's sees more than one segment. Its
//! wheel is too large for every machine: where `scripts/dev/tensorflow-env` has not made its environment, nothing is run.

use std::path::PathBuf;

use crate::common::grows::flat;
use crate::common::programs::{line_of, script};
use crate::common::report::{Report, call};
use crate::common::{Run, target};

/// Returns the Python that has TensorFlow; says so where there is none.
fn python() -> Option<PathBuf> {
    let folder = target().join("tensorflow-env");
    if !folder.join(".complete").exists() {
        println!("not run: no TensorFlow here (scripts/dev/tensorflow-env)");
        return None;
    }
    Some(folder.join("bin/python"))
}

fn untraced(python: PathBuf, program: &str) -> Run {
    Run::new(python)
        .simulated()
        .env("LEAKTRACE_QUIET", "1")
        .env("TF_CPP_MIN_LOG_LEVEL", "3")
        .arg(script(&format!("tensorflow/{program}.py")))
}

fn mark(program: &str) -> u64 {
    line_of(&format!("tensorflow/{program}.py"), "# made")
}

/// Runs a program that leaks, and mended; returns what the first one's report says.
#[track_caller]
fn judged(program: &str, steps: u64, bytes: f64, holder: &str) -> Option<String> {
    let python = python()?;
    let leaking = untraced(python.clone(), program).traced().run().success();
    let recording = leaking.recording();
    let report = Report::of(&recording);
    assert_eq!((report.steps(), report.source()), (steps, "loop"), "{program}");
    let [finding] = report.findings() else { panic!("{program}: {:#?}", report.findings()) };
    assert_eq!(finding["kind"], "leak", "{finding:#}");
    assert_eq!(finding["sites"][0]["allocated_at"]["line"], mark(program), "{finding:#}");
    assert_eq!(finding["bytes_per_step"], bytes, "{finding:#}");
    let holders = finding["holders"].as_array().unwrap();
    let named = |h: &serde_json::Value| h["path"].as_str().unwrap().contains(holder);
    assert!(holders.iter().any(named), "{program}: {holders:#?}");
    report.assert_whole();

    let mended = untraced(python, program).arg("mended").traced().run().success();
    let report = Report::of(&mended.recording());
    assert_eq!((report.steps(), report.findings().len()), (steps, 0), "{program}: {:#?}", report.findings());
    Some(String::from_utf8(call([recording.as_os_str()]).stdout).unwrap())
}

#[test]
fn what_a_function_allocates_is_of_the_line_that_calls_it() {
    let Some(text) = judged("function", 60, 1_048_576.0, "log.gradients[*]") else { return };
    let told = flat(&text);
    assert!(told.contains("in gradient_tape/MatMul"), "the operation: {text}");
    assert!(told.contains("store `.numpy()` in `log.gradients[*]`"), "{text}");
    for word in ["torch", "PyTorch", ".item()", "backward pass", "Fragmentation"] {
        assert!(!told.contains(word), "{word}: {text}");
    }
}

#[test]
fn batches_of_fit_are_steps() {
    judged("fit", 60, 262_144.0, "outputs[*]");
}

#[test]
fn what_xla_compiled_is_of_the_line_that_calls_fit() {
    judged("fit_by_xla", 120, 16640.0, "keeper.weights[*][*]");
}

#[test]
fn a_loop_of_nothing_but_calls_has_steps() {
    judged("called", 80, 65536.0, "kept[*]");
}

/// What the function's traces hold goes when the caller returns: it was kept all the same.
#[test]
fn what_a_function_keeps_of_each_trace_is_a_leak_though_it_goes_at_the_end() {
    let Some(python) = python() else { return };
    let ran = untraced(python, "traced").traced().run().success();
    let report = Report::of(&ran.recording());
    let [finding] = report.findings() else { panic!("{:#?}", report.findings()) };
    assert_eq!((report.steps(), &finding["kind"]), (60, &"leak".into()), "{finding:#}");
    assert_eq!(finding["bytes_per_step"], 262_144.0 + 256.0, "{finding:#}");
}

#[test]
fn live_bytes_are_those_of_get_memory_info() {
    let Some(python) = python() else { return };
    let run = |traced| {
        let run = untraced(python.clone(), "live").env("SIMGPU_DEVICES", "2").env("LEAKTRACE_STEP", "api");
        run.traced_if(traced).run().success()
    };
    let ran = run(true);
    let (recording, text) = (ran.recording(), ran.text());
    let mut count = 0;
    for (step, point) in (1..).zip(text.lines()) {
        let report = Report::at(&recording, step);
        let mut figures = point.rsplitn(3, ' ');
        for device in [1, 0] {
            let used: u64 = figures.next().unwrap().parse().unwrap();
            assert_eq!(report.device(device, "block_bytes"), used, "device {device} at {point}");
        }
        count += 1;
    }
    assert!(count >= 10, "{text}");
    let report = Report::of(&recording);
    report.assert_whole();
    let failures = report.0["out_of_memory"].as_array().unwrap();
    assert!(failures.iter().any(|oom| oom["requested_bytes"] == 1u64 << 42), "{failures:#?}");
    assert_eq!(text, run(false).text(), "nothing of a program changes");
}

/// A tape has what it recorded in C++ objects, which no collector sees.
#[test]
fn what_tapes_have_recorded() {
    let Some(text) = judged("tapes", 40, 786_432.0, "tapes[*] → what it recorded") else { return };
    assert!(flat(&text).contains("do not keep the tape"), "{text}");
}

/// Most of what the loop does makes models, and nothing else comes round.
#[test]
fn models_that_are_made_in_a_loop() {
    judged("models", 40, 263_168.0, "models[*]");
}

/// It keeps each number of Python's on the device: no object of the program's does.
#[test]
fn numbers_that_are_new_in_each_step() {
    let Some(python) = python() else { return };
    let run = untraced(python, "scalars").traced().run().success();
    let text = String::from_utf8(call([run.recording().as_os_str()]).stdout).unwrap();
    assert!(
        flat(&text).contains("pass `tf.constant(np.float32(x))` or an array instead of a number"),
        "{text}"
    );
}
