//! Has gdb ask a running interpreter to run a script (see `debugger`).

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use super::debugger::{Debugger, Failed, LEAVING, end, wait};
use super::inject::On;
use super::target::{Addresses, Target};

pub fn run(target: &Target, entry: &Path, on: On, limit: Duration) -> Result<(), Failed> {
    let said = |e: std::io::Error| Failed::Said(e.to_string());
    let (commands, stopped) =
        (entry.with_file_name("commands.gdb"), entry.with_file_name("commands.stopped"));
    let _ = fs::remove_file(&stopped);
    fs::write(&commands, text(&target.python, entry, &stopped, on)).map_err(said)?;
    let mut command = Debugger::Gdb.command();
    command.args(["-nx", "-nh", "-batch", "-iex", "set auto-solib-add off", "-iex", "set auto-load off"]);
    command.args(["-iex", "set libthread-db-search-path /nonexistent"]);
    command.arg("-p").arg(target.pid.to_string()).arg("-x").arg(commands);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(said)?;
    let read = |stream: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut text = Vec::new();
            stream.and_then(|mut stream| stream.read_to_end(&mut text).ok());
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = read(child.stdout.take().map(|s| Box::new(s) as Box<dyn Read + Send>));
    let err = read(child.stderr.take().map(|s| Box::new(s) as Box<dyn Read + Send>));
    // What gdb calls has to return before it lets go: without it there is nowhere to return to.
    let in_time = wait(&mut child, limit) || stopped.exists() && wait(&mut child, LEAVING);
    end(&mut child);
    let text = out.join().unwrap_or_default() + &err.join().unwrap_or_default();
    match () {
        () if text.contains("leaktrace: asked 0") => Ok(()),
        () if text.contains("Operation not permitted") || text.contains("ptrace:") => Err(Failed::Denied),
        () if !in_time => Err(Failed::Late),
        () => Err(Failed::Said(text)),
    }
}

/// How a function is called on x86-64: by hand, with the general registers alone. gdb's own calls put all registers back,
/// which those before gdb 14 cannot do on a processor with AMX. Where a function has just been entered that takes nothing,
/// nothing is in the others. A called function returns to nowhere, and there the program stops again, unless a fault of its
/// own comes first. With another stack gdb may take the caller's frame for the selected one, whose `$rip` is a word of the
/// stack, so the innermost is selected again.
#[cfg(target_arch = "x86_64")]
const CALLS: &str = "\
define keep
    set $entered = (unsigned long) $rsp
    set $at = (unsigned long) $rip
    set $rax_then = $rax
    set $rcx_then = $rcx
    set $rdx_then = $rdx
    set $rsi_then = $rsi
    set $rdi_then = $rdi
    set $r8_then = $r8
    set $r9_then = $r9
    set $r10_then = $r10
    set $r11_then = $r11
    handle SIGSEGV stop print nopass
end
define invoke
    set $top = (($entered - 1024) & ~15UL) - 8
    set *(unsigned long *) $top = 0
    set $rax = 0
    set $rdi = $a1
    set $rsi = $a2
    set $rdx = $a3
    set $rcx = $a4
    set $r8 = $a5
    set $r9 = $a6
    set $rsp = $top
    select-frame 0
    set $rip = $function
    continue
    while (unsigned long) $rip != 0
        signal SIGSEGV
    end
    set $answer = (unsigned long) $rax
end
define put_back
    set $rax = $rax_then
    set $rcx = $rcx_then
    set $rdx = $rdx_then
    set $rsi = $rsi_then
    set $rdi = $rdi_then
    set $r8 = $r8_then
    set $r9 = $r9_then
    set $r10 = $r10_then
    set $r11 = $r11_then
    set $rsp = $entered
    select-frame 0
    set $rip = $at
end
";

/// Elsewhere gdb calls.
#[cfg(not(target_arch = "x86_64"))]
const CALLS: &str = "\
define keep
end
define invoke
    set $answer = ((unsigned long (*)(unsigned long, unsigned long, unsigned long, unsigned long, unsigned long, unsigned long)) $function)($a1, $a2, $a3, $a4, $a5, $a6)
end
define put_back
end
";

/// Returns what gdb does: the script's text goes to a page of its own, and is handed to the interpreter.
fn text(python: &Addresses, entry: &Path, stopped: &Path, on: On) -> String {
    let Addresses { run, add_pending_call, save_thread, fetch_error, restore_error, mmap } = python;
    let invoke = |function: &u64, arguments: &[&str]| {
        let all = arguments.iter().copied().chain(std::iter::repeat("0")).zip(1..=6);
        let set: String = all.map(|(argument, n)| format!("set $a{n} = {argument}\n")).collect();
        format!("{set}set $function = {function:#x}\ninvoke\n")
    };
    let map = invoke(mmap, &["0", "8192", "3", "34", "-1"]);
    let ask = match on {
        On::MainThread => {
            invoke(add_pending_call, &[&format!("{run:#x}"), "$page"]) + "set $asked = (int) $answer\n"
        }
        // An exception may be on its way.
        On::AnyThread => [
            invoke(fetch_error, &["$page + 4096", "$page + 4104", "$page + 4112"]),
            invoke(run, &["$page"]),
            "set $asked = (int) $answer\nset $kept = (unsigned long *) ($page + 4096)\n".to_owned(),
            invoke(restore_error, &["$kept[0]", "$kept[1]", "$kept[2]"]),
        ]
        .concat(),
    };
    format!(
        "\
set pagination off
set confirm off
set width 0
set language c
handle all nostop noprint pass
{CALLS}tbreak *{save_thread:#x}
continue
keep
dump binary value {stopped} (char) 1
{map}set $page = $answer
restore {entry} binary $page
{ask}put_back
printf \"leaktrace: asked %d\\n\", $asked
detach
",
        entry = entry.display(),
        stopped = stopped.display()
    )
}
