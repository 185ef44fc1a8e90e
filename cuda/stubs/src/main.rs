//! Makes the libraries a CUDA program would load: the simulated driver and runtime under their real names,
//! and a stub for every other vendor library that the given ELF files need.
//!
//!     simgpu-stubs OUT_DIR --driver libsimgpu_driver.so --runtime libsimgpu_runtime.a [ELF-or-directory …]
//!
//! What the files import decides what a stub exports, by name and version; nothing is a fixed list. Beside these stands
//! what XLA compiles with, and a library to be preloaded that has programs find device files.

mod bodies;
mod emit;
mod outputs;
mod runtime;
mod vendor;
mod wheels;
mod xla;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// One line that says what went wrong.
type Result<T> = std::result::Result<T, String>;

const USAGE: &str = "usage: simgpu-stubs OUT_DIR --driver FILE --runtime FILE [ELF-or-directory ...]";

struct Arguments {
    out: PathBuf,
    driver: PathBuf,
    runtime: PathBuf,
    wheels: Vec<PathBuf>,
}

fn arguments() -> Result<Arguments> {
    let (mut driver, mut runtime, mut plain) = (None, None, Vec::new());
    let mut given = std::env::args_os().skip(1);
    while let Some(argument) = given.next() {
        match argument.to_str() {
            Some("--driver") => driver = given.next().map(PathBuf::from),
            Some("--runtime") => runtime = given.next().map(PathBuf::from),
            Some(option) if option.starts_with('-') => {
                return Err(format!("unknown option {option}; {USAGE}"));
            }
            _ => plain.push(PathBuf::from(argument)),
        }
    }
    let mut plain = plain.into_iter();
    match (plain.next(), driver, runtime) {
        (Some(out), Some(driver), Some(runtime)) => {
            Ok(Arguments { out, driver, runtime, wheels: plain.collect() })
        }
        _ => Err(USAGE.into()),
    }
}

fn run() -> Result<()> {
    let Arguments { out, driver, runtime, wheels } = arguments()?;
    let mut wanted = wheels::wanted(&wheels)?;
    wanted.entry(vendor::MANAGEMENT.to_string()).or_default();
    let work = out.join(".work");
    std::fs::create_dir_all(&work).map_err(|e| format!("cannot create {}: {e}", work.display()))?;
    place_driver(&driver, &out, &wanted)?;
    let mut jobs = runtime::jobs(&runtime, &wanted, &out, &work)?;
    for (soname, library) in &wanted {
        if vendor::is_stub(soname) {
            jobs.push(emit::job(soname, library, &out, &work)?);
        }
    }
    jobs.push(emit::device_files(&out, &work)?);
    emit::run_all(&jobs)?;
    xla::place(&out)?;
    std::fs::remove_dir_all(&work).map_err(|e| format!("cannot remove {}: {e}", work.display()))
}

/// The driver goes in as it is. A wheel that imports more than it has would not load: said, not hidden.
fn place_driver(driver: &Path, out: &Path, wanted: &wheels::Wanted) -> Result<()> {
    let has = wheels::exports(driver)?;
    if let Some(library) = wanted.get(vendor::DRIVER) {
        for name in library.keys().filter(|name| !has.contains(*name)) {
            eprintln!(
                "simgpu-stubs: warning: the simulated driver has no {name}, which a given file imports"
            );
        }
    }
    let target = out.join(vendor::DRIVER);
    std::fs::copy(driver, &target).map_err(|e| format!("cannot copy {}: {e}", driver.display()))?;
    // What links `-lcuda` at run time, as Triton does, looks for this name.
    let link = out.join("libcuda.so");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(vendor::DRIVER, &link)
        .map_err(|e| format!("cannot create {}: {e}", link.display()))
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("simgpu-stubs: {message}");
            ExitCode::from(2)
        }
    }
}
