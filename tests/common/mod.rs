//! What the black-box tests share: where the built parts are, how a program is run, and what came of the run.
//!
//! It must not link `leaktrace_preload`, which would bring that crate's own `dlsym` into the tests.

pub mod grows;
pub mod programs;
pub mod report;
pub mod truth;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use tempfile::TempDir;

/// A program that hangs is killed after this time. No program takes a tenth of it, but on a machine that is
/// busy with other suites, or swaps.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    // These tests belong to the package in src/cli.
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap())
}

/// Returns the build directory of the scripts: of the simulated GPU and of the environments of packages.
pub fn target() -> PathBuf {
    std::env::var_os("LEAKTRACE_TARGET").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Returns the library under test, which is built with these tests, unless it is for another processor
/// (`scripts/dev/aarch64`).
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        if let Some(given) = std::env::var_os("PRELOAD_UNDER_TEST") {
            return given.into();
        }
        let deps = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
        let candidates = [deps.join("libleaktrace.so"), deps.parent().unwrap().join("libleaktrace.so")];
        let modified = |p: &PathBuf| fs::metadata(p).and_then(|m| m.modified()).ok();
        let newest = candidates.iter().filter(|p| p.exists()).max_by_key(|p| modified(p));
        newest.unwrap_or_else(|| panic!("no libleaktrace.so in {}: was it built?", deps.display())).clone()
    })
}

/// Returns what `scripts/simgpu` adds to the environment of a program it runs.
fn simulated() -> &'static BTreeMap<OsString, OsString> {
    static SIMULATED: OnceLock<BTreeMap<OsString, OsString>> = OnceLock::new();
    SIMULATED.get_or_init(|| {
        let script = root().join("scripts/simgpu");
        let out = Command::new(&script).args(["env", "-0"]).output();
        let out = out.unwrap_or_else(|e| panic!("{}: {e}", script.display()));
        assert!(out.status.success(), "scripts/simgpu env: {}", String::from_utf8_lossy(&out.stderr));
        let pairs = out.stdout.split(|b| *b == 0).filter_map(|pair| {
            let equals = pair.iter().position(|b| *b == b'=')?;
            let os = |b: &[u8]| OsString::from_vec(b.to_vec());
            Some((os(&pair[..equals]), os(&pair[equals + 1..])))
        });
        pairs.filter(|(k, v)| k != "_" && k != "SHLVL" && std::env::var_os(k).as_ref() != Some(v)).collect()
    })
}

/// Returns the folder of the simulated `libcuda.so.1` and of the libraries that use it.
pub fn simulated_libraries() -> PathBuf {
    let path =
        simulated().get(&OsString::from("LD_LIBRARY_PATH")).expect("scripts/simgpu sets LD_LIBRARY_PATH");
    std::env::split_paths(path)
        .find(|p| p.join("libcuda.so.1").exists())
        .unwrap_or_else(|| panic!("no libcuda.so.1 in {}", path.display()))
}

/// A program that will run in a fresh folder of its own, where it may leave files.
pub struct Run {
    pub command: Command,
    scratch: TempDir,
}

/// A program that ended, with what it printed and left behind.
pub struct Ran {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
    scratch: TempDir,
}

/// A program that runs, its standard output in a pipe. Dropping it kills the program.
pub struct Running {
    pub child: Child,
    scratch: Option<TempDir>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Run {
    /// Prepares a program without the preload. It inherits no setting of leaktrace, CUDA, PyTorch or Python.
    pub fn new(program: impl AsRef<Path>) -> Run {
        let scratch = TempDir::new().unwrap();
        fs::create_dir(scratch.path().join("work")).unwrap();
        let mut command = Command::new(program.as_ref());
        // A process group of its own, so that none of its children outlives a test that gave up.
        command.current_dir(scratch.path().join("work")).stdin(Stdio::null()).process_group(0);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            let settings = ["LEAKTRACE", "SIMGPU_", "PYTORCH_", "PYTHON", "CUDA_"];
            if name == "LD_PRELOAD" || settings.iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("OMP_NUM_THREADS", "1");
        Run { command, scratch }
    }

    /// Puts it on the simulated GPU, with a truth log.
    pub fn simulated(mut self) -> Run {
        self.command.envs(simulated()).env("SIMGPU_LOG", self.scratch.path().join("truth.log"));
        self
    }

    /// Preloads the library under test.
    pub fn traced(mut self) -> Run {
        self.command.env("LD_PRELOAD", library());
        self
    }

    /// Preloads the library under test where `yes`.
    pub fn traced_if(self, yes: bool) -> Run {
        if yes { self.traced() } else { self }
    }

    pub fn arg(mut self, arg: impl AsRef<std::ffi::OsStr>) -> Run {
        self.command.arg(arg);
        self
    }

    pub fn args<S: AsRef<std::ffi::OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Run {
        self.command.args(args);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Run {
        self.command.env(name, value);
        self
    }

    /// Returns the folder the program will run in.
    pub fn folder(&self) -> PathBuf {
        self.scratch.path().join("work")
    }

    /// Runs the program to its end.
    pub fn run(mut self) -> Ran {
        let (out, err) = (self.scratch.path().join("stdout"), self.scratch.path().join("stderr"));
        self.command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        // SAFETY: sets a flag of this process: a descendant that outlives its parent becomes a child of this
        // process.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        let child = self.command.spawn().unwrap_or_else(|e| panic!("{:?}: {e}", self.command.get_program()));
        let status = wait(child);
        let stderr = String::from_utf8_lossy(&fs::read(err).unwrap()).into_owned();
        Ran { status, stdout: fs::read(out).unwrap(), stderr, scratch: self.scratch }
    }

    /// Starts the program, with its standard output in a pipe.
    pub fn start(mut self) -> Running {
        self.command.stdout(Stdio::piped()).stderr(File::create(self.scratch.path().join("stderr")).unwrap());
        let child = self.command.spawn().unwrap_or_else(|e| panic!("{:?}: {e}", self.command.get_program()));
        Running { child, scratch: Some(self.scratch) }
    }
}

/// Waits for the end of a program and of every process left in its group, and kills them all after `TIMEOUT`.
fn wait(mut child: Child) -> ExitStatus {
    let (done, ended) = channel::<()>();
    let pid = child.id() as i32;
    let watch = std::thread::spawn(move || {
        if let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(TIMEOUT) {
            // SAFETY: kill takes numbers only; the group is that of a child which was not waited for yet.
            unsafe { libc::kill(-pid, libc::SIGKILL) };
            return true;
        }
        false
    });
    let status = child.wait().unwrap();
    // SAFETY: a null status pointer is allowed; no other thread waits for the children in this group.
    while unsafe { libc::waitpid(-pid, std::ptr::null_mut(), 0) } > 0 {}
    drop(done);
    assert!(!watch.join().unwrap(), "the program did not end within {TIMEOUT:?}");
    status
}

impl Running {
    /// Waits for the end, with the standard output read by the caller.
    pub fn wait(mut self) -> Ran {
        let status = self.child.wait().unwrap();
        self.ran(status)
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(mut self) -> Ran {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        self.ran(status)
    }

    fn ran(&mut self, status: ExitStatus) -> Ran {
        let scratch = self.scratch.take().unwrap();
        let stderr = String::from_utf8_lossy(&fs::read(scratch.path().join("stderr")).unwrap()).into_owned();
        Ran { status, stdout: Vec::new(), stderr, scratch }
    }
}

impl Ran {
    /// Returns the folder it ran in.
    pub fn folder(&self) -> PathBuf {
        self.scratch.path().join("work")
    }

    /// Returns the names of the files it left in its folder.
    pub fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder()).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Returns the recordings it left.
    pub fn recordings(&self) -> Vec<PathBuf> {
        let names = self.files().into_iter().filter(|n| n.ends_with(".ltrace"));
        names.map(|n| self.folder().join(n)).collect()
    }

    /// Returns the one recording it left.
    #[track_caller]
    pub fn recording(&self) -> PathBuf {
        let mut all = self.recordings();
        assert_eq!(all.len(), 1, "one recording expected, got {all:?}\n{}", self.transcript());
        all.remove(0)
    }

    /// Reads the log of the simulated GPU.
    pub fn truth(&self) -> truth::Truth {
        truth::Truth::read(&self.scratch.path().join("truth.log"))
    }

    /// Returns its standard output.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns exit status and output, for the message of a failing test.
    pub fn transcript(&self) -> String {
        format!("{:?}\n── stdout\n{}\n── stderr\n{}", self.status, self.text(), self.stderr)
    }

    /// Fails the test unless the exit status is 0.
    #[track_caller]
    pub fn success(self) -> Ran {
        assert!(self.status.success(), "{}", self.transcript());
        self
    }

    /// Returns the exit status as a shell shows it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }
}

/// A small random number generator (xorshift); the seed must not be 0.
pub struct Chance(pub u64);

impl Chance {
    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Leaves out what recursion repeats: of functions that come again in the same order, the outer rounds.
pub fn folded<T>(places: Vec<T>, same: impl Fn(&T, &T) -> bool) -> Vec<T> {
    let mut folded: Vec<T> = Vec::new();
    for place in places {
        folded.push(place);
        let len = folded.len();
        let repeats = |&n: &usize| (len - n..len).all(|at| same(&folded[at], &folded[at - n]));
        if let Some(period) = (1..=16.min(len / 2)).find(repeats) {
            folded.truncate(len - period);
        }
    }
    folded
}
