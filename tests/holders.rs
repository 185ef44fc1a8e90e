//! Who holds it: in the report of real programs, whatever way they keep things, and without changing them.

use crate::common::Run;
use crate::common::programs::{jax_python, line_of, pythons, script, torch, torch_at};
use crate::common::report::{Report, call};
use serde_json::Value;

/// The holders of all findings: path, blocks.
fn holders(report: &Report) -> Vec<(String, u64)> {
    let all = report.findings().iter().flat_map(|f| f["holders"].as_array().expect("holders"));
    all.map(|h| (h["path"].as_str().unwrap().to_owned(), h["blocks"].as_u64().unwrap())).collect()
}

#[track_caller]
fn held(report: &Report, path: &str) {
    let all = holders(report);
    let list: Vec<String> = all.iter().map(|(p, n)| format!("{p} ({n})")).collect();
    let found = all.iter().find(|(p, _)| p == path);
    assert!(found.is_some_and(|(_, blocks)| *blocks >= 20), "no {path} in\n{}", list.join("\n"));
}

/// Ways of every program of ours.
#[test]
fn every_way_to_keep_a_tensor_has_its_name() {
    let ran = torch("holders/roots.py").traced().run().success();
    let report = Report::of(&ran.recording());
    for path in [
        "__main__.trainer.history['loss'][*]",
        "main() local `kept`[*]",
        "__main__.Registry.items[*]",
        "__main__.slotted.kept[*]",
        "__main__.push → closure variable `box`[*]",
        "__main__.remember → default of argument `seen`[*]",
        "__main__.recall → default of argument `past`[*]",
        "__main__.known → lru_cache → its keys[0]",
        "__main__.recent[*]",
        "__main__.several[*]",
        "__main__.ordered[*]",
        "main() local `optimizer`.state[<Parameter>]['trail'][*]",
        "__main__.errors[*].__traceback__ → fails() local `t`",
        "__main__.tracebacks[*].tb_frame → locals of fails_below()",
        "main() local `pending`[*] → suspended() local `t`",
        "__main__.frozen[*]",
        "__main__.frozen[*].grad",
        "__main__.views[*]",
        "__main__.first_list[*]",
        "__main__.second_list[*][0]",
        "__main__.graphs[*].grad_fn → … saved by MulBackward0",
        "__main__.contexts[*].grad_fn → KeptBackward.extra",
        "__main__.saved[*].grad_fn → saved by SavedBackward",
        "main() local `features`[*]",
        "elsewhere() local `aside`[*]",
        "garbage waiting for the cyclic collector: Node.me → Node",
    ] {
        held(&report, path);
    }
    // This function saves nothing: its context has a tensor as an attribute.
    let all = holders(&report);
    assert!(!all.iter().any(|(path, _)| path.ends_with("saved by KeptBackward")), "{all:#?}");
}

#[test]
fn keys_of_a_dict_and_fields_of_named_tuples_are_named_as_such() {
    let ran = torch("holders/keys_and_fields.py").env("LEAKTRACE_QUIET", "1").traced().run().success();
    let report = Report::of(&ran.recording());
    for path in [
        "__main__.targets → its keys",
        "__main__.targets[*]",
        "__main__.answers[*].logits",
        "__main__.rounds[*].scores[0]",
        "__main__.scored[*].scores",
        "__main__.losses[Phase.EVALUATE][*]",
        "__main__.cycled → itertools.cycle[*]",
        "__main__.finished[*].result()",
    ] {
        held(&report, path);
    }
    // The two iterators have some of their objects in common.
    assert!(
        holders(&report).iter().any(|(path, _)| path.ends_with(" → itertools.tee[*]")),
        "{:#?}",
        holders(&report)
    );
    let text = String::from_utf8(call([ran.recording()]).stdout).unwrap().replace("\n                 ", " ");
    assert!(
        text.contains("fix           use a key that compares by value in `targets` in __main__"),
        "{text}"
    );
}

/// Tensors lie otherwise in their Python objects there, and strings in C++.
#[test]
fn an_older_pytorch_is_understood_too() {
    let python = crate::common::root().join("target/pyenv-2.6.0/bin/python");
    if !python.exists() {
        println!("skipped: {} is not here", python.display());
        return;
    }
    let run = Run::new(&python).simulated().traced().arg(script("holders/roots.py"));
    let report = Report::of(&run.run().success().recording());
    held(&report, "__main__.frozen[*].grad");
    held(&report, "__main__.graphs[*].grad_fn → … saved by MulBackward0");
    held(&report, "__main__.contexts[*].grad_fn → KeptBackward.extra");
    held(&report, "__main__.first_list[*]");
    held(&report, "__main__.second_list[*][0]");
}

#[test]
fn a_search_changes_nothing() {
    let plain = torch("holders/nothing_kept.py").run().success();
    let traced = torch("holders/nothing_kept.py").traced().run().success();
    assert_eq!(traced.text(), plain.text());
    assert!(traced.text().contains("after 40 of 40"), "{}", traced.transcript());
    let report = Report::of(&traced.recording());
    held(&report, "__main__.losses[*]");
    held(&report, "__main__.odd[*].held");
    assert!(report.0["holder_searches"]["count"].as_u64() >= Some(4), "{:#}", report.0);
}

/// On every interpreter: objects that hold an address, with the GIL at the step's end (`PyDLL`) and without (`CDLL`).
#[test]
fn every_interpreter_is_understood() {
    for (version, python) in pythons() {
        for arguments in [&[][..], &["--without-gil"]] {
            let run = Run::new(&python).simulated().traced().arg(script("holders/bare.py")).args(arguments);
            let ran = run.env("LEAKTRACE_STEP", "api").run().success();
            let report = Report::of(&ran.recording());
            println!("{version} {arguments:?}: {:#?}", holders(&report));
            for path in [
                "main() local `kept`[*]",
                "__main__.plain.kept[*]",
                "__main__.slotted.kept[*]",
                "__main__.derived.kept[*]",
                "__main__.Class.kept[*]",
                "__main__.push → closure variable `box`[*][1]",
                "__main__.remember → default of argument `seen`[*]",
                "__main__.recall → default of argument `past`[*]",
                "__main__.numbered[*]",
                "__main__.named['a b'][*]",
                "__main__.addresses[*]",
                "__main__.deep['x'][1][0].kept[*]",
                "__main__.variable → its default[*]",
                "__main__.errors[*].__traceback__ → fails() local `m`",
                "main() local `pending`[*] → suspended() local `m`",
                "garbage waiting for the cyclic collector: Plain.me → Plain",
            ] {
                held(&report, path);
            }
        }
    }
}

#[test]
fn an_array_of_numpys_holds_its_memory() {
    let run = Run::new(jax_python()).simulated().traced().arg(script("holders/pinned_arrays.py"));
    let report = Report::of(&run.env("LEAKTRACE_STEP", "api").run().success().recording());
    for path in ["__main__.history[*]", "__main__.rows[*] → ndarray"] {
        held(&report, path);
    }
}

#[test]
fn it_can_be_switched_off() {
    let run = torch("holders/nothing_kept.py").traced().env("LEAKTRACE_HOLDERS", "off");
    let ran = run.run().success();
    let report = Report::of(&ran.recording());
    assert!(!report.findings().is_empty());
    assert_eq!(holders(&report), Vec::new());
}

/// The findings at the line of a program that ends with this comment.
fn at<'r>(list: &'r Value, program: &str, mark: &str) -> Vec<&'r Value> {
    let line = line_of(program, mark);
    let is_at = |f: &&Value| {
        f["sites"].as_array().unwrap().iter().any(|s| s["allocated_at"]["line"].as_u64() == Some(line))
    };
    list.as_array().unwrap().iter().filter(is_at).collect()
}

#[test]
fn what_one_step_carries_into_the_next_is_held_by_both_its_owners() {
    let report = Report::of(&torch("holders/carried.py").traced().run().success().recording());
    let carried: Vec<&Value> = report.findings().iter().filter(|f| f["kind"] == "carry-over").collect();
    let [finding, ..] = &carried[..] else { panic!("{:#?}", report.findings()) };
    let paths: Vec<&str> =
        finding["holders"].as_array().unwrap().iter().map(|h| h["path"].as_str().unwrap()).collect();
    for owner in ["fit() local `outputs`['loss']", "fit() local `last`"] {
        assert!(paths.iter().any(|p| p.starts_with(owner)), "no {owner} in {paths:?}");
    }
}

/// Of the blocks that a search meets in the middle of a step, some are on their way through C++ code.
#[test]
fn who_keeps_is_named_and_who_only_passes_on_is_not() {
    let (_, python) = pythons().pop().expect("a CPython between 3.8 and 3.15");
    let run = Run::new(&python).simulated().traced().arg(script("holders/in_flight.py"));
    let report = Report::of(&run.env("LEAKTRACE_STEP", "api").run().success().recording());
    let found = holders(&report);
    // The buffers in flight are larger than all that grew.
    let [(holder, kept)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((holder.as_str(), *kept >= 30), ("main() local `kept`[*]", true), "{found:?}");
}

#[test]
fn a_holder_that_is_bounded_makes_it_a_cache() {
    let program = "holders/bounded.py";
    let report = Report::of(&torch(program).traced().run().success().recording());
    for mark in ["# table", "# recent"] {
        assert_eq!(at(&report.0["findings"], program, mark), Vec::<&Value>::new());
        let [cache] = at(&report.0["non_leaks"], program, mark)[..] else {
            panic!("{:#}", report.0["non_leaks"])
        };
        assert_eq!(cache["kind"], "cache");
        assert!(cache["explanation"].as_str().unwrap().contains("at most"), "{cache:#}");
        assert_eq!(cache["holders"][0]["retention"], "bounded", "{cache:#}");
    }
    let kind = |mark: &str| match at(&report.0["findings"], program, mark)[..] {
        [f] => (f["kind"].as_str().unwrap(), f["confidence"].as_str().unwrap()),
        ref all => panic!("{all:#?}"),
    };
    // Nothing of it was ever freed, but who holds it has no bound.
    assert_eq!(kind("# everything"), ("leak", "confirmed"));
    // A bound that the device cannot hold.
    assert_eq!(kind("# beyond"), ("growing", "likely"));
}

/// The program compares a length with a number: as an attribute, a variable of the module, in a method that is called.
#[test]
fn a_limit_that_the_program_keeps_makes_it_a_cache() {
    let program = "holders/limited.py";
    let report = Report::of(&torch(program).traced().run().success().recording());
    for (mark, limit) in [("# replay", 10_000), ("# cache", 500), ("# kept", 1000)] {
        assert_eq!(at(&report.0["findings"], program, mark), Vec::<&Value>::new());
        let [cache] = at(&report.0["non_leaks"], program, mark)[..] else {
            panic!("{mark}: {:#}", report.0["non_leaks"])
        };
        assert_eq!((&cache["kind"], &cache["limit"]), (&"cache".into(), &limit.into()), "{cache:#}");
        assert_eq!(cache["holders"][0]["retention"], "limited", "{cache:#}");
    }
    let kind = |mark: &str| match at(&report.0["findings"], program, mark)[..] {
        [f] => (f["kind"].as_str().unwrap(), f["confidence"].as_str().unwrap()),
        ref all => panic!("{all:#?}"),
    };
    // Nothing is taken out; it limits how many lists there are, and no list; it was passed.
    assert_eq!(kind("# warned"), ("leak", "confirmed"));
    assert_eq!(kind("# sessions"), ("leak", "confirmed"));
    assert_eq!(kind("# pool"), ("leak", "confirmed"));
}

/// In a closure, for each list of a dict, by a property, computed, by a part of the list, by remainders, by the caller.
#[test]
fn a_limit_in_other_words_makes_it_a_cache() {
    let program = "holders/limited_otherwise.py";
    let report = Report::of(&torch(program).traced().run().success().recording());
    for mark in [
        "# closure",
        "# label",
        "# property",
        "# computed",
        "# cut",
        "# on",
        "# slot",
        "# emptied",
        "# caller",
    ] {
        assert_eq!(at(&report.0["findings"], program, mark), Vec::<&Value>::new());
    }
    // Each list is short, and there are ever more of them; the limit moves on; nothing is dropped.
    for mark in ["# step", "# moved", "# off", "# odd"] {
        let [leak] = at(&report.0["findings"], program, mark)[..] else { panic!("{:#?}", report.findings()) };
        assert_eq!((&leak["kind"], &leak["confidence"]), (&"leak".into(), &"confirmed".into()), "{leak:#}");
    }
}

#[test]
fn cycles_that_nobody_collects_are_garbage_and_not_a_leak() {
    let program = "holders/uncollected.py";
    let report = Report::of(&torch(program).traced().run().success().recording());
    let [finding] = at(&report.0["findings"], program, "# node")[..] else {
        panic!("{:#?}", report.findings())
    };
    assert_eq!(
        (&finding["kind"], &finding["holders"][0]["retention"]),
        (&"pending-gc".into(), &"unreachable".into())
    );
    assert_eq!(finding["bytes_per_step"], 16384.0);
}

#[test]
fn one_holder_is_one_cause() {
    let program = "holders/two_lists.py";
    let report = Report::of(&torch(program).traced().run().success().recording());
    let found: Vec<(u64, &str)> = report
        .findings()
        .iter()
        .map(|f| (f["sites"].as_array().unwrap().len() as u64, f["holders"][0]["path"].as_str().unwrap()))
        .collect();
    assert_eq!(found, [(1, "__main__.outputs[*]"), (2, "__main__.losses[*]")]);
}

/// That the loop is steps is known when it is over: the list is gone by then.
#[test]
fn who_holds_what_a_loop_behind_the_training_keeps() {
    let run = torch("holders/predicted.py").env("LEAKTRACE_QUIET", "1").traced().run().success();
    let report = Report::of(&run.recording());
    assert_eq!(report.steps(), 40 + 200);
    held(&report, "predict() local `results`[*]['embedding']");
}

/// A variable has the newest block of it.
#[test]
fn who_holds_a_sawtooth_of_few_steps() {
    let run = torch("holders/short_teeth.py").env("LEAKTRACE_QUIET", "1").traced().run().success();
    let report = Report::of(&run.recording());
    let [finding] = report.findings() else { panic!("{:#?}", report.findings()) };
    let first = (&finding["kind"], &finding["holders"][0]["path"]);
    assert_eq!(first, (&"periodic".into(), &"__main__.writer.pending[*]".into()), "{finding:#}");
}

/// The outputs reach the graph of the state, the optimizer has the parameter, too, and a caller's variable the list.
#[test]
fn who_keeps_what_others_only_reach() {
    for (way, path) in [
        ("state", "recurrent() local `state`.grad_fn → … saved by MmBackward0, ThnnFusedGruCellBackward0"),
        ("hook", "hooked() local `model`[2].weight → its hooks[*] → closure variable `scale`"),
        ("default", "__main__.output → default of argument `outputs`[*]"),
    ] {
        let run = torch("holders/reached.py").arg(way).env("LEAKTRACE_QUIET", "1").traced().run().success();
        let found: Vec<String> = holders(&Report::of(&run.recording())).into_iter().map(|h| h.0).collect();
        assert_eq!(found, [path]);
    }
}

/// The node that a copy begins with is called otherwise than others are.
#[test]
fn a_graph_behind_a_copy() {
    let run = torch("holders/reached.py").arg("copied").env("LEAKTRACE_QUIET", "1").traced().run().success();
    let report = Report::of(&run.recording());
    is_held(&report, "leak", "confirmed", "copied() local `losses`[*].grad_fn → … saved by");
}

/// It is C++ all the way round, so that no garbage collection frees it.
#[test]
fn a_gradient_whose_graph_leads_back_to_its_tensor() {
    let run =
        torch("holders/reached.py").arg("gradient").env("LEAKTRACE_QUIET", "1").traced().run().success();
    let recording = run.recording();
    let path = "held by a reference cycle in C++, which garbage collection does not free";
    is_held(&Report::of(&recording), "leak", "confirmed", path);
    let text = String::from_utf8(call([recording.as_os_str()]).stdout).unwrap();
    assert!(text.contains("call `torch.autograd.grad(…, create_graph=True)`"), "{text}");
}

/// The kind and the confidence of the finding that somebody holds whose path begins so; `cache`: it is none.
#[track_caller]
fn is_held(report: &Report, kind: &str, confidence: &str, path: &str) {
    let list = if kind == "cache" { &report.0["non_leaks"] } else { &report.0["findings"] };
    let first = |f: &Value| f["holders"][0]["path"].as_str().unwrap_or_default().to_owned();
    let all: Vec<&Value> = list.as_array().unwrap().iter().collect();
    let found =
        all.iter().any(|f| f["kind"] == kind && f["confidence"] == confidence && first(f).starts_with(path));
    let rest: Vec<String> = report
        .findings()
        .iter()
        .map(|f| format!("{} {} {}", f["kind"], f["confidence"], f["holders"]))
        .collect();
    assert!(found, "no {kind} ({confidence}) held by {path} but\n{}", rest.join("\n"));
}

/// The optimizer has them too, under its parameters and by its state.
#[test]
fn layers_that_are_added_are_held_by_their_model() {
    let report = Report::of(&torch("holders/deeper.py").traced().run().success().recording());
    is_held(&report, "growing", "likely", "__main__.layers");
}

/// The most common leaks are held by locals, and functions return before the program ends.
#[test]
fn an_owner_that_is_gone_at_the_end_was_found_before() {
    for (way, path) in [
        ("state", "state() local `state`.grad_fn → "),
        ("total", "total() local `total`.grad_fn → "),
        ("served", "served() local `server`.sessions[*]"),
        ("coroutine", "Server.work() local `self`.sessions[*]"),
        ("generator", "generator.<locals>.steps_of() local `kept`[*]"),
    ] {
        let report =
            Report::of(&torch("holders/early.py").args([way, "200"]).traced().run().success().recording());
        is_held(&report, "leak", "confirmed", path);
    }
}

/// What is found first need not be what keeps it: a function hands on what it has gathered, or gathers it for another.
#[test]
fn what_outlasts_a_variable_is_named_and_not_the_variable() {
    for (way, path) in [
        ("handed_on", "handed_on() local `results`[*][*]"),
        ("epochs", "epochs() local `runner`.history[*][*]"),
        ("attribute", "attribute() local `pipeline`.intermediates[*]"),
        ("hooks", "hooks() local `members`[*].weight → its hooks[*]"),
    ] {
        let report = Report::of(&torch("holders/lasting.py").arg(way).traced().run().success().recording());
        is_held(&report, "leak", "confirmed", path);
    }
}

/// An object that a function has made for its `for` loop alone has no name.
#[test]
fn the_iterator_of_a_loop_is_an_owner() {
    let report = Report::of(&torch("holders/lasting.py").arg("loop").traced().run().success().recording());
    is_held(&report, "leak", "confirmed", "the iterator of a loop in loop() → Prefetcher.in_flight[*]");
}

/// Whoever has the head of a linked list has all of it.
#[test]
fn a_linked_list_is_one_owner() {
    for (way, path) in [
        ("tuple", "main() local `trace`[1]…[0]"),
        ("object", "main() local `trace`.before….value"),
        ("dict", "main() local `trace`['before']…['value']"),
        ("payload", "main() local `trace`.before….value.value"),
        ("causes", "main() local `trace`.__cause__"),
    ] {
        let report = Report::of(&torch("holders/linked.py").arg(way).traced().run().success().recording());
        is_held(&report, "leak", "confirmed", path);
        assert_eq!(holders(&report).len(), 1, "{:#?}", report.findings());
    }
}

/// Backward passes allocate on a thread of PyTorch's what the program's own thread frees.
#[test]
fn a_short_training_without_an_optimizer_has_its_owner() {
    let run = torch("holders/early.py").args(["by_hand", "60"]).traced();
    is_held(
        &Report::of(&run.run().success().recording()),
        "leak",
        "confirmed",
        "by_hand() local `samples`[*]",
    );
}

/// What is renewed shows after 40 steps only, of which a short run has few more.
#[test]
fn what_a_short_run_makes_anew_has_its_owner() {
    let run = torch("holders/early.py").args(["renewed", "48"]).traced();
    is_held(&Report::of(&run.run().success().recording()), "growing", "likely", "renewed() local `history`");
}

/// A thread trains, and the main thread does nothing but wait for it.
#[test]
fn locals_of_a_thread_that_is_waited_for_are_found() {
    let report = Report::of(
        &torch("holders/early.py").args(["waited_for", "200"]).traced().run().success().recording(),
    );
    is_held(&report, "leak", "confirmed", "waited_for.<locals>.work() local `kept`[*]");
}

/// However many allocations a step has, so that the loop is not chosen before the program's end.
#[test]
fn locals_of_loops_with_many_allocations_are_found() {
    for events in ["20", "400"] {
        let run = torch("holders/many_events.py").arg(events).traced();
        is_held(&Report::of(&run.run().success().recording()), "leak", "confirmed", "main() local `kept`[*]");
    }
}

/// A model in a cycle is garbage when `main()` has returned, and so is what it keeps: that is a leak all the same.
#[test]
fn what_the_end_makes_garbage_had_an_owner() {
    for (way, path) in [
        ("cycle", "Trainer.fit() local `self`.model.outputs[*]"),
        ("collected", "Trainer.fit() local `self`.model.outputs[*]"),
        ("errors", "Checker.run() local `self`.errors[*].__traceback__"),
    ] {
        let report =
            Report::of(&torch("holders/early.py").args([way, "140"]).traced().run().success().recording());
        is_held(&report, "leak", "confirmed", path);
        assert!(
            report.findings().iter().all(|f| f["kind"] != "pending-gc"),
            "{way}: {:#?}",
            report.findings()
        );
    }
}

/// The frames that an exception has ended hold what they held.
#[test]
fn a_failure_keeps_what_its_functions_had() {
    let ran = torch("holders/early.py").args(["fails", "40"]).traced().run();
    let report = Report::of(&ran.recording());
    is_held(&report, "leak", "confirmed", "fails() local `kept`[*]");
    let holder = &report.findings()[0]["holders"][0];
    assert_eq!((&holder["step"], holder["blocks"].as_u64() >= Some(30)), (&40.into(), true), "{holder:#}");
}

#[test]
fn further_ways_to_keep_a_tensor_have_their_names() {
    for (way, kind, confidence, path) in [
        ("context", "leak", "confirmed", "contextvars → variable `request`[*]"),
        ("token", "leak", "confirmed", "contextvars → variable `request`[*]"),
        ("default", "leak", "confirmed", "__main__.default → its default[*]"),
        ("thread", "leak", "confirmed", "__main__.local.kept[*]"),
        ("array", "leak", "confirmed", "main() local `table`[*]"),
        (
            "garbage",
            "pending-gc",
            "confirmed",
            "garbage waiting for the cyclic collector: Keeper.update → bound method.__self__ → Keeper",
        ),
        ("ring", "cache", "confirmed", "main() local `table`[*]"),
        ("zeros", "cache", "confirmed", "main() local `table`[*]"),
        ("preset", "cache", "confirmed", "main() local `preset`[*]"),
        ("queue", "cache", "confirmed", "main() local `waiting`.queue[*]"),
        // What bounds each part bounds nothing where the parts become more, or larger.
        ("rows", "leak", "confirmed", "main() local `rows`["),
        ("chunks", "leak", "confirmed", "main() local `chunks`[*]"),
        ("doubled", "leak", "confirmed", "main() local `chunks`[*]"),
        ("slots", "cache", "confirmed", "main() local `slots`[*]"),
        ("strided", "cache", "confirmed", "main() local `slots`[*]"),
        ("sampled", "cache", "confirmed", "main() local `memory`[*]"),
        // As large as the buffer all the time.
        ("redrawn", "cache", "confirmed", "main() local `memory`[*]"),
        ("redrawn_twice", "cache", "confirmed", "main() local `memory`[*]"),
        ("both", "leak", "confirmed", "main() local `everything`[*]"),
    ] {
        let report = Report::of(&torch("holders/kept.py").arg(way).traced().run().success().recording());
        is_held(&report, kind, confidence, path);
    }
}

#[test]
fn tensors_of_other_layouts_and_storages_are_followed() {
    let report = Report::of(&torch("holders/composed.py").traced().run().success().recording());
    for list in ["sparse", "compressed", "nested", "storages"] {
        held(&report, &format!("__main__.{list}[*]"));
    }
    held(&report, "garbage waiting for the cyclic collector: Node.me → Node");
}

#[test]
fn that_nothing_will_collect_garbage_is_said() {
    for (way, is_off) in [("garbage", true), ("collected", false)] {
        let report = Report::of(&torch("holders/kept.py").arg(way).traced().run().success().recording());
        let [finding] = report.findings() else { panic!("{way}: {:#?}", report.findings()) };
        let said = finding["explanation"].as_str().unwrap().contains("is switched off (`gc.disable()`)");
        let told = [finding["kind"].as_str(), finding["confidence"].as_str()];
        assert_eq!((told, said), ([Some("pending-gc"), Some("confirmed")], is_off), "{way}: {finding:#}");
    }
}

#[test]
fn what_graphs_keep_of_models_that_are_gone_has_their_holder() {
    let run =
        |way: &str| Report::of(&torch("holders/folds.py").arg(way).traced().run().success().recording());
    let report = run("graph");
    // Parameters and gradients of sixteen folds, all but the last fold's by the graphs of what was kept.
    let by_graph =
        |h: &(String, u64)| h.0.contains("['outputs'][*].grad_fn") && h.0.contains("AccumulateGrad");
    let kept: u64 = holders(&report).iter().filter(|h| by_graph(h)).map(|h| h.1).sum();
    assert!(kept >= 14 * 8, "{:#?}", report.findings());
    // The entry beside it does not hide the name of what has nearly all.
    let report = run("list");
    is_held(&report, "leak", "confirmed", "__main__.namespace['outputs'][*]");
}

#[test]
fn where_nobody_is_named_the_report_says_why() {
    let run = torch("holders/early.py").args(["fails", "40"]).traced().env("LEAKTRACE_HOLDERS", "off");
    let report = Report::of(&run.run().recording());
    assert_eq!(
        report.findings()[0]["holders_unknown"],
        "LEAKTRACE_HOLDERS is off",
        "{:#?}",
        report.findings()
    );
}

/// A known case: the holder named in its truth, as a whole identifier.
#[track_caller]
fn known_case(case: &str) {
    let folder = crate::common::root().join("tests/cases").join(case);
    let ran = torch_at(&folder.join("train.py")).args(["--device", "cuda"]).traced().run().success();
    let report = Report::of(&ran.recording());
    let truth: Value = serde_json::from_slice(&std::fs::read(folder.join("expected.json")).unwrap()).unwrap();
    let names = truth["runs"][0]["findings"][0]["holder_contains"].as_array().unwrap();
    let found = holders(&report);
    let (path, _) = found.first().unwrap_or_else(|| panic!("{case}: no holder in {:#?}", report.findings()));
    let words: Vec<&str> = path.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    assert!(names.iter().any(|n| words.contains(&n.as_str().unwrap())), "{case}: {names:?} in {found:?}");
}

#[test]
fn the_holders_of_public_cases() {
    for case in [
        "torchtitan_losses",
        "leaky_layer",
        "retain_graph_history",
        "epoch_outputs",
        "saved_activations_hook",
        "mse_scalar_storage",
    ] {
        known_case(case);
    }
}
