//! Reads ELF files: what they need from the vendor's libraries.

use crate::{Result, vendor};
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn, ElfFile};
use object::read::{Object, ObjectSection, ObjectSymbol, ReadCache};
use object::{Endianness, ReadRef};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

/// The symbols wanted of a library: name → version node, none for an unversioned import.
pub type Library = BTreeMap<String, Option<String>>;
/// SONAME → symbols.
pub type Wanted = BTreeMap<String, Library>;

type Elf<'data, R> = ElfFile<'data, FileHeader64<Endianness>, R>;

/// An import whose library is known only from the whole set of files.
struct Loose {
    symbol: String,
    needed: BTreeSet<String>,
}

pub fn wanted(paths: &[PathBuf]) -> Result<Wanted> {
    let (mut wanted, mut loose) = (Wanted::new(), Vec::new());
    for path in shared_objects(paths)? {
        with_elf(&path, |elf| {
            if vendor::looks_up(&path) {
                look_ups(elf, &mut wanted)?;
            }
            imports(elf, &mut wanted, &mut loose)
        })?;
    }
    let sonames: Vec<String> = wanted.keys().cloned().collect();
    for Loose { symbol, needed } in loose {
        let all = needed.iter().chain(&sonames).map(String::as_str);
        if let Some(soname) = vendor::owner(&symbol, all) {
            wanted.entry(soname.to_string()).or_default().entry(symbol).or_insert(None);
        }
    }
    Ok(wanted)
}

/// Returns the names that a library exports.
pub fn exports(path: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    with_elf(path, |elf| {
        let defined = elf.dynamic_symbols().filter(|symbol| symbol.is_definition());
        names.extend(defined.filter_map(|symbol| symbol.name().ok().map(str::to_string)));
        Ok(())
    })?;
    match names.is_empty() {
        true => Err(format!("{} exports nothing", path.display())),
        false => Ok(names),
    }
}

fn with_elf<T>(path: &Path, work: impl FnOnce(&Elf<'_, &ReadCache<File>>) -> object::Result<T>) -> Result<T> {
    let file = File::open(path).map_err(|e| format!("cannot open {}: {e}", path.display()))?;
    // Libraries of gigabytes: only the parts that are asked for are read.
    let cache = ReadCache::new(file);
    let elf = ElfFile::parse(&cache);
    elf.and_then(|elf| work(&elf)).map_err(|e| format!("cannot read {} as ELF: {e}", path.display()))
}

fn imports<'data, R: ReadRef<'data>>(
    elf: &Elf<'data, R>,
    wanted: &mut Wanted,
    loose: &mut Vec<Loose>,
) -> object::Result<()> {
    let needed = needed(elf)?;
    for soname in &needed {
        wanted.entry(soname.clone()).or_default();
    }
    let versions = elf.elf_section_table().versions(elf.endian(), elf.data())?;
    for symbol in elf.dynamic_symbols().filter(|symbol| symbol.is_undefined()) {
        let name = symbol.name()?.to_string();
        let version = match &versions {
            Some(table) => table.version(table.version_index(elf.endian(), symbol.index()))?,
            None => None,
        };
        match version.and_then(|version| Some((version.file()?, version.name()))) {
            Some((file, node)) => {
                let file = String::from_utf8_lossy(file).into_owned();
                if vendor::is_vendor(&file) {
                    let node = String::from_utf8_lossy(node).into_owned();
                    wanted.entry(file).or_default().insert(name, Some(node));
                }
            }
            None => loose.push(Loose { symbol: name, needed: needed.clone() }),
        }
    }
    Ok(())
}

/// Finds the names that a file looks up: among its constants, each ends with a zero byte.
fn look_ups<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>, wanted: &mut Wanted) -> object::Result<()> {
    for section in elf.sections().filter(|section| section.name() == Ok(".rodata")) {
        for text in section.data()?.split(|byte| *byte == 0).filter(|text| text.len() < 128) {
            let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            let Some(name) = std::str::from_utf8(text).ok().filter(|_| text.iter().all(is_name)) else {
                continue;
            };
            for soname in vendor::looked_up_in(name) {
                wanted.entry((*soname).to_string()).or_default().entry(name.to_string()).or_insert(None);
            }
        }
    }
    Ok(())
}

/// Returns the vendor's libraries among those that a file needs.
fn needed<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>) -> object::Result<BTreeSet<String>> {
    let (endian, data, sections) = (elf.endian(), elf.data(), elf.elf_section_table());
    let mut sonames = BTreeSet::new();
    if let Some((entries, strings)) = sections.dynamic(endian, data)? {
        let strings = sections.strings(endian, data, strings)?;
        for entry in entries.iter().filter(|entry| entry.tag32(endian) == Some(DT_NEEDED)) {
            let name = entry.val32(endian).and_then(|at| strings.get(at).ok()).unwrap_or_default();
            let soname = String::from_utf8_lossy(name).into_owned();
            if vendor::is_vendor(&soname) {
                sonames.insert(soname);
            }
        }
    }
    Ok(sonames)
}

/// The ELF files among the paths, directories searched through.
fn shared_objects(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut left: Vec<PathBuf> = paths.to_vec();
    while let Some(path) = left.pop() {
        let said = |e: std::io::Error| format!("cannot read {}: {e}", path.display());
        if path.is_dir() {
            for entry in path.read_dir().map_err(said)? {
                let entry = entry.map_err(said)?.path();
                let name = entry.file_name().unwrap_or_default().to_string_lossy();
                if (entry.is_dir() && !entry.is_symlink()) || (name.contains(".so") && is_elf(&entry)?) {
                    left.push(entry);
                }
            }
        } else if is_elf(&path)? {
            found.push(path);
        } else {
            return Err(format!("{} is no ELF file of 64 bits", path.display()));
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn is_elf(path: &Path) -> Result<bool> {
    if !path.is_file() {
        return if path.exists() { Ok(false) } else { Err(format!("{} does not exist", path.display())) };
    }
    let mut start = [0; 5];
    let mut file = File::open(path).map_err(|e| format!("cannot open {}: {e}", path.display()))?;
    let length = file.seek(std::io::SeekFrom::End(0)).unwrap_or(0);
    file.rewind().map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    Ok(length > 64 && file.read_exact(&mut start).is_ok() && start == *b"\x7fELF\x02")
}
