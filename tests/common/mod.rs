//! What all black-box tests share: where the parts are, how a program is run, what came out of it.
//!
//! Never `use leaktrace` here: it would carry the preload's own `dlsym` into the tests.

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

/// Longer than any program here may take on a busy machine; a program that hangs is killed then.
const PATIENCE: Duration = Duration::from_secs(120);

/// The root of the repository.
pub fn root() -> &'static Path {
    // The package is src/cli.
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap())
}

/// The library under test, built with these tests.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let deps = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
        let places = [deps.join("libleaktrace.so"), deps.parent().unwrap().join("libleaktrace.so")];
        let age = |p: &PathBuf| fs::metadata(p).and_then(|m| m.modified()).ok();
        let newest = places.iter().filter(|p| p.exists()).max_by_key(|p| age(p));
        newest.unwrap_or_else(|| panic!("no libleaktrace.so in {}: was it built?", deps.display())).clone()
    })
}

/// What `scripts/simgpu` adds to the environment of a program it runs.
fn simulated() -> &'static BTreeMap<OsString, OsString> {
    static SIMULATED: OnceLock<BTreeMap<OsString, OsString>> = OnceLock::new();
    SIMULATED.get_or_init(|| {
        let script = root().join("scripts/simgpu");
        let out = Command::new(&script).args(["env", "-0"]).output();
        let out = out.unwrap_or_else(|e| panic!("{}: {e}", script.display()));
        assert!(out.status.success(), "scripts/simgpu env: {}", String::from_utf8_lossy(&out.stderr));
        let pairs = out.stdout.split(|b| *b == 0).filter_map(|pair| {
            let at = pair.iter().position(|b| *b == b'=')?;
            let os = |b: &[u8]| OsString::from_vec(b.to_vec());
            Some((os(&pair[..at]), os(&pair[at + 1..])))
        });
        pairs.filter(|(k, v)| k != "_" && k != "SHLVL" && std::env::var_os(k).as_ref() != Some(v)).collect()
    })
}

/// The folder that holds the simulated `libcuda.so.1` and all that stands on it.
pub fn simulated_libraries() -> PathBuf {
    let path =
        simulated().get(&OsString::from("LD_LIBRARY_PATH")).expect("scripts/simgpu sets LD_LIBRARY_PATH");
    std::env::split_paths(path)
        .find(|p| p.join("libcuda.so.1").exists())
        .unwrap_or_else(|| panic!("no libcuda.so.1 in {}", path.display()))
}

/// A program to be run in a fresh folder of its own, where it may leave files.
pub struct Run {
    pub command: Command,
    scratch: TempDir,
}

/// A program that ran.
pub struct Ran {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
    scratch: TempDir,
}

/// A program that runs, its output coming through a pipe. Killed when dropped.
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
    /// A program without the preload. Nothing of leaktrace's or the simulated GPU's settings is inherited.
    pub fn new(program: impl AsRef<Path>) -> Run {
        let scratch = TempDir::new().unwrap();
        fs::create_dir(scratch.path().join("work")).unwrap();
        let mut command = Command::new(program.as_ref());
        // A group of its own, so that none of its children outlives a test that gave up.
        command.current_dir(scratch.path().join("work")).stdin(Stdio::null()).process_group(0);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            let foreign = ["LEAKTRACE", "SIMGPU_", "PYTORCH_", "PYTHON", "CUDA_"];
            if name == "LD_PRELOAD" || foreign.iter().any(|f| name.starts_with(f)) {
                command.env_remove(&name);
            }
        }
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("OMP_NUM_THREADS", "1");
        Run { command, scratch }
    }

    /// On the simulated GPU, with a truth log.
    pub fn simulated(mut self) -> Run {
        self.command.envs(simulated()).env("SIMGPU_LOG", self.scratch.path().join("truth.log"));
        self
    }

    /// With the library under test.
    pub fn traced(mut self) -> Run {
        self.command.env("LD_PRELOAD", library());
        self
    }

    /// With the library under test or without.
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

    /// The folder the program runs in.
    pub fn folder(&self) -> PathBuf {
        self.scratch.path().join("work")
    }

    /// Runs to the end.
    pub fn run(mut self) -> Ran {
        let (out, err) = (self.scratch.path().join("stdout"), self.scratch.path().join("stderr"));
        self.command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        // SAFETY: a flag of this process: who of the program outlives its parent becomes a child of ours.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        let child = self.command.spawn().unwrap_or_else(|e| panic!("{:?}: {e}", self.command.get_program()));
        let status = wait(child);
        let stderr = String::from_utf8_lossy(&fs::read(err).unwrap()).into_owned();
        Ran { status, stdout: fs::read(out).unwrap(), stderr, scratch: self.scratch }
    }

    /// Starts it, with its standard output in a pipe.
    pub fn start(mut self) -> Running {
        self.command.stdout(Stdio::piped()).stderr(File::create(self.scratch.path().join("stderr")).unwrap());
        let child = self.command.spawn().unwrap_or_else(|e| panic!("{:?}: {e}", self.command.get_program()));
        Running { child, scratch: Some(self.scratch) }
    }
}

/// Waits for the end of a program and of all it left behind in its group; one that does not come is brought about.
fn wait(mut child: Child) -> ExitStatus {
    let (done, ended) = channel::<()>();
    let pid = child.id() as i32;
    let watch = std::thread::spawn(move || {
        if let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(PATIENCE) {
            // SAFETY: the group of our own child, which was not waited for yet.
            unsafe { libc::kill(-pid, libc::SIGKILL) };
            return true;
        }
        false
    });
    let status = child.wait().unwrap();
    // SAFETY: children of this process, in a group that only this program was in; nobody else waits for them.
    while unsafe { libc::waitpid(-pid, std::ptr::null_mut(), 0) } > 0 {}
    drop(done);
    assert!(!watch.join().unwrap(), "the program did not end within {PATIENCE:?}");
    status
}

impl Running {
    /// SIGKILL, now.
    pub fn kill(mut self) -> Ran {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        let scratch = self.scratch.take().unwrap();
        let stderr = String::from_utf8_lossy(&fs::read(scratch.path().join("stderr")).unwrap()).into_owned();
        Ran { status, stdout: Vec::new(), stderr, scratch }
    }
}

impl Ran {
    /// The folder it ran in.
    pub fn folder(&self) -> PathBuf {
        self.scratch.path().join("work")
    }

    /// Names of the files in that folder.
    pub fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder()).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The recordings in that folder.
    pub fn recordings(&self) -> Vec<PathBuf> {
        let names = self.files().into_iter().filter(|n| n.ends_with(".ltrace"));
        names.map(|n| self.folder().join(n)).collect()
    }

    /// The one recording in that folder.
    #[track_caller]
    pub fn recording(&self) -> PathBuf {
        let mut all = self.recordings();
        assert_eq!(all.len(), 1, "one recording expected, got {all:?}\n{}", self.told());
        all.remove(0)
    }

    /// The log of the simulated GPU.
    pub fn truth(&self) -> truth::Truth {
        truth::Truth::read(&self.scratch.path().join("truth.log"))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// All it said, for a failing test.
    pub fn told(&self) -> String {
        format!("{:?}\n── stdout\n{}\n── stderr\n{}", self.status, self.text(), self.stderr)
    }

    #[track_caller]
    pub fn success(self) -> Ran {
        assert!(self.status.success(), "{}", self.told());
        self
    }

    /// Exit status as a shell shows it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }
}

/// A small deterministic random number generator.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
