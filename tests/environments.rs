//! Settings of the loader, the allocator, the interpreter and the checkers: they change nothing of what is recorded, and
//! being recorded changes nothing of them.

use std::path::PathBuf;
use std::process::Command;

use crate::common::programs::{bare_cudart, compile, linked, pythons, script, torch_python};
use crate::common::report::Report;
use crate::common::{Run, simulated_libraries};

/// Without and with the preload the same, and the recording agrees with the log.
#[track_caller]
fn same(name: &str, run: impl Fn() -> Run) {
    let run = || run().env("LEAKTRACE_QUIET", "1");
    let (plain, traced) = (run().run(), run().traced().run());
    assert_eq!(
        (traced.status, traced.text()),
        (plain.status, plain.text()),
        "{name}: {}",
        traced.transcript()
    );
    assert_eq!(traced.stderr, plain.stderr, "{name}");
    let report = Report::of(&traced.recording());
    assert_eq!(report.driver_live(), traced.truth().live(), "{name}");
    report.assert_whole();
}

fn in_c() -> Run {
    let runtime = simulated_libraries().join("libcudart.so.12");
    Run::new(linked("endings.c", "endings", &runtime, &[])).simulated().arg("atexit")
}

fn in_python() -> Run {
    Run::new(torch_python()).simulated().arg(script("endings.py")).arg("atexit")
}

#[test]
fn of_the_environment() {
    for (name, value) in [
        ("LD_BIND_NOW", "1"),
        ("LD_WARN", "1"),
        ("MALLOC_PERTURB_", "165"),
        ("MALLOC_ARENA_MAX", "1"),
        ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0:glibc.malloc.check=3"),
        ("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=0"),
        ("LC_ALL", "C"),
        ("LC_ALL", "C.UTF-8"),
        ("LANG", "nowhere"),
        ("TZ", ":/nowhere"),
        ("TZ", "XYZ-25:99"),
        ("HOME", "/nowhere"),
        ("TMPDIR", "/nowhere"),
        ("PATH", ""),
    ] {
        same(name, || in_c().env(name, value));
        same(name, || in_python().env(name, value));
    }
    // Nothing at all but what the program cannot do without.
    same("env -i", || {
        let run = in_c();
        let kept = ["LD_LIBRARY_PATH", "LD_PRELOAD", "SIMGPU_LOG", "LEAKTRACE_QUIET"];
        let names: Vec<_> = std::env::vars_os().map(|(name, _)| name).collect();
        names.iter().filter(|n| !kept.iter().any(|k| n == k)).fold(run, |mut run, name| {
            run.command.env_remove(name);
            run
        })
    });
}

#[test]
fn of_the_interpreter() {
    for (name, value) in [
        ("PYTHONMALLOC", "debug"),
        ("PYTHONMALLOC", "malloc"),
        ("PYTHONFAULTHANDLER", "1"),
        ("PYTHONDEVMODE", "1"),
        ("PYTHONHASHSEED", "0"),
        ("PYTHONUNBUFFERED", "1"),
        ("PYTHONOPTIMIZE", "2"),
        ("PYTHONNODEBUGRANGES", "1"),
        ("PYTHONPROFILEIMPORTTIME", ""),
    ] {
        same(&format!("{name}={value}"), || in_python().env(name, value));
    }
    for option in ["-I", "-S", "-B", "-u", "-O"] {
        let run = || {
            let run = Run::new(torch_python()).simulated().arg(option);
            run.arg(script("endings.py")).arg("exception")
        };
        same(option, run);
    }
}

#[test]
fn the_loaders_trace() {
    for value in ["all", "bindings", "statistics"] {
        let run = || {
            let run = in_c();
            let place = run.folder().with_file_name("loader");
            run.env("LD_DEBUG", value).env("LD_DEBUG_OUTPUT", place)
        };
        same(value, run);
    }
}

#[test]
fn the_checking_malloc() {
    let library = "libc_malloc_debug.so.0";
    let there = Command::new("true").env("LD_PRELOAD", library).output().unwrap();
    if !there.stderr.is_empty() {
        println!("skipped: no {library}");
        return;
    }
    for ours_first in [true, false] {
        let run = |traced: bool| {
            let ours = crate::common::library().to_str().unwrap();
            let list = match (traced, ours_first) {
                (false, _) => library.to_owned(),
                (true, true) => format!("{ours}:{library}"),
                (true, false) => format!("{library}:{ours}"),
            };
            let run = in_python()
                .env("LEAKTRACE_QUIET", "1")
                .env("MALLOC_CHECK_", "3")
                .env("MALLOC_PERTURB_", "90");
            run.env("LD_PRELOAD", list).run()
        };
        let (plain, traced) = (run(false), run(true));
        assert_eq!((traced.status, traced.text()), (plain.status, plain.text()), "{}", traced.transcript());
        assert_eq!(traced.stderr, plain.stderr);
        assert_eq!(Report::of(&traced.recording()).driver_live(), traced.truth().live());
    }
}

#[test]
fn valgrind() {
    if !Command::new("valgrind").arg("--version").output().is_ok_and(|o| o.status.success()) {
        println!("skipped: no valgrind");
        return;
    }
    let hostile = linked("hostile.c", "hostile", &bare_cudart(), &[]);
    let endings = linked("endings.c", "endings", &bare_cudart(), &[]);
    for (program, args, code, live) in
        [(&hostile, ["threads", "16", "0"], 0, 160), (&endings, ["return", "", ""], 11, 1001)]
    {
        let run = Run::new("valgrind").traced().env("LEAKTRACE_QUIET", "1");
        let run = run.args(["-q", "--trace-children=yes", "--error-exitcode=99", "--leak-check=no"]);
        let ran = run.arg(program).args(args).run();
        assert_eq!((ran.code(), ran.stderr.as_str()), (code, ""), "{}", ran.transcript());
        let report = Report::of(&ran.recording());
        assert_eq!((report.device(0, "live_bytes"), report.end()), (live, "clean"));
        report.assert_whole();
    }
}

#[test]
fn address_sanitizer() {
    // It wants to be the first library of the process: linked statically it is no library at all; else its own check of
    // that is to be switched off, or it is to be named before us.
    let asan = Command::new("cc").arg("-print-file-name=libasan.so").output().unwrap();
    let asan = PathBuf::from(String::from_utf8_lossy(&asan.stdout).trim());
    if !asan.is_absolute() {
        println!("skipped: no libasan");
        return;
    }
    let asan = std::fs::canonicalize(asan).unwrap();
    let ours = crate::common::library().display();
    let dynamic = linked("hostile.c", "hostile_asan", &bare_cudart(), &["-fsanitize=address"]);
    let fixed = ["-fsanitize=address", "-static-libasan"];
    let static_ = linked("hostile.c", "hostile_static_asan", &bare_cudart(), &fixed);
    for (program, preload, options) in [
        (&dynamic, format!("{}:{ours}", asan.display()), "detect_leaks=0"),
        (&dynamic, format!("{ours}"), "detect_leaks=0:verify_asan_link_order=0"),
        (&static_, format!("{ours}"), "detect_leaks=0"),
    ] {
        let run = Run::new(program).args(["threads", "16", "0"]).env("LEAKTRACE_QUIET", "1");
        let ran = run.env("LD_PRELOAD", &preload).env("ASAN_OPTIONS", options).run();
        assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{preload} {options}: {}", ran.transcript());
        let report = Report::of(&ran.recording());
        assert_eq!(report.device(0, "live_bytes"), 160, "{preload} {options}");
        report.assert_whole();
    }
}

#[test]
fn libraries_that_take_each_others_place() {
    // The same code at the same addresses, under another name: stacks name the library that was there at the time.
    let runtime = bare_cudart();
    let folder = format!("-Wl,-rpath,{}", runtime.parent().unwrap().display());
    let plugin = |name: &str| {
        let define = format!("-DPLUGIN={name}");
        let flags = ["-shared", "-fPIC", &define, runtime.to_str().unwrap(), &folder];
        compile("unloads.c", &format!("lib{name}.so"), &flags)
    };
    let (first, second) = (plugin("first"), plugin("other"));
    let program = linked("unloads.c", "unloads", &runtime, &["-ldl"]);
    for stacks in ["native", "mixed"] {
        let run = Run::new(&program).arg("3").env("LEAKTRACE_STACKS", stacks).env("LEAKTRACE_QUIET", "1");
        let run = run.arg(&first).arg("first_allocates").arg(&second).arg("other_allocates");
        let ran = run.arg(&first).arg("first_allocates").traced().run().success();
        assert_eq!(ran.text(), "2 at the place of the one before\n");
        let report = Report::of(&ran.recording());
        report.assert_whole();
        // The first one's second time is at the same place again: its stacks are the same ones.
        for (blocks, library, other) in [(6, "first", "other"), (3, "other", "first")] {
            let bytes = 3 * if blocks == 6 { 2000 + 6000 } else { 4000 };
            let site = report.retained().iter().find(|s| s["live_bytes"] == bytes);
            let stack =
                site.unwrap_or_else(|| panic!("{bytes} in {:#?}", report.retained()))["stack"].to_string();
            assert!(stack.contains(&format!("{library}_allocates")), "{bytes}: {stack}");
            assert!(!stack.contains(&format!("{other}_allocates")), "{bytes}: {stack}");
        }
    }
}

/// CPython 3.9 and 3.10 free the interpreter's state, in which the collector's flag lies, at its end. Here that state is
/// a mapping of its own, so that a later read of it is a fault.
#[test]
fn a_block_given_back_after_the_interpreter_is_gone() {
    let library = compile("after_python.c", "libafter_python.so", &["-shared", "-fPIC"]);
    let code = "import ctypes, gc, sys\n\
                rt, blocks = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])\n\
                rt.cudaMalloc(ctypes.byref(ctypes.c_void_p()), 4321)\n\
                blocks.allocate_block()\n\
                for _ in range(1000): gc.collect(0)";
    for (version, python) in pythons() {
        let mapped = "glibc.malloc.mmap_threshold=4096:glibc.malloc.top_pad=0:glibc.malloc.mmap_max=100000";
        let run = Run::new(&python).args(["-c", code]).arg(bare_cudart()).arg(&library).traced();
        let ran = run.env("GLIBC_TUNABLES", mapped).run();
        assert_eq!(ran.code(), 0, "{version}: {}", ran.transcript());
        let report = Report::of(&ran.recording());
        assert_eq!(report.end(), "clean", "{version}");
        report.assert_whole();
    }
}

/// The shared library of an interpreter, if it has one.
fn libpython(python: &PathBuf) -> Option<PathBuf> {
    let ask = "import sysconfig; v = sysconfig.get_config_var; print(v('LIBDIR') + '/' + v('INSTSONAME'))";
    let said = Command::new(python).args(["-c", ask]).output().unwrap().stdout;
    let path = PathBuf::from(String::from_utf8(said).unwrap().trim());
    (path.to_string_lossy().contains(".so") && path.exists()).then_some(path)
}

/// A program that embeds Python and keeps its symbols to itself: it gets stacks, steps and holders as any other.
#[test]
fn an_interpreter_whose_symbols_nobody_else_sees() {
    let program = linked("embeds_python.c", "embeds_python", &bare_cudart(), &["-ldl"]);
    // PyTorch's extension modules could not be loaded there: what stands for it offers what is asked for.
    let source = "import sys\n\
                  hooks, kept, new = [], [], type(sys)\n\
                  torch, optimizers = new('torch'), new('torch.optim.optimizer')\n\
                  optimizers.register_optimizer_step_post_hook = hooks.append\n\
                  sys.modules.update({'torch': torch, 'torch.optim.optimizer': optimizers})\n\
                  def train():\n    kept.append(allocate())\n    for hook in hooks: hook(torch, (), {})\n    step()\n\
                  for _ in range(40): train()\n";
    let mut met = 0;
    for (version, python) in pythons() {
        let Some(library) = libpython(&python) else { continue };
        let home = python.parent().unwrap().parent().unwrap();
        let run = Run::new(&program).arg(library).arg(source).env("PYTHONHOME", home).traced();
        let report = Report::of(&run.run().success().recording());
        let steps = &report.0["steps"];
        assert!(report.steps() >= 40, "{version}: {steps:#}");
        assert!(steps.to_string().contains("\"optimizer\""), "{version}: {steps:#}");
        let [finding] = report.findings() else { panic!("{version}: {:#?}", report.findings()) };
        assert_eq!(finding["sites"][0]["allocated_at"]["function"], "train", "{version}: {finding:#}");
        let path = finding["holders"][0]["path"].as_str().unwrap_or_default();
        assert!(path.starts_with("__main__.kept[*]"), "{version}: {finding:#} {:#}", report.0["coverage"]);
        assert_eq!(report.coverage("gaps").as_array().map(Vec::len), Some(0), "{version}");
        met += 1;
    }
    assert!(met > 0, "no CPython with a shared library on this machine");
}
