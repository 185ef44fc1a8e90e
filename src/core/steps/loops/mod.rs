//! The loop detector: finds the loop of a program whose iterations are its steps, from the Python frames at
//! its memory events and where it gives the device work. [`Loops`] is all of its interface. Pure: it knows
//! neither CPython's memory nor the recording; frames in, ends of iterations out.
//!
//! ```text
//!  bytecode ─▶ extents: where each code object's loops are, once
//!  frames ─▶ shadow: what changed since the last event ─▶ tree: iterations of each loop ─▶ choice: which loops are steps
//! ```
//!
//! Which loop it is shows only after a while, so the ends of iterations are logged until then, and the level
//! is chosen late: when choices agree, the last on twice the evidence of the first, when the log is full, or
//! when it cannot wait any longer (see [`Loops::choose`]). The steps that lie behind are returned then, in
//! order, each with its place among the events. What would be chosen can be asked before ([`Loops::draft`]).
//! Once returned, no step is ever renumbered: a loop that turns up later joins the level (a first
//! evaluation), or stays out of it ([`Loops::joined`]). It is returned when events are drained, once it has
//! shown itself.
//!
//! Where optimizers end the steps, the level is that of the loops *between* them in which none steps:
//! evaluations, encoders that run first, rollouts. They join in the same way.

mod choice;
mod code;
mod draft;
mod extents;
mod level;
mod opcodes;
mod repeat;
mod shadow;
#[cfg(test)]
mod tests;
mod threads;
mod tree;

pub use choice::Unused;
pub use code::CodeText;
pub use extents::Extents;

use crate::format::backfilled::BackfilledBoundary;
use code::Codes;
use draft::Draft;
use shadow::{Shadow, View};
pub use shadow::{Shown, What};
use tree::{Id, Node, Tree};
pub use tree::{OF_A_TRAINING, STEPS_BETWEEN, Stepped};

/// A frame, as it is at an event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// The frame's address, which a later call may get too.
    pub frame: usize,
    /// The address of its code object.
    pub code: usize,
    /// The offset of its instruction, in bytes.
    pub offset: u32,
    /// Whether it was entered from C.
    pub entry: bool,
    /// The word by which its reader knows instruction and entry. It says no more than these.
    pub key: u64,
}

impl PartialEq for Seen {
    fn eq(&self, other: &Seen) -> bool {
        (self.frame, self.code, self.offset, self.entry)
            == (other.frame, other.code, other.offset, other.entry)
    }
}

/// A moment among the events: the number of the next one, and the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub seq: u64,
    pub ns: u64,
}

/// A loop of the chosen level, by the number of its code in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopLocation {
    pub code: u32,
    pub header: u32,
    pub last: u32,
}

/// The level that was chosen, or would be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// The ends of its iterations so far, and of those of the loops around them, in order.
    pub past: Vec<BackfilledBoundary>,
    /// The loops: their depth, whether they are of the level, and where they are.
    pub locations: Vec<(u8, bool, LoopLocation)>,
}

/// The event that the detector is shown, as far as it has to ask whoever reads the frames.
pub trait EventContext {
    /// Returns the moment of the event.
    fn moment(&mut self) -> Moment;
    /// Returns the number of a frame's code object in the recording; 0 for none.
    fn id(&mut self, seen: &Seen) -> u32;
    /// Reads a frame's code object.
    fn read(&mut self, seen: &Seen) -> CodeText;
    /// Returns what tells the object that a local variable of a frame names from others that are alive; 0 where that
    /// is not known.
    fn variable(&mut self, seen: &Seen, variable: u16) -> u64;
    /// Returns how far the iterator has come that a `for` loop of a frame goes over: the one behind `depth` others from the
    /// slot `stack` on: a number for each item, with [`COUNTED`] set where it is more for each, or less; 0 where it is not
    /// known.
    fn iterator(&mut self, seen: &Seen, stack: u16, depth: u16) -> u64;
    /// Returns whether that is less for each item.
    fn goes_down(&mut self, seen: &Seen, stack: u16, depth: u16) -> bool;
    /// Returns what tells the objects that the first `count` local variables of a frame name from those that they named before,
    /// or, if there are none, the names of a module; 0 where that is not known.
    fn locals(&mut self, seen: &Seen, count: u16) -> u64;
    /// The same, also where the next object was given the memory of the one before. Only of frames that go on.
    fn locals_closely(&mut self, seen: &Seen, count: u16) -> u64;
}

/// Set in what tells how far an iterator has come.
pub const COUNTED: u64 = 1 << 63;

/// The threads that are distinguished at a time.
const MOST_THREADS: usize = 64;
/// Stands for every thread: those that have the chosen loop in common.
pub const ANY_THREAD: usize = usize::MAX;
/// The events before a level is sought for the first time; from then on again whenever they have grown by a
/// quarter, and later by as many again.
const FIRST_LOOK: u64 = 64;
const SELDOM: u64 = 4096;
/// The frames below those where the level's iterations showed that are still compared once it is chosen.
const DEEPER: usize = 3;
/// The events of which all frames are compared for that once more, when it is chosen.
const MEASURED: u64 = 1024;
/// The depth down to which nested loops are levels.
const MOST_LEVELS: u8 = 100;

/// The evidence that suffices for a level to be chosen without need.
#[derive(Clone, Copy, Debug)]
struct Evidence {
    events: u64,
    iterations: u64,
}

/// The evidence where the user has said that the steps are a loop's.
const ASKED: Evidence = Evidence { events: 1024, iterations: 64 };
/// The evidence where nobody has: more than an initialisation gives.
const UNASKED: Evidence = Evidence { events: 16 << 10, iterations: 256 };

/// The events after which a loop that nobody asked for, and of which there is no sign, is given up.
const GIVE_UP: u64 = 256 << 10;

/// The progress that an event has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Nothing,
    /// Iterations ended before it: see [`Loops::ended`].
    Ended,
    /// A level was sought, and could be drafted.
    Sought,
    /// The level can be chosen now.
    Ready,
    /// An iteration ended that may belong to what was drafted: see [`Loops::since_draft`]; where optimizers end the steps, see
    /// [`Loops::ends_between_steps`].
    Lengthened,
    /// There is no loop to be found.
    GaveUp,
}

/// The loop detector of a process.
#[derive(Debug)]
pub struct Loops {
    tree: Tree,
    shadows: Vec<Shadow>,
    /// The slot of the thread whose event came last.
    latest: usize,
    codes: Codes,
    /// Frames do not say whether they were entered from C.
    blind: bool,
    /// Nobody has said that the program's steps are a loop's.
    unasked: bool,
    events: u64,
    /// The allocations less the frees of all threads.
    kept: i64,
    next_look: u64,
    /// The level that would have been chosen when it was sought last, and since which event.
    candidate: Vec<Id>,
    since: u64,
    level: Vec<Id>,
    /// The thread whose loops they are, and the root of them.
    thread: usize,
    root: Id,
    /// The roots that threads which begin with the same code have in common.
    roots: Vec<(u32, Id)>,
    /// The number of the outermost frames that are compared.
    depth: usize,
    /// The event from which on that is known again.
    measured: u64,
    /// The work of a batch of the training, measured while every event was shown.
    batch: Option<f64>,
    draft: Draft,
    /// Where the loops are of the level that was drafted or chosen last, and its number.
    level_at: Vec<LoopLocation>,
    level_number: u32,
}

impl Loops {
    /// Makes a detector. `blind`: frames do not say whether they were entered from C (CPython up to 3.10).
    /// `unasked`: nobody said that the program's steps are a loop's.
    pub fn new(blind: bool, unasked: bool) -> Loops {
        Loops {
            tree: Tree::new(),
            shadows: Vec::with_capacity(MOST_THREADS),
            latest: 0,
            codes: Codes::new(),
            blind,
            unasked,
            events: 0,
            kept: 0,
            next_look: FIRST_LOOK,
            candidate: Vec::new(),
            since: 0,
            level: Vec::new(),
            thread: 0,
            root: tree::NONE,
            roots: Vec::with_capacity(MOST_THREADS),
            depth: usize::MAX,
            measured: u64::MAX,
            batch: None,
            draft: Draft::default(),
            level_at: Vec::new(),
            level_number: 0,
        }
    }

    /// Returns whether optimizers end the steps.
    pub fn is_phased(&self) -> bool {
        self.tree.phased
    }

    /// Takes in a memory event of the thread in this slot. `frames`: its stack, outermost
    /// first, of which at least `same` are as they were. `epoch` moves on when an address may mean another
    /// code object than before.
    #[inline(always)]
    pub fn event(
        &mut self,
        slot: usize,
        frames: &[Seen],
        same: usize,
        epoch: u64,
        what: What,
        around: &mut dyn EventContext,
    ) -> Progress {
        self.codes.at(epoch);
        self.tree.ended.clear();
        if self.shadows[slot].root == tree::NONE || self.shadows[slot].is_over {
            self.begin_thread(slot, frames, around);
        }
        if self.is_foreign(slot) {
            return if self.tree.ended.is_empty() { Progress::Nothing } else { Progress::Ended };
        }
        self.events += 1;
        let Loops { tree, shadows, codes, blind, depth, .. } = self;
        // Outside of the level all are: another loop that joins it may lie at any depth.
        let is_within = tree.get(shadows[slot].node()).is_some_and(|n| n.within);
        let depth = if is_within { *depth } else { usize::MAX };
        shadows[slot].event(&mut View { tree, codes, around, blind: *blind }, frames, same, depth, what);
        if self.events >= self.measured {
            self.limit_depth();
        }
        if !self.tree.ended.is_empty() {
            return Progress::Ended;
        }
        if self.events >= self.next_look {
            return self.seek();
        }
        match () {
            () if self.tree.is_full() => Progress::Ready,
            () if self.draft.is_behind(&self.tree) => Progress::Lengthened,
            () => Progress::Nothing,
        }
    }

    /// Returns the iterations that ended before the event: the depth of the loop, and whether it was a step.
    pub fn ended(&self) -> &[(u8, bool)] {
        &self.tree.ended
    }

    /// Counts an event of a thread without Python, of this number, where the last event of the thread that it works for was.
    pub fn elsewhere(&mut self, thread: usize, freed: bool, seq: u64) {
        let Some(shadow) = self.shadows.iter_mut().find(|s| s.thread == thread) else { return };
        if !freed {
            shadow.last = seq;
        }
        if let Some(node) = self.tree.get_mut(shadow.node()) {
            node.count(if freed { Shown::Free } else { Shown::Allocation }, false);
        }
    }

    /// Notes the number of an allocation or copy of the thread in this slot.
    pub fn seen_at(&mut self, slot: usize, seq: u64) {
        self.shadows[slot].last = seq;
    }

    /// Returns the latest such number of the thread whose loops were chosen; of all, where they have them in common.
    pub fn last_seen(&self) -> u64 {
        let own = |s: &&Shadow| self.thread == ANY_THREAD || s.thread == self.thread;
        self.shadows.iter().filter(own).map(|s| s.last).max().unwrap_or(0)
    }

    /// Counts frees where the last event of the thread in this slot was, for when only allocations are shown.
    pub fn freed(&mut self, slot: usize, count: u64) {
        if let Some(node) = self.tree.get_mut(self.shadows[slot].node()) {
            node.events += count;
            node.frees += count;
        }
    }

    /// Takes in that an optimizer stepped where this thread's last event was. Returns what is new with it; `None`: another
    /// thread's loop ends the steps.
    pub fn optimizer(&mut self, thread: usize) -> Option<Stepped> {
        let Some(shadow) = self.shadows.iter_mut().find(|s| s.thread == thread) else {
            return Some(Stepped::default());
        };
        // Where it stands is not looked at any more.
        if self.tree.phased && thread != self.thread {
            return Some(Stepped::default());
        }
        if self.tree.phased {
            shadow.steps_in_loops(&mut self.tree);
        }
        let stepped = self.tree.optimizer(shadow.node());
        if self.unasked && !self.tree.phased {
            if self.tree.chosen && thread != self.thread {
                return None;
            }
            (self.thread, self.root) = (thread, shadow.root);
            self.depth = usize::MAX;
            self.tree.phase();
            self.draft = Draft::between_steps();
        }
        if stepped.first_there && self.tree.phased {
            self.without_training();
        }
        Some(stepped)
    }

    /// Takes in that a backward pass begins where this thread's last event was.
    pub fn backward(&mut self, thread: usize) {
        if let Some(n) = self.node_of(thread) {
            n.backwards += 1;
        }
    }

    /// Takes in that this thread's last event was of a compiled function that trains.
    pub fn update(&mut self, thread: usize) {
        if let Some(n) = self.node_of(thread) {
            n.updates += 1;
        }
    }

    fn node_of(&mut self, thread: usize) -> Option<&mut Node> {
        let node = self.shadows.iter().find(|s| s.thread == thread).map(Shadow::node)?;
        self.tree.get_mut(node)
    }

    /// Counts an event, also one of a thread that runs no Python: backward passes allocate there what others free.
    #[inline(always)]
    pub fn count(&mut self, freed: bool) {
        self.kept += if freed { -1 } else { 1 };
    }

    /// Returns how many more blocks were allocated than freed in the events counted so far.
    pub fn kept(&self) -> i64 {
        self.kept
    }

    /// Notes that not every event of the training is shown from now on: what is counted there is less than
    /// there was.
    pub fn sampling_begins(&mut self) {
        if self.batch.is_none() {
            self.batch = choice::work_of_a_batch(&self.tree);
        }
    }

    /// Takes loops out of the level in which an optimizer has stepped after all.
    #[cold]
    fn without_training(&mut self) {
        let before = self.level.len();
        self.level.retain(|&id| self.tree.get(id).is_some_and(|n| !n.trains));
        if self.level.len() < before {
            self.join(&[]);
        }
    }

    /// Returns whether a level was chosen, or optimizers end the steps: other loops may join.
    pub fn may_be_joined(&self) -> bool {
        self.tree.chosen || self.tree.phased
    }

    /// Has the loops join the level that are of it and did not show when this was asked last: returns the ends of their
    /// iterations since then, and where all loops of the level are. `None`: there are no others.
    pub fn joined(&mut self) -> Option<Choice> {
        let shows = |end: &tree::End| {
            self.tree.get(end.node).is_some_and(|n| n.iterations() >= tree::LEAST_OF_A_PHASE && !n.trains)
        };
        let mut choice = None;
        if self.tree.log.iter().any(shows) {
            let level = self.level_to_join();
            if self.join(&level) {
                self.tree.chosen = true;
                let mark = |end: &tree::End| Some(self.tree.get(end.node)?.mark);
                let past = self.tree.log.iter().filter_map(|end| mark(end)?.place(end)).collect();
                choice = Some(Choice { past, locations: self.locations() });
            }
        }
        self.forget_ends();
        choice
    }

    /// Returns the loops that are to be of the level, whether they are of it by now or not.
    fn level_to_join(&self) -> Vec<Id> {
        let mut level = match self.tree.phased {
            true => choice::phases(&self.tree, self.root, self.batch),
            false => choice::choose(&self.tree, self.unasked),
        };
        // Of other threads nothing is shown any more.
        level.retain(|&id| self.is_inside(id, self.root));
        level
    }

    /// Forgets the ends that were looked at, but for those of loops which came round too few times yet to join the level.
    fn forget_ends(&mut self) {
        let mut log = std::mem::take(&mut self.tree.log);
        let may_join = |end: &tree::End| {
            let few = |n: &Node| n.mark.signs == 0 && (n.iterations() as f64) < choice::TO_JUDGE;
            self.tree.get(end.node).is_some_and(few)
        };
        log.retain(|end| !self.tree.phased && may_join(end));
        if log.len() > log.capacity() / 2 {
            log.clear();
        }
        self.tree.log = log;
        if self.tree.phased {
            self.draft = Draft::between_steps();
        }
    }

    /// Seeks the level, again.
    #[cold]
    fn seek(&mut self) -> Progress {
        if self.may_be_joined() {
            self.next_look = u64::MAX;
            return Progress::Nothing;
        }
        self.next_look = self.events + if self.events < SELDOM { self.events / 4 } else { self.events };
        let level = choice::choose(&self.tree, self.unasked);
        if level != self.candidate {
            (self.candidate, self.since) = (level, self.events);
            return Progress::Sought;
        }
        if level.is_empty() && self.unasked && self.events >= GIVE_UP {
            return Progress::GaveUp;
        }
        let needed = if self.unasked { UNASKED } else { ASKED };
        let ready = !level.is_empty()
            && self.events >= needed.events.max(2 * self.since)
            && self.iterations(&level) >= needed.iterations;
        if ready { Progress::Ready } else { Progress::Sought }
    }

    fn iterations(&self, level: &[Id]) -> u64 {
        level.iter().filter_map(|&id| self.tree.get(id)).map(Node::iterations).sum()
    }

    /// Chooses the level now, if one has had at least `least` iterations.
    pub fn choose(&mut self, least: u64) -> Option<Choice> {
        let drafted = self.draft(least)?;
        let level = choice::choose_so_far(&self.tree, self.unasked);
        (self.thread, self.root) = self.thread_of(level[0]);
        self.join(&level);
        self.measure_depth();
        for id in choice::taking_turns(&self.tree, &level) {
            self.tree.get_mut(id).into_iter().for_each(|n| n.takes_turns = true);
        }
        self.tree.choose();
        self.draft = Draft::default();
        self.number_level(&drafted);
        Some(drafted)
    }

    /// Returns where the loops of the level are, and those around them.
    pub fn locations(&self) -> Vec<(u8, bool, LoopLocation)> {
        self.locations_by(&self.marks(&self.level))
    }

    /// Returns whether all loops of the level are a module's own, whose variables outlive them.
    pub fn are_in_modules(&self) -> bool {
        let in_module = |&id: &Id| self.tree.get(id).is_some_and(|n| self.code_of(n).module);
        !self.level.is_empty() && self.level.iter().all(in_module)
    }

    /// Ends what is under way, since the program is ending. See [`Loops::ended`] for what that ends, if the
    /// level is chosen.
    pub fn finish(&mut self, around: &mut dyn EventContext) {
        let Loops { tree, shadows, codes, blind, .. } = self;
        tree.ended.clear();
        for shadow in shadows {
            shadow.finish(&mut View { tree, codes, around, blind: *blind });
        }
        tree.log.clear();
    }

    /// Returns the loops that did most of the work and yet are no steps: where each is, how often it came round
    /// and why it does not count.
    pub fn unused(&self) -> Vec<(LoopLocation, u64, Unused)> {
        let unused = choice::unused(&self.tree).into_iter();
        let describe = |(id, why)| {
            let n = self.tree.get(id)?;
            Some((self.location(n)?, n.iterations(), why))
        };
        unused.filter_map(describe).collect()
    }

    /// Returns the number of code objects whose bytecode could not be understood: their loops are not seen.
    pub fn opaque(&self) -> usize {
        self.codes.opaque()
    }
}
