//! The path of the recording: the one that was asked for, unless a recording or a file of the user's would be
//! lost there.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::stderr::quoted;
use crate::writer::recording;

/// Creates the recording; under another name if a living process writes that one already, or if it is of this
/// very process, from before an `exec`.
pub fn create(path: PathBuf, began_ns: u64) -> Result<PathBuf, String> {
    let pid = std::process::id();
    let since = process_began_ns().unwrap_or(0);
    let attempt = |path: &PathBuf| {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| libc::EINVAL)?;
        recording::open(&name, pid, began_ns, since)
    };
    // The reports name it by this path, also after a chdir.
    let wanted = std::path::absolute(&path).unwrap_or(path);
    let mut path = wanted.clone();
    let mut images = 1;
    let error = loop {
        match attempt(&path) {
            Ok(()) => return Ok(path),
            Err(libc::EWOULDBLOCK) if images == 1 && path == wanted => path = tagged(&wanted, pid),
            // A program that starts itself over and over leaves so many recordings at most.
            Err(libc::EEXIST) if images < 100 => {
                images += 1;
                path = tagged(&wanted, images);
            }
            Err(error) => break error,
        }
    };
    let why = match error {
        libc::EINVAL => "it is not a plain file".into(),
        libc::ELOOP => "it is a symbolic link".into(),
        libc::EISDIR => "it is a directory".into(),
        libc::EMEDIUMTYPE => "a file that is no recording stands there".into(),
        libc::EWOULDBLOCK => "another process records into it".into(),
        error => std::io::Error::from_raw_os_error(error).to_string(),
    };
    Err(format!("cannot create {}: {why}", quoted(&path)))
}

/// Returns the path with a tag in its name: `name.ltrace` → `name.TAG.ltrace`.
fn tagged(path: &Path, tag: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{tag}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Returns when this process began, in nanoseconds since 1970; an `exec` does not change it. A little early
/// rather than late, since the kernel counts it in hundredths of a second. `None` without `/proc`.
fn process_began_ns() -> Option<u64> {
    let status = std::fs::read("/proc/self/stat").ok()?;
    // The name in parentheses may hold anything; the 22nd field is the 20th behind it.
    let behind = &status[status.iter().rposition(|b| *b == b')')? + 1..];
    let ticks: u64 = std::str::from_utf8(behind).ok()?.split_whitespace().nth(19)?.parse().ok()?;
    let mut up = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `up` has room for one timespec; the other call takes a number.
    let per_second = unsafe {
        libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut up);
        u64::try_from(libc::sysconf(libc::_SC_CLK_TCK)).ok().filter(|n| *n > 0)?
    };
    let up = Duration::new(up.tv_sec as u64, up.tv_nsec as u32);
    let age = up.saturating_sub(Duration::from_millis(ticks * 1000 / per_second)) + Duration::from_millis(20);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(now.saturating_sub(age).as_nanos() as u64)
}
