//! What the first line of a report says, and that of a finding.

use super::*;

#[test]
fn what_is_no_leak_is_told_as_none() {
    let of = |steps: u64, kinds: &[Kind]| {
        let mut report = report(&ledger(200, true), End::Clean, None).expect("no step asked for");
        report.steps.count = steps as u32;
        let all = kinds.iter().map(|&kind| Finding { kind, ..report.findings[0].clone() });
        report.findings = all.collect();
        report
    };
    let told = |steps, kinds: &[Kind]| wording::answer(&of(steps, kinds));
    let is_none = "No leak in 200 steps; 1 ";
    for kind in [Kind::Periodic, Kind::CarryOver, Kind::Fragmentation] {
        assert!(told(200, &[kind]).starts_with(is_none), "{}", told(200, &[kind]));
        assert!(!told(5, &[kind]).starts_with("No leak"));
    }
    assert!(told(200, &[Kind::CarryOver, Kind::Periodic]).starts_with(is_none));
    for kind in [Kind::Leak, Kind::Growing, Kind::PendingGc, Kind::Residue] {
        assert!(told(200, &[kind]).starts_with("1 "));
        assert!(told(200, &[kind, Kind::CarryOver]).starts_with("1 "));
    }
    let mut report = of(200, &[Kind::CarryOver]);
    report.suppressed.push(suppress::Suppressed {
        pattern: "leak:main".into(),
        reason: None,
        findings: 1,
        bytes_per_step: 512.0,
    });
    assert!(
        wording::answer(&report)
            .starts_with("No leak in 200 steps apart from what is suppressed; 1 carry-over: ")
    );
    // What was not seen to the end may have leaked behind it.
    report.coverage.gaps.push("no room; tracing is switched off".into());
    assert!(wording::answer(&report).starts_with("1 carry-over: "));
}

#[test]
fn a_part_of_a_block_is_not_told() {
    let mut f = verdict::Finding::new(Kind::Leak, Confidence::Confirmed, 0, crate::ledger::Layer::Block);
    (f.blocks_per_step, f.bytes_per_step, f.growth_step_ratio) = (1.5, 4096.0, 1.0);
    let told = wording::explanation(&f, &advice::held(&[], 4096.0).sites, &[], "/home/u");
    assert!(told.contains(" keeps 4.0 KiB (4,096 B) of every step: "), "{told}");
    for (blocks, words) in
        [(0.5, "4.0 KiB per step, "), (1.5, "4.0 KiB per step, "), (2.0, "4.0 KiB (2 blocks) per step, ")]
    {
        let mut f = advice::held(&[], 4096.0);
        (f.blocks_per_step, f.growth_bytes_per_step) = (blocks, 4096.0);
        let (_, much) = wording::title(&f);
        assert!(much.starts_with(words), "{much}");
    }
}

#[test]
fn the_steps_of_a_source_are_from_its_own_loops() {
    let mut report = report(&ledger(200, false), End::Clean, None).expect("no step asked for");
    let at =
        |line: u32| vec![LoopLocation { at: format!("/home/u/train.py:{line}"), calls_of: None, runs: None }];
    let source =
        |depth: u32, line| StepSource { name: format!("loop:{depth}"), count: 200, loop_locations: at(line) };
    report.steps.source = Some("loop");
    report.steps.loop_locations = at(19);
    report.steps.step_sources = vec![source(1, 17), source(2, 19)];
    let mut told = |by: &str| {
        report.steps.read_by(by.parse().expect("a source"));
        wording::run(&report)
    };
    assert!(told("loop").ends_with("200 steps (from loop at train.py:19)"));
    assert!(told("loop:1").ends_with("200 steps (from loop at train.py:17)"));
    // Its function is called from two places.
    report.steps.loop_locations = [at(19), at(19)].concat();
    let told = wording::run(&report);
    assert!(told.ends_with("200 steps (from loop at train.py:19)"), "{told}");
    // It trains between an optimizer's steps, by backward passes.
    report.steps.source = Some("optimizer");
    let told = wording::run(&report);
    assert!(told.ends_with("200 steps (from optimizer, and from the loop at train.py:19)"), "{told}");
}

#[test]
fn steps_are_told_apart_where_there_are_many_of_each_kind() {
    // A loop ends the steps, and something trains from a step on.
    let counted = |trains_from: u64| {
        let mut ledger = Ledger::default();
        let mut say = |e: Event| {
            let seq = ledger.next_seq();
            ledger.apply(&Event { seq, ..e });
        };
        for step in 1..=200u64 {
            if step >= trains_from {
                say(Event::new(EventKind::Trained));
                let block = Event {
                    address: step << 32,
                    size: 512,
                    stack: LOSS,
                    device: 0,
                    ..Event::new(EventKind::BlockAlloc)
                };
                say(block);
            }
            let class = crate::format::event::StepSource::Loop as u8;
            say(Event { address: step * 1_000_000, class, device: 1, ..Event::new(EventKind::StepEnd) });
        }
        let report = report(&ledger, End::Clean, None).expect("no step asked for");
        let [f] = &report.findings[..] else { panic!("{:#?}", report.findings) };
        assert_eq!(f.why.contains(" training steps since "), f.counted_steps == "training", "{}", f.why);
        f.counted_steps
    };
    assert_eq!([2, 3, 41].map(counted), ["all", "all", "training"]);
}

#[test]
fn no_duration_is_told_of_what_was_killed_before_a_moment_was_recorded() {
    for (steps, words) in
        [(0, ": killed or crashed, no step was seen"), (20, ": killed or crashed after 0.0 s, 20 steps")]
    {
        let report = report(&ledger(steps, false), End::Killed, None).expect("no step asked for");
        let told = wording::run(&report);
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn a_sawtooth_of_compiled_programs_is_told_in_programs() {
    let mut report = report(&ledger(200, true), End::Clean, None).expect("no step asked for");
    let f = &mut report.findings[0];
    (f.kind, f.layer, f.period_steps, f.bytes_per_step) = (Kind::Periodic, "code", Some(15.0), 0.0);
    (f.live_bytes, f.blocks_per_step) = (0, 2.0);
    let much = "2 compiled programs per step, released every 15 steps";
    assert_eq!(wording::title(f), ("Sawtooth (confirmed)".to_owned(), much.to_owned()));
    let answer = format!("No leak in 200 steps; 1 sawtooth: {much} at train.py:37 cross_entropy_loss");
    assert_eq!(wording::answer(&report), answer);
}

#[test]
fn loops_of_a_framework_are_no_source_and_places_are_told_once() {
    let torch = "/v/lib/python3.11/site-packages/torch/nn/modules/module.py:932";
    let mut report = report(&ledger(200, false), End::Clean, None).expect("no step asked for");
    let source = |name: &str, at: &[&str]| StepSource {
        name: name.to_owned(),
        count: 100,
        loop_locations: at
            .iter()
            .map(|at| LoopLocation { at: (*at).to_owned(), calls_of: None, runs: None })
            .collect(),
    };
    let own = "/home/u/train.py:12";
    report.steps.step_sources =
        vec![source("loop:1", &[own]), source("loop:2", &[torch]), source("loop:3", &[torch, own])];
    let told = wording::step_details(&report, true).join("\n");
    let sources = "other step sources: loop:1 (100 at train.py:12), loop:3 (100 at train.py:12); choose ";
    assert!(told.starts_with(sources), "{told}");
    // Loops between an optimizer's steps are told with the steps.
    report.steps.phase_steps = 100;
    let told = wording::step_details(&report, true).join("\n");
    assert!(!told.contains("other step sources"), "{told}");
    report.steps.phase_steps = 0;
    let mut leaking = self::report(&ledger(200, true), End::Clean, None).expect("no step asked for");
    leaking.steps = report.steps.clone();
    let mut tells = |ratio: f64| {
        leaking.findings[0].growth_step_ratio = ratio;
        wording::step_details(&leaking, false).concat().contains("other step sources")
    };
    assert!(tells(0.1), "it may grow in each step of another source");
    assert!(!tells(1.0), "these are the steps that it grows in");
    report.steps.source = None;
    let unused = |iterations| UnusedLoop { location: torch.into(), iterations, reason: "framework".into() };
    report.steps.unused_loops = vec![unused(9), unused(7)];
    let told = wording::run(&report);
    assert!(
        told.contains("no loop that counts: torch/nn/modules/module.py:932 (the framework's own);"),
        "{told}"
    );
}

#[test]
fn a_short_run_without_a_leak_says_what_it_cannot_show() {
    let mut report = report(&ledger(200, true), End::Clean, None).expect("no step asked for");
    let told = |report: &Report| {
        wording::step_details(report, false).concat().contains("20 steps show only what grows")
    };
    report.steps.count = 20;
    assert!(!told(&report), "it has a leak");
    report.findings.clear();
    assert!(told(&report));
    report.steps.count = 200;
    assert!(!told(&report));
}

#[test]
fn loops_of_python_s_own_library_are_told_briefly() {
    let mut report = report(&ledger(200, true), End::Clean, None).expect("no step asked for");
    for (at, words) in [
        (
            "/usr/lib/python3.11/concurrent/futures/thread.py:80",
            "200 steps (calls submitted to a thread pool)",
        ),
        ("/usr/lib/python3.11/asyncio/events.py:84", "200 steps (from loop at asyncio/events.py:84)"),
        ("/x/site-packages/ignite/engine.py:9", "200 steps (from loop at ignite/engine.py:9)"),
    ] {
        report.steps.source = Some("loop");
        let mut place = LoopLocation { at: at.into(), calls_of: None, runs: None };
        report.steps.loop_locations = vec![place.clone()];
        let told = wording::run(&report);
        assert!(told.ends_with(words), "{told}");
        // What of the program it runs.
        place.runs = Some(("Server.handle".into(), "server.py:24".into()));
        report.steps.loop_locations = vec![place];
        let told = wording::run(&report);
        let runs = format!("{}, which runs Server.handle() at server.py:24)", words.trim_end_matches(')'));
        assert!(told.ends_with(&runs), "{told}");
    }
}

#[test]
fn what_holders_have_in_common_ends_before_they_part() {
    let paths = ["__main__.runs[*]['model'] → .a, .b", "__main__.runs[*]['model'] → .c, .d"];
    let told = wording::held_by_whom(&advice::held(&paths, 4096.0));
    assert_eq!(told.as_deref(), Some("held by `runs[*]['model']` in __main__"));
}
