//! A recording that was read and replayed to its end, with the names of its frames. Knows no format.

use std::path::{Path, PathBuf};

use crate::native_symbols::SharedNames;
use leaktrace_core::format::event::{Event, NO_DEVICE};
use leaktrace_core::format::reader::{self, Recording};
use leaktrace_core::ledger::Ledger;
use leaktrace_core::report::wording;
use leaktrace_core::symbols::{NamedFrame, Names};

/// One recording and its ledger.
pub struct Input {
    pub path: PathBuf,
    pub recording: Recording,
    pub ledger: Ledger,
}

/// Replays events of a recording on top of its checkpoint.
pub fn replay(recording: &Recording, events: impl Iterator<Item = Event>) -> Result<Ledger, String> {
    Ledger::replay(recording.checkpoint.as_deref(), events)
        .ok_or_else(|| "holds a checkpoint of another version of leaktrace; read it with that one".to_owned())
}

impl Input {
    /// Reads and replays a recording; an error is one line.
    pub fn read(path: &Path) -> Result<Input, String> {
        let recording = reader::read(path).map_err(|e| e.to_string())?;
        let ledger = replay(&recording, recording.events())?;
        Ok(Input { path: path.to_owned(), recording, ledger })
    }

    /// Reads a recording for the facts about its process: the ledger stays empty.
    pub fn head(path: &Path) -> Result<Input, String> {
        let recording = reader::read(path).map_err(|e| e.to_string())?;
        Ok(Input { path: path.to_owned(), recording, ledger: Ledger::default() })
    }

    /// Returns a fact about the process, if it is known.
    pub fn meta(&self, key: &str) -> Option<&str> {
        self.recording.tables.meta.get(key).map(String::as_str).filter(|v| !v.is_empty())
    }

    pub fn names(&self) -> Names<'_> {
        Names::new(&self.recording.tables, Some(Box::new(SharedNames::default())))
    }

    pub fn argv(&self) -> Vec<&str> {
        self.meta("argv").map_or_else(Vec::new, |argv| argv.trim_end_matches('\0').split('\0').collect())
    }

    pub fn pid(&self) -> u32 {
        self.meta("pid").and_then(|p| p.parse().ok()).unwrap_or(self.recording.pid)
    }

    /// Names the process among others of its run: by rank, else by pid.
    pub fn process(&self) -> String {
        self.meta("rank").map_or_else(|| format!("pid {}", self.pid()), |rank| format!("rank {rank}"))
    }

    /// Returns the file name of the script that a Python runs, else of the program.
    pub fn program(&self) -> String {
        let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let argv = self.argv();
        let script = argv.iter().find(|a| a.ends_with(".py"));
        let program = script.or(argv.first()).copied().or_else(|| self.meta("exe"));
        program.map_or_else(|| "program".to_owned(), base)
    }

    /// Shortens a path for people.
    pub fn short<'p>(&self, file: &'p str) -> &'p str {
        wording::relative_path(file, self.meta("cwd").unwrap_or_default())
    }

    /// Writes a frame as `function (file:line)`.
    pub fn label(&self, frame: &NamedFrame) -> String {
        match frame.line {
            Some(line) => format!("{} ({}:{line})", frame.function, self.short(&frame.file)),
            None => frame.function.clone(),
        }
    }

    /// Returns the name of an entry point.
    pub fn call(&self, entry_point: u16) -> String {
        let name = self.recording.tables.entry_point(entry_point);
        name.cloned().unwrap_or_else(|| "no stack was taken".to_owned())
    }
}

/// Returns the number of a device; `None` for pinned host memory.
pub fn device(device: u8) -> Option<u8> {
    (device != NO_DEVICE).then_some(device)
}

/// Names a device: `device 0`, or `host`.
pub fn device_name(number: u8) -> String {
    device(number).map_or_else(|| "host".to_owned(), |n| format!("device {n}"))
}
