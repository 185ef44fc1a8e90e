//! Reports as people and machines read them.

use super::build::StepUnknown;
use super::*;
use crate::format::entry::{Frame as Packed, LineTable, TableEntry};
use crate::format::event::{Event, EventKind};
use crate::format::tables::Tables;
use crate::ledger::Ledger;
use crate::ledger::verdict::{self, Confidence, Kind};
use crate::symbols::Names;

mod advice;
mod headline;

const PARAMETERS: u32 = 1;
const LOSS: u32 = 2;

fn tables() -> Tables {
    let mut t = Tables::default();
    for (key, value) in [
        ("argv", "python\0/home/u/train.py\0--steps\x00200"),
        ("cwd", "/home/u"),
        ("host", "box"),
        ("python", "3.11"),
    ] {
        t.add(TableEntry::Meta { key, value });
    }
    let torch = "/v/lib/python3.11/site-packages/torch/nn/functional.py";
    for (id, file, name, first_line) in [
        (1, torch, "cross_entropy", 3000),
        (2, "/home/u/train.py", "cross_entropy_loss", 37),
        (3, "/home/u/train.py", "main", 65),
    ] {
        t.add(TableEntry::Code { id, file, name, first_line, encoding: LineTable::Pairs, lines: &[] });
    }
    let frames = |codes: &[u32]| -> Vec<u8> {
        let frame = |&code| Packed::Python { code, offset: 0, entry: false }.pack().to_le_bytes();
        codes.iter().flat_map(frame).collect()
    };
    t.add(TableEntry::Stack { id: PARAMETERS, python: 1, frames: &frames(&[3]) });
    t.add(TableEntry::Stack { id: LOSS, python: 3, frames: &frames(&[1, 2, 3]) });
    t.add(TableEntry::Device { index: 0, name: "GPU", total_bytes: 80 << 30 });
    t.add(TableEntry::Note { text: "/x/odd.so was opened with its own scope first: its calls are not seen" });
    t
}

fn ledger(steps: u64, leaks: bool) -> Ledger {
    let mut ledger = Ledger::default();
    let mut seq = 0;
    let mut say = |e: Event| {
        seq += 1;
        ledger.apply(&Event { seq, device: 0, ..e });
    };
    say(Event { address: 1 << 20, size: 4 << 20, stack: PARAMETERS, ..Event::new(EventKind::BlockAlloc) });
    for step in 1..=steps {
        let (kept, gone) = (step << 32, step << 32 | 4096);
        say(Event { address: gone, size: 2048, stack: LOSS, ..Event::new(EventKind::BlockAlloc) });
        if leaks {
            say(Event { address: kept, size: 512, stack: LOSS, ..Event::new(EventKind::BlockAlloc) });
        }
        say(Event { address: gone, ..Event::new(EventKind::BlockFree) });
        say(Event { address: step * 1_000_000, class: 1, ..Event::new(EventKind::StepEnd) });
    }
    ledger
}

fn report(ledger: &Ledger, end: End, step: Option<u32>) -> Result<Report, StepUnknown> {
    let tables = tables();
    let run = Run { end, pid: 42, ..Run::default() };
    Report::build(ledger, &tables, &Names::new(&tables, None), &run, step)
}

fn fits(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 100 && line == line.trim_end(), "{line:?}");
    }
}

#[test]
fn a_leak_in_json() {
    let report = report(&ledger(200, true), End::Clean, None).expect("no step asked for");
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("is JSON");
    assert_eq!(json["schema"], "leaktrace.report/1");
    assert_eq!(json["program"]["argv"][3], "200");
    assert_eq!(json["program"]["end"], "clean");
    assert_eq!(json["program"]["rank"], serde_json::Value::Null);
    assert_eq!((&json["steps"]["count"], &json["steps"]["source"]), (&200.into(), &"optimizer".into()));
    let series = json["steps"]["series"].as_array().unwrap();
    let last = &series[199];
    assert_eq!((series.len(), &last["step"]), (200, &200.into()));
    assert_eq!(last["devices"][0]["block_bytes"], json["devices"][0]["block_bytes"]);
    assert_eq!(json["devices"][0]["live_bytes"], (4 << 20) + 200 * 512);
    assert_eq!(json["devices"][0]["peak_bytes"], (4 << 20) + 200 * 512 + 2048);
    let f = &json["findings"][0];
    assert_eq!(
        (&f["kind"], &f["confidence"], &f["layer"]),
        (&"leak".into(), &"confirmed".into(), &"block".into())
    );
    assert_eq!((f["bytes_per_step"].as_f64(), f["growth_step_ratio"].as_f64()), (Some(512.0), Some(1.0)));
    let at = serde_json::json!({"file": "/home/u/train.py", "line": 37, "function": "cross_entropy_loss"});
    assert_eq!(f["sites"][0]["allocated_at"], at);
    assert_eq!(f["sites"][0]["stack"][0]["function"], "cross_entropy");
    assert_eq!(f["sites"][0]["stack"][0]["kind"], "python");
    assert!(f["steps_to_oom"].as_u64() > Some(100_000_000));
    for key in ["period_steps", "peak_reduction_bytes", "holders", "cohorts", "oldest_step", "explanation"] {
        assert!(f.get(key).is_some(), "{key}");
    }
    assert_eq!(json["retained"][0]["live_bytes"], 4 << 20);
    assert_eq!(json["coverage"]["gaps"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_leak_in_plain_words() {
    let report = report(&ledger(200, true), End::Killed, None).expect("no step asked for");
    let text = text::render(&report);
    fits(&text);
    let sentence = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "1 leak: 512 B per step at train.py:37 cross_entropy_loss \
         python train.py --steps 200 (pid 42 on box): killed or crashed after 0.2 s, 200 steps (from optimizer)",
        "1. Leak (confirmed): 512 B (1 block) per step, 100.0 KiB so far \
         allocated at train.py:37 cross_entropy_loss called from train.py:65 main \
         held by not known: ",
        "why a leak each of the 200 steps since step 1 left blocks that are still live; all other blocks of this \
         line were freed in the step that allocated them. growth 1.0 KiB (step 2) ",
        "█ 100.0 KiB (step 200); ",
        "Live after step 200 4.1 MiB 4.0 MiB 1 block train.py:65 main",
        "100.0 KiB 200 blocks train.py:37 cross_entropy_loss, in cross_entropy <- leak 1",
        "GPU 0 (GPU, 80.0 GiB): live 4.1 MiB, peak 4.1 MiB, reserved 0 B",
        "Checked: no counters",
        "coverage gap: /x/odd.so",
    ] {
        assert!(sentence.contains(words), "{words}\n{text}");
    }
    let sentences = report.findings[0].explanation.as_str();
    assert!(sentences.ends_with("freed in the step that allocated them. This is a leak."), "{sentences}");
    let last = text::summary(&report, "/tmp/leaktrace.42.ltrace");
    fits(&last);
    assert!(last.lines().count() <= 8, "{last}");
    assert!(
        last.starts_with("leaktrace: 1 leak: 512 B per step at train.py:37 cross_entropy_loss\n"),
        "{last}"
    );
    assert!(last.ends_with("leaktrace report /tmp/leaktrace.42.ltrace\n"));
}

#[test]
fn a_rate_tells_the_mean_where_most_steps_add_another_figure() {
    let report = report(&ledger(200, true), End::Clean, None).expect("no step asked for");
    for (share, mean, words) in [
        (1.0, 512.0, "512 B (1 block) per step, "),
        (0.99, 512.0, "512 B (1 block) per step, "),
        (1.0, 600.0, "512 B (1 block) in most steps, 600 B per step on average, "),
        (1.0, 2048.0, "512 B (1 block) in most steps, 2.0 KiB per step on average, "),
        (0.25, 128.0, "512 B (1 block) in each step that adds, 128 B per step on average, "),
        (0.25, 2048.0, "512 B (1 block) in most steps that add, 2.0 KiB per step on average, "),
        // Calls that overlap: two add in one step, and none in another.
        (0.95, 510.0, "512 B (1 block) per step, "),
    ] {
        let mut f = report.findings[0].clone();
        (f.growth_step_ratio, f.growth_bytes_per_step) = (share, mean);
        let (_, much) = wording::title(&f);
        assert!(much.starts_with(words), "{much}");
        let rate = wording::rate(&f).expect("a leak has a rate");
        assert_eq!(rate.contains("in most"), words.contains("in most"), "{rate}");
    }
    // Of several lines, the one named may be another than that.
    let mut f = report.findings[0].clone();
    f.growth_bytes_per_step = 2048.0;
    f.sites.push(f.sites[0].clone());
    assert_eq!(wording::rate(&f).as_deref(), Some("2.0 KiB per step on average"));
    // Where each is of another size, none is that of most.
    let mut f = report.findings[0].clone();
    f.bytes_per_step_interval = Some([512.0, 4096.0]);
    for (share, mean, words) in [
        (0.25, 300.0, "512 B as the median of steps that add, 300 B per step on average"),
        (1.0, 550.0, "512 B as the median of steps, 550 B per step on average"),
        (1.0, 515.0, "512 B per step"),
    ] {
        (f.growth_step_ratio, f.growth_bytes_per_step) = (share, mean);
        assert_eq!(wording::rate(&f).as_deref(), Some(words));
    }
    // Where each is larger than the one before, the latest tell more than the median.
    f.late_bytes_per_step = Some(4096.0);
    assert_eq!(wording::rate(&f).as_deref(), Some("515 B per step on average (4.0 KiB of late)"));
    assert!(wording::title(&f).1.starts_with("515 B per step on average (4.0 KiB of late), "));
}

/// Whoever runs out of memory in a longer loop must see what it gathers.
#[test]
fn what_a_loop_gathered_is_told_with_its_line_and_its_rate() {
    let mut report = report(&ledger(200, true), End::Clean, None).expect("no step asked for");
    let mut f = report.findings[0].clone();
    (f.kind, f.growth_bytes_per_step) = (Kind::Gathered, 512.0);
    let words = "100.0 KiB gathered in a loop, and joined, copied to the host or released after it";
    assert_eq!(wording::non_leaks(&[f.clone()]), words);
    report.devices.iter_mut().for_each(|d| d.live_bytes = f.live_bytes);
    report.non_leaks = vec![f];
    let told = wording::large_non_leaks(&report).join("\n");
    let words = ": 512 B per step of a loop, joined, copied to the host or released after it: a longer loop needs more memory";
    assert!(told.starts_with("100.0 KiB at train.py:37 ") && told.ends_with(words), "{told}");
}

/// Growth that has stopped is no leak, but who reads it must see that it was growth.
#[test]
fn a_plateau_tells_in_how_many_steps_it_grew() {
    let report = report(&ledger(200, true), End::Clean, None).expect("no step asked for");
    for (cohorts, words) in [
        (3, "100.0 KiB allocated after warm-up, none since step 101"),
        (60, "100.0 KiB allocated after warm-up in 60 steps, none since step 101"),
    ] {
        let mut f = report.findings[0].clone();
        (f.kind, f.cohorts, f.evidence_step) = (Kind::Plateau, cohorts, Some(101));
        assert_eq!(wording::non_leaks(&[f]), words);
    }
}

#[test]
fn a_rate_tells_which_steps_it_is_of() {
    let report = report(&ledger(200, true), End::Clean, None).expect("no step asked for");
    for (counted, every, some) in [
        ("all", "512 B (1 block) per step, ", ", 128 B per step on average"),
        ("training", "512 B (1 block) per training step, ", ", 128 B per training step on average"),
        (
            "other",
            "512 B (1 block) per step outside training, ",
            ", 128 B per step outside training on average",
        ),
    ] {
        let mut f = report.findings[0].clone();
        assert_eq!(f.counted_steps, "all");
        f.counted_steps = counted;
        let (_, much) = wording::title(&f);
        assert!(much.starts_with(every), "{much}");
        (f.growth_step_ratio, f.growth_bytes_per_step) = (0.25, 128.0);
        let rate = wording::rate(&f).expect("a leak has a rate");
        assert!(rate.ends_with(some), "{rate}");
    }
}

#[test]
fn no_leak_and_why() {
    for (steps, words) in [
        (200, "No leak in 200 steps."),
        (5, "Not judged: 5 steps were seen; at least 14 are needed. With LEAKTRACE_STEP=loop the iterations"),
        (0, "Not judged: no training step was seen"),
    ] {
        let report = report(&ledger(steps, false), End::Clean, None).expect("no step asked for");
        let text = text::render(&report);
        fits(&text);
        assert!(text.contains(words), "{text}");
        assert!(!text::summary(&report, "x").contains("1 leak"));
    }
}

#[test]
fn a_step_asked_for_is_shown_as_it_ended() {
    let ledger = ledger(200, true);
    let then = report(&ledger, End::Clean, Some(50)).expect("step 50 is there");
    assert_eq!(then.devices[0].live_bytes, (4 << 20) + 50 * 512);
    assert_eq!(then.devices[0].peak_bytes, (4 << 20) + 50 * 512 + 2048);
    assert_eq!((then.retained[1].live_bytes, then.retained[1].live_blocks), (50 * 512, 50));
    assert_eq!((then.step, then.findings.len()), (Some(50), 1));
    assert!(text::render(&then).contains("Live after step 50 "));
    for step in [0, 201] {
        let said = report(&ledger, End::Clean, Some(step)).err().map(|e| e.to_string());
        assert_eq!(said, Some(format!("step {step} is not there: the steps are 1 to 200")));
    }
}

#[test]
fn no_cache_looks_like_garbage() {
    let mut f = verdict::Finding::new(Kind::Leak, Confidence::Likely, 0, crate::ledger::Layer::Block);
    f.span = 20;
    f.cohorts = 20;
    let told =
        |f: &verdict::Finding, path: &str| wording::why(f, &[], &advice::held(&[path], 512.0).holders, "");
    assert!(told(&f, "__main__.a[*]").ends_with("Only a cache that is not full yet would look the same."));
    let cycle = "garbage waiting for the cyclic collector: A → A";
    let garbage = told(&f, cycle);
    assert!(garbage.ends_with("only garbage collection frees them."), "{garbage}");
    f.collector_is_off = true;
    let garbage = told(&f, cycle);
    assert!(garbage.ends_with("switched off (`gc.disable()`): nothing frees them."), "{garbage}");
}

#[test]
fn a_full_device_is_foretold_to_who_may_see_it() {
    let mut f = advice::held(&["__main__.a[*]"], 512.0);
    f.steps_to_oom = Some(943_571);
    assert_eq!(wording::time_to_oom(&f), None);
    f.steps_to_oom = Some(50_000);
    assert_eq!(wording::time_to_oom(&f).as_deref(), Some("device full in about 50,000 more steps"));
}

#[test]
fn out_of_memory_ranks_what_was_alive() {
    let mut ledger = ledger(20, true);
    let seq = ledger.next_seq();
    let oom = Event {
        seq,
        address: 9 << 20,
        size: 64 << 30,
        device: 0,
        stack: LOSS,
        ..Event::new(EventKind::OutOfMemory)
    };
    ledger.apply(&oom);
    let report = report(&ledger, End::Running, None).expect("no step asked for");
    let text = text::out_of_memory(&report).expect("it ran out");
    fits(&text);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let answer = "OUT OF MEMORY at step 21: train.py:37 cross_entropy_loss asked for 64.0 GiB; \
                  1 leak accounts for 10.0 KiB of the 9.0 MiB in use";
    assert!(words.starts_with(answer), "{text}");
    assert!(words.contains("At the failure: 9.0 MiB live, "), "{text}");
    let (big, small) = (text.find("4.0 MiB       1 block"), text.find("10.0 KiB     20 blocks"));
    assert!(big.is_some() && big < small, "{text}");
    assert!(words.contains("<- leak 1") && !text.contains("Live after"), "{text}");
    // Of a program that went on it is no answer.
    let run = Run { end: End::Clean, exit_status: Some(0), ..Run::default() };
    let tables = tables();
    let went_on = Report::build(&ledger, &tables, &Names::new(&tables, None), &run, None).expect("no step");
    let text = text::render(&went_on);
    fits(&text);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.starts_with("1 leak: ") && words.contains("The program went on."), "{text}");
}

#[test]
fn no_text_of_the_recording_steers_the_terminal() {
    let mut t = tables();
    t.add(TableEntry::Symbol { id: 3, name: "cu\x1b[2JMemAlloc" });
    t.add(TableEntry::Code {
        id: 3,
        file: "/home/u/a\rb.py",
        name: "ma\x08in",
        first_line: 65,
        encoding: LineTable::Pairs,
        lines: &[],
    });
    t.add(TableEntry::Note { text: "a\u{9b}note" });
    t.add(TableEntry::Device { index: 0, name: "G\nPU", total_bytes: 80 << 30 });
    t.add(TableEntry::Meta { key: "host", value: "b\tox" });
    let mut ledger = ledger(20, true);
    let object = Event {
        address: 1 << 40,
        size: 8 << 20,
        class: 1,
        stack: LOSS,
        device: 0,
        ..Event::new(EventKind::Alloc)
    };
    ledger.apply(&Event { seq: ledger.next_seq(), entry_point: 3, ..object });
    ledger.apply(&Event {
        seq: ledger.next_seq(),
        size: 9,
        entry_point: 3,
        ..Event::new(EventKind::UntrackedCall)
    });
    let oom = Event { size: 9, device: 0, stack: LOSS, ..Event::new(EventKind::OutOfMemory) };
    ledger.apply(&Event { seq: ledger.next_seq(), ..oom });
    let run = Run { problems: vec!["a\x7fproblem".into()], ..Run::default() };
    let report = Report::build(&ledger, &t, &Names::new(&t, None), &run, None).expect("no step asked for");
    let texts = [
        text::render(&report),
        text::summary(&report, "/tmp/\x1b.ltrace"),
        text::out_of_memory(&report).expect("it ran out"),
    ];
    for text in texts {
        assert!(text.lines().all(|l| !l.chars().any(char::is_control)), "{text:?}");
    }
}

#[test]
fn long_names_in_deep_stacks_do_not_fill_the_memory() {
    let mut t = tables();
    let long = "x".repeat(100_000);
    t.add(TableEntry::Code {
        id: 9,
        file: &long,
        name: &long,
        first_line: 1,
        encoding: LineTable::Pairs,
        lines: &[],
    });
    let frame = Packed::Python { code: 9, offset: 0, entry: false }.pack().to_le_bytes();
    let mut ledger = Ledger::default();
    for stack in 0..40 {
        t.add(TableEntry::Stack { id: 100 + stack, python: 16_000, frames: &frame.repeat(16_000) });
        let block = Event {
            address: u64::from(stack) << 20,
            size: 512,
            device: 0,
            ..Event::new(EventKind::BlockAlloc)
        };
        ledger.apply(&Event { seq: ledger.next_seq(), stack: 100 + stack, ..block });
    }
    let report = Report::build(&ledger, &t, &Names::new(&t, None), &Run::default(), None).expect("no step");
    assert_eq!(report.retained.len(), 40);
    assert!(report.retained.iter().all(|r| r.allocated_at.is_some() && !r.stack.is_empty()));
    // 5 GB if every frame were told with all of its name.
    let length = report.to_json().len();
    assert!(length < 64 << 20, "{length}");
}

#[test]
fn the_series_of_many_devices_is_bounded() {
    let mut ledger = Ledger::default();
    for device in 0..200 {
        let block = Event {
            address: u64::from(device) << 20,
            size: 512,
            device,
            ..Event::new(EventKind::BlockAlloc)
        };
        ledger.apply(&Event { seq: ledger.next_seq(), ..block });
    }
    for step in 1..=600 {
        let boundary = Event { address: step, class: 1, ..Event::new(EventKind::StepEnd) };
        ledger.apply(&Event { seq: ledger.next_seq(), ..boundary });
    }
    let report = report(&ledger, End::Clean, None).expect("no step asked for");
    let series = &report.steps.series;
    assert_eq!((series.len(), series.last().map(|s| s.step)), (80_000 / 200, Some(600)));
}

#[test]
fn what_is_suppressed_is_counted_and_not_shown() {
    let report = || report(&ledger(200, true), End::Clean, None).expect("no step asked for");
    let applied = |rules: &str| {
        let mut report = report();
        suppress::Suppressions::read(rules).expect(rules).apply(&mut report);
        report
    };
    for rules in [
        "leak:train.py:cross_entropy_loss # known",
        "*:/home/*:37 # known",
        "leak:main # known",
        "growing:main\nleak:u/train.py:37:cross_* # known\nleak:main",
    ] {
        let report = applied(rules);
        assert_eq!(report.findings.len(), 0, "{rules}");
        let [s] = &report.suppressed[..] else { panic!("{:?}", report.suppressed) };
        assert_eq!((s.findings, s.bytes_per_step, s.reason.as_deref()), (1, 512.0, Some("known")));
        let text = text::render(&report);
        fits(&text);
        assert!(text.contains("No leak in 200 steps apart from what is suppressed."), "{text}");
        assert!(text.contains("1 finding, 512 B per step, by ") && text.contains(": known"), "{text}");
    }
    // Part of a name is no name; another kind is another matter; a cache outlives nothing that its line lets go.
    for rules in ["leak:rain.py:main", "leak:mai", "growing:main", "cache:main"] {
        let report = applied(rules);
        assert_eq!((report.findings.len(), report.suppressed.len()), (1, 0), "{rules}");
        let note = format!("suppressions that suppressed nothing: {rules} (line 1)");
        assert_eq!(report.warnings.last(), Some(&note));
    }
}

#[test]
fn each_device_fills_at_its_own_pace() {
    let mut t = tables();
    t.add(TableEntry::Device { index: 1, name: "GPU", total_bytes: 1 << 30 });
    let mut ledger = Ledger::default();
    let mut say = |e: Event| {
        let seq = ledger.next_seq();
        ledger.apply(&Event { seq, ..e });
    };
    let block = |address: u64, size: u64, device: u8, stack: u32| Event {
        address,
        size,
        device,
        stack,
        ..Event::new(EventKind::BlockAlloc)
    };
    for step in 1..=100u64 {
        say(block(step << 24, 1 << 20, 1, LOSS));
        // Another cause, in every other step, of varying size.
        if step % 2 == 0 {
            say(block(step << 24 | 1 << 23, (1 + step % 8) << 20, 1, PARAMETERS));
        }
        say(block(step << 24 | 1 << 22, 512, 0, LOSS));
        say(Event { address: step * 1_000_000, class: 1, ..Event::new(EventKind::StepEnd) });
    }
    let report =
        Report::build(&ledger, &t, &Names::new(&t, None), &Run::default(), None).expect("no step asked for");
    // One line on two devices is one cause; another line of one of them is another.
    let [other, large] = &report.findings[..] else { panic!("{:#?}", report.findings) };
    assert_eq!((large.device, &large.devices[..], &other.devices[..]), (Some(1), &[0, 1][..], &[][..]));
    // It fills each at the pace of what it adds there, and the smaller one first.
    let live = report.devices[1].live_bytes;
    assert_eq!(report.devices[0].steps_to_oom, Some(((80 << 30) - 512 * 100) / 512));
    assert_eq!(large.steps_to_oom, Some(((1 << 30) - live) >> 20));
    // Both causes fill the one device.
    let both = ((1 << 30) - live) as f64 / ((1 << 20) as f64 + other.growth_bytes_per_step);
    assert_eq!(report.devices[1].steps_to_oom, Some(both as u64));
    // One always adds as much, the other does not.
    assert_eq!(large.bytes_per_step_interval, Some([1049088.0; 2]));
    let [low, high] = other.bytes_per_step_interval.expect("of single steps");
    assert!(low < high && (low..=high).contains(&other.bytes_per_step), "{other:#?}");
    assert!(other.explanation.contains("(between ") && !large.explanation.contains("(between "));
    assert_eq!((other.first_step, large.first_step), (Some(2), Some(1)));
}

#[test]
fn an_event_that_was_being_written_at_the_end_is_not_lost() {
    let tables = tables();
    let lost = |numbers: &[u64], unfinished_events: u64| {
        let event = |&seq: &u64| Event { seq, address: seq, ..Event::new(EventKind::BlockAlloc) };
        let ledger = Ledger::replay(None, numbers.iter().map(event)).expect("a new ledger");
        let run = Run { end: End::Killed, unfinished_events, ..Run::default() };
        let report = Report::build(&ledger, &tables, &Names::new(&tables, None), &run, None);
        report.expect("a report").coverage.dropped_events
    };
    // A thread was killed between taking the numbers 4 and 5 and writing its pair.
    assert_eq!(lost(&[1, 2, 3, 6], 2), 0);
    // More than its threads can have left unfinished.
    assert_eq!(lost(&[1, 2, 3, 9], 4), 5);
}
