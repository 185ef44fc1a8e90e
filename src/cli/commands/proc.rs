//! What `/proc` says of processes. Knows no recording.

use std::collections::BTreeMap;
use std::fs;

/// Clock ticks per second in `/proc`: `USER_HZ`, 100 on every Linux this runs on.
const TICKS: u64 = 100;

/// Returns when a process started, in seconds since 1970; `None` if there is none, or if it is dead and not
/// reaped yet.
pub fn started(pid: u32) -> Option<u64> {
    let stat = stat(pid)?;
    let mut fields = stat.split_whitespace();
    let alive = !matches!(fields.next()?, "Z" | "X");
    let since_boot: u64 = fields.nth(18)?.parse().ok()?;
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot: u64 = system.lines().find_map(|l| l.strip_prefix("btime "))?.trim().parse().ok()?;
    alive.then_some(boot + since_boot / TICKS)
}

/// Returns when a process started, in the kernel's ticks since the machine did; `None` if there is none, or if it is dead.
pub fn ticks(pid: u32) -> Option<u64> {
    let stat = stat(pid)?;
    let mut fields = stat.split_whitespace();
    let alive = !matches!(fields.next()?, "Z" | "X");
    fields.nth(18)?.parse().ok().filter(|_| alive)
}

/// Returns whether a process is alive that started at this tick of the kernel's clock, and has this number
/// where it lives, be that a container.
pub fn is_alive(pid: u32, started: u64) -> bool {
    let started_then = |pid: u32| {
        let stat = stat(pid)?;
        let mut fields = stat.split_whitespace();
        let alive = !matches!(fields.next()?, "Z" | "X");
        Some(alive && fields.nth(18)?.parse() == Ok(started))
    };
    let is_called_so = |outside: u32| {
        let status = fs::read_to_string(format!("/proc/{outside}/status")).ok()?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        Some(numbers.split_whitespace().next_back()?.parse() == Ok(pid))
    };
    let fits =
        |outside| started_then(outside) == Some(true) && is_called_so(outside).unwrap_or(outside == pid);
    fits(pid) || processes().any(fits)
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns a process and all its descendants.
pub fn family(pid: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for child in processes() {
        let parent = stat(child).and_then(|stat| stat.split_whitespace().nth(1)?.parse().ok());
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(child);
        }
    }
    let (mut all, mut at) = (vec![pid], 0);
    while let Some(&next) = all.get(at) {
        all.extend(children.remove(&next).unwrap_or_default());
        at += 1;
    }
    all
}

/// Reads the fields of `/proc/PID/stat` from the state on: the name before it, in parentheses, may hold
/// anything.
fn stat(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')').map(|(_, fields)| fields.to_owned())
}
