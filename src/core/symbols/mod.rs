//! Post-mortem symbolization: turns a stack of numbers into frames with file, line and function.
//!
//! Python names come from the recording itself. Native names need the files on disk and a [`Symboliser`]; without one
//! (in the traced process, where no symbol is ever looked up) a native frame is its module and offset. Knows nothing of
//! allocations or findings.

mod frame_filter;
pub mod lines;
mod ownership;

pub use frame_filter::{hidden, plain};
pub use ownership::Ownership;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use serde::Serialize;

use crate::format::entry::{Frame, OPERATION};
use crate::format::tables::{Module, Stack, Tables};

/// What kind of code a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum FrameKind {
    Python,
    Native,
    /// A node of an autograd graph: frames before it ran in its backward pass, frames behind it created it.
    Autograd,
    /// An operation of a compiled function: frames behind it called the function.
    Operation,
}

/// A frame with its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NamedFrame {
    pub kind: FrameKind,
    /// The source file where it is known, else the object file.
    pub file: String,
    pub line: Option<u32>,
    pub function: String,
    /// The object file of a native frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
}

impl NamedFrame {
    /// Returns whether the function has a name: not an address, nor an offset in a module.
    pub fn has_symbol(&self) -> bool {
        let name = self.function.as_str();
        let base = self.module.as_deref().map(|m| m.rsplit('/').next().unwrap_or(m));
        let offset = name.rsplit_once("+0x").map(|(module, _)| module);
        self.kind != FrameKind::Native
            || !(name == TRUNCATED
                || name.starts_with("0x")
                || offset.is_some_and(|o| base == Some(o) || o == UNKNOWN_MODULE))
    }
}

/// Stands for the outer frames of a stack that could not be followed.
const TRUNCATED: &str = "<the stack goes on>";
const UNKNOWN_MODULE: &str = "<unknown module>";

/// A function at an address, as a symboliser names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    pub file: Option<String>,
    pub line: Option<u32>,
}

/// Looks up native functions in object files on disk.
pub trait Symboliser {
    /// Returns, for each address (as in the module's own symbol tables), the functions there, inlined ones first; none
    /// where they are not known for certain.
    fn functions(&mut self, module: &Module, addresses: &[u64]) -> Vec<Vec<Function>>;
}

/// A module and an offset in it.
type CodeAddress = (u32, u32);

/// Resolves the stacks of one recording.
pub struct Names<'a> {
    tables: &'a Tables,
    symboliser: Option<RefCell<Box<dyn Symboliser>>>,
    functions: RefCell<HashMap<CodeAddress, Rc<[Function]>>>,
    ownership: Ownership,
    all_frames: bool,
}

impl<'a> Names<'a> {
    /// Takes names from `tables`, and native ones from a symboliser if there is one.
    pub fn new(tables: &'a Tables, symboliser: Option<Box<dyn Symboliser>>) -> Names<'a> {
        let meta = |key: &str| tables.meta.get(key).map_or("", String::as_str);
        Names {
            tables,
            ownership: Ownership::new(meta("python_packages"), meta("argv").split('\0')),
            symboliser: symboliser.map(RefCell::new),
            functions: RefCell::default(),
            all_frames: false,
        }
    }

    /// Keeps every frame, also those that a reader is better off without.
    pub fn with_all_frames(self, all_frames: bool) -> Names<'a> {
        Names { all_frames, ..self }
    }

    /// Returns whether every frame is kept.
    pub fn shows_all(&self) -> bool {
        self.all_frames
    }

    /// Returns the frames of a stack by its id, innermost first; empty for an unknown id.
    pub fn frames(&self, stack: u32) -> Vec<NamedFrame> {
        self.tables.stacks.get(stack).map_or_else(Vec::new, |s| self.resolve(&s))
    }

    /// Returns, of a stack known by its Python frames alone, examples with native frames, one for each call path to the
    /// allocator that was seen. Empty where native frames would have no names.
    pub fn examples(&self, stack: u32) -> Vec<Vec<NamedFrame>> {
        let examples = self.tables.native_samples.get(&stack).filter(|_| self.symboliser.is_some());
        examples.map_or_else(Vec::new, |whole| whole.iter().map(|&id| self.frames(id)).collect())
    }

    /// Returns the innermost frame in the user's own code; where there is none, the innermost that is not a framework's.
    pub fn allocated_at<'f>(&self, frames: &'f [NamedFrame]) -> Option<&'f NamedFrame> {
        self.ownership.allocated_at(frames)
    }

    /// Returns the innermost frame of a package other than torch that the user's own code called.
    pub fn library_at<'f>(&self, frames: &'f [NamedFrame]) -> Option<&'f NamedFrame> {
        self.ownership.library_at(frames)
    }

    /// Returns whether a frame is the user's own code.
    pub fn is_own(&self, frame: &NamedFrame) -> bool {
        self.ownership.is_own(frame)
    }

    /// Resolves the frames of a stack, innermost first.
    pub fn resolve(&self, stack: &Stack) -> Vec<NamedFrame> {
        let (native, node) = split_backward(stack);
        self.look_up(native);
        let merged = || {
            if native.is_empty() || stack.python.is_empty() {
                None
            } else {
                self.merged(&stack.python, native)
            }
        };
        let mut frames =
            merged().unwrap_or_else(|| self.python(&stack.python).chain(self.native(native)).collect());
        if let Some(node) = node.and_then(|id| self.tables.backward.get(&id)) {
            frames.push(match node.node.strip_prefix(OPERATION) {
                Some(name) => nameless(FrameKind::Operation, name.to_owned()),
                None => nameless(FrameKind::Autograd, innermost_name(&node.node)),
            });
            frames.extend(self.forward(node.forward));
        }
        frames
    }

    /// Returns the frames of the forward operation in whose backward pass a stack was taken; empty if it was in none, or
    /// that is not known.
    pub fn forward_of(&self, stack: u32) -> Vec<NamedFrame> {
        let node = self.tables.stacks.get(stack).and_then(|s| split_backward(&s).1);
        let node = node.and_then(|id| self.tables.backward.get(&id));
        let node = node.filter(|node| !node.node.starts_with(OPERATION));
        node.map_or_else(Vec::new, |node| self.forward(node.forward))
    }

    /// Returns the frames of a forward stack, which are all Python frames.
    fn forward(&self, stack: u32) -> Vec<NamedFrame> {
        self.tables.stacks.get(stack).map_or_else(Vec::new, |s| self.python(&s.python).collect())
    }

    /// Merges both lists: each native frame of the interpreter's loop stands for Python frames, innermost first, up to and
    /// including one that was entered from C. `None` if the lists do not fit together.
    fn merged(&self, mut python: &[Frame], native: &[Frame]) -> Option<Vec<NamedFrame>> {
        let mut merged = Vec::with_capacity(python.len() + native.len());
        let mut paired = false;
        for frame in native {
            if !self.is_interpreter(frame) {
                merged.extend(self.native(std::slice::from_ref(frame)));
                continue;
            }
            paired = true;
            let entered = |f: &Frame| !matches!(f, Frame::Python { entry: false, .. });
            let upto = python.iter().position(entered)? + 1;
            let (run, rest) = python.split_at(upto);
            merged.extend(self.python(run));
            python = rest;
        }
        // A native stack that was cut off ends before the Python one does.
        let cut = native.last() == Some(&Frame::Truncated);
        merged.extend(self.python(python));
        (paired && (python.is_empty() || cut)).then_some(merged)
    }

    fn is_interpreter(&self, frame: &Frame) -> bool {
        let Frame::Native { module, offset } = *frame else { return false };
        let functions = self.functions.borrow();
        // The outermost of the inlined ones is the function that has the stack frame.
        let name = functions.get(&(module, offset)).and_then(|f| f.last()).map_or("", |f| f.name.as_str());
        name.starts_with("_PyEval_EvalFrameDefault") || name.starts_with("_TAIL_CALL_")
    }

    /// Returns the line of an instruction of a Python function; `None` where it has none of its own.
    pub fn line_of(&self, code: u32, offset: u32) -> Option<u32> {
        let c = self.tables.codes.get(&code)?;
        lines::line(c.encoding, c.first_line, &c.lines, offset)
    }

    fn python<'f>(&'f self, frames: &'f [Frame]) -> impl Iterator<Item = NamedFrame> + 'f {
        frames.iter().map(|frame| match *frame {
            Frame::Python { code, offset, .. } => match self.tables.codes.get(&code) {
                Some(c) => NamedFrame {
                    kind: FrameKind::Python,
                    file: c.file.as_ref().into(),
                    line: self
                        .line_of(code, offset)
                        .or_else(|| u32::try_from(c.first_line).ok().filter(|&l| l > 0)),
                    function: c.name.clone(),
                    module: None,
                },
                None => nameless(FrameKind::Python, format!("<code {code}>")),
            },
            _ => nameless(FrameKind::Python, TRUNCATED.to_owned()),
        })
    }

    fn native<'f>(&'f self, frames: &'f [Frame]) -> impl Iterator<Item = NamedFrame> + 'f {
        frames.iter().flat_map(|frame| match *frame {
            Frame::Native { module, offset } => self.functions_at(module, offset),
            Frame::Address(address) => vec![nameless(FrameKind::Native, format!("{address:#x}"))],
            _ => vec![nameless(FrameKind::Native, TRUNCATED.to_owned())],
        })
    }

    fn functions_at(&self, module: u32, offset: u32) -> Vec<NamedFrame> {
        let path = self.tables.modules.get(&module).map_or("", |m| m.path.as_str());
        let base = path.rsplit('/').next().filter(|b| !b.is_empty()).unwrap_or(UNKNOWN_MODULE);
        let module_path = (!path.is_empty()).then(|| path.to_owned());
        let functions = self.functions.borrow();
        match functions.get(&(module, offset)).filter(|f| !f.is_empty()) {
            Some(functions) => functions
                .iter()
                .map(|f| NamedFrame {
                    kind: FrameKind::Native,
                    file: f.file.clone().unwrap_or_else(|| path.to_owned()),
                    line: f.line.filter(|_| f.file.is_some()),
                    function: f.name.clone(),
                    module: module_path.clone(),
                })
                .collect(),
            None => vec![NamedFrame {
                kind: FrameKind::Native,
                file: path.to_owned(),
                line: None,
                function: format!("{base}+{offset:#x}"),
                module: module_path,
            }],
        }
    }

    /// Asks the symboliser for functions that are not known yet, one call per module.
    fn look_up(&self, frames: &[Frame]) {
        let Some(symboliser) = &self.symboliser else { return };
        let mut known = self.functions.borrow_mut();
        let mut missing: HashMap<u32, Vec<u32>> = HashMap::new();
        for frame in frames {
            if let Frame::Native { module, offset } = *frame
                && !known.contains_key(&(module, offset))
            {
                known.insert((module, offset), Rc::new([]));
                missing.entry(module).or_default().push(offset);
            }
        }
        for (id, offsets) in missing {
            let Some(module) = self.tables.modules.get(&id) else { continue };
            // A return address stands behind the call; the call is what is looked for.
            let addresses: Vec<u64> = offsets.iter().map(|&o| u64::from(o).saturating_sub(1)).collect();
            let found = symboliser.borrow_mut().functions(module, &addresses);
            for (offset, functions) in offsets.into_iter().zip(found) {
                known.insert((id, offset), functions.into());
            }
        }
    }
}

/// Splits a stack's native frames from the backward node behind them.
fn split_backward(stack: &Stack) -> (&[Frame], Option<u32>) {
    match stack.native.split_last() {
        Some((Frame::Backward(id), native)) => (native, Some(*id)),
        _ => (&stack.native, None),
    }
}

/// Returns the last part of a mangled nested name: `N5torch8autograd9generated12MulBackward0E` → `MulBackward0`.
fn innermost_name(mangled: &str) -> String {
    let mut rest = mangled.strip_prefix('N').unwrap_or(mangled);
    let mut last = None;
    loop {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let length = rest.get(..digits).and_then(|d| d.parse::<usize>().ok()).unwrap_or(0);
        let Some(name) = rest.get(digits..digits.saturating_add(length)).filter(|n| !n.is_empty()) else {
            break;
        };
        last = Some(name);
        rest = &rest[digits + length..];
    }
    last.unwrap_or(mangled).to_owned()
}

fn nameless(kind: FrameKind, function: String) -> NamedFrame {
    NamedFrame { kind, file: String::new(), line: None, function, module: None }
}

#[cfg(test)]
mod tests;
