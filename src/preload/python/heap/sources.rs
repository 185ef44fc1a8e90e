//! The source of the program's own modules, from their files. What it says is `leaktrace_core::holders::assignments`' affair.

use std::fs;
use std::time::{Duration, SystemTime};

use crate::python::heap::Heap;
use crate::state;
use leaktrace_core::holders::assignments::{Assignments, MOST_BYTES, MOST_FILES};

impl Heap<'_> {
    /// Returns what the program's own modules assign. They are read once in a search.
    pub fn read_assignments(&mut self) -> &Assignments {
        if self.assignments.is_none() {
            let read = read(&self.own_files(), |all| Assignments::of(all));
            self.assignments = Some(read);
        }
        self.assignments.get_or_insert_default()
    }
}

impl Heap<'_> {
    /// Returns the lengths that these keep collections at.
    pub fn read_limits(&mut self) -> &Assignments {
        if self.limits.is_none() {
            let read = read(&self.own_files(), |all| Assignments::limits_in(all));
            self.limits = Some(read);
        }
        self.limits.get_or_insert_default()
    }
}

/// Reads the files of modules. Where they are too many, or one may be another than the one that runs, nothing is known.
fn read(
    files: &[(String, String)],
    of: impl for<'a> FnOnce(Vec<(&'a str, &'a str)>) -> Assignments,
) -> Assignments {
    let began = SystemTime::now().checked_sub(Duration::from_nanos(state::elapsed()));
    let is_unchanged = |time: SystemTime| began.is_some_and(|began| time <= began);
    let texts = files.iter().map(|(_, file)| {
        let meta = fs::metadata(file).ok().filter(|meta| meta.is_file() && meta.len() <= MOST_BYTES)?;
        meta.modified().ok().filter(|&time| is_unchanged(time))?;
        fs::read_to_string(file).ok()
    });
    let Some(texts) = texts.collect::<Option<Vec<String>>>().filter(|_| files.len() <= MOST_FILES) else {
        return Assignments::default();
    };
    let bytes: u64 = texts.iter().map(|text| text.len() as u64).sum();
    match bytes <= MOST_BYTES {
        true => {
            of(files.iter().map(|(name, _)| name.as_str()).zip(texts.iter().map(String::as_str)).collect())
        }
        false => Assignments::default(),
    }
}
