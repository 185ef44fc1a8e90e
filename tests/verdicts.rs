//! Is it a leak? Programs of many idioms, half of which leak nothing, each with its truth beside it
//! (`programs/verdicts/NAME.json`): judged by every step it prints, and left to itself.
//!
//! `at`: the comments that mark the lines which allocate; `also`: kinds that are right too; `required: false`: may be
//! told; `single`: one finding, however many lines.

use std::path::Path;

use crate::common::programs::{line_of, script, torch};
use crate::common::report::{Report, call};
use serde_json::{Value, json};

const ACCUSING: [&str; 6] = ["leak", "growing", "pending-gc", "residue", "fragmentation", "carry-over"];

/// The lines of a program with one of these comments.
fn lines(name: &str, truth: &Value) -> Vec<u64> {
    let source = std::fs::read_to_string(script(&format!("verdicts/{name}.py"))).unwrap();
    let marks: Vec<&str> = truth["at"].as_array().unwrap().iter().map(|m| m.as_str().unwrap()).collect();
    let marked = |l: &str| marks.iter().any(|m| l.ends_with(m));
    let lines = (1..).zip(source.lines()).filter(|(_, l)| marked(l)).map(|(n, _)| n).collect::<Vec<_>>();
    assert_eq!(lines.len(), marks.len(), "{name}: {marks:?}");
    lines
}

fn is_at(finding: &Value, lines: &[u64]) -> bool {
    let sites = finding["sites"].as_array().unwrap();
    sites.iter().any(|s| s["allocated_at"]["line"].as_u64().is_some_and(|l| lines.contains(&l)))
}

#[track_caller]
fn near(what: &str, got: &Value, wanted: &Value, share: f64) {
    let Some(wanted) = wanted.as_f64() else { return };
    let got = got.as_f64().unwrap();
    assert!((got - wanted).abs() <= share * wanted, "{what}: {got}, not {wanted}");
}

#[track_caller]
fn judged(name: &str, report: &Report, by: &str) {
    let truth: Value =
        serde_json::from_slice(&std::fs::read(script(&format!("verdicts/{name}.json"))).unwrap()).unwrap();
    let kind = |f: &Value| f["kind"].as_str().unwrap().to_owned();
    let mut accused: Vec<&Value> =
        report.findings().iter().filter(|f| ACCUSING.contains(&kind(f).as_str())).collect();
    for truth in truth["findings"].as_array().unwrap() {
        let lines = lines(name, truth);
        let also = truth["also"].as_array().cloned().unwrap_or_default();
        let right =
            |f: &&Value| is_at(f, &lines) && (f["kind"] == truth["kind"] || also.contains(&f["kind"]));
        let found: Vec<&Value> = report.findings().iter().filter(right).collect();
        accused.retain(|f| !right(f));
        let [first, rest @ ..] = &found[..] else {
            assert_eq!(
                truth["required"],
                false,
                "{name} by {by}: not found: {truth:#}\n{:#?}",
                report.findings()
            );
            continue;
        };
        if truth["single"] == true {
            assert!(rest.is_empty(), "{name} by {by}: one cause, {} findings", found.len());
        }
        near(&format!("{name} by {by}, bytes"), &first["bytes_per_step"], &truth["bytes_per_step"], 0.01);
        let (average, wanted) = (&first["growth_bytes_per_step"], &truth["average_bytes_per_step"]);
        near(&format!("{name} by {by}, average"), average, wanted, 0.01);
        let (late, wanted) = (&first["late_bytes_per_step"], &truth["late_bytes_per_step"]);
        near(&format!("{name} by {by}, late"), late, wanted, 0.01);
        near(&format!("{name} by {by}, blocks"), &first["blocks_per_step"], &truth["blocks_per_step"], 0.01);
        near(&format!("{name} by {by}, live"), &first["live_bytes"], &truth["live_bytes"], 0.01);
        near(&format!("{name} by {by}, share"), &first["growth_step_ratio"], &truth["adding_share"], 0.1);
        near(&format!("{name} by {by}, period"), &first["period_steps"], &truth["period"], 0.05);
    }
    assert!(accused.is_empty(), "{name} by {by}: false: {accused:#?}");
}

#[track_caller]
fn verdict(name: &str) {
    let program = format!("verdicts/{name}.py");
    let run = |by_print: bool| {
        let run = torch(&program).env("LEAKTRACE_QUIET", "1").traced();
        if by_print { run.steps_by_print() } else { run }.run().success()
    };
    let ran = run(true);
    let printed = ran.text().lines().filter(|l| l.starts_with("step ")).count() as u64;
    let report = Report::of(&ran.recording());
    assert_eq!(report.steps(), printed);
    judged(name, &report, "api");
    // Left to itself it counts the optimizer's steps; where they are not all there is, that is another matter.
    let report = Report::of(&run(false).recording());
    if report.steps() == printed {
        judged(name, &report, "itself");
    }
}

/// A program with phases in which no optimizer steps, left to itself.
#[track_caller]
fn phased(name: &str, steps: u64, between: u64) {
    let report = Report::of(
        &torch(&format!("verdicts/{name}.py"))
            .env("LEAKTRACE_QUIET", "1")
            .traced()
            .run()
            .success()
            .recording(),
    );
    assert_eq!((report.steps(), &report.0["steps"]["phase_steps"]), (steps, &between.into()), "{name}");
    judged(name, &report, "itself");
}

#[test]
fn what_an_evaluation_gathers_is_not_judged_before_it_is_over() {
    phased("final_predictions", 90 + 60, 60);
}

#[test]
fn what_the_last_loop_gathers_is_told_and_a_leak_if_it_is_most_of_the_run() {
    let report = |what: &str, steps: &str| {
        let run = torch("verdicts/last_loop.py").args([what, steps]).env("LEAKTRACE_QUIET", "1").traced();
        Report::of(&run.run().success().recording())
    };
    let told = |what: &str, steps: &str| -> Vec<Value> {
        let of = |f: &Value| json!([f["kind"], f["holders"][0]["path"], f["bytes_per_step"]]);
        report(what, steps).findings().iter().map(of).collect()
    };
    let held = |kind: &str, by: &str| vec![json!([kind, by, 2048.0])];
    assert_eq!(told("keeps", "60"), held("last-loop", "__main__.found[*]"));
    let released = report("releases", "60");
    let gathered = |f: &Value| json!([f["kind"], f["holders"][0]["path"], f["bytes_per_step"]]);
    let others: Vec<Value> = released.0["non_leaks"].as_array().unwrap().iter().map(gathered).collect();
    assert!(
        released.findings().is_empty()
            && others.contains(&json!(["gathered", "gather() local `features`[*]", 2048.0])),
        "{others:#?}"
    );
    // So long a loop is searched while it runs.
    assert_eq!(told("keeps", "200"), held("leak", "gather() local `features`[*]"));
    // Longer than the training, but not by far: the run is neither short nor irregular.
    let longer = report("keeps", "120");
    let [f] = longer.findings() else { panic!("{:#?}", longer.findings()) };
    let why = f["why"].as_str().unwrap();
    assert!(f["kind"] == "growing" && why.contains("That loop ran once, up to the end of the run"), "{f:#}");
    // One list had losses of the training before.
    let [one] = &told("goes-on", "60")[..] else { panic!("one cause") };
    assert_eq!(one[0], "leak");
}

/// No step is seen there: it is told and not judged.
#[test]
fn what_is_gathered_after_the_last_step_is_told_with_its_line_and_holder() {
    let told = |what: &str| -> Vec<Value> {
        let run = torch("verdicts/served_after.py").arg(what).env("LEAKTRACE_QUIET", "1").traced();
        let report = Report::of(&run.run().success().recording());
        let of = |f: &Value| {
            let line = &f["sites"][0]["allocated_at"]["line"];
            json!([f["kind"], line, f["live_blocks"], f["live_bytes"], f["holders"][0]["path"]])
        };
        report.findings().iter().map(of).collect()
    };
    let line = line_of("verdicts/served_after.py", "# answer");
    assert_eq!(told("keeps"), [json!(["after-last", line, 200, 200 * 2048, "__main__.answers[*]"])]);
    assert_eq!(told("drops"), Vec::<Value>::new());
    assert_eq!(told("sets-up"), Vec::<Value>::new());
}

#[test]
fn what_is_much_and_no_leak_has_its_line_and_its_holder_too() {
    let at = format!("kept_and_known.py:{} <module>", line_of("verdicts/kept_and_known.py", "# out"));
    for (how, size, held, why) in [
        ("stops", "480.0 KiB", "`bank[*]` in __main__", "no more since step 60"),
        ("slots", "1.2 MiB", "`slots[*]` in __main__", "it can grow to 156.2 MiB"),
        ("renews", "328.0 KiB", "`latest[*]` in __main__", "older ones of this line are released"),
        ("draws", "248.0 KiB", "`drawn[*]` in __main__", "older ones of this line are released"),
        ("waits", "232.0 KiB", "`waiting[*]` in __main__", "older ones of this line are released"),
    ] {
        let run = torch("verdicts/kept_and_known.py").arg(how).env("LEAKTRACE_QUIET", "1").traced();
        let text = String::from_utf8(call([run.run().success().recording()]).stdout).unwrap();
        let told = text.replace("\n    ", " ");
        assert!(text.starts_with("No leak in 160 steps.\n"), "{text}");
        assert!(told.contains(&format!("\n  {size} at {at}, held by {held}: {why}\n")), "{text}");
    }
}

/// Most steps allocate nothing: the device's work shows them.
#[test]
fn a_cache_that_is_full_is_no_leak_though_those_who_find_what_they_need_allocate_nothing() {
    let report = |what: &str| {
        let run = torch("verdicts/served_from_a_cache.py").arg(what).env("LEAKTRACE_QUIET", "1").traced();
        Report::of(&run.run().success().recording())
    };
    let fills = report("fills");
    assert_eq!((fills.steps(), fills.findings()), (400, &[][..]));
    let keeps = report("keeps");
    let [leak] = keeps.findings() else { panic!("{:#?}", keeps.findings()) };
    let line = line_of("verdicts/served_from_a_cache.py", "# clone");
    assert_eq!((keeps.steps(), &leak["sites"][0]["allocated_at"]["line"]), (400, &line.into()));
    let rates = ["bytes_per_step", "growth_bytes_per_step"].map(|rate| leak[rate].as_f64().unwrap());
    assert_eq!(rates, [16384.0, 1638.4]);
}

#[test]
fn what_is_reserved_for_a_leak_is_told_with_it_and_not_as_no_leak() {
    let run = torch("verdicts/graph_per_request.py").env("LEAKTRACE_QUIET", "1").traced().run().success();
    let text = String::from_utf8(call([run.recording()]).stdout).unwrap();
    let told = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains(" 1. Leak (confirmed): 4.0 KiB (2 blocks) per step, 400.0 KiB so far "), "{text}");
    let reserved = told.split("; all reserved memory +").nth(1).unwrap().split(';').next().unwrap();
    assert!(reserved.ends_with(" MiB, 2.0 MiB per step"), "{text}");
    assert!(!told.contains("more reserved than"), "{text}");
}

#[test]
fn the_graph_that_a_validation_gathers_is_a_sawtooth_with_its_lines() {
    let run = torch("verdicts/validation_graph.py").env("LEAKTRACE_QUIET", "1").traced().run().success();
    let text = String::from_utf8(call([run.recording()]).stdout).unwrap();
    let answer = text.split("\n  python").next().unwrap().replace("\n  ", " ");
    assert!(
        answer.starts_with("No leak in 250 steps; 1 sawtooth: ") && answer.contains(" validate"),
        "{text}"
    );
}

#[test]
fn what_evaluations_leave_behind_is_a_leak_though_training_follows() {
    phased("evaluation_keeps", 5 * 24 + 4 * 20, 4 * 20);
}

/// Steps of the training stand between them, and at the end.
#[test]
fn what_rollouts_leave_behind_is_as_much_on_average_as_in_each_of_them() {
    phased("rollouts", 8 * 8 + 8 * 16, 8 * 16);
}

#[test]
fn what_training_left_behind_is_a_leak_though_an_evaluation_follows() {
    phased("losses_then_evaluation", 90 + 120, 120);
}

#[test]
fn what_the_last_epoch_left_behind_its_last_step_is_the_trainings_too() {
    phased("epochs_then_evaluation", 50 + 40, 40);
}

#[test]
fn what_a_training_without_an_optimizer_left_behind_is_a_leak_too() {
    let run = torch("verdicts/by_hand_then_evaluation.py").env("LEAKTRACE_QUIET", "1").traced();
    let report = Report::of(&run.run().success().recording());
    // Both loops; the second one shows to be of the same level after a while only.
    assert!(report.steps() > 300 && report.source() == "loop", "{} steps", report.steps());
    judged("by_hand_then_evaluation", &report, "itself");
}

#[test]
fn what_a_test_joins_is_no_leak_though_it_is_longer_than_the_training() {
    phased("tested_at_last", 100 + 300, 300);
}

#[test]
fn what_an_encoder_made_first_is_a_cache() {
    phased("encoder_first", 30 + 90, 30);
}

#[test]
fn what_is_released_again_and_again_is_no_leak_and_no_more_than_has_gathered() {
    let run = torch("verdicts/flushed.py").env("LEAKTRACE_QUIET", "1").traced().run().success();
    let text = String::from_utf8(call([run.recording()]).stdout).unwrap();
    let answer = text.split("\n  python").next().unwrap().replace("\n  ", " ");
    assert!(answer.starts_with("No leak in 64 steps; 1 sawtooth: 16.0 KiB per step at "), "{text}");
    // The workspace that the first call set up under this line is no part of it.
    assert!(
        text.contains(
            "1. Sawtooth (confirmed): 16.0 KiB (1 block) per step, 128.0 KiB since the last release"
        ),
        "{text}"
    );
    assert!(!text.contains("C or C++ code"), "{text}");
}

#[test]
fn what_a_line_set_up_first_does_not_flatten_the_curve_of_its_growth() {
    let run = torch("verdicts/flushed.py").arg("keep").env("LEAKTRACE_QUIET", "1").traced().run().success();
    let report = Report::of(&run.recording());
    let [leak] = report.findings() else { panic!("{:#?}", report.findings()) };
    let curve = leak["retained_over_steps"].as_array().unwrap();
    let bytes: Vec<u64> = curve.iter().map(|p| p["bytes"].as_u64().unwrap()).collect();
    assert_eq!(bytes.last(), leak["live_bytes"].as_u64().as_ref(), "{bytes:?}");
    assert!(bytes[bytes.len() / 2] * 3 < bytes[bytes.len() - 1] * 2, "{bytes:?}");
}

#[test]
fn a_line_of_the_program_comes_before_what_has_none() {
    let run = torch("verdicts/second_derivative.py").env("LEAKTRACE_QUIET", "1").traced();
    let report = Report::of(&run.run().success().recording());
    let leak = &report.findings()[0];
    let sites = leak["sites"].as_array().unwrap();
    let has_line = |site: &Value| site["allocated_at"]["line"].is_u64();
    let bytes = |site: &Value| site["live_bytes"].as_u64();
    // The largest has none, or the order would show nothing.
    let largest = sites.iter().max_by_key(|site| bytes(site)).unwrap();
    assert!(!has_line(largest) && has_line(&sites[0]), "{sites:#?}");
    assert!(sites.is_sorted_by_key(|site| !has_line(site)), "{sites:#?}");
}

/// `leaktrace report FILE --suppressions RULES`, as JSON or as what it says of a fault.
fn suppressed(recording: &Path, rules: &str, by_environment: bool) -> Result<Value, String> {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("known.supp");
    std::fs::write(&file, rules).unwrap();
    let mut command = crate::common::report::leaktrace();
    command.arg("report").arg(recording).args(["--format", "json"]);
    if by_environment {
        command.env("LEAKTRACE_SUPPRESSIONS", &file);
    } else {
        command.arg("--suppressions").arg(&file);
    }
    let out = command.output().unwrap();
    match out.status.success() {
        true => Ok(serde_json::from_slice(&out.stdout).unwrap()),
        false => Err(String::from_utf8(out.stderr).unwrap()),
    }
}

#[test]
fn what_is_known_is_suppressed() {
    let ran = torch("verdicts/lru_unbounded.py").env("LEAKTRACE_QUIET", "1").traced().run().success();
    let recording = ran.recording();
    let rules = "# known\nleak:lru_unbounded.py:mask # one per temperature\ngrowing:other\n";
    for by_environment in [false, true] {
        let report = suppressed(&recording, rules, by_environment).unwrap();
        assert_eq!(report["findings"].as_array().map(Vec::len), Some(0), "{:#}", report["findings"]);
        let [known] = &report["suppressed"].as_array().unwrap()[..] else { panic!("{report:#}") };
        assert_eq!((&known["findings"], &known["bytes_per_step"]), (&1.into(), &40448.0.into()));
        assert_eq!((&known["pattern"], &known["reason"]), (&rule(rules, 1), &"one per temperature".into()));
        let notes = report["warnings"].as_array().unwrap();
        assert!(notes.iter().any(|n| n.as_str().unwrap().contains("growing:other (line 3)")), "{notes:?}");
    }
    let said = suppressed(&recording, "\nleek:mask", false).unwrap_err();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("known.supp: line 2: 'leek' is not a kind"), "{said}");
}

/// The rule of a line, without its reason.
fn rule(rules: &str, line: usize) -> Value {
    rules.lines().nth(line).unwrap().split('#').next().unwrap().trim().into()
}

macro_rules! verdicts {
    ($($name:ident)+) => { $(#[test] fn $name() { verdict(stringify!($name)) })+ };
}

verdicts! {
    half_unloaded layers_caches metrics_by_name endless_cache two_tails large_tail engine_callbacks gan_samples kept_exceptions slow_consumer metric_of_package exit_stack lru_unbounded conversations ema_snapshots graph_outputs requests_waiting newest_of_hooks bank_in_main joined_losses losses_copied longer_maps small_keys_and_values tracks similarities quiet_end trimmed_by_half
    joined_and_never_reset three_bursts simple_queue short_population
    waiting_cycles waiting_in_contexts waiting_one_line waiting_rhythms short_cycles recursion generated_code
    trainer_collected recursive_epochs joined_at_intervals bounded_tensors last_epochs replay_buffer curriculum longer_batches longer_by_epoch all_features one_generation ema sliding_cache lru_bounded bounded_by_workers lru_full ring_in_strides ring_full_at_last parameter_groups shared_helper two_trainings latest_features epoch_metrics warm_up_calls late_list unfreezing longer_unrolls embedded_corpus predicted_once tokens_joined joined_of_padded copied_to_host one_epoch bounded_when_memory_runs_out buffers_then_evaluation requests_served documents conversation short_index
}
