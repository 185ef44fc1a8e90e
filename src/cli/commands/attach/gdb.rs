//! Has gdb ask a running interpreter to run a script, as it is done for CPython before 3.14.
//!
//! The program is stopped where a thread that has the GIL is about to give it up: any other thread could run any Python
//! code there, so ours may be asked for. Addresses are given as numbers, so that gdb reads no symbols, which would take it
//! long while the program stands still.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::super::Failure;
use super::inject::On;
use super::target::{Addresses, Target};
use rustix::process::{Pid, Signal, kill_process};

const POLL: Duration = Duration::from_millis(10);
/// How long gdb may take to let go of the program.
const LEAVING: Duration = Duration::from_secs(30);

pub fn run(target: &Target, entry: &Path, commands: &Path, on: On, limit: Duration) -> Result<(), Failure> {
    let fail = |why: String| Failure(format!("process {}: {why}", target.pid));
    fs::write(commands, text(&target.python, entry, on)).map_err(|e| fail(e.to_string()))?;
    let mut command = Command::new("gdb");
    command.args(["-nx", "-nh", "-batch", "-iex", "set auto-solib-add off", "-iex", "set auto-load off"]);
    command.args(["-iex", "set libthread-db-search-path /nonexistent"]);
    command.arg("-p").arg(target.pid.to_string()).arg("-x").arg(commands);
    command.env_remove("DEBUGINFOD_URLS").env_remove("LD_PRELOAD").env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| fail(format!("gdb cannot be run: {e}")))?;
    let read = |stream: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut text = Vec::new();
            stream.and_then(|mut stream| stream.read_to_end(&mut text).ok());
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = read(child.stdout.take().map(|s| Box::new(s) as Box<dyn Read + Send>));
    let err = read(child.stderr.take().map(|s| Box::new(s) as Box<dyn Read + Send>));
    let in_time = wait(&mut child, limit);
    if !in_time {
        // It takes its breakpoint out, and lets go. Killed at once, it would leave both behind.
        if let Some(pid) = Pid::from_raw(child.id() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
        if !wait(&mut child, LEAVING) {
            let _ = child.kill();
        }
    }
    let _ = child.wait();
    let text = out.join().unwrap_or_default() + &err.join().unwrap_or_default();
    if text.contains("leaktrace: asked 0") {
        return Ok(());
    }
    if !target.is_alive() {
        return Err(Failure(format!("process {} ended meanwhile", target.pid)));
    }
    if text.contains("Operation not permitted") || text.contains("ptrace:") {
        return Err(fail(
            "gdb may not trace it: another debugger has it, or, in a container, the capability SYS_PTRACE is missing \
             (docker run --cap-add SYS_PTRACE)"
                .into(),
        ));
    }
    if !in_time {
        return Err(fail(format!(
            "no thread of it ran Python code within {} s, and it was left as it is: is it in a long call? (--timeout)",
            limit.as_secs()
        )));
    }
    let last =
        text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned();
    Err(fail(format!("gdb failed: {last}")))
}

fn wait(child: &mut Child, limit: Duration) -> bool {
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(None) if began.elapsed() < limit => thread::sleep(POLL),
            Ok(None) => return false,
            _ => return true,
        }
    }
}

/// Returns what gdb does: the script's text goes to a page of its own, and is handed to the interpreter.
fn text(python: &Addresses, entry: &Path, on: On) -> String {
    let Addresses { run, add_pending_call, save_thread, fetch_error, restore_error, mmap } = python;
    let ask = match on {
        On::MainThread => format!(
            "set $asked = ((int (*)(void *, void *)) {add_pending_call:#x})((void *) {run:#x}, (void *) $page)\n"
        ),
        // An exception may be on its way.
        On::AnyThread => format!(
            "\
set $kept = $page + 4096
call ((void (*)(void *, void *, void *)) {fetch_error:#x})((void *) $kept, (void *) ($kept + 8), (void *) ($kept + 16))
set $asked = ((int (*)(void *)) {run:#x})((void *) $page)
call ((void (*)(void *, void *, void *)) {restore_error:#x})(*(void **) $kept, *(void **) ($kept + 8), *(void **) ($kept + 16))
"
        ),
    };
    format!(
        "\
set pagination off
set confirm off
set width 0
set language c
handle all nostop noprint pass
tbreak *{save_thread:#x}
continue
set $page = (unsigned long) ((void *(*)(void *, unsigned long, int, int, int, long)) {mmap:#x})((void *) 0, 8192, 3, 34, -1, 0)
restore {entry} binary $page
{ask}printf \"leaktrace: asked %d\\n\", $asked
detach
",
        entry = entry.display()
    )
}
