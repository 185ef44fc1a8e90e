//! The debuggers that can have a running interpreter run a script, as CPython before 3.14 takes it: which of them is here,
//! and what is said where one fails. What each is told stands in a file of its own (`gdb`, `lldb`).
//!
//! Both stop the program where a thread that has the GIL is about to give it up: any other thread could run any Python
//! code there, so ours may be asked for. Addresses are given as numbers, so that no symbols are read, which would take long
//! while the program stands still.

use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use super::super::{Failure, doctor};
use super::inject::On;
use super::target::Target;
use super::{gdb, lldb};
use rustix::process::{Pid, Signal, kill_process};

/// How long a debugger may take to let go of the program.
pub const LEAVING: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debugger {
    Gdb,
    Lldb,
}

/// Why a debugger has not asked.
pub enum Failed {
    /// It ran longer than it may, and the program was left as it was.
    Late,
    /// It may not trace the program.
    Denied,
    /// What it said last, or why it could not be run.
    Said(String),
}

impl Debugger {
    /// Returns the one that is installed; gdb, if both are.
    pub fn find() -> Option<Debugger> {
        [Debugger::Gdb, Debugger::Lldb].into_iter().find(|d| doctor::resolve(d.name().as_ref()).is_some())
    }

    pub fn name(self) -> &'static str {
        match self {
            Debugger::Gdb => "gdb",
            Debugger::Lldb => "lldb",
        }
    }

    /// Has the interpreter asked to run the text in the file `entry`, in whose folder others may be put.
    pub fn run(self, target: &Target, entry: &Path, on: On, limit: Duration) -> Result<(), Failure> {
        let failed = match self {
            Debugger::Gdb => gdb::run(target, entry, on, limit),
            Debugger::Lldb => lldb::run(target, entry, on, limit),
        };
        let Err(failed) = failed else { return Ok(()) };
        let (pid, name) = (target.pid, self.name());
        Err(Failure(match failed {
            _ if !target.is_alive() => format!("process {pid} ended meanwhile"),
            Failed::Denied => format!(
                "process {pid}: {name} may not trace it: another debugger has it, or, in a container, the capability \
                 SYS_PTRACE is missing (docker run --cap-add SYS_PTRACE)"
            ),
            Failed::Late => format!(
                "process {pid}: no thread of it ran Python code within {} s, and it was left as it is: is it in a long \
                 call? (--timeout)",
                limit.as_secs()
            ),
            Failed::Said(text) => {
                let last = text.lines().rev().find(|line| !line.trim().is_empty());
                format!("process {pid}: {name} failed: {}", last.unwrap_or("it said nothing"))
            }
        }))
    }

    /// Returns the command that starts it, with nothing of the user's that would make it slow or another one.
    pub fn command(self) -> Command {
        let mut command = Command::new(self.name());
        command.env_remove("DEBUGINFOD_URLS").env_remove("LD_PRELOAD").env("LC_ALL", "C");
        command
    }
}

/// Returns whether it ended in time.
pub fn wait(child: &mut Child, limit: Duration) -> bool {
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(None) if began.elapsed() < limit => thread::sleep(POLL),
            Ok(None) => return false,
            _ => return true,
        }
    }
}

/// Has it end, if it has not. Killed at once, gdb would leave its breakpoint behind.
pub fn end(child: &mut Child) {
    if matches!(child.try_wait(), Ok(None)) {
        if let Some(pid) = Pid::from_raw(child.id() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
        if !wait(child, LEAVING) {
            let _ = child.kill();
        }
    }
    let _ = child.wait();
}
