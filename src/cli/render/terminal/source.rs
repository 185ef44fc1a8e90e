//! The lines of the program's own files, as they were when it ran: a file that may have changed since is not shown.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use leaktrace_core::report::Program;

/// Files larger than this are nobody's source.
const LARGEST: u64 = 8 << 20;

/// Source files, each looked at once.
pub struct Sources {
    /// Seconds since 1970.
    began: f64,
    cwd: PathBuf,
    /// `None`: none of them can be shown, for the reason in `why`.
    here: bool,
    files: HashMap<String, Option<Vec<String>>>,
    /// Files that are there and may not be those that ran.
    changed: BTreeSet<String>,
}

impl Sources {
    /// Of the files that a program's stacks name.
    pub fn of(p: &Program) -> Sources {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        // Another machine may have another file under that name.
        let here = p.began_s > 0.0 && p.host == host.trim();
        Sources {
            began: p.began_s,
            cwd: PathBuf::from(&p.cwd),
            here,
            files: HashMap::new(),
            changed: BTreeSet::new(),
        }
    }

    /// A line, without the space around it; `None` where it is not known for certain.
    pub fn line(&mut self, file: &str, line: Option<u32>) -> Option<String> {
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

    /// The files that were left out since the last question because they are newer than the recording.
    pub fn changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed)
    }

    fn read(&mut self, file: &str) -> Option<Vec<String>> {
        if !self.here || file.is_empty() || file.starts_with('<') {
            return None;
        }
        let path: PathBuf = self.cwd.join(Path::new(file));
        let meta =
            fs::metadata(&path).ok().filter(|m| m.is_file() && m.len() <= LARGEST && path.is_absolute())?;
        // The text, or the name that leads to it: a file moved here keeps its old time of change.
        let touched = |s: i64, ns: i64| s as f64 + ns as f64 / 1e9;
        if touched(meta.mtime(), meta.mtime_nsec()).max(touched(meta.ctime(), meta.ctime_nsec())) > self.began
        {
            self.changed.insert(file.to_owned());
            return None;
        }
        let text = String::from_utf8_lossy(&fs::read(&path).ok()?).into_owned();
        Some(text.lines().map(str::to_owned).collect())
    }
}
