//! Finds the files that this program needs, however it was installed, and sets them up to be preloaded. Runs
//! nothing.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Failure;

const NAME: &str = "libleaktrace.so";

/// What the simulated GPU's libraries are made from: the driver, the runtime, the generator.
const SIMULATED_GPU: [&str; 3] = ["libsimgpu_driver.so", "libsimgpu_runtime.a", "simgpu-stubs"];

/// Finds libleaktrace.so: `LEAKTRACE_LIBRARY`; else beside this program, or in the `lib` beside its folder (a
/// build, a wheel, an archive); else, for a program that cargo installed, where cargo built it.
pub fn library() -> Result<PathBuf, Failure> {
    let mut candidates: Vec<PathBuf> =
        env::var_os("LEAKTRACE_LIBRARY").map(PathBuf::from).into_iter().collect();
    if let Some(folder) = own_folder() {
        candidates.extend([folder.join(NAME), folder.join("../lib").join(NAME)]);
        candidates.extend(build_folder(&folder).map(|release| release.join(NAME)));
    }
    let found = candidates.iter().find_map(|p| p.canonicalize().ok()).ok_or_else(|| {
        Failure(format!(
            "cannot find {NAME}; looked for {}. Cargo installs no libraries: copy it there from target/release, or set \
             LEAKTRACE_LIBRARY to it",
            joined(&candidates)
        ))
    })?;
    check_preloadable(&found)?;
    Ok(found)
}

/// Finds what the simulated GPU is made from: in the `simgpu` beside this program's folder, beside the
/// program, or where cargo built it.
pub fn simulated_gpu() -> Result<[PathBuf; 3], Failure> {
    let own = own_folder().unwrap_or_default();
    let mut candidates = vec![own.join("../simgpu"), own.clone()];
    candidates.extend(build_folder(&own));
    let complete = |folder: &PathBuf| SIMULATED_GPU.iter().all(|part| folder.join(part).is_file());
    let found =
        candidates.iter().find(|folder| complete(folder)).and_then(|folder| folder.canonicalize().ok());
    found.map(|folder| SIMULATED_GPU.map(|part| folder.join(part))).ok_or_else(|| {
        Failure(format!(
            "the simulated GPU is missing: looked for {} in {}. In a checkout, cargo build --release --workspace builds it",
            SIMULATED_GPU.join(", "),
            joined(&candidates)
        ))
    })
}

fn joined(candidates: &[PathBuf]) -> String {
    candidates.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Returns the folder of this program.
fn own_folder() -> Option<PathBuf> {
    env::current_exe().ok()?.canonicalize().ok()?.parent().map(Path::to_path_buf)
}

/// Returns the build folder of the checkout that `cargo install --path src/cli` installed the program in
/// `bin` from: cargo lists the package's folder in a file beside `bin`. Cargo installs no library; `cargo
/// build --release` in the checkout leaves ours in that build folder.
fn build_folder(bin: &Path) -> Option<PathBuf> {
    const OWN: &str = concat!("\"", env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"), " (path+file://");
    let installed = fs::read_to_string(bin.parent()?.join(".crates.toml")).ok()?;
    let source = installed.lines().find_map(|line| line.trim().strip_prefix(OWN)?.split_once(")\""))?.0;
    Some(Path::new(source).join("../../target/release"))
}

/// Refuses a program whose name begins as an option does: it is one that we do not have.
pub fn refuse_option(command: &[OsString]) -> Result<(), Failure> {
    let option = command.first().filter(|word| word.as_bytes().starts_with(b"-"));
    option.map_or(Ok(()), |word| {
        Err(Failure(format!(
            "there is no option {} (see --help); the program comes after `--`",
            word.display()
        )))
    })
}

/// Puts an interpreter before a command that is a Python script: the one that `python -m leaktrace` runs in;
/// else, if the script is not executable, `python3`.
pub fn with_interpreter(command: &[OsString]) -> Vec<OsString> {
    let mut words = command.to_vec();
    let script = command.first().map(Path::new).filter(|p| p.extension().is_some_and(|e| e == "py"));
    if let Some(file) = script.and_then(|script| fs::metadata(script).ok()).filter(fs::Metadata::is_file) {
        match env::var_os("LEAKTRACE_PYTHON").filter(|v| !v.is_empty()) {
            Some(python) => words.insert(0, python),
            None if file.permissions().mode() & 0o111 == 0 => words.insert(0, "python3".into()),
            None => {}
        }
    }
    words
}

/// Refuses a path that the loader would split: it takes a space or a colon for the end of it.
pub fn check_preloadable(path: &Path) -> Result<(), Failure> {
    match path.as_os_str().as_bytes().iter().any(|b| b" :\t\n".contains(b)) {
        true => Err(Failure(format!(
            "{} cannot be preloaded: the loader takes a space or colon in the path for its end; move it",
            path.display()
        ))),
        false => Ok(()),
    }
}

/// Returns the value of `LD_PRELOAD` with the library first, and what it had behind that.
pub fn preload(library: &Path) -> OsString {
    let mut preload = library.as_os_str().to_owned();
    let others = env::var_os("LD_PRELOAD").unwrap_or_default();
    let others = others.as_bytes().split(|b| b" :\t\n".contains(b)).map(OsStr::from_bytes);
    for other in others.filter(|other| !other.is_empty() && *other != library) {
        preload.push(":");
        preload.push(other);
    }
    preload
}
