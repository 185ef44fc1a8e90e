//! `leaktrace doctor`: one line for each check, and the remedy where it fails.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::grows::{flat, python, text};
use crate::common::programs::{free_threaded, jax_python, script, torch_python};
use crate::common::report::leaktrace;
use crate::common::{library, simulated_libraries};
use tempfile::TempDir;

fn doctor(folder: &Path, args: &[&str]) -> Output {
    let mut command = leaktrace();
    command.current_dir(folder).env("LEAKTRACE_LIBRARY", library()).env_remove("LEAKTRACE_OUT");
    command.env("LD_LIBRARY_PATH", simulated_libraries());
    command.arg("doctor").args(args).output().unwrap()
}

/// A program that does nothing.
fn made(folder: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let source = folder.join("nothing.c");
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let made = folder.join(name);
    assert!(Command::new("cc").arg(&source).args(flags).arg("-o").arg(&made).status().unwrap().success());
    made
}

#[test]
fn where_it_would_work() {
    let folder = TempDir::new().unwrap();
    let torch = torch_python();
    let told = text(
        &doctor(folder.path(), &["--", torch.to_str().unwrap(), script("train.py").to_str().unwrap()]),
        0,
    );
    let flat = flat(&told);
    for words in [
        "ok output: ",
        "ok preload: the interpreter has loaded the library",
        "ok python: CPython 3.",
        "ok framework: PyTorch 2.",
        "ok versions: the driver is of CUDA 13.0, PyTorch of CUDA 1",
        "ok driver: ",
    ] {
        assert!(flat.contains(words), "{words}\n{told}");
    }
    assert!(told.ends_with("OK: leaktrace can trace this program.\n"), "{told}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn where_the_recording_cannot_be_created() {
    let folder = TempDir::new().unwrap();
    symlink("elsewhere", folder.path().join("link")).unwrap();
    for out in ["/dev/full", "link"] {
        let told = flat(&text(&doctor(folder.path(), &["--out", out, "--", "true"]), 1));
        assert!(told.contains(" is not a plain file "), "{told}");
    }
}

#[test]
fn where_jax_takes_the_place_of_pytorch() {
    let folder = TempDir::new().unwrap();
    let told = text(&doctor(folder.path(), &["--", jax_python().to_str().unwrap()]), 0);
    assert!(flat(&told).contains("ok framework: JAX 0.") && !told.contains("PyTorch"), "{told}");
}

#[test]
fn what_takes_memory_for_an_arena_is_named() {
    let folder = TempDir::new().unwrap();
    fs::create_dir_all(folder.path().join("onnxruntime")).unwrap();
    fs::write(folder.path().join("onnxruntime/__init__.py"), "").unwrap();
    let told = flat(&text(&doctor(folder.path(), &["--", jax_python().to_str().unwrap()]), 0));
    assert!(told.contains("arena of ONNX Runtime: what it takes from the driver is seen"), "{told}");
}

#[test]
fn what_is_lost_where_there_is_no_gil() {
    let folder = TempDir::new().unwrap();
    for (version, python) in free_threaded() {
        let told = flat(&text(&doctor(folder.path(), &["--", python.to_str().unwrap()]), 0));
        let line = format!("python: CPython {}", version.trim_end_matches('t'));
        assert!(
            told.contains(&line) && told.contains("its frames can be read, its objects cannot"),
            "{told}"
        );
        assert!(told.contains("holders are not searched for; they need a build with the GIL"), "{told}");
    }
}

#[test]
fn a_driver_that_is_older_than_pytorch_wants() {
    let folder = TempDir::new().unwrap();
    let source = folder.path().join("old.c");
    fs::write(&source, "int cuDriverGetVersion(int *version) { *version = 11080; return 0; }\n").unwrap();
    let driver = folder.path().join("libcuda.so.1");
    let mut cc = Command::new("cc");
    assert!(cc.args(["-shared", "-fPIC", "-o"]).arg(&driver).arg(&source).status().unwrap().success());
    let mut command = leaktrace();
    command
        .current_dir(folder.path())
        .env("LEAKTRACE_LIBRARY", library())
        .env("LD_LIBRARY_PATH", folder.path());
    let out = command.args(["doctor", "--"]).arg(torch_python()).output().unwrap();
    let told = flat(&text(&out, 1));
    assert!(told.contains("bad versions: the driver is of CUDA 11.8, PyTorch of CUDA 1"), "{told}");
    assert!(told.contains("the driver is too old, and find no GPU → update the driver"), "{told}");
    assert!(told.contains("or install a PyTorch for CUDA 11"), "{told}");
}

/// A PyTorch of which there is nothing but its version and the libraries of these names, with PyTorch's own symbols.
fn pytorch_of(version: &str, libraries: &[&str]) -> String {
    let folder = TempDir::new().unwrap();
    let lib = folder.path().join("torch/lib");
    fs::create_dir_all(&lib).unwrap();
    fs::write(folder.path().join("torch/__init__.py"), "").unwrap();
    let about = folder.path().join(format!("torch-{version}.dist-info"));
    fs::create_dir(&about).unwrap();
    let metadata = format!("Metadata-Version: 2.1\nName: torch\nVersion: {version}\n");
    fs::write(about.join("METADATA"), metadata).unwrap();
    let source = folder.path().join("symbols.c");
    let symbols = "void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void) {}
        void _ZN5torch8autograd6Engine7executeE(void) {}\n";
    fs::write(&source, symbols).unwrap();
    for library in libraries {
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"]).arg(lib.join(library)).arg(&source);
        assert!(cc.status().unwrap().success());
    }
    let mut command = leaktrace();
    command.current_dir(folder.path()).env("LEAKTRACE_LIBRARY", library()).env("PYTHONPATH", folder.path());
    command.env("LD_LIBRARY_PATH", simulated_libraries());
    flat(&text(&command.args(["doctor", "--"]).arg(python()).output().unwrap(), 0))
}

#[test]
fn a_pytorch_for_other_devices_or_newer_than_any_that_was_tried() {
    let own = ["libc10.so", "libtorch_cpu.so"];
    let plain = pytorch_of("2.9.0", &own);
    assert!(plain.contains("PyTorch 2.9.0 is built without CUDA → install a CUDA build"), "{plain}");
    let rocm = pytorch_of("2.9.0+rocm6.4", &[own[0], own[1], "libtorch_hip.so"]);
    assert!(
        rocm.contains("PyTorch 2.9.0+rocm6.4 is built for ROCm: calls of AMD's driver are not seen"),
        "{rocm}"
    );
    let cuda = [own[0], own[1], "libtorch_cuda.so"];
    for (version, newer) in [("2.15.2", false), ("2.16.0", true), ("3.0.0a1", true)] {
        let told = pytorch_of(version, &cuda);
        let says = told.contains(&format!("PyTorch {version} is newer than what was tried"));
        assert_eq!(says, newer, "{told}");
        assert!(told.contains("its reporting symbols are found"), "{told}");
    }
}

#[test]
fn the_program_itself_is_not_run() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("touch.py"), "open('it-ran', 'w')\n").unwrap();
    let python = python();
    text(&doctor(folder.path(), &["--", python.to_str().unwrap(), "touch.py"]), 0);
    assert!(!folder.path().join("it-ran").exists());
    let told = text(&doctor(folder.path(), &["--", python.to_str().unwrap(), "missing.py"]), 1);
    assert!(told.contains("bad   script: missing.py is missing"), "{told}");
}

#[test]
fn what_would_not_work_and_what_to_do() {
    let folder = TempDir::new().unwrap();
    let told = text(&doctor(folder.path(), &["--", "no-such-program"]), 1);
    assert!(
        told.contains("no-such-program is not found")
            && told.ends_with("Failed: leaktrace cannot trace this program.\n"),
        "{told}"
    );
    let fixed = made(folder.path(), "fixed", &["-static"]);
    let told = text(&doctor(folder.path(), &["--", fixed.to_str().unwrap()]), 1);
    assert!(
        flat(&told).contains("is statically linked: LD_PRELOAD has no effect → link it dynamically"),
        "{told}"
    );
    let loose = made(folder.path(), "loose", &[]);
    let told = text(&doctor(folder.path(), &["--", loose.to_str().unwrap()]), 0);
    assert!(told.contains("the loader accepts the library"), "{told}");
    let told = text(
        &doctor(folder.path(), &["--out", "/proc/nowhere/at/all/%p.ltrace", "--", loose.to_str().unwrap()]),
        1,
    );
    assert!(told.contains("/proc cannot be written"), "{told}");
    let mut command = leaktrace();
    command.current_dir(folder.path()).env("LEAKTRACE_LIBRARY", library()).env_remove("LD_LIBRARY_PATH");
    let out = command.args(["doctor", "--", loose.to_str().unwrap()]).output().unwrap();
    if !Path::new("/usr/lib/x86_64-linux-gnu/libcuda.so.1").exists() {
        assert!(text(&out, 1).contains("libcuda.so.1 is not found"), "{out:?}");
    }
}
