//! Steps that nobody tells of: the loop of the program whose iterations they are, found from the Python frames at its
//! memory events. Pure: knows neither CPython's memory nor the recording; frames in, ends of iterations out.
//!
//! ```text
//!  bytecode ─▶ extents: where each code object's loops are, once
//!  frames ─▶ shadow: what changed since the last event ─▶ tree: iterations of each loop ─▶ choice: which loops are steps
//! ```
//!
//! Which loop it is shows only after a while, so the ends of iterations are logged until then, and the level is chosen late:
//! when choices agree, the last on twice the evidence of the first, when the log is full, or when it cannot wait any longer
//! (see [`Loops::settle`]). The steps that lie behind are told then, in order, each with its place among the events. What
//! would be chosen can be asked before ([`Loops::draft`]). Once told, no step is ever renumbered: a loop that turns up later
//! joins the level (a first evaluation), or stays out of it.
//!
//! Where optimizers end the steps, the level is that of the loops *between* them in which none steps: evaluations, encoders
//! that run first, rollouts ([`Loops::phases`]). Each is told when events are taken in, once it has shown itself.

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

use crate::format::backfilled::BackfilledBoundary;
use code::Codes;
use shadow::{Shadow, View};
pub use tree::STEPS_BETWEEN;
use tree::{Id, Mark, Tree};

/// A frame, as it is at an event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Its address: a later call may get the same one.
    pub frame: usize,
    /// Address of its code object.
    pub code: usize,
    /// Of the instruction, in bytes.
    pub offset: u32,
    /// Entered from C.
    pub entry: bool,
    /// What its reader knows instruction and entry by. Says no more than these.
    pub key: u64,
}

impl PartialEq for Seen {
    fn eq(&self, other: &Seen) -> bool {
        (self.frame, self.code, self.offset, self.entry)
            == (other.frame, other.code, other.offset, other.entry)
    }
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
    /// The ends of its iterations so far, and of those of the loops around them, in order.
    pub past: Vec<BackfilledBoundary>,
    /// The loops: depth, whether they are of the level, and where.
    pub places: Vec<(u8, bool, Place)>,
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
/// Events before the level is looked at for the first time. From then on whenever they have grown by a quarter; later, by as
/// many again.
const FIRST_LOOK: u64 = 64;
const SELDOM: u64 = 4096;
/// Frames below those where the level's iterations showed that are still looked at once it is chosen.
const DEEPER: usize = 3;
/// Loops in loops that are levels.
const MOST_LEVELS: u8 = 100;

/// What it takes for a level to be chosen without need: events, and iterations of its loops.
#[derive(Clone, Copy, Debug)]
struct Enough {
    events: u64,
    iterations: u64,
}

/// The program's steps were said to be those of its loop.
const ASKED: Enough = Enough { events: 1024, iterations: 64 };
/// They may be: of an initialisation there are fewer.
const UNASKED: Enough = Enough { events: 16 << 10, iterations: 256 };

/// Events after which a loop that nobody asked for, and of which there is no sign, is not looked for any longer.
const IN_VAIN: u64 = 256 << 10;

/// What came of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    Nothing,
    /// Iterations ended before it: see [`Loops::ended`].
    Ended,
    /// A level could be drafted.
    Looked,
    /// The level can be chosen now.
    Ripe,
    /// Another loop joined the level.
    Joined,
    /// There is none.
    InVain,
}

/// The detector.
#[derive(Debug)]
pub struct Loops {
    tree: Tree,
    shadows: Vec<Shadow>,
    /// The seat that was asked for last.
    latest: usize,
    codes: Codes,
    blind: bool,
    unasked: bool,
    events: u64,
    next_look: u64,
    /// What the last look would have chosen, and since which event.
    favourite: Vec<Id>,
    since: u64,
    level: Vec<Id>,
    /// The thread whose loops they are.
    thread: usize,
    /// Outermost frames that are looked at.
    depth: usize,
    /// The work of a batch of the training as long as all of it was looked at.
    batch: Option<f64>,
}

impl Loops {
    /// `blind`: frames do not say whether they were entered from C (CPython up to 3.10). `unasked`: nobody said that the
    /// program's steps are a loop's.
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
            favourite: Vec::new(),
            since: 0,
            level: Vec::new(),
            thread: 0,
            depth: usize::MAX,
            batch: None,
        }
    }

    /// The thread whose loop was chosen.
    pub fn thread(&self) -> Option<usize> {
        (self.tree.chosen || self.tree.phased).then_some(self.thread)
    }

    /// True if optimizers end the steps.
    pub fn is_phased(&self) -> bool {
        self.tree.phased
    }

    /// Where what is known of `thread` stands; `None`: there is no place for it.
    #[inline(always)]
    pub fn seat(&mut self, thread: usize) -> Option<usize> {
        match self.shadows.get(self.latest) {
            Some(shadow) if shadow.thread == thread => Some(self.latest),
            _ => self.find_seat(thread),
        }
    }

    #[inline(never)]
    fn find_seat(&mut self, thread: usize) -> Option<usize> {
        if let Some(at) = self.shadows.iter().position(|s| s.thread == thread) {
            self.latest = at;
            return Some(at);
        }
        if self.shadows.len() >= MOST_THREADS {
            return None;
        }
        let root = self.tree.root();
        self.shadows.push(Shadow::new(thread, root));
        self.latest = self.shadows.len() - 1;
        Some(self.latest)
    }

    /// The frames of the thread in this seat at its last event: to be brought up to the next one, and [kept](Loops::keep).
    pub fn frames(&mut self, seat: usize) -> Vec<Seen> {
        std::mem::take(&mut self.shadows[seat].frames)
    }

    /// They were brought up to date.
    pub fn keep(&mut self, seat: usize, frames: Vec<Seen>) {
        self.shadows[seat].frames = frames;
    }

    /// A memory event of the thread in this seat is about to be noted, by which memory is given back if it is `freed`. `frames`: its stack,
    /// outermost first, of which at least `same` are as they were. `epoch` moves on when an address may mean another code object
    /// than before.
    #[inline(always)]
    pub fn event(
        &mut self,
        seat: usize,
        frames: &[Seen],
        same: usize,
        epoch: u64,
        freed: bool,
        around: &mut dyn Surroundings,
    ) -> Heard {
        if self.thread().is_some_and(|of| self.shadows[seat].thread != of) {
            return Heard::Nothing;
        }
        self.events += 1;
        self.codes.at(epoch);
        let Loops { tree, shadows, codes, blind, depth, .. } = self;
        tree.ended.clear();
        shadows[seat].event(&mut View { tree, codes, around, blind: *blind }, frames, same, *depth, freed);
        if !self.tree.ended.is_empty() {
            return Heard::Ended;
        }
        if self.events >= self.next_look {
            return self.look();
        }
        let waits = !self.tree.chosen || self.tree.phased;
        if waits && self.tree.is_full() { Heard::Ripe } else { Heard::Nothing }
    }

    /// The iterations that ended before the event at hand: depth of the loop, and whether it was a step.
    pub fn ended(&self) -> &[(u8, bool)] {
        &self.tree.ended
    }

    /// So many events gave memory back where the last event of the thread in this seat was: for where only those that take some
    /// are looked at.
    pub fn freed(&mut self, seat: usize, count: u64) {
        if let Some(node) = self.tree.get_mut(self.shadows[seat].node()) {
            node.events += count;
            node.frees += count;
        }
    }

    /// An optimizer stepped where this thread's last event was. False: not on the thread whose loop ends the steps by now.
    pub fn optimizer(&mut self, thread: usize) -> bool {
        let Some(shadow) = self.shadows.iter().find(|s| s.thread == thread) else { return true };
        let first = self.tree.optimizer(shadow.node());
        if self.unasked && !self.tree.phased {
            if self.tree.chosen && thread != self.thread {
                return false;
            }
            self.thread = thread;
            self.depth = usize::MAX;
            self.tree.phase();
        }
        if first && self.tree.phased {
            self.without_training();
        }
        true
    }

    /// From now on not all events of the training are told of: what is counted there is less than there was.
    pub fn spared(&mut self) {
        if self.batch.is_none() {
            self.batch = choice::work_of_a_batch(&self.tree);
        }
    }

    /// A loop of the level in which an optimizer stepped after all is none.
    #[cold]
    fn without_training(&mut self) {
        let before = self.level.len();
        self.level.retain(|&id| self.tree.get(id).is_some_and(|n| !n.trains));
        if self.level.len() < before {
            self.join(&[]);
        }
    }

    /// The phases without an optimizer that show by now: what lies behind of those that did not before, since this was asked
    /// for the last time, and where all of them are.
    pub fn phases(&mut self) -> Settled {
        let shows = |end: &tree::End| {
            self.tree.get(end.node).is_some_and(|n| n.iterations() >= choice::LEAST_OF_A_PHASE && !n.trains)
        };
        let mut settled = Settled::default();
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
                settled.past = self.tree.log.iter().filter_map(place).collect();
                settled.places = self.whereabouts();
            }
        }
        self.tree.log.clear();
        settled
    }

    /// Looks at the level again.
    #[cold]
    fn look(&mut self) -> Heard {
        if self.tree.phased {
            self.next_look = u64::MAX;
            return Heard::Nothing;
        }
        let often = self.events < SELDOM && !self.tree.chosen;
        self.next_look = self.events + if often { self.events / 4 } else { self.events };
        let level = choice::choose(&self.tree, self.unasked);
        if self.tree.chosen {
            return if self.join(&level) { Heard::Joined } else { Heard::Nothing };
        }
        if level != self.favourite {
            (self.favourite, self.since) = (level, self.events);
            return Heard::Looked;
        }
        if level.is_empty() && self.unasked && self.events >= IN_VAIN {
            return Heard::InVain;
        }
        let enough = if self.unasked { UNASKED } else { ASKED };
        let ripe = !level.is_empty()
            && self.events >= enough.events.max(2 * self.since)
            && self.iterations(&level) >= enough.iterations;
        if ripe { Heard::Ripe } else { Heard::Looked }
    }

    fn iterations(&self, level: &[Id]) -> u64 {
        level.iter().filter_map(|&id| self.tree.get(id)).map(tree::Node::iterations).sum()
    }

    /// What would be chosen now, if it comes round at least `least` times.
    pub fn draft(&self, least: u64) -> Option<Settled> {
        let level = choice::choose(&self.tree, self.unasked);
        if self.tree.chosen || level.is_empty() || self.iterations(&level) < least {
            return None;
        }
        let mut level_so_far = Vec::new();
        self.widen(&mut level_so_far, &level);
        let marks = self.marks(&level_so_far);
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
        Some(Settled { past, places: self.places(&marks) })
    }

    /// Chooses the level now, if one comes round at least `least` times.
    pub fn settle(&mut self, least: u64) -> Option<Settled> {
        let settled = self.draft(least)?;
        let level = choice::choose(&self.tree, self.unasked);
        self.thread = self.thread_of(level[0]);
        self.join(&level);
        self.tree.log = Vec::new();
        self.tree.chosen = true;
        Some(settled)
    }

    /// Where the loops of the level are, and those around them.
    pub fn whereabouts(&self) -> Vec<(u8, bool, Place)> {
        self.places(&self.marks(&self.level))
    }

    fn thread_of(&self, id: Id) -> usize {
        let mut at = id;
        while let Some(n) = self.tree.get(at).filter(|n| !n.is_root) {
            at = n.parent;
        }
        self.shadows.iter().find(|s| s.root == at).map_or(0, |s| s.thread)
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

    /// These are of the level from now on, where they can be. True if any of them was not before.
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

    /// What each loop is to the level. Around a loop of the user's own code those of libraries are not counted.
    fn marks(&self, level: &[Id]) -> Vec<Mark> {
        let mut marks = vec![Mark::default(); self.tree.ids().len()];
        // Beside phases the training's own loop is recorded as a level, for a reader who wants to count by these.
        let phased = self.tree.phased && !level.is_empty();
        let training = phased.then(|| choice::training(&self.tree)).flatten();
        for (id, of_level) in
            training.map(|id| (id, false)).into_iter().chain(level.iter().map(|&id| (id, true)))
        {
            let Some(inner) = self.tree.get(id) else { continue };
            let mut path = vec![id];
            let mut at = inner.parent;
            while let Some(n) = self.tree.get(at).filter(|n| !n.is_root) {
                if !n.comprehension && (inner.library || !n.library) {
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

    fn places(&self, marks: &[Mark]) -> Vec<(u8, bool, Place)> {
        let place = |(id, mark): (Id, &Mark)| {
            let n = self.tree.get(id).filter(|_| mark.signs != 0)?;
            let code = self.codes.get(n.code);
            let l = code.extents.all().get(usize::from(n.number))?;
            Some((mark.level, mark.main, Place { code: code.id, header: l.header, last: l.last }))
        };
        self.tree.ids().zip(marks).filter_map(place).collect()
    }

    /// The program is ending: what is under way is over. See [`Loops::ended`] for what that ends, if the level is chosen.
    pub fn finish(&mut self, around: &mut dyn Surroundings) {
        let Loops { tree, shadows, codes, blind, .. } = self;
        tree.ended.clear();
        for shadow in shadows {
            shadow.finish(&mut View { tree, codes, around, blind: *blind });
        }
    }

    /// Code objects whose bytecode could not be understood: their loops are not seen.
    pub fn opaque(&self) -> usize {
        self.codes.opaque()
    }
}
