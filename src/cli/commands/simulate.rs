//! `leaktrace run --simulate`: the simulated GPU's libraries, built at first use for the PyTorch at hand and
//! kept in the user's cache. Knows nothing of their contents: a generator beside this program makes them.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Failure, locate};

/// Packages whose libraries need the vendor's; those that are not installed are skipped.
const PACKAGES: &str =
    "torch torchvision torchaudio tensorflow onnxruntime jax_plugins jax_cuda12_plugin jax_cuda13_plugin";
/// Those among them that compile with XLA, and those that look for device files before they load the driver.
const COMPILE: [&str; 2] = ["tensorflow", "jax_plugins"];
const LOOK: [&str; 1] = ["jax_plugins"];
/// The library that has programs find device files, and the folder that XLA compiles with.
const FILES: &str = "libsimgpu_files.so";
const XLA: &str = "xla";
/// What the stubs do in a stream leaves nothing to be captured there, and of an empty graph XLA makes an error.
const WITHOUT_GRAPHS: &str = "--xla_gpu_enable_command_buffer=";

/// Sets the command up to find the simulated GPU before any other. `size`: its memory; empty for its default.
pub fn prepare(command: &mut Command, size: &str) -> Result<(), Failure> {
    if !size.is_empty() && !is_size(size) {
        return Err(Failure(format!("--simulate={size} is not a size, such as 80G or 512M")));
    }
    let packages = packages(command.get_program())?;
    let folder = libraries(&locate::simulated_gpu()?, &packages)?;
    if folder.as_os_str().as_bytes().iter().any(|b| b":;".contains(b)) {
        return Err(Failure(format!(
            "{} cannot be searched for libraries: the loader takes a colon in the path for its end; set XDG_CACHE_HOME",
            folder.display()
        )));
    }
    let has =
        |names: &[&str]| packages.iter().any(|package| names.iter().any(|name| package.ends_with(name)));
    let mut preload = preloads(&folder, &packages);
    if has(&LOOK) {
        preload.push(folder.join(FILES));
    }
    if has(&COMPILE) {
        let mut flags = env::var_os("XLA_FLAGS").unwrap_or_default();
        flags.push(format!(" {WITHOUT_GRAPHS} --xla_gpu_cuda_data_dir="));
        flags.push(folder.join(XLA));
        command.env("XLA_FLAGS", flags);
    }
    preload.iter().try_for_each(|path| locate::check_preloadable(path))?;
    if !preload.is_empty() {
        let set = command.get_envs().find_map(|(name, value)| value.filter(|_| name == "LD_PRELOAD"));
        let mut value = set.unwrap_or_default().to_owned();
        for path in preload {
            value.push(":");
            value.push(path);
        }
        command.env("LD_PRELOAD", value);
    }
    let mut path = folder.into_os_string();
    if let Some(others) = env::var_os("LD_LIBRARY_PATH").filter(|v| !v.is_empty()) {
        path.push(":");
        path.push(others);
    }
    command.env("LD_LIBRARY_PATH", path);
    if !size.is_empty() {
        command.env("SIMGPU_MEM", size);
    }
    Ok(())
}

/// Returns true for a size that the simulated driver understands: `80G`, `1.5TiB`, `4096`.
fn is_size(text: &str) -> bool {
    let text = text.trim_end_matches(['b', 'B']).trim_end_matches('i');
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_lowercase();
    matches!(unit.as_str(), "" | "k" | "m" | "g" | "t")
        && digits.parse().is_ok_and(|n: f64| n > 0.0 && n < 1e15)
}

/// Returns the folders of the packages that the interpreter of `program` would import.
fn packages(program: &OsStr) -> Result<Vec<PathBuf>, Failure> {
    let (python, certain) = match interpreter(program) {
        Some(python) => (python, true),
        None => (OsString::from("python3"), false),
    };
    const ASK: &str = "import importlib.util as u, sys\n\
        for name in sys.argv[1:]:\n\
        \x20   spec = u.find_spec(name)\n\
        \x20   for folder in (spec and spec.submodule_search_locations) or ():\n\
        \x20       print(folder)";
    let asked = Command::new(&python)
        .args(["-c", ASK])
        .args(PACKAGES.split(' '))
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .output();
    let output = match asked {
        Ok(output) if output.status.success() => output.stdout,
        Ok(output) if certain => {
            let why = String::from_utf8_lossy(&output.stderr);
            let why = why.lines().last().unwrap_or("it failed");
            return Err(Failure(format!("cannot ask {} where its PyTorch is: {why}", python.display())));
        }
        Err(e) if certain => return Err(Failure(format!("cannot run {}: {e}", python.display()))),
        _ => return Ok(Vec::new()),
    };
    let lines = output.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    let found: Vec<PathBuf> = lines.map(|line| OsString::from_vec(line.to_vec()).into()).collect();
    if certain
        && let Some(torch) = found.iter().find(|folder| folder.ends_with("torch"))
        && !torch.join("lib/libtorch_cuda.so").exists()
    {
        return Err(Failure(format!(
            "the PyTorch in {} is built without CUDA and sees no GPU, real or simulated; install a CUDA build",
            torch.display()
        )));
    }
    Ok(found)
}

/// Returns the Python that a program is, or that its first line names (`pytest`, `torchrun`).
fn interpreter(program: &OsStr) -> Option<OsString> {
    let is_python = |path: &Path| {
        path.file_name()
            .is_some_and(|name| name.as_bytes().starts_with(b"python") || name.as_bytes() == b"pypy3")
    };
    if is_python(Path::new(program)) {
        return Some(program.to_owned());
    }
    let mut start = Vec::new();
    fs::File::open(found(program)?).ok()?.take(4096).read_to_end(&mut start).ok()?;
    let mut lines = start.split(|b| *b == b'\n');
    let first = lines.next()?.strip_prefix(b"#!")?;
    let words: Vec<&[u8]> = first.split(|b| b.is_ascii_whitespace()).filter(|w| !w.is_empty()).collect();
    let python = words.iter().map(|w| OsStr::from_bytes(w)).find(|w| is_python(Path::new(w)));
    // pip writes a line that is too long for the kernel as a line for the shell: '''exec' /path/python "$0"
    // "$@".
    let second = || {
        let line = lines.next()?.strip_prefix(b"'''exec' ")?;
        let line = line.strip_suffix(br#" "$0" "$@""#)?;
        Some(OsStr::from_bytes(line.strip_prefix(b"\"").and_then(|l| l.strip_suffix(b"\"")).unwrap_or(line)))
    };
    python.or_else(second).map(OsStr::to_owned)
}

/// Finds the file that would be executed.
fn found(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let paths = env::var_os("PATH")?;
    env::split_paths(&paths).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Returns the folder of libraries for these packages, which is built if it is not in the cache.
fn libraries(parts: &[PathBuf; 3], packages: &[PathBuf]) -> Result<PathBuf, Failure> {
    let key = key(parts, packages);
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let folder = cache()?.join(format!("simgpu-{:016x}", hasher.finish()));
    if fs::read(folder.join(".made-for")).is_ok_and(|made_for| made_for == key) {
        return Ok(folder);
    }
    let failed = |what: &Path, e: std::io::Error| Failure(format!("cannot write {}: {e}", what.display()));
    let draft = folder.with_extension(format!("{}.draft", std::process::id()));
    fs::create_dir_all(&draft).map_err(|e| failed(&draft, e))?;
    eprintln!("leaktrace: building the simulated GPU's libraries in {} (once)", folder.display());
    let made = generate(parts, packages, &draft)
        .and_then(|()| fs::write(draft.join(".made-for"), &key).map_err(|e| failed(&draft, e)));
    if let Err(failure) = made {
        let _ = fs::remove_dir_all(&draft);
        return Err(failure);
    }
    // A folder that another process has built meanwhile is as good; a broken one is replaced.
    if fs::rename(&draft, &folder).is_err() {
        if fs::read(folder.join(".made-for")).is_ok_and(|made_for| made_for == key) {
            let _ = fs::remove_dir_all(&draft);
        } else {
            let _ = fs::remove_dir_all(&folder);
            fs::rename(&draft, &folder).map_err(|e| failed(&folder, e))?;
        }
    }
    Ok(folder)
}

/// Has the generator build the libraries in `out`.
fn generate(
    [driver, runtime, generator]: &[PathBuf; 3],
    packages: &[PathBuf],
    out: &Path,
) -> Result<(), Failure> {
    if found(OsStr::new("cc")).is_none() {
        return Err(Failure(
            "the simulated GPU's libraries are linked at first use, which needs a C compiler, cc".into(),
        ));
    }
    let mut command = Command::new(generator);
    command.arg(out).arg("--driver").arg(driver).arg("--runtime").arg(runtime).args(packages);
    let output = command.env_remove("LD_PRELOAD").stdin(Stdio::null()).output();
    let output = output.map_err(|e| Failure(format!("cannot run {}: {e}", generator.display())))?;
    let messages = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        eprint!("{messages}");
        return Ok(());
    }
    let why = messages.lines().last().unwrap_or("simgpu-stubs failed");
    Err(Failure(format!("cannot build the simulated GPU's libraries: {why}")))
}

/// Returns what a set of libraries depends on: the path, size and time of each file.
fn key(parts: &[PathBuf; 3], packages: &[PathBuf]) -> Vec<u8> {
    let mut key = Vec::new();
    let mut add = |path: &Path| {
        let (size, seconds, nanoseconds) =
            fs::metadata(path).map_or((0, 0, 0), |m| (m.len(), m.mtime(), m.mtime_nsec()));
        key.extend_from_slice(path.as_os_str().as_bytes());
        key.extend_from_slice(format!("\0{size} {seconds} {nanoseconds}\n").as_bytes());
    };
    parts.iter().for_each(|part| add(part));
    for package in packages {
        add(&package.join("version.py"));
        add(&package.join("lib/libtorch_cuda.so"));
        add(&package.join("libtensorflow_cc.so.2"));
        add(&package.join("xla_cuda12/xla_cuda_plugin.so"));
        add(&package.join("xla_cuda13/xla_cuda_plugin.so"));
    }
    key
}

/// Returns the cache folder, `$XDG_CACHE_HOME/leaktrace`.
fn cache() -> Result<PathBuf, Failure> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    base.map(|base| base.join("leaktrace")).ok_or_else(|| {
        Failure("no folder for the simulated GPU's libraries: set XDG_CACHE_HOME or HOME".into())
    })
}

/// Returns the libraries that have to be preloaded: PyTorch's wheels name the folders of the vendor's
/// packages in their RPATH, which goes before `LD_LIBRARY_PATH`, and what is loaded already goes before both.
fn preloads(folder: &Path, packages: &[PathBuf]) -> Vec<PathBuf> {
    let vendors = packages.iter().filter_map(|package| fs::read_dir(package.parent()?.join("nvidia")).ok());
    let installed: Vec<PathBuf> = vendors.flatten().flatten().map(|entry| entry.path().join("lib")).collect();
    let Ok(made) = fs::read_dir(folder) else { return Vec::new() };
    let names = made.flatten().map(|entry| entry.file_name());
    let names = names.filter(|name| installed.iter().any(|lib| lib.join(name).exists()));
    let mut preload: Vec<PathBuf> = names.map(|name| folder.join(name)).collect();
    preload.sort();
    preload
}
