//! The path of the recording: the one that was asked for, or the next one that nothing has. What stands anywhere
//! is left as it is.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::stderr::{self, quoted};
use crate::writer::recording;
use leaktrace_core::format::file_layout::MAGIC;

/// The names that are tried: a program that starts itself over and over leaves so many recordings at most.
const MAX_NAMES: u32 = 9999;

/// Creates the recording; under the next free name if a file has the one that was asked for. Folders that it is
/// to lie in are made.
pub fn create(path: PathBuf, began_ns: u64) -> Result<PathBuf, String> {
    let pid = std::process::id();
    let attempt = |path: &Path| {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| libc::EINVAL)?;
        recording::open(&name, pid, began_ns)
    };
    // The reports name it by this path, also after a chdir.
    let wanted = std::path::absolute(&path).unwrap_or(path);
    let mut path = wanted.clone();
    let mut created = attempt(&path);
    if created == Err(libc::ENOENT)
        && let Some(folder) = path.parent()
    {
        created = match fs::create_dir_all(folder) {
            Ok(()) => attempt(&path),
            Err(error) => Err(error.raw_os_error().unwrap_or(libc::ENOENT)),
        };
    }
    let mut names = 1;
    while created == Err(libc::EEXIST) && names < MAX_NAMES {
        names += 1;
        path = numbered(&wanted, names);
        // What has a later name is nobody's wish: whatever it is, it is passed over.
        created = attempt(&path).map_err(|error| match error {
            libc::EINVAL | libc::EISDIR | libc::ELOOP => libc::EEXIST,
            error => error,
        });
    }
    if let Err(error) = created {
        let why = match error {
            libc::EINVAL => "it is not a plain file".into(),
            libc::ELOOP => "it is a symbolic link".into(),
            libc::EISDIR => "it is a directory".into(),
            error => std::io::Error::from_raw_os_error(error).to_string(),
        };
        return Err(format!("cannot create {}: {why}", quoted(&path)));
    }
    // Of recordings there may be as many as there are processes; the summary names each.
    if names > 1 && !is_recording(&wanted) {
        let (wanted, path) = (quoted(&wanted), quoted(path.file_name().unwrap_or_default()));
        stderr::say(&format!("{wanted} is not a recording and is left as it is; recording to {path}"));
    }
    Ok(path)
}

/// Returns the path with a number in its name: `name.ltrace` → `name-2.ltrace`.
pub fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Returns whether a plain file begins as a recording, or was never begun: killed in that moment.
fn is_recording(path: &Path) -> bool {
    if !fs::symlink_metadata(path).is_ok_and(|m| m.is_file()) {
        return false;
    }
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut head = Vec::new();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    opened.is_ok_and(|file| file.take(MAGIC.len() as u64).read_to_end(&mut head).is_ok()) && head == MAGIC
}
