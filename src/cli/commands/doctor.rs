//! `leaktrace doctor`: would it work here? The program is not run. Its interpreter is, for a moment, preloaded as it would be.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use object::{Object, ObjectSymbol};

use super::{Doctor as Arguments, Failure, GATE, output, parts, run};
use crate::render::terminal::{BAD, BOLD, DIM, GOOD, PLAIN, Page, UNSURE};

/// How long a probe may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// What PyTorch must export: where blocks are told of, and where a backward pass begins.
const SYMBOLS: [(&str, &str, &str); 2] = [
    ("libc10.so", "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", "blocks"),
    ("libtorch_cpu.so", "_ZN5torch8autograd6Engine7executeE", "backward passes"),
];
/// What the interpreter says of itself and of PyTorch, without importing that.
const PROBE: &str = "\
import sys, sysconfig, importlib.util as u, os
print('version', sys.version.split()[0])
print('implementation', sys.implementation.name)
print('debug', int(hasattr(sys, 'gettotalrefcount')))
print('threaded', int(bool(sysconfig.get_config_var('Py_GIL_DISABLED'))))
print('preloaded', int(any('libleaktrace' in l for l in open('/proc/self/maps', errors='replace'))))
try:
    spec = u.find_spec('torch')
except (ImportError, ValueError):
    spec = None
if spec and spec.origin:
    print('torch', os.path.dirname(spec.origin))
    try:
        from importlib.metadata import version
        print('torch_version', version('torch'))
    except Exception:
        pass
";

/// What was found out about one thing.
enum Found {
    Good(String),
    /// It works, but not wholly.
    Doubt(String, String),
    Bad(String, String),
}

pub fn doctor(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let [program, rest @ ..] = arguments.command.as_slice() else {
        return Err(Failure("no program to look at".into()));
    };
    let library = parts::library()?;
    let mut told: Vec<(&str, Found)> = Vec::new();
    told.push(("library", Found::Good(library.display().to_string())));
    told.push(("output", writable(&run::absolute(&run::out(arguments.out.as_deref())))));
    match resolve(program) {
        None => told.push((
            "program",
            Found::Bad(
                format!("{} is not found", program.display()),
                "give its path, or activate its environment first".into(),
            ),
        )),
        Some(path) => look_at(&path, rest, &library, &mut told),
    }
    told.push(("driver", driver()));
    let failed = told.iter().any(|(_, f)| matches!(f, Found::Bad(..)));
    let mut page = Page::new(output::width(None), arguments.color.is_on(None));
    for (what, found) in &told {
        let lead = format!("{what}:");
        match found {
            Found::Good(text) => page.marked((GOOD, "ok    "), 6, &[(BOLD, &lead), (PLAIN, text)]),
            Found::Doubt(text, remedy) => {
                page.marked(
                    (UNSURE, "note  "),
                    6,
                    &[(BOLD, &lead), (PLAIN, text), (DIM, &format!("→ {remedy}"))],
                );
            }
            Found::Bad(text, remedy) => {
                page.marked(
                    (BAD, "bad   "),
                    6,
                    &[(BOLD, &lead), (PLAIN, text), (DIM, &format!("→ {remedy}"))],
                );
            }
        }
    }
    let said = if failed { "It would not work." } else { "It would work." };
    page.wrap("", 0, &[(if failed { BAD } else { GOOD }, said)]);
    output::write(None, page.into_text().as_bytes())?;
    Ok(ExitCode::from(if failed { GATE } else { 0 }))
}

/// Where the shell would find it.
fn resolve(program: &OsStr) -> Option<PathBuf> {
    let runs =
        |p: &PathBuf| fs::metadata(p).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(runs);
    }
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(runs)
}

/// The program, the loader, the interpreter.
fn look_at(path: &Path, rest: &[std::ffi::OsString], library: &Path, told: &mut Vec<(&'static str, Found)>) {
    // A script is its interpreter's.
    let (binary, script) = match interpreter(path) {
        Some(interpreter) => match resolve(interpreter.as_os_str()) {
            Some(binary) => (binary, true),
            None => {
                told.push((
                    "program",
                    Found::Bad(
                        format!(
                            "{} names an interpreter that is not there: {}",
                            path.display(),
                            interpreter.display()
                        ),
                        "mend its first line, or name the interpreter yourself".into(),
                    ),
                ));
                return;
            }
        },
        None => (path.to_path_buf(), false),
    };
    let shown = match script {
        true => format!("{} by {}", path.display(), binary.display()),
        false => binary.display().to_string(),
    };
    told.push(("program", loadable(&binary, &shown)));
    if matches!(told.last(), Some((_, Found::Bad(..)))) {
        return;
    }
    let name = binary.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if name.starts_with("python") {
        python(&binary, library, told);
        // What stands behind -m or -c is no file.
        let script = rest.first().filter(|first| !first.as_bytes().starts_with(b"-")).map(Path::new);
        if let Some(script) = script.filter(|script| !script.exists()) {
            told.push((
                "script",
                Found::Bad(format!("{} is not there", script.display()), "give its path from here".into()),
            ));
        }
    } else {
        told.push(("preload", taken_by_loader(&binary, library)));
    }
}

/// The program that a script's first line names; `env NAME` stands for NAME.
fn interpreter(path: &Path) -> Option<PathBuf> {
    let mut head = [0; 256];
    let n = fs::File::open(path).and_then(|mut f| f.read(&mut head)).ok()?;
    let line = head[..n].strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let line = String::from_utf8_lossy(line).into_owned();
    let mut words = line.split_whitespace();
    let first = words.next()?;
    let named = match first.rsplit('/').next() {
        Some("env") => words.find(|w| !w.starts_with('-') && !w.contains('='))?,
        _ => first,
    };
    Some(named.into())
}

/// Whether the loader would take a preload for it at all.
fn loadable(binary: &Path, shown: &str) -> Found {
    let path = fs::canonicalize(binary).unwrap_or_else(|_| binary.to_path_buf());
    let Ok(bytes) = fs::read(&path) else {
        return Found::Bad(format!("{shown} cannot be read"), "ask for permission to read it".into());
    };
    let Ok(object) = object::File::parse(&*bytes) else {
        return Found::Bad(
            format!("{shown} is no program for this machine"),
            "name the program itself".into(),
        );
    };
    if object.architecture() != object::Architecture::X86_64 {
        let other = format!("{:?}", object.architecture());
        return Found::Bad(format!("{shown} is for {other}"), "leaktrace knows x86-64 only".into());
    }
    if !has_interpreter(&bytes) {
        return Found::Bad(
            format!("{shown} is linked statically: no loader would take the library"),
            "link it dynamically".into(),
        );
    }
    match fs::metadata(&path) {
        Ok(m) if m.mode() & 0o6000 != 0 => Found::Bad(
            format!("{shown} is setuid or setgid: the loader ignores LD_PRELOAD"),
            "run a copy without that bit".into(),
        ),
        _ => Found::Good(shown.to_owned()),
    }
}

/// A segment that names a loader (`PT_INTERP`).
fn has_interpreter(bytes: &[u8]) -> bool {
    use object::read::elf::{FileHeader, ProgramHeader};
    let header = object::elf::FileHeader64::<object::Endianness>::parse(bytes);
    let Ok(header) = header else { return false };
    let Ok(endian) = header.endian() else { return false };
    let segments = header.program_headers(endian, bytes).unwrap_or_default();
    segments.iter().any(|s| s.p_type(endian) == object::elf::PT_INTERP)
}

/// The loader lists what it would load, and runs nothing.
fn taken_by_loader(binary: &Path, library: &Path) -> Found {
    let mut command = Command::new(binary);
    command.env("LD_TRACE_LOADED_OBJECTS", "1").env("LD_PRELOAD", parts::preload(library));
    match probe(&mut command) {
        Ok(out) if String::from_utf8_lossy(&out.stdout).contains("libleaktrace") => {
            Found::Good("the loader takes the library".into())
        }
        Ok(out) => Found::Bad(
            format!("the loader does not take the library: {}", first_line(&out.stderr)),
            "see whether it was built for this machine's C library".into(),
        ),
        Err(why) => Found::Bad(why, "run it by hand with LD_TRACE_LOADED_OBJECTS=1".into()),
    }
}

fn python(binary: &Path, library: &Path, told: &mut Vec<(&'static str, Found)>) {
    let mut command = Command::new(binary);
    command.args(["-c", PROBE]).env("LD_PRELOAD", parts::preload(library)).env("LEAKTRACE_QUIET", "1");
    let out = match probe(&mut command) {
        Ok(out) if out.status.success() => out,
        Ok(out) => {
            let said = first_line(&out.stderr);
            told.push((
                "python",
                Found::Bad(format!("it does not start: {said}"), "mend the interpreter first".into()),
            ));
            return;
        }
        Err(why) => {
            told.push(("python", Found::Bad(why, "start it by hand".into())));
            return;
        }
    };
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let value = |key: &str| {
        text.lines()
            .find_map(|l| l.strip_prefix(key)?.strip_prefix(' '))
            .map(str::to_owned)
            .unwrap_or_default()
    };
    told.push((
        "preload",
        match value("preloaded") == "1" {
            true => Found::Good("the interpreter has the library".into()),
            false => Found::Bad(
                format!("the interpreter does not have the library {}", first_line(&out.stderr)),
                "is it a wrapper that clears LD_PRELOAD, or setuid?".into(),
            ),
        },
    ));
    told.push((
        "python",
        layout(&value("implementation"), &value("version"), value("debug") == "1", value("threaded") == "1"),
    ));
    told.push(("pytorch", pytorch(&value("torch"), &value("torch_version"))));
}

/// Whether its frames can be read.
fn layout(implementation: &str, version: &str, debug: bool, threaded: bool) -> Found {
    const REMEDY: &str = "stacks will be native ones; CPython 3.8 to 3.14 give Python lines";
    let minor: Option<u32> = version.strip_prefix("3.").and_then(|v| v.split('.').next()?.parse().ok());
    let name = format!("{implementation} {version}");
    match minor {
        _ if implementation != "cpython" => Found::Doubt(format!("{name}: no layout known"), REMEDY.into()),
        _ if debug || threaded => {
            let what = if debug { "a debug build" } else { "a free-threaded build" };
            Found::Doubt(format!("{name}, {what}: no layout known"), REMEDY.into())
        }
        Some(8..=14) => Found::Good(format!("CPython {version}, its layout is known")),
        _ => Found::Doubt(format!("CPython {version}: no layout known"), REMEDY.into()),
    }
}

fn pytorch(folder: &str, version: &str) -> Found {
    if folder.is_empty() {
        return Found::Doubt(
            "PyTorch is not installed there".into(),
            "only memory taken from the driver will be seen, and steps only by LEAKTRACE_STEP or leaktrace_step".into(),
        );
    }
    let libraries = Path::new(folder).join("lib");
    if !libraries.join("libtorch_cuda.so").exists() {
        return Found::Doubt(
            format!("PyTorch {version} is built without CUDA"),
            "install a CUDA build: this one never uses the GPU".into(),
        );
    }
    let missing: Vec<&str> = SYMBOLS
        .iter()
        .filter(|(file, symbol, _)| !exports(&libraries.join(file), symbol))
        .map(|(_, _, what)| *what)
        .collect();
    match missing.is_empty() {
        true => Found::Good(format!("PyTorch {version}, its reporting symbols found")),
        false => Found::Doubt(
            format!("PyTorch {version}: what tells of {} is not found in it", missing.join(" and ")),
            "PyTorch 2.0 and later as its wheels are built; otherwise only the driver's memory is seen"
                .into(),
        ),
    }
}

/// Whether a library exports a symbol that begins so.
fn exports(library: &Path, symbol: &str) -> bool {
    let Ok(bytes) = fs::read(library) else { return false };
    let Ok(file) = object::File::parse(&*bytes) else { return false };
    file.dynamic_symbols().any(|s| s.is_definition() && s.name().is_ok_and(|name| name.starts_with(symbol)))
}

/// The CUDA driver, where the loader would look.
fn driver() -> Found {
    const NAME: &str = "libcuda.so.1";
    let set = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let usual = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib", "/usr/lib/wsl/lib"];
    let folders = env::split_paths(&set).chain(usual.iter().map(PathBuf::from));
    let found = folders.map(|f| f.join(NAME)).find(|p| p.exists()).or_else(|| {
        let cache = Command::new("/sbin/ldconfig").arg("-p").stderr(Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&cache.stdout).into_owned();
        let line = text.lines().find(|l| l.contains(NAME))?;
        line.split("=> ").nth(1).map(PathBuf::from)
    });
    match found {
        Some(path) => Found::Good(path.display().to_string()),
        None => Found::Bad(
            format!("{NAME} is not found"),
            "install the GPU's driver, mount it into the container (--gpus all), or set LD_LIBRARY_PATH"
                .into(),
        ),
    }
}

/// Whether a recording could be written there.
fn writable(out: &Path) -> Found {
    let folder = out.parent().unwrap_or(Path::new("/"));
    if folder.as_os_str().as_bytes().contains(&b'%') {
        return Found::Good(format!("{} (its folder is known only when it runs)", out.display()));
    }
    let probe = folder.join(format!(".leaktrace.{}", std::process::id()));
    let tried = fs::OpenOptions::new().write(true).create_new(true).open(&probe);
    match tried {
        Ok(_) => {
            let _ = fs::remove_file(&probe);
            Found::Good(out.display().to_string())
        }
        Err(e) => Found::Bad(
            format!("{} cannot be written: {e}", folder.display()),
            "make the folder, or name another with --out or LEAKTRACE_OUT".into(),
        ),
    }
}

fn first_line(bytes: &[u8]) -> String {
    leaktrace_core::report::phrases::clean(String::from_utf8_lossy(bytes).lines().next().unwrap_or_default())
}

/// Runs it to its end; one that hangs is ended.
fn probe(command: &mut Command) -> Result<Output, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("it cannot be started: {e}"))?;
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return child.wait_with_output().map_err(|e| e.to_string()),
            Ok(None) if began.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(10)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it did not answer within {} s", PATIENCE.as_secs()));
            }
            Err(e) => return Err(e.to_string()),
        }
    }
}
