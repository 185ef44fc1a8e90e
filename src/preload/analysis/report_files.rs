//! The files that reports are written to, beside the recording. Each is made under a name that nothing had, or
//! replaces the one that this process made before; whatever else stands there, or came to stand there since, is
//! left as it is. Knows no report.

use std::ffi::CString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::recording_path::numbered;
use crate::stderr::{self, quoted};

/// The names that are tried.
const MAX_NAMES: u32 = 99;

/// The files that this process made beside its recording.
#[derive(Debug, Default)]
pub struct ReportFiles(Vec<OwnFile>);

#[derive(Debug)]
struct OwnFile {
    extension: &'static str,
    path: PathBuf,
    identity: (u64, u64),
}

impl ReportFiles {
    /// Writes a file beside the recording, replacing at once the one that was written before.
    pub fn write(&mut self, recording: &Path, extension: &'static str, text: &str) -> io::Result<()> {
        let (draft, mut file) = create(&sibling_path(recording, "draft"))?;
        let placed = file.write_all(text.as_bytes()).and_then(|()| {
            let identity = identity(&file.metadata()?);
            let path = self.place(&draft, recording, extension)?;
            self.0.retain(|own| own.extension != extension);
            self.0.push(OwnFile { extension, path, identity });
            Ok(())
        });
        if placed.is_err() && is_at(&draft, identity(&file.metadata()?)) {
            let _ = fs::remove_file(&draft);
        }
        placed
    }

    /// Gives the draft the name of the file it replaces, or one that nothing has.
    fn place(&self, draft: &Path, recording: &Path, extension: &'static str) -> io::Result<PathBuf> {
        let before = self.0.iter().find(|own| own.extension == extension);
        if let Some(own) = before.filter(|own| is_at(&own.path, own.identity)) {
            fs::rename(draft, &own.path)?;
            return Ok(own.path.clone());
        }
        let wanted = sibling_path(recording, extension);
        for number in 1..=MAX_NAMES {
            let path = if number == 1 { wanted.clone() } else { numbered(&wanted, number) };
            match rename_to_free(draft, &path) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                placed => {
                    placed?;
                    if number > 1 {
                        let (wanted, name) = (quoted(&wanted), quoted(path.file_name().unwrap_or_default()));
                        stderr::say(&format!(
                            "{wanted} was not written by this run and is left as it is; the report goes to {name}"
                        ));
                    }
                    return Ok(path);
                }
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }
}

/// Creates a file of this name, or of the next one that nothing has.
fn create(wanted: &Path) -> io::Result<(PathBuf, File)> {
    let mut path = wanted.to_owned();
    for number in 2..=MAX_NAMES {
        match OpenOptions::new().write(true).create_new(true).custom_flags(libc::O_NOFOLLOW).open(&path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => path = numbered(wanted, number),
            opened => return opened.map(|file| (path, file)),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Renames a file to a name that nothing has.
fn rename_to_free(from: &Path, to: &Path) -> io::Result<()> {
    let name = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from);
    let (old, new) = (name(from)?, name(to)?);
    // SAFETY: two NUL-terminated paths. Not the C library's function, which is newer than the call.
    let renamed = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            old.as_ptr(),
            libc::AT_FDCWD,
            new.as_ptr(),
            libc::RENAME_NOREPLACE,
        )
    };
    if renamed == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // Not every file system can: a second name, which is never given to what exists, does it too.
        Some(libc::EINVAL | libc::ENOSYS | libc::EPERM) => {
            fs::hard_link(from, to)?;
            fs::remove_file(from)
        }
        _ => Err(error),
    }
}

fn identity(of: &Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

/// Returns whether this very file has that name.
fn is_at(path: &Path, file: (u64, u64)) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| identity(&there) == file)
}

/// Returns the path of another file beside a recording; never the recording's own, whatever that is called.
fn sibling_path(path: &Path, extension: &str) -> PathBuf {
    if path.extension().is_some_and(|e| e == "ltrace") {
        return path.with_extension(extension);
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}
