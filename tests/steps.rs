//! Steps that nobody announced: training loops of many styles on PyTorch.

use std::io::{BufRead, BufReader};

use crate::common::grows::flat;
use crate::common::programs::{
    bare_cudart, free_threaded, line_of, pythons, script, torch, torch_at, torch_python,
};
use crate::common::report::{Report, call};
use crate::common::{Ran, Run, root};
use serde_json::Value;

/// `loops.py STYLE`: as many steps as iterations, and the program none the wiser.
#[track_caller]
fn counted(style: &str) {
    let run = || torch("loops.py").args([style, "23"]).env("LEAKTRACE_QUIET", "1");
    let ran = run().traced().run().success();
    assert_eq!(ran.text(), format!("{style}: 23 iterations\n"));
    let report = Report::of(&ran.recording());
    assert_eq!((report.steps(), report.source()), (23, "optimizer"), "{style}");
    report.assert_whole();
}

macro_rules! styles {
    ($($style:ident)+) => { $(#[test] fn $style() { counted(stringify!($style)); })+ };
}

styles! { plain evaluating scaler checkpointed restarted accumulating gan pair closure thread own compiled }

#[test]
fn other_sources() {
    for (setting, source) in [("backward", "backward"), ("api", "")] {
        let ran = torch("loops.py").arg("plain").env("LEAKTRACE_STEP", setting).traced().run().success();
        let report = Report::of(&ran.recording());
        // The backward pass that begins a step ends the one before.
        let count = if setting == "backward" { 22 } else { 0 };
        assert_eq!((report.steps(), report.source()), (count, source));
    }
}

/// `loops_found.py STYLE`: the steps a person would count, told by its loop.
#[track_caller]
fn found(style: &str, setting: &str) {
    let run = || torch("loops_found.py").arg(style).env("LEAKTRACE_QUIET", "1");
    let ran = run().env("LEAKTRACE_STEP", setting).traced().run().success();
    let told = ran.text();
    let told: u64 = told
        .trim()
        .strip_prefix(&format!("{style}: "))
        .and_then(|t| t.strip_suffix(" steps"))
        .unwrap()
        .parse()
        .unwrap();
    let report = Report::of(&ran.recording());
    let loops = &report.0["steps"]["loop_locations"];
    assert_eq!((report.steps(), report.source()), (told, "loop"), "{style}: {loops}");
    let places = loops.as_array().unwrap();
    assert!(!places.is_empty() && places.iter().all(|p| p.as_str().unwrap().contains("loops_found.py:")));
    report.assert_whole();
}

macro_rules! loops {
    ($($style:ident)+) => { mod by_loop { $(#[test] fn $style() { super::found(stringify!($style), "loop"); })+ } };
}

loops! { epochs accumulating waiting generating evaluating decoding failing recursing serving long }

/// `loops_written.py STYLE`: as many steps as a person would count, however they are written.
#[track_caller]
fn written(style: &str, setting: &str) -> Report {
    let run = torch("loops_written.py").arg(style).env("LEAKTRACE_QUIET", "1");
    let ran = run.env("LEAKTRACE_STEP", setting).traced().run().success();
    let report = Report::of(&ran.recording());
    let steps = &report.0["steps"];
    assert_eq!(report.steps().to_string(), ran.text().trim(), "{style}: {}", steps["loop_locations"]);
    let series = steps["series"].as_array().unwrap();
    let at = |step: &Value| step["at_s"].as_f64().unwrap();
    assert!(series.windows(2).all(|pair| at(&pair[0]) < at(&pair[1])), "{style}: steps out of order");
    report.assert_whole();
    report
}

macro_rules! ways {
    ($($style:ident)+) => { mod ways { $(#[test] fn $style() { super::written(stringify!($style), "auto"); })+ } };
}

ways! {
    bare bare_while bare_now_and_then two_blocks few comprehension bare_comprehension generator_expression mapped
    bare_mapped mapped_over_a_stream mapped_over_a_stream_that_gives_now_and_then epochs_mapped epochs_comprehended one_epoch fed awaited awaited_through_two awaited_by_turns
    decorated handed_out handled scheduled awaited_in_two awaited_side_by_side awaited_by_workers awaited_by_workers_through_two awaited_and_let_go
    streamed tasks tasks_let_go tasks_at_once gathered gathered_and_summed_up threads threads_at_once pool from_a_cache from_a_cache_by_a_thread from_a_cache_by_a_pool from_a_cache_by_a_graph touched_in_a_while touched_by_c pages_touched touched_over_a_generator pool_fed_slowly_at_first executed layers_by_hand deepening fed_training
    unpacked_training second_optimizer folds optimizer_each_step one_optimizer_after_some critics_turns two_in_a_loop
    on_main_then_in_a_thread streams_left streams_broken_off streams_read_or_broken_off calls_that_come_further streams_by_turns streams_of_clients async_broken_off async_nested async_read_by_calls async_read_or_left
    async_clients async_clients_by_turns async_clients_of_streams batched_by_a_server async_clients_that_list async_clients_that_leave async_clients_that_await async_workers async_over_a_queue async_handed_to_a_worker served_by_a_thread decoding_after_a_prompt kept_alone kept_through_own_layers kept_unrolled kept_through_one_layer
    kept_by_turns kept_with_an_attribute kept_with_a_closure kept_by_c kept_in_epochs kept_in_steps_of_one
    kept_by_turns_of_a_module kept_in_epochs_of_a_module kept_by_threads kept_by_threads_each_time few_epochs few_epochs_summed_up set_up
    over_all_so_far over_all_so_far_at_once members_of_a_population
    trained_in_threads trained_by_a_pool in_two_threads_by_turns in_two_threads_some_rounds_each
    answers answers_by_a_thread answers_by_a_thread_each answers_by_a_pool answers_by_a_server answers_awaited
    epochs_of_two_lengths
    warmed_up sizes_tried sizes_tried_in_training prepared prepared_by_an_expression prepared_for_a_training
    nearest_in_an_archive sorted_by_an_archive summed_up_after_each_epoch few_folds_by_hand
    trained_and_evaluated_by_one_loop phases engines
}

/// As many steps as the training has, whatever follows, and so the leak is seen.
#[test]
fn a_few_rounds_in_the_end_hide_no_leak() {
    let report = written("looked_at_in_the_end", "auto");
    let kinds: Vec<_> = report.findings().iter().map(|f| (&f["kind"], f["live_blocks"].as_u64())).collect();
    assert_eq!(kinds, [(&"leak".into(), Some(96))], "{:#?}", report.findings());
}

/// What a function frees as it returns belongs to no step.
#[test]
fn the_last_step_of_a_generator_ends_with_the_loop_over_it() {
    let report = written("streamed_to_the_end", "auto");
    let finding = &report.findings()[0];
    let blocks = finding["sites"][0]["live_blocks"].as_u64();
    assert_eq!((blocks, finding["cohorts"].as_u64()), (Some(24), Some(24)), "{finding:#}");
}

/// No deeper frames are looked at while a loop that was chosen is under way, but behind it all are.
#[test]
fn a_loop_that_begins_after_the_choice_has_steps() {
    let report = written("later_and_deeper", "auto");
    let [finding] = report.findings() else { panic!("{:#?}", report.findings()) };
    assert_eq!(
        (&finding["kind"], finding["live_blocks"].as_u64()),
        (&"leak".into(), Some(24)),
        "{finding:#}"
    );
}

#[test]
fn a_loop_is_at_the_line_where_it_begins() {
    // The instruction that ends this one leaves a `with`, and has no line of its own.
    let report = written("bare_within", "auto");
    let line = line_of("loops_written.py", "# loop");
    let [at] = &report.0["steps"]["loop_locations"].as_array().unwrap()[..] else { panic!("{:#}", report.0) };
    assert!(at.as_str().unwrap().ends_with(&format!("loops_written.py:{line}")), "{at}");
}

#[test]
fn what_comes_after_the_last_step_is_said_not_to_be_judged() {
    let report = written("long_on_main_then_in_a_thread", "auto");
    assert!(report.findings().is_empty(), "{:#?}", report.findings());
    let after = &report.0["steps"]["after_last"];
    // Of each of 24 answers 128 B are kept, in a block of 512.
    assert!(
        after["allocations"].as_u64() >= Some(24) && after["bytes"].as_u64() >= Some(24 * 512),
        "{after}"
    );
    let report = written("on_main_then_in_a_thread", "auto");
    assert_eq!((&report.0["steps"]["after_last"], report.findings().len()), (&Value::Null, 1));
}

/// Threads and tasks have no loop in common, but the function that they begin with.
#[test]
fn steps_that_are_calls_are_called_so() {
    let run = torch("loops_written.py").arg("threads").env("LEAKTRACE_QUIET", "1").traced().run();
    let text = flat(&String::from_utf8(call([run.success().recording()]).stdout).unwrap());
    let answer = text.split(" steps (from calls of answer() at ").nth(1).unwrap_or_else(|| panic!("{text}"));
    assert!(answer.contains("loops_written.py:"), "{text}");
}

#[test]
fn steps_of_a_librarys_loop_name_what_of_the_program_runs_in_it() {
    for (style, words) in [
        ("scheduled", " at sched.py:L, which runs scheduled.<locals>.request() at F:L)"),
        ("pool", " steps (calls submitted to a thread pool, which runs answer() at F:L)"),
    ] {
        let run = torch("loops_written.py").arg(style).env("LEAKTRACE_QUIET", "1").traced().run();
        let text = flat(&String::from_utf8(call([run.success().recording()]).stdout).unwrap());
        let told: String = text.split("exit status").nth(1).unwrap().chars().take(400).collect();
        // Without the numbers of lines, and the folder.
        let told: Vec<String> = told
            .split(' ')
            .map(|word| match word.split_once(".py:") {
                Some((file, rest)) => {
                    let file =
                        if file.ends_with("loops_written") { "F".into() } else { format!("{file}.py") };
                    format!("{file}:L{}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
                }
                None => word.to_owned(),
            })
            .collect();
        assert!(told.join(" ").contains(words), "{text}");
    }
}

#[test]
fn no_loop_of_the_framework_is_the_steps() {
    for style in ["straight", "mapped", "pool"] {
        written(style, "loop");
    }
}

#[test]
fn where_there_is_no_step_the_loops_are_named() {
    let report = written("made", "auto");
    let unused = &report.0["steps"]["unused_loops"][0];
    assert!(unused["location"].as_str().unwrap().contains("loops_written.py:"), "{unused}");
    assert_eq!((&unused["iterations"], &unused["reason"]), (&60.into(), &"builds".into()), "{unused}");
}

#[test]
fn a_program_without_optimizers_has_the_steps_of_its_loop() {
    found("decoding", "auto");
    found("serving", "auto");
}

#[test]
fn phases_between_optimizer_steps_have_steps_of_their_own() {
    let run = |setting: &str| {
        let run =
            torch("loops_found.py").arg("phases").env("LEAKTRACE_QUIET", "1").env("LEAKTRACE_STEP", setting);
        run.traced().run().success()
    };
    let ran = run("auto");
    assert_eq!(ran.text(), "phases: 99 steps\n");
    let report = Report::of(&ran.recording());
    assert_eq!(
        (report.steps(), report.source()),
        (99, "optimizer"),
        "{:#}",
        report.0["steps"]["loop_locations"]
    );
    assert_eq!(report.0["steps"]["phase_steps"], 15 + 44);
    report.assert_whole();
    // Who wants the optimizer's only can have them, now or then.
    let file = ran.recording();
    let read = call(["--steps-by", "optimizer", "--format", "json", file.to_str().unwrap()]);
    let read: Value = serde_json::from_slice(&read.stdout).unwrap();
    assert_eq!((&read["steps"]["count"], &read["steps"]["phase_steps"]), (&40.into(), &0.into()));
    assert_eq!(Report::of(&run("optimizer").recording()).steps(), 40);
}

#[test]
fn a_phase_of_a_thread_that_ended_is_seen() {
    let run = torch("loops_found.py").arg("phase_of_a_thread").env("LEAKTRACE_QUIET", "1");
    let report = Report::of(&run.traced().run().success().recording());
    let steps = &report.0["steps"];
    assert_eq!((report.steps(), &steps["phase_steps"]), (32, &12.into()), "{:#}", steps["loop_locations"]);
}

#[test]
fn what_is_worked_out_for_every_parameter_is_no_phase() {
    let run = torch("loops_found.py").arg("logging").env("LEAKTRACE_QUIET", "1");
    let report = Report::of(&run.traced().run().success().recording());
    assert_eq!(
        (report.steps(), &report.0["steps"]["phase_steps"]),
        (60, &0.into()),
        "{:#}",
        report.0["steps"]["loop_locations"]
    );
}

#[test]
fn phases_that_begin_late_are_seen() {
    let run = torch("loops_found.py").arg("late").env("LEAKTRACE_QUIET", "1");
    let ran = run.traced().run().success();
    assert_eq!(ran.text(), "late: 224 steps\n");
    let report = Report::of(&ran.recording());
    let steps = &report.0["steps"];
    assert_eq!((report.steps(), &steps["phase_steps"]), (224, &24.into()), "{:#}", steps["loop_locations"]);
}

#[test]
fn a_program_without_a_loop_has_none() {
    let ran = torch("loops_found.py").arg("none").traced().run().success();
    assert_eq!(Report::of(&ran.recording()).steps(), 0);
}

#[test]
fn loops_of_every_cpython() {
    let mut wrong = Vec::new();
    for (version, python) in pythons().into_iter().chain(free_threaded()) {
        for style in [
            "nested",
            "single",
            "mapped",
            "downwards",
            "wrapped",
            "generator",
            "failing",
            "alone",
            "in_a_module",
            "in_a_module_within",
            "waiting",
            "awaited",
        ] {
            // Before 3.11 no frame tells whether C called it, so that each call of `map` looks like one of the loop.
            if style == "mapped" && ["3.8", "3.9", "3.10"].contains(&version.as_str()) {
                continue;
            }
            let ran = Run::new(&python).args([script("loops_bare.py"), bare_cudart()]).arg(style).traced();
            let ran = ran.env("LEAKTRACE_STEP", "loop").env("LEAKTRACE_QUIET", "1").run().success();
            let report = Report::of(&ran.recording());
            if ran.text().trim() != report.steps().to_string() {
                let loops = &report.0["steps"]["loop_locations"];
                wrong.push(format!(
                    "{version} {style}: {} of {}: {loops}",
                    report.steps(),
                    ran.text().trim()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_model_that_is_built_is_no_step() {
    let ran = torch("loops_found.py").arg("building").traced().run().success();
    let report = Report::of(&ran.recording());
    assert_eq!((report.steps(), report.findings().len()), (0, 0), "{:#}", report.0["steps"]);
}

#[test]
fn a_named_range_is_a_step() {
    let run = |name: &str| {
        let run = torch("loops_found.py").arg("ranges").env("LEAKTRACE_STEP", format!("range:{name}"));
        run.env("LEAKTRACE_QUIET", "1").traced().run().success()
    };
    let report = Report::of(&run("train step").recording());
    assert_eq!((report.steps(), report.source()), (20, "range"));
    let report = Report::of(&run("another").recording());
    let notes = report.coverage("gaps").to_string() + &report.0["warnings"].to_string();
    assert!(report.steps() == 0 && notes.contains("\\\"another\\\""), "{notes}");
}

#[test]
fn a_named_range_is_a_step_beside_optimizers() {
    let run = torch("loops_found.py").arg("stepping_ranges").env("LEAKTRACE_STEP", "range:train step");
    let report = Report::of(&run.env("LEAKTRACE_QUIET", "1").traced().run().success().recording());
    assert_eq!((report.steps(), report.source()), (20, "range"));
    report.assert_whole();
}

/// `step kind name` of each mark, and what the text says of all of them.
fn marks(ran: &Ran) -> (Vec<String>, String) {
    let report = Report::of(&ran.recording());
    report.assert_whole();
    let marks = report.0["steps"]["annotations"].as_array().unwrap().iter();
    let marks = marks.map(|m| {
        let text = |key: &str| m[key].as_str().unwrap().to_owned();
        assert!(m["at_s"].as_f64().unwrap() > 0.0);
        format!("{} {} {}", m["step"], text("kind"), text("name"))
    });
    let read = call([ran.recording().to_str().unwrap()]);
    let text = String::from_utf8_lossy(&read.stdout).replace("\n      ", " ");
    let line = text.lines().find_map(|l| l.strip_prefix("  events: ")).unwrap_or_default().to_owned();
    (marks.collect(), line)
}

#[test]
fn marks_collections_and_emptied_caches_go_by_name() {
    let ran = torch("loops_found.py").arg("marking").env("LEAKTRACE_QUIET", "1").traced().run().success();
    let (marks, line) = marks(&ran);
    // What comes after the optimizer's step lies in the next one.
    let expected = [
        "6 user evaluate",
        "9 empty-cache torch.cuda.empty_cache()",
        "13 gc garbage collection",
        "16 user evaluate",
        "21 empty-cache torch.cuda.empty_cache()",
        "26 user evaluate",
        "31 gc garbage collection",
        "34 empty-cache torch.cuda.empty_cache()",
        "36 user evaluate",
    ];
    assert_eq!(marks, expected);
    // Ranges are not told of for long where there is an optimizer: nothing is said of them.
    let said = "\"evaluate\" 4 ×, torch.cuda.empty_cache() 3 ×, garbage collection in 2 steps";
    assert_eq!(line, said);
}

#[test]
fn what_an_allocator_gives_back_on_its_own_is_no_emptied_cache() {
    let run = torch("loops_found.py").arg("emptied_without").env("SIMGPU_MEM", "512M");
    let ran = run.env("LEAKTRACE_QUIET", "1").traced().run().success();
    assert_eq!(marks(&ran), (Vec::new(), String::new()));
}

#[test]
fn ranges_go_by_name_where_no_optimizer_steps() {
    let ran = torch("loops_found.py").arg("ranges").env("LEAKTRACE_QUIET", "1").traced().run().success();
    let (marks, line) = marks(&ran);
    assert!(marks.iter().all(|m| m.ends_with("range train step")), "{marks:?}");
    assert_eq!((marks.len(), line.as_str()), (20, "range \"train step\" 20 ×"));
}

#[test]
fn a_run_without_steps_says_what_to_do() {
    let ran = torch("loops_found.py").arg("none").env("LEAKTRACE_QUIET", "1").traced().run().success();
    let read = call([ran.recording().to_str().unwrap()]);
    let text = String::from_utf8_lossy(&read.stdout).replace("\n    ", " ");
    let line = text.lines().find(|l| l.contains("LEAKTRACE_STEP=")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("no step was seen") && line.contains("every:"), "{line}");
}

#[test]
fn plain_python_has_the_steps_of_its_loop() {
    let (_, python) = pythons().pop().expect("a CPython");
    for (style, steps) in [("wrapped", 40), ("set_up", 70)] {
        let run = Run::new(&python).args([script("loops_bare.py"), bare_cudart()]).arg(style).traced();
        let ran = run.env("LEAKTRACE_QUIET", "1").run().success();
        let report = Report::of(&ran.recording());
        assert_eq!((report.steps(), report.source()), (steps, "loop"), "{style}");
    }
}

/// The name that is bound anew frees what it held: the last round does so, too.
#[test]
fn the_last_round_gives_back_what_every_round_does() {
    let ran = torch("steps/last_round.py").env("LEAKTRACE_QUIET", "1").traced().run().success();
    let report = Report::of(&ran.recording());
    assert_eq!((report.steps(), report.source()), (40, "loop"));
    assert_eq!(report.device(0, "live_bytes").to_string(), ran.text().trim());
    let kinds: Vec<_> = report.findings().iter().map(|f| f["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["carry-over"]);
}

/// Up to CPython 3.12 a module's dict has a version, which changes with each assignment to a name of it: that is no round yet.
#[test]
fn a_call_that_assigns_to_a_name_of_the_module_ends_no_round() {
    let ran = torch("steps/assigned_by_a_call.py").env("LEAKTRACE_QUIET", "1").traced().run().success();
    let report = Report::of(&ran.recording());
    assert_eq!((report.steps().to_string().as_str(), report.source()), (ran.text().trim(), "loop"));
}

/// `requests.py STYLE`: where memory is taken seldom, the copies show the requests.
#[test]
fn a_server_has_the_steps_of_its_requests() {
    for style in ["short", "long", "at_one_place", "keeping", "while_there_are"] {
        let run = Run::new(torch_python()).simulated().arg(script("requests.py")).arg(style).traced();
        let ran = run.env("LEAKTRACE_QUIET", "1").run().success();
        let report = Report::of(&ran.recording());
        assert_eq!((report.steps(), report.source()), (120, "loop"), "{style}");
        let kinds: Vec<_> = report.findings().iter().map(|f| f["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, if style == "keeping" { vec!["leak"] } else { vec![] }, "{style}");
    }
}

/// A known case as it is: as many steps as it prints.
#[track_caller]
fn known_case(case: &str) {
    let program = root().join("tests/cases").join(case).join("train.py");
    let run =
        torch_at(&program).args(["--device", "cuda"]).env("SEEDS_STEPS", "1").env("LEAKTRACE_QUIET", "1");
    let ran = run.env("LEAKTRACE_STEP", "loop").traced().run();
    let printed = ran.text().lines().filter(|l| l.starts_with("step ")).count() as u64;
    let report = Report::of(&ran.recording());
    let steps = &report.0["steps"];
    assert_eq!((report.steps(), report.source()), (printed, "loop"), "{case}: {}", steps["loop_locations"]);
    assert!(printed > 100);
    report.assert_whole();
}

macro_rules! known {
    ($($case:ident)+) => { mod known { $(#[test] fn $case() { super::known_case(stringify!($case)); })+ } };
}

known! {
    composer_metrics epoch_outputs espnet_retval leaky_layer mse_scalar_storage not_leak_eval_spike
    not_leak_optimizer_warmup not_leak_variable_length retain_graph_history running_loss_train saved_activations_hook
    simpletuner_unload torchtitan_losses val_without_no_grad
}

/// `leaktrace report --steps-by BY`.
#[track_caller]
fn by(ran: &Ran, by: &str) -> Report {
    let recording = ran.recording();
    let out = call(["--format", "json", "--steps-by", by, recording.to_str().unwrap()]);
    assert!(out.status.success(), "{by}: {}", String::from_utf8_lossy(&out.stderr));
    Report(serde_json::from_slice(&out.stdout).unwrap())
}

/// What the steps held.
fn held(report: &Report) -> Vec<Value> {
    let series = report.0["steps"]["series"].as_array().unwrap().iter();
    series.map(|s| s["devices"][0]["block_bytes"].clone()).collect()
}

#[test]
fn steps_can_be_read_by_other_levels() {
    let run = |setting: &str| {
        let run = torch("loops_found.py").arg("epochs").env("LEAKTRACE_QUIET", "1");
        run.env("LEAKTRACE_STEP", setting).traced().run().success()
    };
    let ran = run("loop");
    // Five epochs, each of twelve batches and four that are evaluated.
    for (level, count) in [("loop", 80), ("loop:1", 5), ("loop:2", 80), ("optimizer", 60), ("backward", 59)] {
        let report = by(&ran, level);
        let source = level.split(':').next().unwrap();
        assert_eq!((report.steps(), report.source()), (count, source), "{level}");
        report.assert_whole();
    }
    let levels = &Report::of(&ran.recording()).0["steps"]["step_sources"];
    let names: Vec<&str> = levels.as_array().unwrap().iter().map(|l| l["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["backward", "loop:1", "loop:2", "optimizer"]);
    // The same as if they had been told by it.
    let optimizer = Report::of(&run("optimizer").recording());
    assert_eq!(held(&by(&ran, "optimizer")), held(&optimizer));
    for wrong in ["range", "loop:3", "loop:x", "steps"] {
        let recording = ran.recording();
        let out = call(["--steps-by", wrong, recording.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(2) && said.contains(wrong), "{wrong}: {:?} {said}", out.status);
    }
}

#[test]
fn iterations_end_before_what_the_next_one_does() {
    let run = torch("loops_found.py").arg("announced").env("LEAKTRACE_STEP", "loop");
    let ran = run.env("LEAKTRACE_QUIET", "1").traced().run().success();
    let (looped, called) = (held(&Report::of(&ran.recording())), held(&by(&ran, "api")));
    assert_eq!((looped.len(), called.len()), (60, 60));
    // The last one's loop ends where its function does.
    assert_eq!(looped[..59], called[..59]);
}

/// The report that the process wrote at its end, and the one made of its recording, but for the source lines.
#[test]
fn the_process_and_the_reader_say_the_same_of_placed_steps() {
    for style in ["epochs", "long", "waiting"] {
        let run =
            torch("loops_found.py").arg(style).env("LEAKTRACE_STEP", "loop").env("LEAKTRACE_HOLDERS", "off");
        let ran = run.env("LEAKTRACE_QUIET", "1").traced().run().success();
        let recording = ran.recording();
        // How they are laid out differs: the steps, and what was retained of which size in how many blocks.
        let plain = |text: &str| {
            let text = text.replace("\n      ", " ");
            let steps = text.lines().find_map(|l| Some(l.split_once(" (from ")?.1.to_owned()));
            let rows =
                text.lines().skip_while(|l| !l.starts_with("Live after step")).take_while(|l| !l.is_empty());
            let first = |row: &str| row.split_whitespace().take(3).map(str::to_owned).collect::<Vec<_>>();
            let rows = rows
                .map(first)
                .filter(|r| r.len() == 3 && r[0].parse::<f64>().is_ok() && r[2].parse::<u64>().is_ok());
            let heading = text.lines().find(|l| l.starts_with("Live after step")).unwrap().to_owned();
            (steps.unwrap(), heading, rows.collect::<Vec<_>>())
        };
        let dumped = std::fs::read_to_string(recording.with_extension("txt")).unwrap();
        let read = call([recording.to_str().unwrap()]);
        let dumped = plain(&dumped);
        assert!(!dumped.2.is_empty());
        assert_eq!(dumped, plain(&String::from_utf8_lossy(&read.stdout)), "{style}");
    }
}

/// Ten rounds inside one are epochs, also while the last one is under way.
#[test]
fn a_killed_program_has_the_batches_of_its_epochs() {
    let run = torch("killed_epochs.py").env("LEAKTRACE_QUIET", "1").traced().run();
    let report = Report::of(&run.recording());
    assert_eq!(report.end(), "killed");
    assert!(report.steps() >= 150, "{} steps: {}", report.steps(), report.0["steps"]["loop_locations"]);
}

/// The last round is over when the program is, not where the second one gives back what the first had.
#[test]
fn a_short_loop_has_its_last_round() {
    let report = Report::of(&torch("steps/short.py").traced().run().success().recording());
    let [finding] = report.findings() else { panic!("{:#?}", report.findings()) };
    let figures = ["cohorts", "first_step", "live_blocks"].map(|figure| finding[figure].as_u64());
    assert_eq!((report.steps(), figures), (60, [Some(60), Some(1), Some(60)]), "{finding:#}");
}

#[test]
fn a_killed_program_has_the_steps_of_its_loop() {
    let run = |steps: u64| {
        let run = torch("loops_found.py").args(["endless", &steps.to_string()]);
        run.env("LEAKTRACE_STEP", "loop").env("LEAKTRACE_QUIET", "1").traced()
    };
    let whole = Report::of(&run(700).run().success().recording());
    assert_eq!((whole.steps(), whole.source()), (700, "loop"));
    let whole = held(&whole);
    for lines in [30, 90, 500] {
        let mut running = run(100_000).start();
        let mut said = BufReader::new(running.child.stdout.take().unwrap()).lines();
        assert_eq!(said.by_ref().take(lines).count(), lines);
        let report = Report::of(&running.kill().recording());
        // An iteration shows to be over when the next begins, and is written within half a millisecond.
        let steps = held(&report);
        assert!(steps.len() + 20 >= lines, "{} steps of {lines}", steps.len());
        let common = steps.len().min(whole.len());
        assert_eq!((&steps[..common], report.end()), (&whole[..common], "killed"));
        report.assert_whole();
    }
}

#[test]
fn backward_passes_are_the_steps_where_too_few_optimizer_steps_follow_many() {
    let report = Report::of(
        &torch("steps/accumulated.py").env("LEAKTRACE_QUIET", "1").traced().run().success().recording(),
    );
    assert_eq!((report.steps(), report.source()), (160, "backward"));
    let [leak] = report.findings() else { panic!("{:#?}", report.findings()) };
    let told = (&leak["kind"], &leak["bytes_per_step"], &leak["holders"][0]["path"]);
    assert_eq!(told, (&"leak".into(), &512.0.into(), &"__main__.losses[*]".into()));
}
