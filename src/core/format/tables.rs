//! The tables as the reader holds them: every entry by its id. What the program named is escaped here, at the
//! one place through which it comes to every report and export.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::backfilled::BackfillRounds;
use super::corrections::Corrections;
use super::entry::{Frame, LineTable, Retention, Site, TableEntry};
use super::printable::{printable, printable_but};
use crate::frameworks;
use crate::int_map::IntMap;

/// The keys of what is said of a recording that began in a running process, and of one that ended in one.
pub const ATTACHED: &str = "attached";
pub const DETACHED: &str = "detached";

/// Frames of a stack that are read; the writer writes fewer.
const MAX_FRAMES: usize = 2048;
/// Bytes of a file's or a function's name that are read; the writer writes no more.
const MAX_NAME: usize = 4096;
/// Mixed stacks kept of one Python stack.
pub const MAX_NATIVE_SAMPLES: usize = 4;

/// A Python code object.
#[derive(Clone, Debug)]
pub struct Code {
    /// One for all code of the file.
    pub file: Arc<str>,
    pub name: String,
    pub first_line: i32,
    pub encoding: LineTable,
    pub lines: Vec<u8>,
}

/// A mapped object file.
#[derive(Clone, Debug)]
pub struct Module {
    pub start: u64,
    pub end: u64,
    pub bias: u64,
    pub build_id: Vec<u8>,
    pub path: String,
}

/// A call stack; both lists innermost first.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    pub python: Vec<Frame>,
    pub native: Vec<Frame>,
}

/// All stacks, packed as they were written: most are never asked for, and a long run has very many.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    frames: Vec<u64>,
    of: IntMap<u32, Packed>,
}

/// Where a stack's frames lie, and how many of them are Python's.
#[derive(Clone, Copy, Debug)]
struct Packed {
    first: u32,
    python: u16,
    count: u16,
}

impl Stacks {
    /// Returns a stack by its id.
    pub fn get(&self, id: u32) -> Option<Stack> {
        let &Packed { first, python, count } = self.of.get(&id)?;
        let frames = self.frames.get(first as usize..)?.get(..usize::from(count))?;
        let (python, native) = frames.split_at_checked(usize::from(python))?;
        let unpack = |frames: &[u64]| frames.iter().map(|&word| Frame::unpack(word)).collect();
        Some(Stack { python: unpack(python), native: unpack(native) })
    }

    fn insert(&mut self, id: u32, python: u32, frames: &[u8]) {
        let Ok(first) = u32::try_from(self.frames.len()) else { return };
        let words = frames.chunks_exact(8).take(MAX_FRAMES);
        self.frames
            .extend(words.map(|b| u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])));
        let count = (self.frames.len() - first as usize) as u16;
        let python = u16::try_from(python).map_or(count, |python| python.min(count));
        self.of.insert(id, Packed { first, python, count });
    }
}

/// A node of an autograd graph.
#[derive(Clone, Debug)]
pub struct Backward {
    /// The mangled name of its type.
    pub node: String,
    /// The stack of the forward operation that made it; 0: not known.
    pub forward: u32,
}

/// A device as the driver names it.
#[derive(Clone, Debug)]
pub struct Device {
    pub name: String,
    pub total_bytes: u64,
}

/// A holder of blocks of a site.
#[derive(Clone, Debug)]
pub struct Holder {
    pub path: String,
    /// The bytes of `path` that name the holder alone.
    pub name_len: usize,
    pub retention: Retention,
    pub step: u32,
    pub blocks: u64,
    pub bytes: u64,
}

/// All tables of one recording.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    pub meta: BTreeMap<String, String>,
    entry_points: HashMap<u16, String>,
    pub codes: HashMap<u32, Code>,
    files: HashSet<Arc<str>>,
    pub modules: HashMap<u32, Module>,
    pub stacks: Stacks,
    pub labels: HashMap<u32, String>,
    pub notes: Vec<String>,
    noted: HashSet<String>,
    pub devices: BTreeMap<u8, Device>,
    pub backward: HashMap<u32, Backward>,
    /// The holders of a site's blocks by the latest search, and the number of that search.
    pub holders: HashMap<Site, (u32, Vec<Holder>)>,
    /// Why no holder is known of a site's blocks though they were searched for, and the step of that search.
    pub unheld: HashMap<Site, (u32, String)>,
    /// Of stacks of Python frames alone, the mixed stacks that were seen.
    pub native_samples: HashMap<u32, Vec<u32>>,
    pub backfilled: BackfillRounds,
}

/// The key of what is known of the interpreter's cyclic garbage collection, and its value where that is switched off.
pub const COLLECTOR: &str = "collector";
pub const COLLECTOR_OFF: &str = "off";

impl Tables {
    /// Returns the name of an entry point, or of the allocator whose blocks bear such a number; `None` of 0.
    pub fn entry_point(&self, number: u16) -> Option<&String> {
        self.entry_points.get(&frameworks::named(number)).filter(|_| number != 0)
    }

    /// Returns what turned out later of the boundaries among the events.
    pub fn corrections(&self) -> Corrections {
        Corrections::of(|key| self.meta.get(key).map(String::as_str))
    }

    /// Returns the name of a file of code, as it is shown.
    fn file(&mut self, name: &str) -> Arc<str> {
        let name = printable(short(name));
        if let Some(known) = self.files.get(name.as_ref()) {
            return Arc::clone(known);
        }
        let file = Arc::from(name);
        self.files.insert(Arc::clone(&file));
        file
    }

    /// Takes in one entry; a later entry of the same number replaces the earlier.
    pub fn add(&mut self, entry: TableEntry<'_>) {
        match entry {
            TableEntry::Meta { key, value } => {
                // Lists are separated by these.
                let kept: &[char] = match key {
                    "argv" => &['\0'],
                    "exe" | "cwd" | "host" | "rank" | "python" => &[],
                    _ => &['\0', '\n', '\t'],
                };
                self.meta.insert(key.into(), printable_but(value, kept).into());
            }
            TableEntry::Symbol { id, name } => {
                self.entry_points.insert(id, name_of(name));
            }
            TableEntry::Code { id, file, name, first_line, encoding, lines } => {
                let file = self.file(file);
                let code = Code { file, name: name_of(name), first_line, encoding, lines: lines.into() };
                self.codes.insert(id, code);
            }
            TableEntry::Module { id, start, end, bias, build_id, path } => {
                let module = Module { start, end, bias, build_id: build_id.into(), path: name_of(path) };
                self.modules.insert(id, module);
            }
            TableEntry::Stack { id, python, frames } => {
                self.stacks.insert(id, python, frames);
            }
            TableEntry::Label { id, text } => {
                self.labels.insert(id, printable(text).into());
            }
            TableEntry::Note { text } => {
                let text = printable(text);
                if self.noted.insert(text.clone().into()) {
                    self.notes.push(text.into());
                }
            }
            TableEntry::Device { index, name, total_bytes } => {
                self.devices.insert(index, Device { name: name_of(name), total_bytes });
            }
            TableEntry::Backward { id, node, forward } => {
                self.backward.insert(id, Backward { node: name_of(node), forward });
            }
            TableEntry::Unheld { site, step, why } => {
                self.unheld.insert(site, (step, printable(why).into()));
            }
            TableEntry::Holder { site, search, step, blocks, bytes, name_len, retention, path } => {
                let (newest, holders) = self.holders.entry(site).or_default();
                if search > *newest {
                    holders.clear();
                    *newest = search;
                }
                if search == *newest {
                    let name = path.get(..name_len as usize).map_or(0, |name| printable(name).len());
                    holders.push(Holder {
                        path: printable(path).into(),
                        name_len: name,
                        retention,
                        step,
                        blocks,
                        bytes,
                    });
                }
            }
            TableEntry::NativeSample { stack, mixed } => {
                let of = self.native_samples.entry(stack).or_default();
                if of.len() < MAX_NATIVE_SAMPLES && !of.contains(&mixed) {
                    of.push(mixed);
                }
            }
            TableEntry::Backfilled { round, last, ends } => self.backfilled.add(round, last, ends),
        }
    }
}

/// Returns a name as it is shown.
fn name_of(name: &str) -> String {
    printable(short(name)).into()
}

/// Cuts a name to the longest that is read: a few bytes of a damaged recording must not fill the memory,
/// frame after frame.
fn short(name: &str) -> &str {
    let end = (0..=name.len().min(MAX_NAME)).rev().find(|&at| name.is_char_boundary(at));
    end.map_or("", |end| &name[..end])
}
