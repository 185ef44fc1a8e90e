//! Runs a program as a child, but as if it ran in our place: it gets the signals that are sent to us, and we
//! end as it ends. The signals' senders come from signal-hook, the system calls from rustix, both without
//! `unsafe`. Knows no recording.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use rustix::io::retry_on_intr;
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitId, WaitIdOptions, getppid, kill_process, set_dumpable_behavior,
    set_parent_process_death_signal, waitid,
};
use signal_hook::consts::signal::*;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use signal_hook::low_level::{emulate_default_handler, signal_name};

use super::Failure;

/// The signals that are handed on. Left out are those that cannot be caught, that report a fault of our own,
/// and that stop a process: a terminal stops its whole foreground group, as it would without us.
const FORWARDED: [i32; 14] = [
    SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU, SIGCONT,
    SIGWINCH, SIGURG, SIGIO,
];

#[derive(clap::Args)]
pub struct Arguments {
    /// The process that has to be the parent
    parent: i32,
    /// Set a variable of the environment, or, without a value, take it out
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<OsString>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the program to its end. It is killed where this process is killed.
pub fn run(command: &Command) -> io::Result<ExitStatus> {
    // A handler would be the default action in the program; what is ignored, as under nohup, has to stay
    // ignored there.
    let ignored = ignored();
    let caught = FORWARDED.iter().filter(|&&signal| ignored & 1 << (signal - 1) == 0);
    let mut signals = SignalsInfo::<WithOrigin>::new(caught)?;
    let mut child = with_our_death(command).spawn()?;
    let program = Pid::from_child(&child);
    let running = Arc::new(Mutex::new(true));
    let still_running = Arc::clone(&running);
    thread::spawn(move || {
        for origin in &mut signals {
            let running = still_running.lock();
            if !*running {
                // While its recordings are judged, a signal is meant for us.
                let _ = emulate_default_handler(origin.signal);
                continue;
            }
            // A key of the terminal was sent to the whole foreground group, and a program that signals its
            // own group has been reached already.
            let sender = origin.process.map(|p| p.pid);
            let has_it = origin.cause == Cause::Kernel || sender == Some(program.as_raw_pid());
            if let Some(signal) = Signal::from_named_raw(origin.signal).filter(|_| !has_it) {
                let _ = kill_process(program, signal);
            }
        }
    });
    // The program stays a zombie until `wait`: no other process can have its pid while signals are handed on.
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    retry_on_intr(|| waitid(WaitId::Pid(program), ended))?;
    *running.lock() = false;
    child.wait()
}

/// Returns the command by which a program is started that ends when this process is killed: nobody else would end it.
fn with_our_death(command: &Command) -> Command {
    // This very program, also where its file was replaced meanwhile.
    let mut ours = Command::new("/proc/self/exe");
    ours.arg("supervised").arg(std::process::id().to_string());
    for (name, value) in command.get_envs() {
        let mut change = OsString::from("--env=");
        change.push(name);
        value.iter().for_each(|value| {
            change.push("=");
            change.push(value);
        });
        ours.arg(change);
    }
    // What is preloaded is for the program alone.
    ours.env_remove("LD_PRELOAD").arg("--").arg(command.get_program()).args(command.get_args());
    ours
}

/// `leaktrace supervised`: takes on the death of its parent, and becomes the program.
pub fn supervised(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let [program, rest @ ..] = &arguments.command[..] else {
        return Err(Failure("no program to run".into()));
    };
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // It may have been killed before that.
    if getppid().map(Pid::as_raw_pid) != Some(arguments.parent) {
        return Err(Failure("the parent is gone".into()));
    }
    let mut command = Command::new(program);
    command.args(rest);
    for change in &arguments.env {
        let bytes = change.as_bytes();
        match bytes.iter().position(|b| *b == b'=') {
            Some(at) => command.env(OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..])),
            None => command.env_remove(change),
        };
    }
    Err(Failure(format!("cannot run {}: {}", program.display(), command.exec())))
}

/// Returns how a program ended: `exit status 3`, `killed by SIGKILL`.
pub fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, signal) => {
            let signal = signal.unwrap_or(SIGKILL);
            let core = if status.core_dumped() { " (core dumped)" } else { "" };
            match signal_name(signal) {
                Some(name) => format!("killed by {name}{core}"),
                None => format!("killed by signal {signal}{core}"),
            }
        }
    }
}

/// Ends this process as the program ended: with its status, or by the same signal. `success`: the status if
/// it succeeded.
pub fn end_like(status: ExitStatus, success: ExitCode) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(0), _) => success,
        (Some(code), _) => ExitCode::from(code as u8),
        (None, signal) => {
            let signal = signal.unwrap_or(SIGKILL);
            // The core file to look at is the program's.
            let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
            let _ = emulate_default_handler(signal);
            // A signal that has no name here becomes a status, as in a shell.
            ExitCode::from(128 + signal as u8)
        }
    }
}

/// The signals that this process ignores, the lowest bit being signal 1.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
