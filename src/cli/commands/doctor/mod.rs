//! `leaktrace doctor`: can a program be traced here? The program is not run; its interpreter is for a moment,
//! with the library preloaded as it would be.

mod frameworks;
mod python;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use object::Object;

use super::{Doctor as Arguments, Failure, GATE, attach, locate, output, run};
use crate::render::terminal::{BAD, BOLD, DIM, GOOD, PLAIN, Page, UNSURE};

/// How long a probe may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The result of one check; what is not right has a remedy.
pub enum Check {
    Good(String),
    /// What is good to know, and decides nothing.
    Note(String),
    /// The program can be traced, but something will be missing.
    Warning(String, String),
    Bad(String, String),
}

pub fn doctor(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let [program, rest @ ..] = arguments.command.as_slice() else {
        return Err(Failure("no program to check".into()));
    };
    locate::refuse_option(&arguments.command)?;
    let library = locate::library()?;
    let mut checks: Vec<(&str, Check)> = Vec::new();
    checks.push(("library", Check::Good(library.display().to_string())));
    checks.push(("output", writable(&run::absolute(&run::out(arguments.out.as_deref())))));
    match resolve(program) {
        None => checks.push((
            "program",
            Check::Bad(
                format!("{} is not found", program.display()),
                "give its path, or activate its environment first".into(),
            ),
        )),
        Some(path) => check_program(&path, rest, &library, &mut checks),
    }
    let fails = |checks: &[(&str, Check)]| checks.iter().any(|(_, f)| matches!(f, Check::Bad(..)));
    let fails_itself = fails(&checks);
    checks.push(("driver", driver()));
    let failed = fails(&checks);
    let mut page = Page::new(output::width(None), arguments.color.is_on(None));
    for (what, check) in &checks {
        let lead = format!("{what}:");
        match check {
            Check::Good(text) => page.marked((GOOD, "ok    "), 6, &[(BOLD, &lead), (PLAIN, text)]),
            Check::Note(text) => page.marked((DIM, "note  "), 6, &[(BOLD, &lead), (PLAIN, text)]),
            Check::Warning(text, remedy) => {
                page.marked(
                    (UNSURE, "warn  "),
                    6,
                    &[(BOLD, &lead), (PLAIN, text), (DIM, &format!("→ {remedy}"))],
                );
            }
            Check::Bad(text, remedy) => {
                page.marked(
                    (BAD, "bad   "),
                    6,
                    &[(BOLD, &lead), (PLAIN, text), (DIM, &format!("→ {remedy}"))],
                );
            }
        }
    }
    let (style, verdict) = match failed {
        true if !fails_itself => {
            (BAD, "Failed: the driver of a GPU is missing here. `leaktrace run --simulate` needs none.")
        }
        true => (BAD, "Failed: leaktrace cannot trace this program."),
        false => (GOOD, "OK: leaktrace can trace this program."),
    };
    page.wrap("", 0, &[(style, verdict)]);
    output::write(None, &[], page.into_text().as_bytes())?;
    Ok(ExitCode::from(if failed { GATE } else { 0 }))
}

/// Tells whether Python programs that run already could be recorded: nothing that this program needs.
fn attaching() -> Check {
    let root = rustix::process::geteuid().is_root();
    match (attach::obstacle(root), attach::Debugger::find()) {
        (Some(why), _) => Check::Note(format!("leaktrace attach would not work: {why}")),
        (None, None) => Check::Note(
            "leaktrace attach would work with CPython 3.14 and later; for earlier ones it takes gdb or lldb, and neither is \
             installed"
                .into(),
        ),
        (None, Some(debugger)) => Check::Good(format!(
            "leaktrace attach would work: the same user's processes can be reached, and {} is here",
            debugger.name()
        )),
    }
}

/// Finds the file that the shell would run.
pub fn resolve(program: &OsStr) -> Option<PathBuf> {
    let runs =
        |p: &PathBuf| fs::metadata(p).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(runs);
    }
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(runs)
}

/// Checks the program, what the loader would do with it, and its interpreter.
fn check_program(
    path: &Path,
    rest: &[std::ffi::OsString],
    library: &Path,
    checks: &mut Vec<(&'static str, Check)>,
) {
    // A script is run by its interpreter.
    let (binary, script) = match interpreter(path) {
        Some(interpreter) => match resolve(interpreter.as_os_str()) {
            Some(binary) => (binary, true),
            None => {
                checks.push((
                    "program",
                    Check::Bad(
                        format!(
                            "{} names an interpreter that is missing: {}",
                            path.display(),
                            interpreter.display()
                        ),
                        "fix the shebang line, or name the interpreter yourself".into(),
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
    checks.push(("program", loadable(&binary, &shown)));
    if matches!(checks.last(), Some((_, Check::Bad(..)))) {
        return;
    }
    let name = binary.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if name.starts_with("python") {
        python::check(&binary, library, checks);
        checks.push(("attach", attaching()));
        // What follows -m or -c is not a file.
        let script = rest.first().filter(|first| !first.as_bytes().starts_with(b"-")).map(Path::new);
        if let Some(script) = script.filter(|script| !script.exists()) {
            checks.push((
                "script",
                Check::Bad(
                    format!("{} is missing", script.display()),
                    "give its path, relative to this folder".into(),
                ),
            ));
        }
    } else {
        checks.push(("preload", accepted_by_loader(&binary, library)));
    }
}

/// Returns the program that a script's first line names; of `env NAME` it is NAME.
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

/// Checks whether the loader obeys LD_PRELOAD for the program.
fn loadable(binary: &Path, shown: &str) -> Check {
    let path = fs::canonicalize(binary).unwrap_or_else(|_| binary.to_path_buf());
    let Ok(bytes) = fs::read(&path) else {
        return Check::Bad(format!("{shown} cannot be read"), "get permission to read it".into());
    };
    let Ok(object) = object::File::parse(&*bytes) else {
        return Check::Bad(
            format!("{shown} is not a program for this machine"),
            "name the program itself".into(),
        );
    };
    let own = match env::consts::ARCH {
        "aarch64" => object::Architecture::Aarch64,
        _ => object::Architecture::X86_64,
    };
    if object.architecture() != own {
        let other = format!("{:?}", object.architecture());
        return Check::Bad(format!("{shown} is for {other}"), format!("this leaktrace is for {own:?}"));
    }
    if !has_interpreter(&bytes) {
        return Check::Bad(
            format!("{shown} is statically linked: LD_PRELOAD has no effect"),
            "link it dynamically".into(),
        );
    }
    match fs::metadata(&path) {
        Ok(m) if m.mode() & 0o6000 != 0 => Check::Bad(
            format!("{shown} is setuid or setgid: the loader ignores LD_PRELOAD"),
            "run a copy without that bit".into(),
        ),
        _ => Check::Good(shown.to_owned()),
    }
}

/// Returns true if the program has a segment that names a loader (`PT_INTERP`).
fn has_interpreter(bytes: &[u8]) -> bool {
    use object::read::elf::{FileHeader, ProgramHeader};
    let header = object::elf::FileHeader64::<object::Endianness>::parse(bytes);
    let Ok(header) = header else { return false };
    let Ok(endian) = header.endian() else { return false };
    let segments = header.program_headers(endian, bytes).unwrap_or_default();
    segments.iter().any(|s| s.p_type(endian) == object::elf::PT_INTERP)
}

/// Checks that the loader preloads the library: it lists what it would load, and runs nothing.
fn accepted_by_loader(binary: &Path, library: &Path) -> Check {
    let mut command = Command::new(binary);
    command.env("LD_TRACE_LOADED_OBJECTS", "1").env("LD_PRELOAD", locate::preload(library));
    match probe(&mut command) {
        Ok(out) if String::from_utf8_lossy(&out.stdout).contains("libleaktrace") => {
            Check::Good("the loader accepts the library".into())
        }
        Ok(out) => Check::Bad(
            format!("the loader does not accept the library: {}", first_line(&out.stderr)),
            "check that it was built for this machine's C library".into(),
        ),
        Err(why) => Check::Bad(why, "run it by hand with LD_TRACE_LOADED_OBJECTS=1".into()),
    }
}

/// Looks for the CUDA driver where the loader would.
fn driver() -> Check {
    const NAME: &str = "libcuda.so.1";
    let set = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let of_processor = format!("/usr/lib/{}-linux-gnu", env::consts::ARCH);
    let usual = [&of_processor, "/usr/lib64", "/lib64", "/usr/lib", "/usr/lib/wsl/lib"];
    let folders = env::split_paths(&set).chain(usual.iter().map(PathBuf::from));
    let found = folders.map(|f| f.join(NAME)).find(|p| p.exists()).or_else(|| {
        let cache = Command::new("/sbin/ldconfig").arg("-p").stderr(Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&cache.stdout).into_owned();
        let line = text.lines().find(|l| l.contains(NAME))?;
        line.split("=> ").nth(1).map(PathBuf::from)
    });
    match found {
        Some(path) => Check::Good(path.display().to_string()),
        None => Check::Bad(
            format!("{NAME} is not found"),
            "install the GPU's driver, mount it into the container (--gpus all), set LD_LIBRARY_PATH, or use leaktrace run --simulate"
                .into(),
        ),
    }
}

/// Checks whether a recording can be written to this path.
pub fn writable(out: &Path) -> Check {
    if out.is_dir() || out.as_os_str().as_bytes().ends_with(b"/") {
        return Check::Bad(
            format!("{} is a folder", out.display()),
            format!("name a file in it, such as {}", out.join("leaktrace.%p.ltrace").display()),
        );
    }
    // Whatever a link leads to is left as it is.
    if out.symlink_metadata().is_ok_and(|there| !there.is_file()) {
        return Check::Bad(
            format!("{} is not a plain file", out.display()),
            "name another file with --out or LEAKTRACE_OUT".into(),
        );
    }
    let folder = out.parent().unwrap_or(Path::new("/"));
    if folder.as_os_str().as_bytes().contains(&b'%') {
        return Check::Good(format!("{} (its folder is known only when the program runs)", out.display()));
    }
    // Folders that are missing are made when the program runs.
    let folder = folder.ancestors().find(|f| f.symlink_metadata().is_ok()).unwrap_or(folder);
    let probe = folder.join(format!(".leaktrace.{}", std::process::id()));
    let tried = fs::OpenOptions::new().write(true).create_new(true).open(&probe);
    match tried {
        Ok(_) => {
            let _ = fs::remove_file(&probe);
            Check::Good(out.display().to_string())
        }
        Err(e) => Check::Bad(
            format!("{} cannot be written: {e}", folder.display()),
            "name another folder with --out or LEAKTRACE_OUT".into(),
        ),
    }
}

/// Returns the first line of what a program printed.
fn first_line(bytes: &[u8]) -> String {
    leaktrace_core::report::wording::sanitize(
        String::from_utf8_lossy(bytes).lines().next().unwrap_or_default(),
    )
}

/// Runs a command to its end and returns its output; one that takes too long is killed.
fn probe(command: &mut Command) -> Result<Output, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("it cannot be started: {e}"))?;
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return child.wait_with_output().map_err(|e| e.to_string()),
            Ok(None) if began.elapsed() < TIMEOUT => std::thread::sleep(Duration::from_millis(10)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it did not answer within {} s", TIMEOUT.as_secs()));
            }
            Err(e) => return Err(e.to_string()),
        }
    }
}
