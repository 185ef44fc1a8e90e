//! Calls of the driver and the runtime by every way of linking, against the simulated GPU's own log.

use std::collections::BTreeMap;

use crate::common::programs::{bare_cudart, compile, driver_calls, linked};
use crate::common::report::{Report, agrees_at_instants};
use crate::common::{Ran, Run, simulated_libraries};

/// Random calls over every family; the report is compared with the log at each of 20 instants and at the end.
#[track_caller]
fn compare(flavour: &str, seed: u64, threads: u32, context: &str, end: &str) {
    let args = [&seed.to_string(), "1500", "20", &threads.to_string(), context, end];
    let ran = Run::new(driver_calls(flavour)).simulated().traced().args(args).run().success();
    let report = agrees_at_instants(&ran, 20);
    assert_eq!((report.steps(), report.source(), report.end()), (20, "api", "clean"));
}

#[test]
fn driver_by_linking() {
    compare("link", 1, 1, "primary", "keep");
    compare("link", 2, 3, "own", "keep");
}

#[test]
fn driver_by_dlsym() {
    compare("dlsym", 3, 1, "own", "keep");
    compare("dlsym", 4, 3, "primary", "keep");
}

#[test]
fn driver_by_get_proc_address() {
    compare("proc", 5, 1, "primary", "keep");
    compare("proc", 6, 3, "own", "keep");
}

#[test]
fn a_context_takes_its_memory_along() {
    compare("proc", 7, 1, "own", "destroy");
    compare("link", 8, 2, "primary", "destroy");
    compare("dlsym", 9, 1, "primary", "reset");
}

/// What the program says that it holds: bytes and number per allocator.
fn held(ran: &Ran) -> BTreeMap<String, (u64, u64)> {
    let mut alive: Vec<(String, u64)> = Vec::new();
    for line in ran.text().lines() {
        let [sign, name, bytes] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let bytes = bytes.parse().unwrap();
        match sign {
            "+" => alive.push((name.to_owned(), bytes)),
            _ => alive.retain(|(_, b)| *b != bytes),
        }
    }
    let mut sums = BTreeMap::new();
    for (name, bytes) in alive {
        let sum: &mut (u64, u64) = sums.entry(name).or_default();
        *sum = (sum.0 + bytes, sum.1 + 1);
    }
    sums
}

/// The same as the report has it.
fn reported(report: &Report) -> BTreeMap<String, (u64, u64)> {
    let mut sums = BTreeMap::new();
    for site in report.retained() {
        let name = site["entry_point"].as_str().expect("entry_point").to_owned();
        let sum: &mut (u64, u64) = sums.entry(name).or_default();
        *sum = (sum.0 + site["live_bytes"].as_u64().unwrap(), sum.1 + site["live_blocks"].as_u64().unwrap());
    }
    sums
}

/// A program that reaches `runtime` in each of three ways: everything in the report once, by the runtime's
/// names.
#[track_caller]
fn runtime(runtime: &std::path::Path, with_driver: bool) {
    let version = runtime.file_name().unwrap().to_str().unwrap();
    let program = linked("runtime_calls.c", &format!("runtime_linked_{version}"), runtime, &["-DBY_LINK"]);
    let loader = compile("runtime_calls.c", "runtime_loading", &["-DBY_DLOPEN"]);
    let library = ["-DPLUGIN", "-shared", "-fPIC"];
    let plugin = linked("runtime_calls.c", &format!("runtime_plugin_{version}.so"), runtime, &library);
    let host = compile("plugin_host.c", "plugin_host", &[]);
    for (program, arg) in [(&program, None), (&loader, Some(runtime)), (&host, Some(plugin.as_path()))] {
        let run = Run::new(program).args(arg).env("LEAKTRACE_QUIET", "1");
        let run = if with_driver { run.simulated() } else { run };
        let ran = run.traced().run().success();
        assert_eq!(ran.stderr, "");
        let report = Report::of(&ran.recording());
        assert_eq!(reported(&report), held(&ran), "{} {arg:?}", program.display());
        assert_eq!(held(&ran).len(), 7);
        report.assert_whole();
        if with_driver {
            assert_eq!(report.driver_live(), ran.truth().live());
        }
    }
}

#[test]
fn a_runtime_without_a_driver() {
    runtime(&bare_cudart(), false);
}

#[test]
fn a_runtime_over_the_driver() {
    for version in ["libcudart.so.12", "libcudart.so.13"] {
        let library = simulated_libraries().join(version);
        if library.exists() {
            runtime(&library, true);
        }
    }
}

#[test]
fn a_program_without_the_runtime_it_could_use() {
    // A weak reference that nothing answers stays an error of the program's own, not a crash in a hook.
    let source = compile("weak.c", "weak", &[]);
    let plain = Run::new(&source).run();
    let traced = Run::new(&source).traced().run();
    assert_eq!(plain.code(), 0, "{}", plain.transcript());
    assert_eq!(traced.code(), 0, "{}", traced.transcript());
    assert_eq!(traced.files(), Vec::<String>::new());
}

#[test]
fn what_the_driver_says_of_a_name() {
    let driver = simulated_libraries().join("libcuda.so.1");
    let by_link = linked("proc_address.c", "proc_address_linked", &driver, &["-DBY_LINK"]);
    for program in [compile("proc_address.c", "proc_address", &[]), by_link] {
        let run = || Run::new(&program).simulated().env("LEAKTRACE_QUIET", "1");
        let (plain, traced) = (run().run().success(), run().traced().run().success());
        assert!(plain.text().lines().count() > 3000, "{}", plain.transcript());
        assert!(plain.text().contains("called 0 gave"), "{}", plain.transcript());
        assert!(!plain.text().contains("another one"));
        assert_eq!(traced.text(), plain.text());
        assert_eq!(traced.stderr, plain.stderr);
        let report = Report::of(&traced.recording());
        assert_eq!(report.driver_live(), traced.truth().live());
        report.assert_whole();
    }
}

#[test]
fn a_driver_that_is_closed_and_opened_again() {
    // It comes to lie elsewhere, more often than there are slots for different ones.
    let program = compile("reload.c", "reload", &["-DBY_DLSYM"]);
    let run = || Run::new(&program).arg("7").simulated().env("LEAKTRACE_QUIET", "1");
    let (plain, traced) = (run().run().success(), run().traced().run().success());
    assert_eq!((traced.text(), plain.text()), ("done\n".into(), "done\n".into()));
    let report = Report::of(&traced.recording());
    assert_eq!(report.device(0, "driver_live_bytes"), 1006);
    report.assert_whole();
}

/// What `contexts` says that it holds: device and bytes.
fn says_it_holds(lines: &str) -> Vec<(u64, u64)> {
    let held = lines.lines().filter_map(|l| l.strip_prefix("held ")?.split_once(' '));
    held.map(|(device, bytes)| (device.parse().unwrap(), bytes.parse().unwrap())).collect()
}

#[test]
fn several_contexts_on_several_devices_freed_by_other_threads() {
    let driver = simulated_libraries().join("libcuda.so.1");
    for program in [
        linked("contexts.c", "contexts_link", &driver, &["-DBY_LINK"]),
        compile("contexts.c", "contexts_proc", &["-DBY_PROC"]),
    ] {
        for (visible, count) in [(None, 3), (Some("2,0"), 2), (Some("1"), 1), (Some(""), 0)] {
            let mut run = Run::new(&program).simulated().traced().env("SIMGPU_DEVICES", "3");
            if let Some(visible) = visible {
                run = run.env("CUDA_VISIBLE_DEVICES", visible);
            }
            let ran = run.env("LEAKTRACE_QUIET", "1").run();
            if count == 0 {
                // Not even `cuInit` succeeds then.
                assert!(ran.recordings().is_empty());
                continue;
            }
            let ran = ran.success();
            let report = Report::of(&ran.recording());
            let held = says_it_holds(&ran.text());
            assert_eq!(held.len(), count);
            for (device, bytes) in held {
                assert_eq!(
                    report.device(device, "driver_live_bytes"),
                    bytes,
                    "device {device} of {visible:?}"
                );
            }
            report.assert_whole();
        }
    }
}

#[test]
fn two_processes_on_a_device_each() {
    let program = compile("contexts.c", "contexts_dlsym", &["-DBY_DLSYM"]);
    let script = "(CUDA_VISIBLE_DEVICES=0 $0 > first; exit) & CUDA_VISIBLE_DEVICES=1 $0 > second; wait";
    let run = Run::new("sh").args(["-c", script]).arg(&program).simulated().traced();
    let ran = run.env("SIMGPU_DEVICES", "2").env("LEAKTRACE_QUIET", "1").run().success();
    assert_eq!(ran.recordings().len(), 2, "{:?}", ran.files());
    for name in ["first", "second"] {
        let said = std::fs::read_to_string(ran.folder().join(name)).unwrap();
        let pid = said.lines().next().unwrap().strip_prefix("pid ").unwrap();
        let report = Report::of(&ran.folder().join(format!("leaktrace.{pid}.ltrace")));
        let [(0, bytes)] = says_it_holds(&said)[..] else {
            panic!("one device, the first that it sees: {said}")
        };
        assert_eq!(report.device(0, "driver_live_bytes"), bytes);
        report.assert_whole();
    }
}

#[test]
fn contexts_come_and_go_without_end() {
    let program = compile("contexts.c", "contexts_proc", &["-DBY_PROC"]);
    let run = Run::new(program).simulated().traced().env("LEAKTRACE_QUIET", "1").arg("700");
    let ran = run.run().success();
    let report = Report::of(&ran.recording());
    let [(0, bytes)] = says_it_holds(&ran.text())[..] else { panic!("{}", ran.text()) };
    assert_eq!(report.device(0, "driver_live_bytes"), bytes);
    assert!(report.coverage("freed_with_context").as_u64() >= Some(700));
    report.assert_whole();
}

#[test]
fn primary_contexts_are_the_programs_alone() {
    // No reference of ours: it could make a context that the program has ended, or end one that it uses.
    let driver =
        compile("counting_driver.c", "libcuda.so.1", &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]);
    let program = compile("primary_contexts.c", "primary_contexts", &[]);
    let run = || Run::new(&program).env("LD_LIBRARY_PATH", driver.parent().unwrap());
    let plain = run().run().success();
    let traced = run().traced().env("LEAKTRACE_QUIET", "1").env("LEAKTRACE_STEP", "api").run().success();
    assert_eq!(plain.text(), "taken 4 given up 3 made 2 ended 2\n");
    assert_eq!(traced.text(), plain.text());
    let report = Report::of(&traced.recording());
    for device in [0, 1] {
        // What the driver says of a device that is not the current one is known nevertheless.
        assert!(report.device(device, "unattributed_bytes") > 0, "device {device}");
    }
    assert_eq!(report.coverage("freed_with_context"), 2);
    report.assert_whole();
}

#[test]
fn a_device_first_seen_during_capture_has_a_name() {
    for what in ["capture", "launch"] {
        let program = compile("capture_first.c", "capture_first", &["-DBY_PROC"]);
        let run = Run::new(program).arg(what).simulated().traced().env("LEAKTRACE_QUIET", "1");
        let report = Report::of(&run.run().success().recording());
        let devices = report.0["devices"].as_array().unwrap();
        let [device] = &devices[..] else { panic!("{what}: {devices:?}") };
        assert_ne!(device["name"], "", "{what}");
        assert_ne!(device["total_bytes"], 0, "{what}");
    }
}
