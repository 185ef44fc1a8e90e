//! Steps that nobody tells of: the loop of the program whose iterations they are, found from the Python frames at its
//! memory events. Pure: knows neither CPython's memory nor the recording; frames in, ends of iterations out.
//!
//! ```text
//!  bytecode ─▶ extents: where each code object's loops are, once
//!  frames ─▶ shadow: what changed since the last event ─▶ tree: iterations of each loop ─▶ choice: which loops are steps
//! ```
//!
//! Which loop it is shows only after a while, so the ends of iterations are logged until then, and the level is chosen late:
//! when two choices agree, the second on twice the evidence of the first, when the log is full, or when it cannot wait any
//! longer (see [`Loops::settle`]). The steps that lie behind are told then, in order, each with its place among the events.
//! Once told, no step is ever renumbered: a loop that turns up later joins the level (a first evaluation), or stays out of it.

mod choice;
mod code;
mod extents;
mod opcodes;
mod shadow;
#[cfg(test)]
mod tests;
mod tree;

pub use code::CodeText;
pub use extents::Extents;

use code::Codes;
use shadow::{Shadow, View};
use tree::{Id, Tree};

/// A frame, as it is at an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its address: a later call may get the same one.
    pub frame: usize,
    /// Address of its code object.
    pub code: usize,
    /// Of the instruction, in bytes.
    pub offset: u32,
    /// Entered from C.
    pub entry: bool,
}

/// A place among the events, and the time there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub seq: u64,
    pub ns: u64,
}

/// A loop of the chosen level, by the number of its code in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub code: u32,
    pub header: u32,
    pub last: u32,
}

/// The level was chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settled {
    /// The ends of the steps so far, in order.
    pub past: Vec<Moment>,
    pub places: Vec<Place>,
}

/// What the detector asks of whoever reads the frames.
pub trait Surroundings {
    /// The place of the event at hand.
    fn moment(&mut self) -> Moment;
    /// The number of a frame's code object in the recording; 0 for none.
    fn id(&mut self, seen: &Seen) -> u32;
    /// Reads a frame's code object.
    fn read(&mut self, seen: &Seen) -> CodeText;
}

const MOST_THREADS: usize = 64;
/// Events before the level is looked at for the first time; from then on whenever they have doubled.
const FIRST_LOOK: u64 = 512;
/// Iterations of a level that is chosen without need.
const ENOUGH: u64 = 64;
/// Frames below those where the level's iterations showed that are still looked at once it is chosen.
const DEEPER: usize = 3;

/// What came of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// So many steps ended before it.
    Steps(u32),
    /// The level can be chosen now.
    Ripe,
}

/// The detector.
#[derive(Debug)]
pub struct Loops {
    tree: Tree,
    shadows: Vec<Shadow>,
    codes: Codes,
    blind: bool,
    events: u64,
    next_look: u64,
    /// What the last look would have chosen.
    favourite: Vec<Id>,
    level: Vec<Id>,
    /// The thread whose loops they are.
    thread: usize,
    /// Outermost frames that are looked at.
    depth: usize,
}

impl Loops {
    /// `blind`: frames do not say whether they were entered from C (CPython up to 3.10).
    pub fn new(blind: bool) -> Loops {
        Loops {
            tree: Tree::new(),
            shadows: Vec::with_capacity(MOST_THREADS),
            codes: Codes::new(),
            blind,
            events: 0,
            next_look: FIRST_LOOK,
            favourite: Vec::new(),
            level: Vec::new(),
            thread: 0,
            depth: usize::MAX,
        }
    }

    /// The thread whose loop was chosen.
    pub fn thread(&self) -> Option<usize> {
        self.tree.chosen.then_some(self.thread)
    }

    /// A memory event of `thread` is about to be noted. `frames`: its stack, innermost first. `epoch` moves on when an
    /// address may mean another code object than before.
    pub fn event(
        &mut self,
        thread: usize,
        frames: &[Seen],
        epoch: u64,
        around: &mut dyn Surroundings,
    ) -> Heard {
        if self.tree.chosen && thread != self.thread {
            return Heard::Steps(0);
        }
        let Some(at) = self.shadow(thread) else { return Heard::Steps(0) };
        self.events += 1;
        self.codes.at(epoch);
        let Loops { tree, shadows, codes, blind, depth, .. } = self;
        tree.ended = 0;
        shadows[at].event(&mut View { tree, codes, around, blind: *blind }, frames, *depth);
        let ended = self.tree.ended;
        if self.events >= self.next_look && self.look() {
            return Heard::Ripe;
        }
        if self.tree.is_full() { Heard::Ripe } else { Heard::Steps(ended) }
    }

    /// An optimizer stepped where this thread's last event was.
    pub fn optimizer(&mut self, thread: usize) {
        if let Some(shadow) = self.shadows.iter().find(|s| s.thread == thread)
            && let Some(node) = self.tree.get_mut(shadow.node())
        {
            node.optimizers += 1;
        }
    }

    fn shadow(&mut self, thread: usize) -> Option<usize> {
        if let Some(at) = self.shadows.iter().position(|s| s.thread == thread) {
            return Some(at);
        }
        if self.shadows.len() >= MOST_THREADS {
            return None;
        }
        let root = self.tree.root();
        self.shadows.push(Shadow::new(thread, root));
        Some(self.shadows.len() - 1)
    }

    /// Looks at the level again. True if it can be chosen.
    #[cold]
    fn look(&mut self) -> bool {
        self.next_look = self.events.saturating_mul(2);
        let level = choice::choose(&self.tree);
        if self.tree.chosen {
            self.join(&level);
            return false;
        }
        let ripe = !level.is_empty() && level == self.favourite && self.iterations(&level) >= ENOUGH;
        self.favourite = level;
        ripe
    }

    fn iterations(&self, level: &[Id]) -> u64 {
        level.iter().filter_map(|&id| self.tree.get(id)).map(tree::Node::iterations).sum()
    }

    /// Chooses the level now, if one comes round at least `least` times.
    pub fn settle(&mut self, least: u64) -> Option<Settled> {
        if self.tree.chosen {
            return None;
        }
        let level = choice::choose(&self.tree);
        if level.is_empty() || self.iterations(&level) < least {
            return None;
        }
        self.thread = self.thread_of(level[0]);
        self.join(&level);
        let mut past: Vec<Moment> = Vec::new();
        for end in std::mem::take(&mut self.tree.log) {
            let wanted = self.tree.get(end.node).is_some_and(|n| n.wanted >> end.sign as u8 & 1 == 1);
            if wanted {
                past.push(end.at);
            }
        }
        self.tree.chosen = true;
        let places = level.iter().filter_map(|&id| self.place(id)).collect();
        Some(Settled { past, places })
    }

    fn thread_of(&self, id: Id) -> usize {
        let mut at = id;
        while let Some(n) = self.tree.get(at).filter(|n| !n.is_root) {
            at = n.parent;
        }
        self.shadows.iter().find(|s| s.root == at).map_or(0, |s| s.thread)
    }

    /// These are of the level from now on, unless they lie inside or around a loop that is.
    fn join(&mut self, level: &[Id]) {
        for &id in level {
            let related = |a: Id, b: Id| self.is_inside(a, b) || self.is_inside(b, a);
            if self.level.iter().any(|&known| related(known, id)) {
                continue;
            }
            let Some(n) = self.tree.get_mut(id) else { continue };
            n.wanted = n.mask();
            self.level.push(id);
        }
        let deepest = self.level.iter().filter_map(|&id| self.tree.get(id)).map(|n| n.depth);
        self.depth = usize::from(deepest.max().unwrap_or(u16::MAX)) + DEEPER;
    }

    fn is_inside(&self, id: Id, outer: Id) -> bool {
        let mut at = id;
        while let Some(n) = self.tree.get(at) {
            if at == outer {
                return true;
            }
            at = n.parent;
        }
        false
    }

    fn place(&self, id: Id) -> Option<Place> {
        let n = self.tree.get(id)?;
        let code = self.codes.get(n.code);
        let l = code.extents.all().get(usize::from(n.number))?;
        Some(Place { code: code.id, header: l.header, last: l.last })
    }

    /// The program is ending: what is under way is over. Returns how many steps that ends, if the level is chosen.
    pub fn finish(&mut self, around: &mut dyn Surroundings) -> u32 {
        let Loops { tree, shadows, codes, blind, .. } = self;
        tree.ended = 0;
        for shadow in shadows {
            shadow.finish(&mut View { tree, codes, around, blind: *blind });
        }
        self.tree.ended
    }

    /// Code objects whose bytecode could not be understood: their loops are not seen.
    pub fn opaque(&self) -> usize {
        self.codes.opaque()
    }
}
