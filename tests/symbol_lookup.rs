//! Whose function a look-up finds: in every scope and order of loading what the same program finds without
//! us, noted once.

use std::path::{Path, PathBuf};

use crate::common::programs::{compile, linked};
use crate::common::report::Report;
use crate::common::{Ran, Run, library};

/// Runtime number `number`, which gives addresses by which it is known.
fn runtime(number: u32) -> PathBuf {
    named_runtime(number, &format!("libwho{number}.so"), &[])
}

fn named_runtime(number: u32, name: &str, flags: &[&str]) -> PathBuf {
    let (who, soname) = (format!("-DWHO={number}"), format!("-Wl,-soname,{name}"));
    let mut all = vec!["-shared", "-fPIC", &who, &soname];
    all.extend(flags);
    compile("who.c", name, &all)
}

/// A library that looks things up, bound to `runtime` or to none.
fn plugin(name: &str, runtime: Option<&Path>, flags: &[&str]) -> PathBuf {
    let mut all = vec!["-DPLUGIN", "-shared", "-fPIC", "-Wl,--no-as-needed"];
    all.extend(flags);
    match runtime {
        Some(runtime) => {
            all.retain(|f| *f != "-Wl,--no-as-needed");
            linked("lookups.c", name, runtime, &all)
        }
        None => compile("lookups.c", name, &all),
    }
}

fn open(how: &str, library: &Path) -> String {
    format!("{how}={}", library.display())
}

/// Runs with and without the preload: the output is the same, and every allocation is recorded once.
#[track_caller]
fn same(program: &Path, before: &[&Path], after: &[&Path], actions: &[String]) -> (String, Option<Report>) {
    let run = |traced: bool| {
        let own = traced.then(library);
        let preloads: Vec<&str> = before
            .iter()
            .copied()
            .chain(own)
            .chain(after.iter().copied())
            .map(|p| p.to_str().unwrap())
            .collect();
        Run::new(program)
            .args(actions)
            .env("LD_PRELOAD", preloads.join(":"))
            .env("LEAKTRACE_QUIET", "1")
            .run()
    };
    let (plain, traced): (Ran, Ran) = (run(false), run(true));
    assert_eq!(plain.code(), 0, "{}", plain.transcript());
    assert_eq!(traced.text(), plain.text(), "{actions:?}\n{}", traced.transcript());
    assert_eq!((traced.code(), &traced.stderr), (plain.code(), &plain.stderr), "{}", traced.transcript());
    // A preload before us that has a runtime of its own, and asks nobody else, is called past us.
    let past_us = |l: &str| !before.is_empty() && l.starts_with("direct: 0 from 4");
    let given = plain.text().lines().filter(|l| l.contains(": 0 from ") && !past_us(l)).count() as u64;
    let report = (!traced.files().is_empty()).then(|| Report::of(&traced.recording()));
    let recorded =
        report.as_ref().map_or(0, |r| r.retained().iter().map(|s| s["live_blocks"].as_u64().unwrap()).sum());
    assert_eq!(recorded, given, "{actions:?}\n{}", traced.transcript());
    (plain.text(), report)
}

fn words(actions: &[&str]) -> Vec<String> {
    actions.iter().map(|a| (*a).to_owned()).collect()
}

const EVERY_LOOK: [&str; 5] = ["default", "next", "program", "version=libwho.1", "nextversion=libwho.1"];

#[test]
fn no_runtime_at_all() {
    let program = compile("lookups.c", "lookups", &["-rdynamic"]);
    let (said, report) = same(&program, &[], &[], &words(&EVERY_LOOK));
    assert_eq!(said.matches("undefined symbol: cudaMalloc").count(), 5, "{said}");
    assert!(report.is_none());
    let lone = plugin("liblone.so", None, &[]);
    let mut actions = vec![open("local", &lone)];
    actions.extend(EVERY_LOOK.map(|look| format!("liblone.so:{look}")));
    actions.push("liblone.so:handle".into());
    let (said, _) = same(&program, &[], &[], &actions);
    assert_eq!(said.matches("liblone.so: undefined symbol: cudaMalloc").count(), 5, "{said}");
}

#[test]
fn a_program_linked_to_the_runtime() {
    let program = linked("lookups.c", "lookups_linked", &runtime(1), &["-DSTRONG"]);
    let mut actions = words(&EVERY_LOOK);
    actions.push("direct".into());
    let (said, _) = same(&program, &[], &[], &actions);
    assert_eq!(said.matches("0 from 1").count(), 4, "{said}");
}

#[test]
fn a_runtime_loaded_later() {
    let program = compile("lookups.c", "lookups", &["-rdynamic"]);
    let lone = plugin("liblone.so", None, &[]);
    let own = plugin("libown.so", Some(&runtime(2)), &["-DSTRONG"]);
    let looks = |name: &str| EVERY_LOOK.map(|look| format!("{name}:{look}"));
    for how in ["local", "global"] {
        let mut actions = vec![open("local", &lone), open(how, &runtime(1))];
        actions.extend(words(&EVERY_LOOK));
        actions.extend(looks("liblone.so"));
        actions.push("libwho1.so:handle".into());
        actions.push(open("local", &own));
        actions.extend(looks("libown.so"));
        actions.extend(["libown.so:direct".into(), "libown.so:handle".into()]);
        actions.extend(words(&EVERY_LOOK));
        let (said, _) = same(&program, &[], &[], &actions);
        assert_eq!(said.contains("default: 0 from 1"), how == "global", "{said}");
        assert!(said.contains("next: 0 from 2"), "{said}");
    }
}

#[test]
fn a_library_that_needs_another_that_looks() {
    // The one that looks needs no runtime, the one it was opened with does.
    let program = compile("lookups.c", "lookups", &["-rdynamic"]);
    let lone = plugin("liblone.so", None, &[]);
    let folder = format!("-Wl,-rpath,{}", lone.parent().unwrap().display());
    let flags = ["-DWEAK", "-Wl,--no-as-needed", lone.to_str().unwrap(), &folder];
    let outer = plugin("libouter.so", Some(&runtime(3)), &flags);
    let mut actions = vec![open("local", &outer), open("local", &lone)];
    actions.extend(EVERY_LOOK.map(|look| format!("liblone.so:{look}")));
    actions.extend(EVERY_LOOK.map(|look| format!("libouter.so:{look}")));
    actions.push("libouter.so:weak".into());
    same(&program, &[], &[], &actions);
}

#[test]
fn preloads_with_their_own() {
    let program = linked("lookups.c", "lookups_linked", &runtime(1), &["-DSTRONG"]);
    let bare = compile("lookups.c", "lookups", &["-rdynamic"]);
    let (p4, p5) = (runtime(4), runtime(5));
    let own = plugin("libown.so", Some(&runtime(2)), &["-DSTRONG"]);
    for program in [&program, &bare] {
        for (before, after) in [(vec![&*p4], vec![]), (vec![], vec![&*p4]), (vec![&*p4], vec![&*p5])] {
            let mut actions = words(&EVERY_LOOK);
            actions.extend(words(if std::ptr::eq(program, &bare) { &[] } else { &["direct"] }));
            actions.push(open("local", &own));
            actions.extend(EVERY_LOOK.map(|look| format!("libown.so:{look}")));
            actions.push("libown.so:direct".into());
            same(program, &before, &after, &actions);
        }
    }
}

#[test]
fn what_a_look_up_found_stays_loaded() {
    let program = compile("lookups.c", "lookups", &["-rdynamic"]);
    let (one, gone) = (runtime(1), format!("gone={}", runtime(1).display()));
    let close = "close=libwho1.so".to_owned();
    for look in ["default", "next", "program", "libwho1.so:handle"] {
        same(
            &program,
            &[],
            &[],
            &[open("global", &one), look.into(), close.clone(), gone.clone(), "default".into()],
        );
    }
    let own = plugin("libown.so", Some(&one), &["-DSTRONG"]);
    let all = ["libown.so:default", "libown.so:direct", "close=libown.so"].map(String::from);
    same(
        &program,
        &[],
        &[],
        &[&[open("local", &own)], &all[..], &[gone, format!("gone={}", own.display())]].concat(),
    );
}

#[test]
fn versions_keep_two_runtimes_apart() {
    let map = |version: &str| {
        let folder = crate::common::root().join("target/programs");
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join(format!("{version}.map"));
        std::fs::write(&file, format!("{version} {{ global: *; }};\n")).unwrap();
        format!("-Wl,--version-script,{}", file.display())
    };
    let one = named_runtime(1, "libwho_first.so", &[&map("libwho.1")]);
    let two = named_runtime(2, "libwho_second.so", &[&map("libwho.2")]);
    let first = plugin("libfirst.so", Some(&one), &["-DSTRONG"]);
    let second = plugin("libsecond.so", Some(&two), &["-DSTRONG"]);
    let linked_first = linked("lookups.c", "lookups_first", &one, &["-DSTRONG"]);
    let bare = compile("lookups.c", "lookups", &["-rdynamic"]);
    for program in [&linked_first, &bare] {
        let mut actions = vec![open("local", &second), "libsecond.so:direct".into(), open("global", &first)];
        actions.extend(words(&[
            "version=libwho.1",
            "version=libwho.2",
            "version=libwho.3",
            "default",
            "program",
        ]));
        for name in ["libfirst.so", "libsecond.so"] {
            let looks = ["direct", "default", "next", "version=libwho.2", "nextversion=libwho.1", "handle"];
            actions.extend(looks.map(|look| format!("{name}:{look}")));
        }
        let (said, _) = same(program, &[], &[], &actions);
        assert!(said.contains("direct: 0 from 1") && said.contains("direct: 0 from 2"), "{said}");
    }
}

#[test]
fn weak_references() {
    let bare = compile("lookups.c", "lookups_weak", &["-DWEAK", "-rdynamic"]);
    // Nobody answers; somebody has a runtime of its own; a weak reference of an object opened after a
    // promotion.
    let (said, report) = same(&bare, &[], &[], &words(&["weak", "weak"]));
    assert!(report.is_none() && said == "weak: nothing\nweak: nothing\n", "{said}");
    let (one, own) = (runtime(1), plugin("libown.so", Some(&runtime(2)), &["-DSTRONG"]));
    let weak = plugin("libweak.so", None, &["-DWEAK"]);
    let run = |actions: &[String]| {
        let plain = Run::new(&bare).args(actions).run().success();
        let traced = Run::new(&bare).args(actions).env("LEAKTRACE_QUIET", "1").traced().run().success();
        assert_eq!(traced.text(), plain.text(), "{actions:?}");
        plain.text()
    };
    let text = run(&[open("local", &one), open("local", &own), "weak".into(), "libown.so:direct".into()]);
    assert!(text.starts_with("weak: nothing\n"), "{text}");
    let text = run(&[open("local", &one), open("local", &weak), "libweak.so:weak".into()]);
    assert_eq!(text, "weak: nothing\n");
    let text = run(&[open("global", &one), open("local", &weak), "libweak.so:weak".into()]);
    assert_eq!(text, "weak: 1\n");
}

#[test]
fn libraries_that_come_and_go() {
    // What lies where another lay is not taken for it.
    let program = compile("lookups.c", "lookups", &["-rdynamic"]);
    let mut actions = Vec::new();
    for round in 0..3 {
        for number in [1, 2, 3] {
            let own = plugin(&format!("libown{number}.so"), Some(&runtime(number)), &["-DSTRONG"]);
            actions.push(open(["local", "now", "deep"][round], &own));
            actions.push(format!("libown{number}.so:direct"));
            actions.push(format!("close=libown{number}.so"));
        }
    }
    let (said, _) = same(&program, &[], &[], &actions);
    assert_eq!(said.matches("0 from 3").count(), 3);
}

#[test]
fn the_old_hash_table() {
    let old = named_runtime(6, "libwho_old.so", &["-Wl,--hash-style=sysv"]);
    let program = linked("lookups.c", "lookups_old", &old, &["-DSTRONG", "-Wl,--hash-style=sysv"]);
    same(&program, &[], &[], &words(&["default", "direct", "next"]));
}

#[test]
fn deep_binding() {
    let program = linked("lookups.c", "lookups_linked", &runtime(1), &["-DSTRONG"]);
    let bare = compile("lookups.c", "lookups", &["-rdynamic"]);
    let own = plugin("libown.so", Some(&runtime(2)), &["-DSTRONG"]);
    let relro = plugin("libownrelro.so", Some(&runtime(2)), &["-DSTRONG", "-Wl,-z,relro,-z,now"]);
    let p4 = runtime(4);
    for program in [&program, &bare] {
        for how in ["deep", "deeplazy"] {
            for (before, after) in [(vec![], vec![]), (vec![&*p4], vec![]), (vec![], vec![&*p4])] {
                for library in [&own, &relro] {
                    let name = library.file_name().unwrap().to_str().unwrap();
                    let mut actions = vec![open(how, library), open(how, library), format!("{name}:direct")];
                    actions.extend(EVERY_LOOK.map(|look| format!("{name}:{look}")));
                    actions.extend(["default".into(), format!("close={name}"), format!("{name}:direct")]);
                    let gone = format!("gone={}", library.display());
                    actions.extend([format!("close={name}"), gone]);
                    let (_, report) = same(program, &before, &after, &actions);
                    report.expect("a recording").assert_whole();
                }
            }
        }
    }
}

#[test]
fn deep_binding_without_a_runtime_of_its_own() {
    let program = linked("lookups.c", "lookups_linked", &runtime(1), &["-DSTRONG"]);
    let lone = plugin("liblone_strong.so", None, &["-DSTRONG"]);
    let p4 = runtime(4);
    for after in [vec![], vec![&*p4]] {
        for how in ["deep", "deeplazy"] {
            let mut actions = vec![open(how, &lone), "liblone_strong.so:direct".into()];
            actions.extend(EVERY_LOOK.map(|look| format!("liblone_strong.so:{look}")));
            same(&program, &[], &after, &actions);
        }
    }
}

#[test]
fn deep_binding_by_name() {
    // The loader searches for it on behalf of the caller.
    let own = plugin("libown.so", Some(&runtime(2)), &["-DSTRONG"]);
    let path = format!("-Wl,-rpath,{}", own.parent().unwrap().display());
    let program = compile("lookups.c", "lookups_searching", &["-rdynamic", &path]);
    let actions = words(&["deep=libown.so", "libown.so:direct", "libown.so:default", "close=libown.so"]);
    let (said, report) = same(&program, &[], &[], &actions);
    assert!(said.contains("direct: 0 from 2"), "{said}");
    report.unwrap().assert_whole();
    let missing = words(&["deep=libmissing.so", "default", "deep=/nowhere/libmissing.so"]);
    same(&program, &[], &[], &missing);
}

#[test]
fn a_namespace_of_its_own_is_a_hole() {
    let program = linked("lookups.c", "lookups_linked", &runtime(1), &["-DSTRONG"]);
    let other = runtime(2);
    for late in [false, true] {
        let mut actions = vec![open("elsewhere", &other), "direct".into()];
        if late {
            actions.swap(0, 1);
        }
        let (_, report) = same(&program, &[], &[], &actions);
        let holes = report.unwrap().coverage("gaps").to_string();
        assert!(holes.contains("libwho2.so was opened in a namespace of its own"), "{holes}");
    }
}

#[test]
fn libraries_that_open_others_when_they_are_closed() {
    // As many are loaded after it as before, and yet what lay there is gone: more often than there are slots.
    let program = compile("replaced.c", "replaced", &[]);
    let runtime = compile("replaced.c", "libreplaced.so", &["-DPLUGIN", "-shared", "-fPIC"]);
    let others = (1..=6).map(|n| named_runtime(n, &format!("libother{n}.so"), &[]));
    let run = Run::new(&program).arg(&runtime).args(others).traced().env("LEAKTRACE_QUIET", "1");
    let ran = run.run().success();
    assert_eq!(ran.text(), "done\n");
    let report = Report::of(&ran.recording());
    report.assert_whole();
    assert_eq!(report.device(0, "driver_live_bytes"), (2..8).map(|n| 1000 + n).sum::<u64>());
}

#[test]
fn look_ups_while_others_close_libraries() {
    let program = compile("closing.c", "closing", &[]);
    let looks = compile("closing.c", "liblooks.so", &["-DPLUGIN", "-shared", "-fPIC"]);
    let own = plugin("libown.so", Some(&runtime(2)), &["-DSTRONG"]);
    let run = Run::new(&program).arg("20000").arg(&looks).arg(&own).traced().env("LEAKTRACE_QUIET", "1");
    let ran = run.run();
    assert_eq!((ran.code(), ran.text()), (0, "done\n".into()), "{}", ran.transcript());
}
