//! In company: other preloads before and after us, a runtime inside another library, a Python that opens the
//! libraries itself.

use std::path::{Path, PathBuf};

use crate::common::programs::{compile, driver_calls, linked, script};
use crate::common::report::Report;
use crate::common::{Ran, Run, library, simulated_libraries};

/// Runs with a preload before us, after us and without us. It counts the same each time, the program says the
/// same, and the report is what the driver's log says.
#[track_caller]
fn with_preload(preload: &Path, run: impl Fn() -> Run, says: impl Fn(&Ran) -> String) {
    let (other, own) = (preload.to_str().unwrap(), library().to_str().unwrap());
    let ran = |preloads: &str| {
        let run = run().simulated();
        let counts = run.folder().join("counts");
        let ran = run
            .env("COUNTS", &counts)
            .env("LD_PRELOAD", preloads)
            .env("LEAKTRACE_QUIET", "1")
            .run()
            .success();
        let counts = std::fs::read_to_string(counts).unwrap_or_default();
        (ran, counts)
    };
    let (plain, counted) = ran(other);
    for preloads in [format!("{other}:{own}"), format!("{own}:{other}")] {
        let (traced, counts) = ran(&preloads);
        assert_eq!(says(&traced), says(&plain), "{preloads}\n{}", traced.transcript());
        assert_eq!(traced.stderr, plain.stderr, "{preloads}");
        assert_eq!(counts, counted, "{preloads}");
        let report = Report::of(&traced.recording());
        assert_eq!(report.driver_live(), traced.truth().live(), "{preloads}");
        report.assert_whole();
    }
}

/// Everything a program may be: linked to the driver or the runtime, or finding them in every way.
fn in_every_program(preload: &Path) {
    for flavour in ["link", "dlsym", "proc"] {
        let program = driver_calls(flavour);
        // The lengths of the log are not the same in two runs: thread numbers stand in it.
        let lines = |ran: &Ran| ran.text().lines().count().to_string();
        with_preload(preload, || Run::new(&program).args(["21", "400", "4", "2", "own", "keep"]), lines);
    }
    let runtime = simulated_libraries().join("libcudart.so.12");
    let program = linked("runtime_calls.c", "runtime_linked_libcudart.so.12", &runtime, &["-DBY_LINK"]);
    let loader = compile("runtime_calls.c", "runtime_loading", &["-DBY_DLOPEN"]);
    with_preload(preload, || Run::new(&program), Ran::text);
    with_preload(preload, || Run::new(&loader).arg(&runtime), Ran::text);
}

#[test]
fn a_preload_that_stands_in_for_dlsym() {
    for (name, flags) in [("libcalls.so", &[][..]), ("libjumps.so", &["-DTAIL"][..])] {
        let all = [&["-shared", "-fPIC", "-fno-optimize-sibling-calls"], flags].concat();
        in_every_program(&compile("interpose_dlsym.c", name, &all));
    }
}

#[test]
fn a_preload_that_wraps_allocators() {
    for (name, flags) in [("libwraps.so", &[][..]), ("libwraps_early.so", &["-DEARLY"][..])] {
        let all = [&["-shared", "-fPIC"], flags].concat();
        in_every_program(&compile("interpose_alloc.c", name, &all));
    }
}

/// The first one records, and the other one is never called.
#[test]
fn two_copies_of_the_library() {
    let folder = tempfile::TempDir::new().unwrap();
    let copy = folder.path().join("libleaktrace.so");
    std::fs::copy(library(), &copy).unwrap();
    let both = format!("{}:{}", library().display(), copy.display());
    let run = Run::new(driver_calls("link")).simulated().args(["21", "400", "4", "2", "own", "keep"]);
    let ran = run.env("LEAKTRACE_OUT", "x.ltrace").env("LD_PRELOAD", both).run().success();
    let report = Report::of(&ran.recording());
    assert_eq!(
        (ran.recordings().len(), report.driver_live()),
        (1, ran.truth().live()),
        "{}",
        ran.transcript()
    );
}

/// Each of them is called where we decide what a look-up finds, and looks up the real one then.
#[test]
fn a_preload_that_looks_up_what_we_call() {
    in_every_program(&compile("wraps_lazily.c", "libwraps_lazily.so", &["-shared", "-fPIC", "-fno-builtin"]));
}

#[test]
fn an_allocator_of_host_memory() {
    let jemalloc = Path::new("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2");
    if !jemalloc.exists() {
        println!("passed over: {} is not installed", jemalloc.display());
        return;
    }
    in_every_program(jemalloc);
}

/// What leaktrace keeps lies in a heap of its own: it leaves no gaps in the program's, and whoever counts what the program
/// allocates does not count leaktrace.
#[test]
fn the_programs_malloc_is_left_to_the_program() {
    let counting = compile("interpose_malloc.c", "libcounts_malloc.so", &["-shared", "-fPIC", "-O1"]);
    let preloads = format!("{}:{}", counting.display(), library().display());
    let run = Run::new("python3").arg(script("modes.py")).args(["default", "libcuda.so.1"]).simulated();
    let counts = run.folder().join("counts");
    let run =
        run.env("COUNTS", &counts).env("WATCHED", library().file_name().unwrap()).env("LD_PRELOAD", preloads);
    let traced = run.env("LEAKTRACE_QUIET", "1").run().success();
    Report::of(&traced.recording()).assert_whole();
    let counts = std::fs::read_to_string(counts).unwrap();
    let (all, ours) = counts.trim().split_once(' ').unwrap();
    assert!(all.parse::<u32>().unwrap() > 50, "places that call malloc: {all}");
    assert_eq!(ours, "0", "of them leaktrace's own");
}

/// The runtime inside a library that shows nothing of it.
fn with_a_runtime_inside() -> PathBuf {
    let archive = simulated_libraries().parent().unwrap().join("release/libsimgpu_runtime.a");
    let major = crate::common::root().join("cuda/programs/runtime_major.c");
    compile(
        "runtime_calls.c",
        "libinside.so",
        &[
            "-DPLUGIN",
            "-shared",
            "-fPIC",
            "-Wl,-soname,libinside.so",
            major.to_str().unwrap(),
            archive.to_str().unwrap(),
            "-Wl,--exclude-libs,ALL",
            "-Wl,--gc-sections",
            "-lpthread",
            "-ldl",
            "-lm",
        ],
    )
}

#[test]
fn a_runtime_inside_another_library() {
    let inside = with_a_runtime_inside();
    let host = compile("plugin_host.c", "plugin_host", &[]);
    let program = linked("plugin_linked.c", "plugin_linked", &inside, &[]);
    for (program, arg) in [(&host, Some(&inside)), (&program, None)] {
        let run = || Run::new(program).args(arg).env("LEAKTRACE_QUIET", "1").simulated();
        let (plain, traced) = (run().run().success(), run().traced().run().success());
        assert_eq!((traced.text(), &traced.stderr), (plain.text(), &plain.stderr));
        let report = Report::of(&traced.recording());
        report.assert_whole();
        assert_eq!(report.driver_live(), traced.truth().live());
        // Three of each of five allocators without the one that is freed, two of each of two.
        let blocks: u64 = report.retained().iter().map(|s| s["live_blocks"].as_u64().unwrap()).sum();
        assert_eq!(blocks, 2 * 5 + 2 * 2);
        for site in report.retained() {
            let name = site["entry_point"].as_str().unwrap();
            assert!(name.starts_with("cuMem"), "{name}: the runtime has no symbol that anyone could see");
        }
    }
}

#[test]
fn libraries_that_python_opens() {
    for mode in ["default", "global", "now", "deep"] {
        for names in [&["libcuda.so.1"][..], &["libcudart.so.12"], &["libcuda.so.1", "libcudart.so.12"]] {
            let run = || Run::new("python3").arg(script("modes.py")).arg(mode).args(names).simulated();
            let plain = run().run().success();
            let traced = run().traced().env("LEAKTRACE_QUIET", "1").run().success();
            assert_eq!((traced.text(), &traced.stderr), (plain.text(), &plain.stderr), "{mode} {names:?}");
            let report = Report::of(&traced.recording());
            report.assert_whole();
            assert_eq!(report.driver_live(), traced.truth().live(), "{mode} {names:?}");
            let blocks: u64 = report.retained().iter().map(|s| s["live_blocks"].as_u64().unwrap()).sum();
            assert_eq!(blocks, names.len() as u64, "{mode} {names:?}");
        }
    }
}
