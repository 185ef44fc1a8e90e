//! Stacks as a page carries them: every name once, every frame once, and one tree in which a stack is the node of its
//! innermost frame, and parents are further out.

use std::collections::HashMap;

use serde::Serialize;

use super::Limits;
use leaktrace_core::symbols::{FrameKind, NamedFrame};

/// Frames of one stack, the innermost ones; bytes of one name (a C++ template may fill pages).
const FRAMES: usize = 128;
const NAME: usize = 512;

/// A frame: kind (0 Python, 1 native, 2 autograd), the user's own or not, file, line (0: not known), function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Frame(u8, u8, u32, u32, u32);

/// The names, frames and stacks of a page.
#[derive(Debug, Serialize)]
pub struct Stacks {
    names: Vec<String>,
    frames: Vec<Frame>,
    /// Of each node of the tree: its parent (`-1`: outermost) and its frame. Parents come first.
    parents: Vec<i32>,
    nodes: Vec<u32>,
    #[serde(skip)]
    name_ids: HashMap<String, u32>,
    #[serde(skip)]
    frame_ids: HashMap<Frame, u32>,
    #[serde(skip)]
    node_ids: HashMap<(i32, u32), i32>,
    #[serde(skip)]
    text: usize,
    /// Limits, beyond which a stack is reduced to the line it allocates at.
    #[serde(skip)]
    most_text: usize,
    #[serde(skip)]
    most_nodes: usize,
}

impl Stacks {
    pub fn new(limits: &Limits) -> Stacks {
        Stacks {
            names: Vec::new(),
            frames: Vec::new(),
            parents: Vec::new(),
            nodes: Vec::new(),
            name_ids: HashMap::new(),
            frame_ids: HashMap::new(),
            node_ids: HashMap::new(),
            text: 0,
            most_text: limits.text,
            most_nodes: limits.nodes,
        }
    }

    fn name(&mut self, name: &str) -> u32 {
        let name = shortened(name);
        if let Some(&id) = self.name_ids.get(&name) {
            return id;
        }
        let id = self.names.len() as u32;
        self.text += name.len();
        self.names.push(name.clone());
        self.name_ids.insert(name, id);
        id
    }

    /// Returns the number of a frame; `own`: the user's code.
    pub fn frame(&mut self, f: &NamedFrame, own: bool) -> u32 {
        let kind = match f.kind {
            FrameKind::Python => 0,
            FrameKind::Native => 1,
            FrameKind::Autograd | FrameKind::Operation => 2,
        };
        let (file, function) = (self.name(&f.file), self.name(&f.function));
        let frame = Frame(kind, own.into(), file, f.line.unwrap_or(0), function);
        let next = self.frames.len() as u32;
        let id = *self.frame_ids.entry(frame).or_insert(next);
        if id == next {
            self.frames.push(frame);
        }
        id
    }

    /// Returns the node of a stack given innermost first; `-1`: it has no frame. `at`: the frame that stands for all of it where
    /// there is no limits.
    pub fn stack(
        &mut self,
        frames: &[NamedFrame],
        at: Option<&NamedFrame>,
        own: &dyn Fn(&NamedFrame) -> bool,
    ) -> i32 {
        let full = self.text > self.most_text || self.nodes.len() > self.most_nodes;
        let one: Vec<NamedFrame>;
        let frames = if full {
            one = at.cloned().into_iter().collect();
            &one
        } else {
            &frames[..frames.len().min(FRAMES)]
        };
        let mut parent = -1;
        for f in frames.iter().rev() {
            let frame = self.frame(f, own(f));
            let next = self.nodes.len() as i32;
            let node = *self.node_ids.entry((parent, frame)).or_insert(next);
            if node == next {
                self.parents.push(parent);
                self.nodes.push(frame);
            }
            parent = node;
        }
        parent
    }
}

/// Leaves out the middle of a name that is too long.
fn shortened(name: &str) -> String {
    if name.len() <= NAME {
        return name.to_owned();
    }
    let head: String = name.chars().take(NAME / 4).collect();
    let mut tail: Vec<char> = name.chars().rev().take(NAME / 4).collect();
    tail.reverse();
    format!("{head}…{}", tail.into_iter().collect::<String>())
}
