//! The lines of the program's own files as they were when it ran: a file that may have changed since is not shown.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use leaktrace_core::report::Program;
use leaktrace_core::report::text::SourceLines;

/// The largest file that is read as source code.
const LARGEST: u64 = 8 << 20;

/// Source files, each read once.
pub struct Sources {
    /// When the recording began, in seconds since 1970.
    began_s: f64,
    cwd: PathBuf,
    /// False where another machine recorded: the files here may be others.
    here: bool,
    files: HashMap<String, Option<Vec<String>>>,
    /// Files that may not be those that ran.
    changed: BTreeSet<String>,
}

impl Sources {
    /// Shows the files that a program's stacks name.
    pub fn of(p: &Program) -> Sources {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        // Another machine may have another file under that name.
        let here = p.began_s > 0.0 && p.host == host.trim();
        Sources {
            began_s: p.began_s,
            cwd: PathBuf::from(&p.cwd),
            here,
            files: HashMap::new(),
            changed: BTreeSet::new(),
        }
    }

    /// Reads a file, if it is certain to be the one that ran.
    fn read(&mut self, file: &str) -> Option<Vec<String>> {
        if !self.here || file.is_empty() || file.starts_with('<') {
            return None;
        }
        let path: PathBuf = self.cwd.join(Path::new(file));
        let meta =
            fs::metadata(&path).ok().filter(|m| m.is_file() && m.len() <= LARGEST && path.is_absolute())?;
        // The text, or the name that leads to it: a file moved here keeps its old time of change.
        let touched = |s: i64, ns: i64| s as f64 + ns as f64 / 1e9;
        if touched(meta.mtime(), meta.mtime_nsec()).max(touched(meta.ctime(), meta.ctime_nsec()))
            > self.began_s
        {
            self.changed.insert(file.to_owned());
            return None;
        }
        let text = String::from_utf8_lossy(&fs::read(&path).ok()?).into_owned();
        Some(text.lines().map(str::to_owned).collect())
    }
}

impl SourceLines for Sources {
    fn line(&mut self, file: &str, line: Option<u32>) -> Option<String> {
        let at = line?.checked_sub(1)? as usize;
        let lines = match self.files.get(file) {
            Some(known) => known,
            None => {
                let read = self.read(file);
                self.files.entry(file.to_owned()).or_insert(read)
            }
        };
        let text = lines.as_ref()?.get(at)?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn take_changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed)
    }
}
