//! What `scripts/dist` makes, as people use it: the wheel in an empty virtual environment, a program on the
//! simulated GPU, the pytest plugin, and the parts of an unpacked archive.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::programs::torch_python;
use crate::common::report::Report;
use crate::common::{Ran, Run, library, root, simulated_libraries, target};
use tempfile::TempDir;

/// The files of the simulated GPU that are installed.
const SIMULATED: [&str; 3] = ["libsimgpu_driver.so", "libsimgpu_runtime.a", "simgpu-stubs"];

/// A virtual environment with the wheel in it.
struct Installed {
    scratch: TempDir,
}

/// Runs a command, which must succeed; returns its standard output.
#[track_caller]
fn done(command: &mut Command) -> String {
    let out = command.env_remove("LD_PRELOAD").output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {}\n{err}", String::from_utf8_lossy(&out.stdout));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn pip() -> Command {
    let mut command = Command::new(torch_python());
    command.args(["-m", "pip", "--disable-pip-version-check", "--quiet"]);
    command
}

const INSTALL: [&str; 2] = ["install", "--no-input"];

/// Returns a folder with pytest, downloaded once. The environment with PyTorch may be the user's own: nothing
/// is added to it.
fn pytest() -> PathBuf {
    const PACKAGES: [&str; 2] = ["pytest==9.2.0", "pytest-xdist==3.8.0"];
    let folder = target().join(PACKAGES.join("+"));
    if !folder.exists() {
        let draft = TempDir::new_in(target()).unwrap();
        done(pip().args(INSTALL).arg("--target").arg(draft.path()).args(PACKAGES));
        // Another process may have been faster, and have made the same.
        let _ = fs::rename(draft.path(), &folder);
    }
    folder
}

impl Installed {
    fn new() -> Installed {
        simulated_libraries();
        let installed = Installed { scratch: TempDir::new().unwrap() };
        let built = installed.path("built");
        fs::create_dir(&built).unwrap();
        symlink(library(), built.join("libleaktrace.so")).unwrap();
        symlink(env!("CARGO_BIN_EXE_leaktrace"), built.join("leaktrace")).unwrap();
        for part in SIMULATED {
            symlink(target().join("release").join(part), built.join(part)).unwrap();
        }
        let dist = installed.path("dist");
        done(Command::new(root().join("scripts/dist")).arg("--as-built").arg(&built).arg("--out").arg(&dist));
        let of = |end: &str| {
            let files = fs::read_dir(&dist).unwrap().map(|f| f.unwrap().path());
            files.into_iter().find(|f| f.as_os_str().to_string_lossy().ends_with(end))
        };
        let wheel = of(".whl").expect("a wheel");
        assert!(of(".tar.gz").is_some() && of("libleaktrace.so.debug").is_some());
        assert!(wheel.to_string_lossy().contains("-py3-none-manylinux_2_"), "{}", wheel.display());
        done(Command::new(torch_python()).args(["-m", "venv", "--without-pip"]).arg(installed.path("venv")));
        done(
            pip()
                .arg("--python")
                .arg(installed.path("venv/bin/python"))
                .args(INSTALL)
                .arg("--no-index")
                .arg(&wheel),
        );
        let torch = target().join("pyenv/lib/python3.11/site-packages").canonicalize().unwrap();
        let packages = installed.path("venv/lib/python3.11/site-packages");
        fs::write(packages.join("more.pth"), format!("{}\n{}\n", torch.display(), pytest().display()))
            .unwrap();
        installed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Prepares a command of the environment.
    fn run(&self, name: &str) -> Run {
        let run = Run::new(self.path("venv/bin").join(name));
        run.env("XDG_CACHE_HOME", self.path("cache")).env("LEAKTRACE_QUIET", "1")
    }
}

/// Returns each test's outcome by its name, from the lines of `pytest -rA`.
fn outcomes(ran: &Ran) -> BTreeMap<String, String> {
    let text = ran.text();
    let lines = text.lines().filter_map(|line| {
        let (outcome, rest) = line.split_once(' ')?;
        let (_, name) = rest.split_once("::")?;
        let name = name.split(" - ").next()?.rsplit("::").next()?;
        let known = ["PASSED", "FAILED", "XFAIL", "XPASS", "ERROR", "SKIPPED"].contains(&outcome);
        known.then(|| (name.to_owned(), outcome.to_owned()))
    });
    lines.collect()
}

#[test]
fn a_wheel_in_an_empty_environment() {
    let installed = Installed::new();

    // The module does nothing in a program that is not traced.
    let module = "import leaktrace; leaktrace.step(); leaktrace.mark('x'); leaktrace.dump(); print(leaktrace.active())";
    assert_eq!(installed.run("python").args(["-c", module]).run().success().text(), "False\n");

    // The command runs a program on the simulated GPU, and makes its libraries once.
    let case = root().join("tests/cases/torchtitan_losses/train.py");
    let steps = ["--device", "cuda", "--steps", "60"];
    let python = installed.path("venv/bin/python");
    let run = installed.run("leaktrace").args(["run", "--simulate=4G", "--"]).arg(&python).arg(&case);
    let ran = run.args(steps).run().success();
    assert!(ran.stderr.contains("building the simulated GPU's libraries"), "{}", ran.transcript());
    let report = Report::of(&ran.recording());
    assert_eq!(report.0["devices"][0]["total_bytes"], 4u64 << 30);
    assert_eq!(report.0["findings"][0]["bytes_per_step"], 512.0);
    // The module runs a script by its own interpreter.
    let run = installed.run("python").args(["-m", "leaktrace", "run", "--simulate"]).arg(&case);
    let again = run.args(steps).run().success();
    assert_eq!(again.stderr, "", "the libraries were made again, or something was printed");
    assert_eq!(Report::of(&again.recording()).0["devices"][0]["total_bytes"], 80u64 << 30);

    plugin(&installed);
    licences(&installed);
}

/// The list of licences names the crates that the preload is linked with too, and none of leaktrace's own.
fn licences(installed: &Installed) {
    let list = "import importlib.metadata as m; print(m.distribution('leaktrace').read_text('licenses/THIRD-PARTY.txt'))";
    let text = installed.run("python").args(["-c", list]).run().success().text();
    let has = |name: &str| text.lines().any(|line| line.starts_with(&format!("{name} ")));
    for linked in ["clap", "cudarc", "backtrace"] {
        assert!(has(linked), "{linked} is not in\n{}", text.lines().take(200).collect::<Vec<_>>().join("\n"));
    }
    assert!(!has("leaktrace-core") && !has("leaktrace-preload") && !has("simgpu-driver"));
}

fn plugin(installed: &Installed) {
    let tests = root().join("tests/programs/pytest/test_history.py");
    let run = |fixed: bool, leaktrace: bool| {
        let run =
            installed.run("python").args(["-m", "pytest", "-rA", "-q", "-p", "no:cacheprovider"]).arg(&tests);
        let run = if fixed { run.env("FIXED", "1") } else { run };
        if leaktrace { run.arg("--leaktrace") } else { run }.run()
    };
    let leaky = run(false, true);
    let expected = |fixed: bool| {
        let leaks = if fixed { "PASSED" } else { "FAILED" };
        BTreeMap::from(
            [
                ("test_history_of_losses", leaks),
                ("test_now_and_then", leaks),
                ("test_last_result", leaks),
                ("test_gradients_of_a_shared_model", "PASSED"),
                ("test_made_at_first_use", "PASSED"),
                ("test_garbage_in_cycles", "PASSED"),
                ("test_steps_of_its_own", "PASSED"),
                ("test_that_fails", "FAILED"),
                ("test_known_to_fail", "XFAIL"),
                ("test_not_judged", "PASSED"),
                ("test_without_a_gpu", "PASSED"),
            ]
            .map(|(name, outcome)| (name.to_owned(), outcome.to_owned())),
        )
    };
    assert_eq!(outcomes(&leaky), expected(false), "{}", leaky.transcript());
    assert_eq!(leaky.code(), 1);
    let text = leaky.text();
    for part in [
        "leaks GPU memory: 512 B (1 block) more with every run, never freed",
        "test_history.py:17 loss_of: 512 B (1 block) per run, held by `test_history.HISTORY[*]`",
        "leaks GPU memory: 20.0 KiB, 20,480 B (1 block) more with every run",
        "leaves GPU memory behind: 1.5 KiB, 1,536 B (1 block) of each run",
        "per run, held by `test_history.LAST['result']`",
        "on the simulated GPU: 3 of them leak",
    ] {
        assert!(text.contains(part), "{part} is not in\n{}", leaky.transcript());
    }
    // The same where other processes run the tests.
    let shared =
        installed.run("python").args(["-m", "pytest", "-rA", "-q", "-p", "no:cacheprovider", "-n", "2"]);
    let shared = shared.arg(&tests).arg("--leaktrace").run();
    assert_eq!(outcomes(&shared), expected(false), "{}", shared.transcript());
    assert!(shared.text().contains("held by `test_history.HISTORY[*]`"), "{}", shared.transcript());
    let fixed = run(true, true);
    assert_eq!(outcomes(&fixed), expected(true), "{}", fixed.transcript());
}

/// Lays the program and its parts out as an archive does; returns the program.
fn unpacked(scratch: &Path) -> PathBuf {
    simulated_libraries();
    for folder in ["bin", "lib", "simgpu"] {
        fs::create_dir(scratch.join(folder)).unwrap();
    }
    let program = scratch.join("bin/leaktrace");
    fs::copy(env!("CARGO_BIN_EXE_leaktrace"), &program).unwrap();
    symlink(library(), scratch.join("lib/libleaktrace.so")).unwrap();
    for part in SIMULATED {
        symlink(target().join("release").join(part), scratch.join("simgpu").join(part)).unwrap();
    }
    program
}

/// PyTorch's wheels name the vendor's own libraries by RPATH, which the loader asks before LD_LIBRARY_PATH.
#[test]
fn the_vendors_libraries_beside_the_simulated_ones() {
    let scratch = TempDir::new().unwrap();
    let program = unpacked(scratch.path());
    let packages = scratch.path().join("packages");
    let (torch, vendor) = (packages.join("torch/lib"), packages.join("nvidia/cuda_runtime/lib"));
    fs::create_dir_all(&torch).unwrap();
    fs::create_dir_all(&vendor).unwrap();
    fs::write(packages.join("torch/__init__.py"), "").unwrap();
    let compile = |code: &str, out: &Path, flags: &[&str]| {
        let source = scratch.path().join("source.c");
        fs::write(&source, code).unwrap();
        done(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(out).arg(&source).args(flags));
    };
    let runtime = vendor.join("libcudart.so.12");
    let script = scratch.path().join("map");
    fs::write(&script, "libcudart.so.12 { global: *; };").unwrap();
    let script = format!("-Wl,--version-script,{}", script.display());
    let vendors = "int cudaGetDeviceCount(int *count) { return *count = 77; }";
    compile(vendors, &runtime, &["-Wl,-soname,libcudart.so.12", &script]);
    let asks =
        "int cudaGetDeviceCount(int *); int count(void) { int n = -1; cudaGetDeviceCount(&n); return n; }";
    let rpath = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../../nvidia/cuda_runtime/lib";
    compile(asks, &torch.join("libtorch_cuda.so"), &[&runtime.display().to_string(), rpath]);

    let load =
        "import ctypes, torch; print(ctypes.CDLL(torch.__path__[0] + '/lib/libtorch_cuda.so').count())";
    let count = |program: &Path, words: &[&str]| {
        let run = Run::new(program).args(words).arg(torch_python()).args(["-c", load]);
        let run = run.env("PYTHONPATH", &packages).env("XDG_CACHE_HOME", scratch.path().join("cache"));
        run.env("SIMGPU_DEVICES", "3").run().success().text()
    };
    assert_eq!(count(Path::new("env"), &[]), "77\n", "the RPATH does not lead to the vendor's");
    assert_eq!(count(&program, &["run", "--simulate", "--"]), "3\n");

    // A PyTorch that is built without CUDA would see no GPU: the program refuses to start it.
    fs::remove_file(torch.join("libtorch_cuda.so")).unwrap();
    let run = Run::new(&program).args(["run", "--simulate", "--"]).arg(torch_python()).args(["-c", load]);
    let ran = run.env("PYTHONPATH", &packages).run();
    assert_eq!((ran.code(), ran.stderr.lines().count()), (2, 1), "{}", ran.transcript());
    assert!(ran.stderr.contains("is built without CUDA"), "{}", ran.stderr);
}

/// Paths that the loader would split are refused in one line; other preloaded libraries stay.
#[test]
fn what_is_preloaded() {
    let leaktrace = Path::new(env!("CARGO_BIN_EXE_leaktrace"));
    let scratch = TempDir::new().unwrap();
    for name in ["with space", "with:colon"] {
        let folder = scratch.path().join(name);
        fs::create_dir(&folder).unwrap();
        fs::copy(library(), folder.join("libleaktrace.so")).unwrap();
        let run = Run::new(leaktrace).args(["run", "--", "true"]);
        let ran = run.env("LEAKTRACE_LIBRARY", folder.join("libleaktrace.so")).run();
        assert_eq!((ran.code(), ran.stderr.lines().count()), (2, 1), "{}", ran.transcript());
        assert!(ran.stderr.contains("cannot be preloaded") && ran.stderr.contains(name), "{}", ran.stderr);
    }
    let library = library().canonicalize().unwrap();
    let library = library.display();
    for (before, after) in [
        ("/nonexistent/a.so /nonexistent/b.so", format!("{library}:/nonexistent/a.so:/nonexistent/b.so\n")),
        (&*library.to_string(), format!("{library}\n")),
    ] {
        let run = Run::new("env").arg(format!("LD_PRELOAD={before}")).arg(leaktrace);
        let run = run.args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]);
        let ran = run.env("LEAKTRACE_LIBRARY", library.to_string()).run().success();
        assert_eq!(ran.text(), after);
    }
}

#[test]
fn a_program_without_its_parts() {
    let scratch = TempDir::new().unwrap();
    let bin = scratch.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let alone = bin.join("leaktrace");
    fs::copy(env!("CARGO_BIN_EXE_leaktrace"), &alone).unwrap();
    let refused = |args: &[&str], part: &str| {
        let ran = Run::new(&alone).args(args).run();
        assert_eq!((ran.code(), ran.stderr.lines().count()), (2, 1), "{}", ran.transcript());
        assert!(ran.stderr.contains(part), "{part} is not in {}", ran.stderr);
    };
    refused(&["run", "--", "true"], "cannot find libleaktrace.so; looked for ");
    // As after `cargo install --path src/cli`: the library is where `cargo build --release` put it.
    let release = scratch.path().join("source/target/release");
    fs::create_dir_all(&release).unwrap();
    symlink(library(), release.join("libleaktrace.so")).unwrap();
    let source = scratch.path().join("source/src/cli");
    fs::create_dir_all(&source).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let notes =
        format!("[v1]\n\"leaktrace {version} (path+file://{})\" = [\"leaktrace\"]\n", source.display());
    fs::write(scratch.path().join(".crates.toml"), notes).unwrap();
    Run::new(&alone).args(["run", "--", "true"]).run().success();
    refused(&["run", "--simulate", "--", "true"], "the simulated GPU is missing");
    refused(&["run", "--simulate=lots", "--", "true"], "is not a size, such as 80G");
    refused(&["run", "--", "/nonexistent/program"], "cannot run /nonexistent/program");
}
