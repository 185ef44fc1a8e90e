//! The loop detector: finds the loop of a program whose iterations are its steps, from the Python frames at
//! its memory events. [`Loops`] is all of its interface. Pure: it knows neither CPython's memory nor the
//! recording; frames in, ends of iterations out.
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
//! evaluation), or stays out of it.
//!
//! Where optimizers end the steps, the level is that of the loops *between* them in which none steps:
//! evaluations, encoders that run first, rollouts ([`Loops::phases`]). Each is returned when events are
//! drained, once it has shown itself.

mod choice;
mod code;
mod extents;
mod opcodes;
mod shadow;
#[cfg(test)]
mod tests;
mod tree;

pub use choice::Unused;
pub use code::CodeText;
pub use extents::Extents;

use crate::format::backfilled::BackfilledBoundary;
use code::Codes;
pub use shadow::What;
use shadow::{Shadow, View};
pub use tree::STEPS_BETWEEN;
use tree::{Id, Mark, Node, Tree};

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
}

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
    /// Another loop has joined the level.
    Extended,
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
    /// The work of a batch of the training, measured while every event was shown.
    batch: Option<f64>,
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
            next_look: FIRST_LOOK,
            candidate: Vec::new(),
            since: 0,
            level: Vec::new(),
            thread: 0,
            root: tree::NONE,
            roots: Vec::with_capacity(MOST_THREADS),
            depth: usize::MAX,
            batch: None,
        }
    }

    /// Returns the thread whose loop was chosen; [`ANY_THREAD`] if threads have it in common.
    pub fn thread(&self) -> Option<usize> {
        let common = || !self.tree.phased && self.shadows.iter().filter(|s| s.root == self.root).count() > 1;
        (self.tree.chosen || self.tree.phased).then(|| if common() { ANY_THREAD } else { self.thread })
    }

    /// Returns whether events of the thread in this slot are none of the chosen loop's.
    #[inline(always)]
    fn is_foreign(&self, slot: usize) -> bool {
        let shadow = &self.shadows[slot];
        (self.tree.chosen || self.tree.phased)
            && shadow.thread != self.thread
            && (self.tree.phased || shadow.root != self.root)
    }

    /// Returns whether optimizers end the steps.
    pub fn is_phased(&self) -> bool {
        self.tree.phased
    }

    /// Returns the slot of what is known of `thread`.
    #[inline(always)]
    pub fn slot(&mut self, thread: usize, around: &mut dyn EventContext) -> usize {
        match self.shadows.get(self.latest) {
            Some(shadow) if shadow.thread == thread => self.latest,
            _ => self.find_slot(thread, around),
        }
    }

    #[inline(never)]
    fn find_slot(&mut self, thread: usize, around: &mut dyn EventContext) -> usize {
        self.latest = match self.shadows.iter().position(|s| s.thread == thread) {
            Some(at) => at,
            None if self.shadows.len() < MOST_THREADS => {
                self.shadows.push(Shadow::new(thread));
                self.shadows.len() - 1
            }
            None => {
                // The one that was quiet longest is over, most likely.
                let quiet = (0..MOST_THREADS).min_by_key(|&at| self.shadows[at].used).unwrap_or(0);
                let Loops { tree, shadows, codes, blind, .. } = self;
                tree.ended.clear();
                shadows[quiet].finish(&mut View { tree, codes, around, blind: *blind });
                shadows[quiet].thread = thread;
                shadows[quiet].root = tree::NONE;
                quiet
            }
        };
        self.shadows[self.latest].used = self.events;
        self.latest
    }

    /// Gives a thread its root: that of those that begin with the same code.
    #[cold]
    #[inline(never)]
    fn give_root(&mut self, slot: usize, frames: &[Seen], around: &mut dyn EventContext) {
        let Some(outermost) = frames.first() else { return };
        let code = self.codes.number(outermost, around);
        let known = self.roots.iter().find(|(of, _)| *of == code).map(|&(_, root)| root);
        self.shadows[slot].root = known.unwrap_or_else(|| {
            let root = self.tree.root();
            self.roots.push((code, root));
            root
        });
    }

    /// Takes the frames of the thread in this slot at its last event, to be brought up to the next one and
    /// [kept](Loops::keep).
    #[inline(always)]
    pub fn frames(&mut self, slot: usize) -> Vec<Seen> {
        std::mem::take(&mut self.shadows[slot].frames)
    }

    /// Puts the frames back that [`Loops::frames`] took, up to date.
    #[inline(always)]
    pub fn keep(&mut self, slot: usize, frames: Vec<Seen>) {
        self.shadows[slot].frames = frames;
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
        if self.shadows[slot].root == tree::NONE {
            self.give_root(slot, frames, around);
        }
        if self.is_foreign(slot) {
            return Progress::Nothing;
        }
        self.events += 1;
        let Loops { tree, shadows, codes, blind, depth, .. } = self;
        tree.ended.clear();
        shadows[slot].event(&mut View { tree, codes, around, blind: *blind }, frames, same, *depth, what);
        if !self.tree.ended.is_empty() {
            return Progress::Ended;
        }
        if self.events >= self.next_look {
            return self.seek();
        }
        let waits = !self.tree.chosen || self.tree.phased;
        if waits && self.tree.is_full() { Progress::Ready } else { Progress::Nothing }
    }

    /// Returns the iterations that ended before the event: the depth of the loop, and whether it was a step.
    pub fn ended(&self) -> &[(u8, bool)] {
        &self.tree.ended
    }

    /// Counts frees where the last event of the thread in this slot was, for when only allocations are shown.
    pub fn freed(&mut self, slot: usize, count: u64) {
        if let Some(node) = self.tree.get_mut(self.shadows[slot].node()) {
            node.events += count;
            node.frees += count;
        }
    }

    /// Takes in that an optimizer stepped where this thread's last event was. Returns whether another
    /// training began with it; `None`: another thread's loop ends the steps.
    pub fn optimizer(&mut self, thread: usize) -> Option<bool> {
        let Some(shadow) = self.shadows.iter().find(|s| s.thread == thread) else { return Some(false) };
        let stepped = self.tree.optimizer(shadow.node());
        if self.unasked && !self.tree.phased {
            if self.tree.chosen && thread != self.thread {
                return None;
            }
            (self.thread, self.root) = (thread, shadow.root);
            self.depth = usize::MAX;
            self.tree.phase();
        }
        if stepped.first_there && self.tree.phased {
            self.without_training();
        }
        Some(stepped.new_phase)
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

    /// Returns the phases without an optimizer that show by now: the ends of those that did not show when
    /// this was asked last, and where all of them are.
    pub fn phases(&mut self) -> Choice {
        let shows = |end: &tree::End| {
            self.tree.get(end.node).is_some_and(|n| n.iterations() >= choice::LEAST_OF_A_PHASE && !n.trains)
        };
        let mut chosen = Choice::default();
        if self.tree.log.iter().any(shows)
            && let Some(shadow) = self.shadows.iter().find(|s| s.thread == self.thread)
        {
            let level = choice::phases(&self.tree, shadow.root, self.batch);
            if self.join(&level) {
                self.tree.chosen = true;
                let place = |end: &tree::End| {
                    let mark = self.tree.get(end.node)?.mark;
                    let counts = mark.counts(end.sign);
                    counts.then_some(BackfilledBoundary {
                        seq: end.at.seq,
                        ns: end.at.ns,
                        depth: mark.level,
                        ends_step: mark.main,
                    })
                };
                chosen.past = self.tree.log.iter().filter_map(place).collect();
                chosen.locations = self.locations();
            }
        }
        self.tree.log.clear();
        chosen
    }

    /// Seeks the level, again.
    #[cold]
    fn seek(&mut self) -> Progress {
        if self.tree.phased {
            self.next_look = u64::MAX;
            return Progress::Nothing;
        }
        let often = self.events < SELDOM && !self.tree.chosen;
        self.next_look = self.events + if often { self.events / 4 } else { self.events };
        let level = choice::choose(&self.tree, self.unasked);
        if self.tree.chosen {
            return if self.join(&level) { Progress::Extended } else { Progress::Nothing };
        }
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

    /// Returns what would be chosen now, if it has had at least `least` iterations.
    pub fn draft(&self, least: u64) -> Option<Choice> {
        let level = choice::choose(&self.tree, self.unasked);
        if self.tree.chosen || level.is_empty() || self.iterations(&level) < least {
            return None;
        }
        let mut so_far = Vec::new();
        self.widen(&mut so_far, &level);
        let marks = self.marks(&so_far);
        let place = |end: &tree::End| {
            let mark = marks.get(usize::from(end.node)).filter(|mark| mark.counts(end.sign))?;
            Some(BackfilledBoundary {
                seq: end.at.seq,
                ns: end.at.ns,
                depth: mark.level,
                ends_step: mark.main,
            })
        };
        let past = self.tree.log.iter().filter_map(place).collect();
        Some(Choice { past, locations: self.locations_by(&marks) })
    }

    /// Chooses the level now, if one has had at least `least` iterations.
    pub fn choose(&mut self, least: u64) -> Option<Choice> {
        let drafted = self.draft(least)?;
        let level = choice::choose(&self.tree, self.unasked);
        (self.thread, self.root) = self.thread_of(level[0]);
        self.join(&level);
        self.tree.log = Vec::new();
        self.tree.chosen = true;
        Some(drafted)
    }

    /// Returns where the loops of the level are, and those around them.
    pub fn locations(&self) -> Vec<(u8, bool, LoopLocation)> {
        self.locations_by(&self.marks(&self.level))
    }

    fn thread_of(&self, id: Id) -> (usize, Id) {
        let mut at = id;
        while let Some(n) = self.tree.get(at).filter(|n| !n.is_root) {
            at = n.parent;
        }
        (self.shadows.iter().find(|s| s.root == at).map_or(0, |s| s.thread), at)
    }

    /// Adds to `level` what neither lies inside nor around a loop that is of it.
    fn widen(&self, level: &mut Vec<Id>, by: &[Id]) {
        for &id in by {
            let related = |a: Id, b: Id| self.is_inside(a, b) || self.is_inside(b, a);
            if !level.iter().any(|&known| related(known, id)) {
                level.push(id);
            }
        }
    }

    /// Adds loops to the level, where they can be of it. Returns whether any was not before.
    fn join(&mut self, level: &[Id]) -> bool {
        let mut all = std::mem::take(&mut self.level);
        let before = all.len();
        self.widen(&mut all, level);
        for (id, mark) in self.tree.ids().zip(self.marks(&all)) {
            if let Some(n) = self.tree.get_mut(id) {
                n.mark = mark;
            }
        }
        let deepest = all.iter().filter_map(|&id| self.tree.get(id)).map(|n| n.depth);
        if !self.tree.phased {
            self.depth = usize::from(deepest.max().unwrap_or(u16::MAX)) + DEEPER;
        }
        self.level = all;
        self.level.len() > before
    }

    /// Returns what each loop is to the level. Around a loop of the user's own code those of libraries are
    /// not counted.
    fn marks(&self, level: &[Id]) -> Vec<Mark> {
        let mut marks = vec![Mark::default(); self.tree.ids().len()];
        // Beside phases the training's own loop is recorded as a level, for a reader who wants to count by
        // these.
        let phased = self.tree.phased && !level.is_empty();
        let training = phased.then(|| choice::training(&self.tree)).flatten();
        for (id, of_level) in
            training.map(|id| (id, false)).into_iter().chain(level.iter().map(|&id| (id, true)))
        {
            let Some(inner) = self.tree.get(id) else { continue };
            let mut path = vec![id];
            let mut at = inner.parent;
            while let Some(n) = self.tree.get(at).filter(|n| !n.is_root) {
                if !n.is_expression() && !n.framework && (inner.library || !n.library) {
                    path.push(at);
                }
                at = n.parent;
            }
            for (level, &at) in (1..=MOST_LEVELS).zip(path.iter().rev()) {
                let Some(n) = self.tree.get(at) else { continue };
                marks[usize::from(at)] = Mark { signs: n.mask(), level, main: of_level && at == id };
            }
        }
        marks
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

    fn locations_by(&self, marks: &[Mark]) -> Vec<(u8, bool, LoopLocation)> {
        let place = |(id, mark): (Id, &Mark)| {
            let n = self.tree.get(id).filter(|_| mark.signs != 0)?;
            Some((mark.level, mark.main, self.location(n)?))
        };
        self.tree.ids().zip(marks).filter_map(place).collect()
    }

    fn location(&self, n: &Node) -> Option<LoopLocation> {
        if n.is_call {
            let (code, offset) = shadow::called_at(n.code);
            return Some(LoopLocation { code: self.codes.get(code).id, header: offset, last: offset });
        }
        let code = self.codes.get(n.code);
        let l = code.extents.all().get(usize::from(n.number))?;
        Some(LoopLocation { code: code.id, header: l.header, last: l.last })
    }

    /// Ends what is under way, since the program is ending. See [`Loops::ended`] for what that ends, if the
    /// level is chosen.
    pub fn finish(&mut self, around: &mut dyn EventContext) {
        let Loops { tree, shadows, codes, blind, .. } = self;
        tree.ended.clear();
        for shadow in shadows {
            shadow.finish(&mut View { tree, codes, around, blind: *blind });
        }
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
