//! Has a running Python call a function of the library: a script is left in a folder of its own, and the interpreter is
//! asked to run it, which it does between two of its own instructions, on the main thread and with the GIL. Where that
//! thread is busy elsewhere, another one is asked. Nothing of the program's is changed: neither names, nor environment.

use std::cell::Cell;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::super::Failure;
use super::debugger::Debugger;
use super::target::Target;

/// The first CPython that runs a script for another process.
const REMOTE_EXEC: u32 = 14;
/// How long the main thread is waited for before another one is asked.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the library's own work may take once it has begun.
const WORK: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(10);

/// What the library says came of it; the numbers are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Preloaded,
    Attached,
    NotAttached,
    Failed,
}

pub struct Answer {
    pub outcome: Outcome,
    pub text: String,
}

/// Which thread of the program runs the script.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum On {
    MainThread,
    /// Any that is about to wait without the GIL.
    AnyThread,
}

/// Calls a function of the library in the process. `settings`: its first argument, if it takes any.
pub fn call(
    target: &Target,
    library: &Path,
    function: &str,
    settings: Option<&[u8]>,
    limit: Duration,
) -> Result<Answer, Failure> {
    let pid = target.pid;
    let folder = Folder::make(target).map_err(|e| Failure(format!("{}: {e}", env::temp_dir().display())))?;
    let write = |name: &str, text: &str| {
        folder.write(name, text).map_err(|e| Failure(format!("{}: {e}", folder.path.display())))
    };
    write("ticket", "")?;
    write("script.py", &script(&folder.path, library, function, settings))?;
    // What the interpreter is given: it leaves no name in the program's `__main__`.
    let entry = format!(
        "try:\n exec(compile(open({}, 'rb').read(), '<leaktrace>', 'exec'), {{}})\nexcept Exception:\n pass\n",
        bytes(folder.file("script.py").as_os_str())
    );
    write("entry.py", &entry)?;
    let began = Instant::now();
    let asked = ask(target, &folder, On::MainThread, limit);
    if asked.is_ok() {
        folder.wait_until(PATIENCE.min(limit), || folder.is_taken() || !target.is_alive());
        if !folder.is_taken() && target.is_alive() && Debugger::find().is_some() {
            // The main thread waits for something outside of Python: another one may come by.
            let _ = ask(target, &folder, On::AnyThread, limit.saturating_sub(began.elapsed()));
        }
        let left = limit.saturating_sub(began.elapsed());
        folder.wait_until(left, || folder.is_taken() || !target.is_alive());
    }
    if folder.is_taken() || !folder.withdraw() {
        folder.wait_until(WORK, || folder.file("answer").exists() || !target.is_alive());
    }
    if let Some(answer) = folder.answer() {
        return Ok(answer);
    }
    if !target.is_alive() {
        return Err(Failure(format!("process {pid} ended meanwhile")));
    }
    // A script that is not there would be an error in the program.
    folder.is_left.set(asked.is_ok() && has_remote_exec(target));
    asked?;
    Err(Failure(format!(
        "process {pid} ran no Python code within {} s, and was left as it is: is it in a long call? (--timeout)",
        limit.as_secs()
    )))
}

/// Asks the interpreter to run the script.
fn ask(target: &Target, folder: &Folder, on: On, limit: Duration) -> Result<(), Failure> {
    if has_remote_exec(target) && on == On::MainThread {
        match remote_exec(target, &folder.file("entry.py")) {
            Ok(()) => return Ok(()),
            Err(why) if Debugger::find().is_none() => {
                return Err(Failure(format!("process {}: {why}", target.pid)));
            }
            // Switched off in that interpreter, most likely.
            Err(_) => {}
        }
    }
    let missing = || {
        Failure(format!(
            "process {}: attaching to CPython before 3.14 takes gdb or lldb, and neither is installed (apt-get install gdb)",
            target.pid
        ))
    };
    Debugger::find().ok_or_else(missing)?.run(target, &folder.file("entry.py"), on, limit)
}

fn has_remote_exec(target: &Target) -> bool {
    target.minor.is_some_and(|minor| minor >= REMOTE_EXEC)
}

/// Has an interpreter of the same version ask: the program's own.
fn remote_exec(target: &Target, entry: &Path) -> Result<(), String> {
    const ASK: &str = "import os, sys; sys.remote_exec(int(sys.argv[1]), os.fsdecode(sys.argv[2]))";
    let mut command = Command::new(&target.exe);
    command.args(["-I", "-S", "-c", ASK]).arg(target.pid.to_string()).arg(entry);
    command.env_remove("LD_PRELOAD");
    let environment = fs::read(format!("/proc/{}/environ", target.pid)).unwrap_or_default();
    for name in ["LD_LIBRARY_PATH", "PYTHONHOME"] {
        let value = environment
            .split(|b| *b == 0)
            .find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(OsStr::from_bytes));
        value.map(|value| command.env(name, value));
    }
    // Isolated, it would not look at where it is told to be at home.
    let out = command.output().map_err(|e| format!("{} cannot be run: {e}", target.exe.display()))?;
    match out.status.success() {
        true => Ok(()),
        false => {
            let text = String::from_utf8_lossy(&out.stderr).into_owned();
            Err(text.lines().last().unwrap_or("sys.remote_exec failed").to_owned())
        }
    }
}

/// A folder of our own, which the process can read and write.
struct Folder {
    path: PathBuf,
    /// The interpreter will open the script when it comes to it, and removes the folder.
    is_left: Cell<bool>,
}

impl Folder {
    fn make(target: &Target) -> std::io::Result<Folder> {
        let name = format!("leaktrace.{}.{}", target.pid, std::process::id());
        let path = std::path::absolute(env::temp_dir())?.join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        let folder = Folder { path, is_left: Cell::new(false) };
        folder.hand_over(target)?;
        Ok(folder)
    }

    /// The process may be another user's, where this is root.
    fn hand_over(&self, target: &Target) -> std::io::Result<()> {
        let (uid, gid) = target.owner;
        let owner = fs::metadata(&self.path)?.uid();
        if owner == uid { Ok(()) } else { chown(&self.path, Some(uid), Some(gid)) }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn write(&self, name: &str, text: &str) -> std::io::Result<()> {
        let path = self.file(name);
        fs::write(&path, text)?;
        // Nobody else gets into the folder.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))
    }

    /// Whether the script has begun.
    fn is_taken(&self) -> bool {
        !self.file("ticket").exists()
    }

    /// Has the script do nothing if it comes later; false if it has begun.
    fn withdraw(&self) -> bool {
        fs::rename(self.file("ticket"), self.file("withdrawn")).is_ok()
    }

    fn wait_until(&self, limit: Duration, done: impl Fn() -> bool) {
        let began = Instant::now();
        while !done() && began.elapsed() < limit {
            thread::sleep(POLL);
        }
    }

    fn answer(&self) -> Option<Answer> {
        let text = fs::read(self.file("answer")).ok()?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let (number, text) = text.split_once('\n')?;
        let outcome = match number {
            "0" => Outcome::Done,
            "1" => Outcome::Preloaded,
            "2" => Outcome::Attached,
            "3" => Outcome::NotAttached,
            _ => Outcome::Failed,
        };
        Some(Answer { outcome, text: text.to_owned() })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_left.get() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Returns a Python expression of these bytes.
fn bytes(of: &OsStr) -> String {
    let hex: String = of.as_bytes().iter().map(|b| format!("{b:02x}")).collect();
    format!("bytes.fromhex('{hex}')")
}

/// Returns the script: whoever comes first takes the ticket, and calls the function with the GIL.
fn script(folder: &Path, library: &Path, function: &str, settings: Option<&[u8]>) -> String {
    let settings = settings.map_or(String::new(), |s| format!("{}, ", bytes(OsStr::from_bytes(s))));
    format!(
        "\
import os
folder = {folder}
try:
    os.rename(os.path.join(folder, b'ticket'), os.path.join(folder, b'taken'))
except OSError:
    # Nobody waits any more.
    if os.path.exists(os.path.join(folder, b'withdrawn')):
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
else:
    outcome = 4
    try:
        import ctypes
        library = ctypes.PyDLL(os.fsdecode({library}))
        reply = ctypes.create_string_buffer(8192)
        outcome = library.{function}({settings}reply, ctypes.c_size_t(8192))
        text = reply.value
    except Exception as error:
        text = ('%s: %s' % (type(error).__name__, error)).encode(errors='replace')
    with open(os.path.join(folder, b'draft'), 'wb') as file:
        file.write(b'%d\\n' % outcome + text)
    os.rename(os.path.join(folder, b'draft'), os.path.join(folder, b'answer'))
",
        folder = bytes(folder.as_os_str()),
        library = bytes(library.as_os_str()),
    )
}
