//! Where the parts that this program needs lie, however it was installed, and how the loader is told of them.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Failure;

const NAME: &str = "libleaktrace.so";

/// What the simulated GPU's libraries are made from: the driver, the runtime, the generator.
const SIMULATED: [&str; 3] = ["libsimgpu_driver.so", "libsimgpu_runtime.a", "simgpu-stubs"];

/// libleaktrace.so: `LEAKTRACE_LIBRARY`; else beside this program or in the `lib` beside its folder (a build, a wheel, an
/// archive); else, for a program that cargo installed, where cargo built it.
pub fn library() -> Result<PathBuf, Failure> {
    let mut places: Vec<PathBuf> = env::var_os("LEAKTRACE_LIBRARY").map(PathBuf::from).into_iter().collect();
    if let Some(folder) = own_folder() {
        places.extend([folder.join(NAME), folder.join("../lib").join(NAME)]);
        places.extend(built_in(&folder).map(|release| release.join(NAME)));
    }
    let found = places.iter().find_map(|p| p.canonicalize().ok()).ok_or_else(|| {
        Failure(format!(
            "cannot find {NAME}; looked for {}. Cargo installs no libraries: copy it there from target/release, or set \
             LEAKTRACE_LIBRARY to it",
            list(&places)
        ))
    })?;
    may_be_preloaded(&found)?;
    Ok(found)
}

/// The simulated GPU's parts: in the `simgpu` beside this program's folder, beside it, or where cargo built them.
pub fn simulated() -> Result<[PathBuf; 3], Failure> {
    let own = own_folder().unwrap_or_default();
    let mut places = vec![own.join("../simgpu"), own.clone()];
    places.extend(built_in(&own));
    let whole = |folder: &PathBuf| SIMULATED.iter().all(|part| folder.join(part).is_file());
    let found = places.iter().find(|place| whole(place)).and_then(|place| place.canonicalize().ok());
    found.map(|folder| SIMULATED.map(|part| folder.join(part))).ok_or_else(|| {
        Failure(format!(
            "the simulated GPU is not there: looked for {} in {}. In a checkout, cargo build --release --workspace makes it",
            SIMULATED.join(", "),
            list(&places)
        ))
    })
}

fn list(places: &[PathBuf]) -> String {
    places.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The folder that holds this program.
fn own_folder() -> Option<PathBuf> {
    env::current_exe().ok()?.canonicalize().ok()?.parent().map(Path::to_path_buf)
}

/// The build folder of the checkout that `cargo install --path src/cli` installed the program in `bin` from: cargo notes the
/// package's folder beside `bin`. Cargo installs no library; `cargo build --release` in the checkout leaves ours there.
fn built_in(bin: &Path) -> Option<PathBuf> {
    const OWN: &str = concat!("\"", env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"), " (path+file://");
    let notes = fs::read_to_string(bin.parent()?.join(".crates.toml")).ok()?;
    let source = notes.lines().find_map(|line| line.trim().strip_prefix(OWN)?.split_once(")\""))?.0;
    Some(Path::new(source).join("../../target/release"))
}

/// The command with an interpreter before it where it is a Python script that nothing else can run: the one that
/// `python -m leaktrace` is, else `python3`.
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

/// Refuses what the loader would split: it takes these for the end of a path.
pub fn may_be_preloaded(path: &Path) -> Result<(), Failure> {
    match path.as_os_str().as_bytes().iter().any(|b| b" :\t\n".contains(b)) {
        true => Err(Failure(format!(
            "{} cannot be preloaded: the loader takes a space or colon in the path for its end; move it",
            path.display()
        ))),
        false => Ok(()),
    }
}

/// `LD_PRELOAD` with the library first and what stood there behind it.
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
