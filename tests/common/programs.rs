//! The programs that are traced: C ones are compiled once per source and flags, Python ones find their
//! interpreters.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::{Ran, Run, root, simulated_libraries, target};

pub fn sources() -> PathBuf {
    root().join("cuda/programs")
}

/// Compiles `cuda/programs/SOURCE` with `flags` to a file called `name`, unless that was done before; returns
/// its path.
pub fn compile(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let mut hash = DefaultHasher::new();
    let mut files: Vec<PathBuf> = fs::read_dir(sources()).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|f| f.ends_with(source) || f.extension().is_some_and(|e| e != "c")) {
        fs::read(file).unwrap().hash(&mut hash);
    }
    // Which compiler `cc` is depends on it.
    (name, flags, std::env::var_os("PRELOAD_UNDER_TEST")).hash(&mut hash);
    let folder = root().join("target/programs").join(format!("{:016x}", hash.finish()));
    let made = folder.join(name);
    if made.exists() {
        return made;
    }
    fs::create_dir_all(&folder).unwrap();
    // Tests run at the same time, as processes or as threads: each compiles to a folder of its own, and the
    // one that is ready last replaces the file with its equal.
    let draft_folder = TempDir::new_in(&folder).unwrap();
    let draft = draft_folder.path().join(name);
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O1", "-g", "-pthread"])
        .arg(sources().join(source))
        .args(flags)
        .arg("-o")
        .arg(&draft);
    let out = cc.output().expect("a C compiler");
    assert!(out.status.success(), "{cc:?}: {}", String::from_utf8_lossy(&out.stderr));
    fs::rename(&draft, &made).unwrap();
    made
}

/// Compiles a stand-in for the runtime that calls no driver, with versioned symbols as the real one has.
pub fn bare_cudart() -> PathBuf {
    let map = format!("-Wl,--version-script,{}", sources().join("bare_cudart.map").display());
    compile("bare_cudart.c", "libcudart.so.12", &["-shared", "-fPIC", "-Wl,-soname,libcudart.so.12", &map])
}

/// Compiles a program of `cuda/programs`, linked to the library at this very path.
pub fn linked(source: &str, name: &str, library: &Path, flags: &[&str]) -> PathBuf {
    let library_folder = format!("-Wl,-rpath,{}", library.parent().unwrap().display());
    // A library between the program and the driver may need more of the simulated libraries.
    let mut all = vec![library.to_str().unwrap(), &library_folder, "-Wl,--allow-shlib-undefined"];
    all.extend(flags);
    compile(source, name, &all)
}

/// Compiles `driver_calls`, which reaches the driver by `flavour`: `link`, `dlsym` or `proc`.
pub fn driver_calls(flavour: &str) -> PathBuf {
    reaching("driver_calls", flavour)
}

/// Compiles `families`, which reaches the driver by `flavour`: `link`, `dlsym` or `proc`.
pub fn families(flavour: &str) -> PathBuf {
    reaching("families", flavour)
}

/// Compiles a program that calls the driver through `driver_api.h`, and reaches it by `flavour`.
pub fn reaching(program: &str, flavour: &str) -> PathBuf {
    let (source, name) = (format!("{program}.c"), format!("{program}_{flavour}"));
    match flavour {
        "link" => linked(&source, &name, &simulated_libraries().join("libcuda.so.1"), &["-DBY_LINK"]),
        "dlsym" => compile(&source, &name, &["-DBY_DLSYM"]),
        _ => compile(&source, &name, &["-DBY_PROC"]),
    }
}

/// Returns the path of a Python test program.
pub fn script(name: &str) -> PathBuf {
    root().join("tests/programs").join(name)
}

/// Returns the number of the line of a script that has this text.
#[track_caller]
pub fn line_of(program: &str, text: &str) -> u64 {
    let source = fs::read_to_string(script(program)).unwrap();
    let at = source.lines().position(|line| line.contains(text));
    1 + at.unwrap_or_else(|| panic!("{program} has no line with {text:?}")) as u64
}

/// Returns the Python that has PyTorch.
pub fn torch_python() -> PathBuf {
    let made = std::env::var_os("LEAKTRACE_PYENV").map_or_else(|| target().join("pyenv"), PathBuf::from);
    let python = root().join(made).join("bin/python");
    assert!(python.exists(), "{} is missing: run scripts/python-env first", python.display());
    python
}

/// Returns the Python that has JAX (`scripts/dev/jax-env`).
pub fn jax_python() -> PathBuf {
    let python = target().join("jax/bin/python");
    assert!(python.exists(), "{} is missing: run scripts/dev/jax-env first", python.display());
    python
}

/// Returns the Python that has JAX with its plugin for CUDA (`scripts/dev/jax-gpu-env`).
pub fn jax_gpu_python() -> PathBuf {
    let python = target().join("jax-gpu/bin/python");
    assert!(python.exists(), "{} is missing: run scripts/dev/jax-gpu-env first", python.display());
    python
}

/// Returns the Python of every PyTorch at hand, CI's own first: those that `scripts/python-env VERSION` made.
pub fn torch_pythons() -> Vec<PathBuf> {
    let folders = fs::read_dir(target()).unwrap().flatten().map(|entry| entry.path());
    let is_other = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Free-threaded ones have no holders.
        name.starts_with("pyenv-") && !name.ends_with('t') && path.join(".complete").exists()
    };
    let mut others: Vec<PathBuf> = folders.filter(is_other).map(|path| path.join("bin/python")).collect();
    others.sort();
    [vec![torch_python()], others].concat()
}

/// Prepares a run of a test program with PyTorch on the simulated GPU.
pub fn torch(program: &str) -> Run {
    torch_at(&script(program))
}

/// Prepares a run of any program with PyTorch on the simulated GPU.
pub fn torch_at(program: &Path) -> Run {
    Run::new(torch_python()).simulated().arg(program)
}

/// Runs a program without the preload, and again where a thread of PyTorch's own has aborted it as it ended, which happens
/// when the machine is busy. What is traced gets no second try.
pub fn untraced(run: impl Fn() -> Ran) -> Ran {
    let is_cut_short = |ran: &Ran| {
        ran.code() == 128 + libc::SIGABRT
            && ran.stderr.contains("terminate called without an active exception")
    };
    (0..3).map(|_| run()).find(|ran| !is_cut_short(ran)).unwrap_or_else(run)
}

impl Run {
    /// Makes every `print` of a line that starts with "step " end a step
    /// (`tests/programs/steps/sitecustomize.py`).
    pub fn steps_by_print(self) -> Run {
        self.env("PYTHONPATH", script("steps")).env("LEAKTRACE_STEP", "api").env("SEEDS_STEPS", "1")
    }
}

/// Returns every CPython 3.8 to 3.15 on this machine, each version once: its number and its interpreter.
pub fn pythons() -> Vec<(String, PathBuf)> {
    found(8..=15, "")
}

/// Returns every free-threaded CPython on this machine, as `3.14t`. Says so where there is none.
pub fn free_threaded() -> Vec<(String, PathBuf)> {
    let found = found(13..=15, "t");
    if found.is_empty() {
        println!("not run: no free-threaded CPython here (scripts/dev/debian-python 3.14t)");
    }
    found
}

/// What a report calls a version: `CPython 3.14, free-threaded` for `3.14t`.
pub fn named(version: &str) -> String {
    let plain = version.trim_end_matches('t');
    format!("CPython {plain}{}", if plain == version { "" } else { ", free-threaded" })
}

fn found(minors: RangeInclusive<u32>, suffix: &str) -> Vec<(String, PathBuf)> {
    let mut candidates = Vec::new();
    for minor in minors {
        let name = format!("python3.{minor}{suffix}");
        let versions = std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv/versions"));
        for entry in versions.iter().filter_map(|v| fs::read_dir(v).ok()).flatten().flatten() {
            candidates.push((minor, entry.path().join("bin").join(&name)));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        candidates.extend(std::env::split_paths(&path).map(|folder| (minor, folder.join(&name))));
        // Of `scripts/dev/debian-python`.
        candidates.push((minor, target().join(format!("python-3.{minor}{suffix}/root/usr/bin/{name}"))));
    }
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for (minor, python) in candidates {
        let version = format!("3.{minor}{suffix}");
        if !python.exists() || found.iter().any(|(v, _)| *v == version) {
            continue;
        }
        // It may be a version manager's shim, for a version that is not installed; of one that is, the
        // interpreter that the shim runs is returned.
        let ask =
            "import sys, ctypes; print('%d.%d' % sys.version_info[:2] + sys.abiflags); print(sys.executable)";
        let Ok(out) = Command::new(&python).args(["-c", ask]).output() else { continue };
        let answer = String::from_utf8_lossy(&out.stdout).into_owned();
        if let [v, executable] = answer.lines().collect::<Vec<_>>()[..]
            && v == version
        {
            found.push((version, executable.into()));
        }
    }
    found
}

/// What a reader of `tests/consumers` prints.
#[track_caller]
pub fn consumed<S: AsRef<std::ffi::OsStr>>(reader: &str, args: &[S], folder: &Path) -> String {
    let python = root().join("target/consumers/bin/python");
    assert!(python.exists(), "{} is missing: run scripts/dev/consumers-env first", python.display());
    let out = Command::new(python)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(root().join("tests/consumers").join(reader))
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{reader}: {printed}\n{}", String::from_utf8_lossy(&out.stderr));
    printed
}
