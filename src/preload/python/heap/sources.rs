//! The source of the program's own modules, from their files. What it says is `leaktrace_core::holders::assignments`' affair.

use std::fs;
use std::time::{Duration, SystemTime};

use crate::python::heap::Heap;
use crate::state;
use leaktrace_core::holders::GcRoot;
use leaktrace_core::holders::assignments::{Assignments, MOST_BYTES, MOST_FILES, Variable};

impl Heap<'_> {
    /// Returns whether a variable, or an attribute that it leads to, gets each of its values from nothing it had before.
    pub fn is_replaced(&mut self, of: &GcRoot, attribute: Option<&str>) -> bool {
        if self.sources.is_none() {
            let files = self.own_files();
            let read = read(&files);
            self.sources = Some((files, read));
        }
        let Some((files, sources)) = &self.sources else { return false };
        let variable = match (attribute, of) {
            (Some(name), _) => Variable::Attribute(name),
            (None, GcRoot::Global(path)) => {
                let Some((module, name)) = path.rsplit_once('.') else { return false };
                let Some((_, file)) = files.iter().find(|(known, _)| known == module) else { return false };
                Variable::Global { file, name }
            }
            (None, GcRoot::Local { function, name }) => {
                let function = function.rsplit('.').next().unwrap_or(function);
                Variable::Local { function, name }
            }
            _ => return false,
        };
        sources.are_anew(variable)
    }
}

/// Reads the files of modules. Where they are too many, or one may be another than the one that runs, nothing is known.
fn read(files: &[(String, String)]) -> Assignments {
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
            Assignments::of(files.iter().map(|(_, file)| file.as_str()).zip(texts.iter().map(String::as_str)))
        }
        false => Assignments::default(),
    }
}
