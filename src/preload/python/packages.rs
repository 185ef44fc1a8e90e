//! Where Python's packages are installed, beside the usual folders: a folder on `PYTHONPATH` that
//! `pip install --target` filled, or the one that a framework was loaded from. What is installed there is what the records
//! of its distributions name; anything else in such a folder is the user's. Reads the disk, so not for hooks.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use once_cell::race::OnceBox;

use crate::loader::address;
use leaktrace_core::frameworks::{ALL, Framework};
use leaktrace_core::symbols::Ownership;

static FOUND: OnceBox<Found> = OnceBox::new();

struct Found {
    /// The installed modules and folders of modules, one path a line.
    packages: String,
    ownership: Ownership,
}

/// Looks for packages, once.
pub fn find() {
    found();
}

/// Returns what a recording keeps of them: one path a line.
pub fn list() -> &'static str {
    &found().packages
}

/// Returns whose code a file is.
pub fn ownership() -> &'static Ownership {
    &found().ownership
}

fn found() -> &'static Found {
    FOUND.get_or_init(|| {
        let path = std::env::var_os("PYTHONPATH").unwrap_or_default();
        let mut folders: BTreeSet<PathBuf> = std::env::split_paths(&path).collect();
        folders.extend(ALL.into_iter().filter_map(folder_of));
        let folders =
            folders.iter().filter(|f| f.is_absolute() && !Ownership::is_package_folder(&f.to_string_lossy()));
        let packages: Vec<String> = folders.flat_map(|folder| installed(folder)).collect();
        let packages = packages.join("\n");
        let arguments = fs::read("/proc/self/cmdline").unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments);
        let ownership = Ownership::new(&packages, arguments.split('\0'));
        Box::new(Found { packages, ownership })
    })
}

/// Returns the folder that a framework is installed in, if its libraries are loaded.
fn folder_of(framework: &Framework) -> Option<PathBuf> {
    let (library, ..) = framework.installation.exports.first()?;
    let inside = format!("/{}/{library}", framework.package());
    let path = address::path_of(|path| path.ends_with(&inside))?;
    path.strip_suffix(&inside).map(PathBuf::from)
}

/// Returns the paths of the modules that distributions have installed in a folder.
fn installed(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let records = entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "dist-info"));
    let mut names = BTreeSet::new();
    for record in records {
        // `file,hash,size`: the first part of each path is a module, or a folder of modules.
        let text = fs::read_to_string(record.join("RECORD")).unwrap_or_default();
        let files = text.lines().filter_map(|line| line.split(',').next());
        let first = files.filter_map(|file| file.split('/').next());
        names.extend(
            first
                .filter(|name| !name.is_empty() && *name != ".." && !name.ends_with(".dist-info"))
                .map(str::to_owned),
        );
    }
    names.iter().map(|name| folder.join(name).to_string_lossy().into_owned()).collect()
}
