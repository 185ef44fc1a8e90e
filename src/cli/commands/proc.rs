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

/// Returns a process and all its descendants.
pub fn family(pid: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
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
