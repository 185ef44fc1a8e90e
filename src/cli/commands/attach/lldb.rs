//! Has lldb ask a running interpreter to run a script (see `debugger`).
//!
//! It is told one command at a time. Where no thread comes by, it has to be told to interrupt the program before it lets
//! go: ended in any other way, it leaves its breakpoint in the program, which dies of it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::debugger::{Debugger, Failed, LEAVING, end, wait};
use super::inject::On;
use super::target::{Addresses, Target};

/// How long a command may take that waits for nothing in the program: it reads each library of the program's first, and the
/// disk may be slow.
const COMMAND: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);
/// How six words are given to a function and one is returned.
const FUNCTION: &str = "(unsigned long (*)(unsigned long, unsigned long, unsigned long, unsigned long, unsigned long, unsigned long))";

/// lldb, as it runs.
struct Lldb {
    child: Child,
    commands: ChildStdin,
    lines: Receiver<String>,
    /// All that it said.
    said: String,
}

pub fn run(target: &Target, entry: &Path, on: On, limit: Duration) -> Result<(), Failed> {
    let mut lldb = Lldb::start().map_err(|e| Failed::Said(format!("it cannot be run: {e}")))?;
    let asked = lldb.ask(target, entry, on, limit);
    lldb.tell("process detach");
    lldb.tell("quit");
    wait(&mut lldb.child, LEAVING);
    end(&mut lldb.child);
    asked
}

impl Lldb {
    fn start() -> std::io::Result<Lldb> {
        let mut command = Debugger::Lldb.command();
        command.args(["--no-lldbinit", "--no-use-colors"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // What the terminal interrupts is this program, which then has it let go.
        let mut child = command.process_group(0).spawn()?;
        let missing = || std::io::Error::other("no pipe");
        let (commands, out) =
            (child.stdin.take().ok_or_else(missing)?, child.stdout.take().ok_or_else(missing)?);
        let (sender, lines) = channel();
        thread::spawn(move || {
            let mut out = BufReader::new(out).split(b'\n').map_while(Result::ok);
            out.try_for_each(|line| sender.send(String::from_utf8_lossy(&line).into_owned()))
        });
        Ok(Lldb { child, commands, lines, said: String::new() })
    }

    fn ask(&mut self, target: &Target, entry: &Path, on: On, limit: Duration) -> Result<(), Failed> {
        let Addresses { run, add_pending_call, save_thread, fetch_error, restore_error, mmap } =
            &target.python;
        for setting in
            ["target.preload-symbols false", "symbols.enable-external-lookup false", "auto-confirm true"]
        {
            self.tell(&format!("settings set {setting}"));
        }
        let interrupted = Arc::new(AtomicBool::new(false));
        let signals = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];
        let handlers = signals.map(|signal| signal_hook::flag::register(signal, Arc::clone(&interrupted)));
        self.tell(&format!("process attach --pid {}", target.pid));
        let attached =
            self.until(COMMAND, |line| line.contains("Architecture set to") || line.starts_with("error:"));
        if attached.is_none_or(|line| line.starts_with("error:")) {
            let denied = ["Operation not permitted", "ptrace", "not permitted"];
            let is_denied = denied.iter().any(|words| self.said.contains(words));
            return Err(if is_denied { Failed::Denied } else { Failed::Said(self.said.clone()) });
        }
        self.tell(&format!("breakpoint set --one-shot true --address {save_thread:#x}"));
        self.tell("process continue");
        let (began, mut stopped) = (Instant::now(), None);
        while stopped.is_none() && began.elapsed() < limit && !interrupted.load(Ordering::Relaxed) {
            stopped = self.until(POLL.min(limit), |line| {
                line.contains("stop reason = one-shot breakpoint")
                    || line.starts_with("error:")
                    || line.contains("exited with")
            });
        }
        for handler in handlers.into_iter().flatten() {
            signal_hook::low_level::unregister(handler);
        }
        let Some(line) = stopped else {
            self.tell("process interrupt");
            self.until(COMMAND, |line| line.contains("stop reason = "));
            let is_late = !interrupted.load(Ordering::Relaxed);
            return Err(if is_late { Failed::Late } else { Failed::Said("interrupted".into()) });
        };
        if !line.contains("one-shot breakpoint") {
            return Err(Failed::Said(line));
        }
        let page = self.call(*mmap, &["0", "8192", "3", "34", "(unsigned long) -1"])?;
        self.tell(&format!("memory write --infile \"{}\" {page:#x}", entry.display()));
        let at = |offset: u64| format!("{:#x}", page + offset);
        let (page, places) = (at(0), [4096, 4104, 4112].map(at));
        let asked = match on {
            On::MainThread => self.call(*add_pending_call, &[&format!("{run:#x}"), &page])?,
            // An exception may be on its way.
            On::AnyThread => {
                self.call(*fetch_error, &places.each_ref().map(String::as_str))?;
                let asked = self.call(*run, &[&page])?;
                let kept = places.each_ref().map(|place| format!("*(unsigned long *) {place}"));
                self.call(*restore_error, &kept.each_ref().map(String::as_str))?;
                asked
            }
        };
        match asked as u32 {
            0 => Ok(()),
            _ => Err(Failed::Said("the interpreter's queue of calls is full".into())),
        }
    }

    /// Calls a function of the program on the thread that has stopped, while the others stand still as far as it can do
    /// without them.
    fn call(&mut self, function: u64, arguments: &[&str]) -> Result<u64, Failed> {
        let all: Vec<&str> = arguments.iter().copied().chain(std::iter::repeat("0")).take(6).collect();
        let call = format!("({FUNCTION}{function:#x})({})", all.join(", "));
        self.tell(&format!("expression --ignore-breakpoints true --format x -- {call}"));
        let answer = self.until(COMMAND, |line| line.contains(" = 0x") || line.starts_with("error:"));
        let number =
            answer.as_deref().and_then(|line| line.rsplit_once(" = 0x")).map(|(_, number)| number.trim());
        number
            .and_then(|number| u64::from_str_radix(number, 16).ok())
            .ok_or_else(|| Failed::Said(self.said.clone()))
    }

    fn tell(&mut self, command: &str) {
        // Where it has ended, what it said tells why.
        let _ = writeln!(self.commands, "{command}");
    }

    /// Waits for such a line.
    fn until(&mut self, limit: Duration, is: impl Fn(&str) -> bool) -> Option<String> {
        let began = Instant::now();
        loop {
            let line = self.lines.recv_timeout(limit.saturating_sub(began.elapsed())).ok()?;
            self.said += &line;
            self.said.push('\n');
            if is(&line) {
                return Some(line);
            }
        }
    }
}
