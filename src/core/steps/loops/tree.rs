//! What the loops of a program did: a tree of loops, each under the one it ran in, and a log of where their
//! iterations ended. Bounded: beyond its capacity it takes nothing new in. Knows no frames.

use super::shadow::Shown;
use crate::format::backfilled::BackfilledBoundary;

/// Loops that are distinguished, each in each context that it runs in.
const MOST_NODES: usize = 2048;
/// Ends of iterations that are remembered until a level is chosen.
const MOST_ENDS: usize = 1 << 18;

/// Ends of iterations that are remembered once a level was chosen, or optimizers end the steps: of loops that may join.
const MOST_LATE_ENDS: usize = 1 << 14;

/// What is entered more often than every so many optimizer steps is a part of the step.
pub const STEPS_BETWEEN: u32 = 4;

/// Proofs that are so few beside generators made anew do not show all iterations.
pub(super) const FEW_PROOFS: u32 = 2;
const MANY_ANEW: u32 = 8;

/// The number of a node; [`NONE`] is none.
pub(super) type Id = u16;
pub(super) const NONE: Id = Id::MAX;

/// How an end of an iteration was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Sign {
    /// The loop was left.
    Left = 0,
    /// The same activation came back to an earlier instruction, or something it called without C in between
    /// was called anew.
    Proof = 1,
    /// Something it called was called anew, with C in between this many times: C may have called repeatedly
    /// by itself.
    Through1 = 2,
    Through2 = 3,
    Through3 = 4,
    /// Everything stands where it stood, but Python made objects in between: another thread may have made
    /// them.
    Again = 5,
    /// A generator that stands still in a loop of its own gave way to one that was made since.
    Anew = 6,
    /// The variable of the loop names another item.
    Variable = 7,
    /// A loop inside, and nothing else, began again with its first item.
    Within = 8,
}

impl Sign {
    pub fn through(crossings: usize) -> Sign {
        [Sign::Proof, Sign::Through1, Sign::Through2, Sign::Through3][crossings.min(3)]
    }
}

/// A loop in a context.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub parent: Id,
    child: Id,
    sibling: Id,
    /// Which code it is of, and which of its loops; a thread's root has no loop.
    pub code: u32,
    pub number: u8,
    pub is_root: bool,
    pub library: bool,
    pub comprehension: bool,
    /// It is a generator's, which feeds another loop.
    pub iterated: bool,
    /// The framework's own.
    pub framework: bool,
    /// No loop in the code, but a call from which C calls again and again.
    pub is_call: bool,
    /// Library code runs between the loop around it and this one.
    pub across: bool,
    /// It takes turns with a loop of the level that was chosen.
    pub takes_turns: bool,
    /// It also runs inside itself.
    recursive: bool,
    pub instances: u32,
    /// Its iterations before it was entered for the 2^k-th time, the last time that this was so, and the time before.
    rounds_before: [u64; 2],
    /// Optimizer steps when it was entered last.
    entered: u32,
    /// Times that it was entered a few optimizer steps after the time before, and times that it was not.
    often: u32,
    seldom: u32,
    /// Iterations under way.
    pub open: u32,
    /// Events seen with this as the innermost loop, and those among them that gave memory back, and that only copied.
    pub events: u64,
    pub frees: u64,
    pub copies: u64,
    /// Those among them by which a model is made.
    pub built: u64,
    /// Optimizer steps seen with this as the innermost loop.
    pub optimizers: u64,
    /// Backward passes that began with this as the innermost loop.
    pub backwards: u64,
    /// Optimizer steps in it, or in a loop inside; and those before it was entered for the second time.
    steps: u32,
    first_steps: Option<u32>,
    /// There were such.
    pub trains: bool,
    /// Ends of iterations, by sign.
    pub ends: [u32; 9],
    /// Depth of the deepest frame that showed an end, from 1; and of the highest one that proved one.
    pub depth: u16,
    pub highest: u16,
    /// What its ends are, once a level was chosen.
    pub mark: Mark,
    /// It is of the level, or lies inside a loop that is.
    pub within: bool,
}

/// What the ends of a loop's iterations are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// The signs that count, as bits; none for a loop that is neither of the level nor around it.
    pub signs: u16,
    /// Loops from the outermost in, from 1.
    pub level: u8,
    /// Of the level: they end steps.
    pub main: bool,
}

impl Mark {
    #[inline]
    pub fn counts(self, sign: Sign) -> bool {
        self.signs >> sign as u8 & 1 == 1
    }

    /// Returns the boundary that an end is, if it counts.
    pub fn place(self, end: &End) -> Option<BackfilledBoundary> {
        let (seq, ns) = (end.at.seq, end.at.ns);
        self.counts(end.sign).then_some(BackfilledBoundary {
            seq,
            ns,
            depth: self.level,
            ends_step: self.main,
        })
    }
}

impl Node {
    /// Counts an event. `builds`: by which a model is made.
    pub fn count(&mut self, shown: Shown, builds: bool) {
        self.events += u64::from(shown != Shown::Call);
        self.frees += u64::from(shown == Shown::Free);
        self.copies += u64::from(shown == Shown::Copy);
        self.built += u64::from(builds);
    }

    /// Counts an end of an iteration, shown by the frame at that depth.
    #[inline]
    pub fn ends(&mut self, sign: Sign, depth: usize) {
        let count = &mut self.ends[sign as usize];
        *count = count.saturating_add(1);
        let depth = depth.min(usize::from(u16::MAX)) as u16;
        self.depth = self.depth.max(depth);
        if sign == Sign::Proof {
            self.highest = self.highest.min(depth);
        }
    }

    fn new(parent: Id, code: u32, number: u8) -> Node {
        Node {
            parent,
            child: NONE,
            sibling: NONE,
            code,
            number,
            is_root: false,
            library: false,
            comprehension: false,
            iterated: false,
            framework: false,
            is_call: false,
            across: false,
            takes_turns: false,
            recursive: false,
            instances: 0,
            rounds_before: [0; 2],
            entered: 0,
            often: 0,
            seldom: 0,
            open: 0,
            events: 0,
            frees: 0,
            copies: 0,
            built: 0,
            optimizers: 0,
            backwards: 0,
            steps: 0,
            first_steps: None,
            trains: false,
            ends: [0; 9],
            depth: 0,
            highest: u16::MAX,
            mark: Mark::default(),
            within: false,
        }
    }

    /// The best sign there is of an iteration's end, other than that the loop was left.
    fn sign(&self) -> Option<Sign> {
        let signs = [
            Sign::Proof,
            Sign::Variable,
            Sign::Anew,
            Sign::Through1,
            Sign::Through2,
            Sign::Through3,
            Sign::Within,
            Sign::Again,
        ];
        signs.into_iter().find(|&s| self.ends[s as usize] > 0)
    }

    /// The iterations seen: those that were left, those under way, and those with the best sign. Where most
    /// have no other sign than objects that Python made, and a few do more and have a better one, both count.
    pub fn iterations(&self) -> u64 {
        let mask = self.mask();
        let counted = (0..self.ends.len()).filter(|sign| mask >> sign & 1 == 1);
        counted.map(|sign| u64::from(self.ends[sign])).sum::<u64>() + u64::from(self.open)
    }

    /// Whether it comes round oftener and oftener each time that it is entered, as a loop over what the loop around it adds
    /// to does.
    pub fn lengthens(&self) -> bool {
        // Entered so often: half of them lie between the two.
        let half = f64::from(self.instances.checked_ilog2().map_or(0, |k| (1u32 << k) / 2));
        let [until_last, until_before] = self.rounds_before;
        let (early, late) = (
            until_before as f64 / (half - 1.0).max(1.0),
            until_last.saturating_sub(until_before) as f64 / half,
        );
        half >= LENGTHENS_FROM && late >= LENGTHENS * early.max(1.0)
    }

    /// What yields the items of another loop, or is written as an expression: mostly a part of the loop
    /// around it.
    pub fn is_expression(&self) -> bool {
        self.comprehension || self.iterated || self.is_call
    }

    /// True if it is entered within every few optimizer steps, or was for as long as that could be seen.
    pub fn is_routine(&self) -> bool {
        self.often >= self.seldom
    }

    /// The signs to end a step by, as bits.
    pub fn mask(&self) -> u16 {
        let best = self.sign().unwrap_or(Sign::Proof);
        let count = |sign: Sign| self.ends[sign as usize];
        let proofs = count(best);
        // The first iteration does more than the others, and may prove to be one.
        let beside = |sign: Sign| count(sign) > proofs;
        let anew = proofs <= FEW_PROOFS && count(Sign::Anew) >= MANY_ANEW * proofs;
        let bit = |sign: Sign, counts: bool| u16::from(counts) << sign as u8;
        // An iteration shows by one of these: what the loop's own code does, or its variable.
        let own = matches!(best, Sign::Proof | Sign::Variable);
        bit(Sign::Left, true)
            | bit(best, true)
            | bit(Sign::Proof, own)
            | bit(Sign::Variable, own)
            | bit(Sign::Within, !own || beside(Sign::Within))
            | bit(Sign::Again, beside(Sign::Again))
            | bit(Sign::Anew, anew)
    }
}

/// The moment of an end.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub node: Id,
    pub sign: Sign,
    pub at: super::Moment,
}

#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    pub log: Vec<End>,
    /// A level was chosen.
    pub chosen: bool,
    /// Optimizers end the steps, and loops without any are steps only in between: these may turn up at any
    /// time.
    pub phased: bool,
    /// Optimizer steps so far.
    steps: u32,
    /// The loops around the last one, from the innermost out, and how often each was entered by then.
    around_last: Vec<(Id, u32)>,
    /// The training loop of the latest one, and its rounds.
    round_of_last: (Id, u64),
    /// What ended with the event at hand: depth of the loop, and whether it was a step.
    pub ended: Vec<(u8, bool)>,
}

/// What is new with an optimizer step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stepped {
    /// The first one in its loop.
    pub first_there: bool,
    /// Another training begins with it.
    pub new_phase: bool,
    /// The training loop has come round since the optimizer step before: it belongs to another iteration.
    pub new_round: bool,
}

/// Optimizer steps, the first time that a loop is entered (later on not every event is shown), from which on it is the
/// training and no loop over optimizers or a critic's turns.
const OF_A_TRAINING: u32 = 8;
/// Rounds of a loop to one optimizer step in it, from which on there is one step in each: a loop with two (a GAN's) has half
/// as many, and some more where rounds are told from little.
const ONE_A_ROUND: f64 = 0.9;

/// A loop lengthens if it came round so many times as often, each time that it was entered, in the later ones of so many.
/// One that goes over what each round adds to comes to three times as often.
const LENGTHENS: f64 = 2.0;
const LENGTHENS_FROM: f64 = 4.0;

/// Iterations that end with one event, at most; deeper loops are none of a program's.
const MOST_AT_ONCE: usize = 32;

impl Tree {
    pub fn new() -> Tree {
        Tree {
            nodes: Vec::with_capacity(MOST_NODES),
            log: Vec::with_capacity(MOST_ENDS),
            ended: Vec::with_capacity(MOST_AT_ONCE),
            ..Tree::default()
        }
    }

    /// A thread's root.
    pub fn root(&mut self) -> Id {
        if self.nodes.len() >= MOST_NODES {
            return NONE;
        }
        self.nodes.push(Node { is_root: true, ..Node::new(NONE, 0, 0) });
        self.nodes.len() as Id - 1
    }

    #[inline]
    pub fn get(&self, id: Id) -> Option<&Node> {
        self.nodes.get(usize::from(id))
    }

    #[inline]
    pub fn get_mut(&mut self, id: Id) -> Option<&mut Node> {
        self.nodes.get_mut(usize::from(id))
    }

    pub fn ids(&self) -> std::ops::Range<Id> {
        0..self.nodes.len() as Id
    }

    pub fn children(&self, id: Id) -> impl Iterator<Item = Id> {
        let first = self.get(id).map_or(NONE, |n| n.child);
        std::iter::successors(self.get(first).map(|_| first), |&at| {
            let next = self.get(at).map_or(NONE, |n| n.sibling);
            self.get(next).map(|_| next)
        })
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.log.len() >= self.room()
    }

    /// The log never grows in a hook.
    #[inline]
    fn room(&self) -> usize {
        self.log.capacity().min(MOST_ENDS)
    }

    /// From now on optimizers end the steps.
    pub fn phase(&mut self) {
        self.phased = true;
        self.log.reserve(MOST_LATE_ENDS.saturating_sub(self.log.len()));
    }

    /// From now on the level that was chosen ends them.
    pub fn choose(&mut self) {
        self.chosen = true;
        self.log = Vec::with_capacity(MOST_LATE_ENDS);
    }

    /// An optimizer stepped in a loop.
    pub fn optimizer(&mut self, id: Id) -> Stepped {
        self.steps = self.steps.wrapping_add(1);
        let mut stepped = Stepped::default();
        let Some(n) = self.get_mut(id) else { return stepped };
        n.optimizers += 1;
        stepped.first_there = !n.trains;
        stepped.new_phase = self.begins_phase(id);
        let round = self.round_of(id);
        let before = std::mem::replace(&mut self.round_of_last, round);
        stepped.new_round = round.0 != NONE && round.0 == before.0 && round.1 != before.1;
        let mut last = std::mem::take(&mut self.around_last);
        last.clear();
        let mut at = id;
        while let Some(n) = self.get_mut(at) {
            n.trains = true;
            n.steps = n.steps.saturating_add(1);
            last.push((at, n.instances));
            at = n.parent;
        }
        self.around_last = last;
        stepped
    }

    /// Returns the innermost loop around this one, or itself, that trains for long each time, and its rounds, if there is a
    /// step in each of them.
    fn round_of(&self, id: Id) -> (Id, u64) {
        let trains =
            |n: &Node| !n.is_root && !n.framework && n.first_steps.unwrap_or(n.steps) >= OF_A_TRAINING;
        let around = std::iter::successors(Some(id), |&at| self.get(at).map(|n| n.parent));
        let found = around.map_while(|at| Some((at, self.get(at)?))).find(|(_, n)| trains(n));
        let single = |n: &Node| n.iterations() as f64 >= ONE_A_ROUND * f64::from(n.steps);
        found.filter(|(_, n)| single(n)).map_or((NONE, 0), |(at, n)| (at, n.iterations()))
    }

    /// Returns whether the training loop of the optimizer step before was left, and this one lies in another,
    /// or in the same one entered anew: the program trains something else now, or once more. Not where an
    /// optimizer steps behind a loop in which another one did.
    fn begins_phase(&self, id: Id) -> bool {
        let now: Vec<(Id, &Node)> = std::iter::successors(Some(id), |&at| self.get(at).map(|n| n.parent))
            .map_while(|at| Some((at, self.get(at)?)))
            .filter(|(_, n)| !n.framework)
            .collect();
        let still = |at: Id, entered: u32| now.iter().any(|&(n, node)| n == at && node.instances == entered);
        let left = self.around_last.iter().take_while(|&&(at, entered)| !still(at, entered));
        // One that is entered anew for each step, as the optimizer's own are, is no training loop.
        let trained = |&(at, entered): &(Id, u32)| {
            self.get(at).is_some_and(|n| n.steps > entered && !n.framework && !n.is_root)
        };
        if !left.into_iter().any(trained) {
            return false;
        }
        let common = now.iter().position(|&(at, n)| self.around_last.contains(&(at, n.instances)));
        let (entered, around) = now.split_at(common.unwrap_or(now.len()));
        let trains = |n: &Node| !n.is_root && n.steps >= n.instances;
        entered.iter().any(|(_, n)| trains(n) || (n.steps == 0 && !n.library))
            || !around.iter().any(|(_, n)| trains(n))
    }

    /// The node of a loop below `parent`. A loop that runs inside itself is one further node, however deep it
    /// goes. Where there is no room, the parent.
    pub fn enter(&mut self, parent: Id, code: u32, number: u8, describe: impl FnOnce(&mut Node)) -> Id {
        if let Some(known) = self.children(parent).find(|&c| {
            let n = &self.nodes[usize::from(c)];
            n.code == code && n.number == number
        }) {
            return known;
        }
        let (mut at, mut recursive) = (parent, false);
        while let Some(n) = self.get(at).filter(|n| !n.is_root) {
            if n.code == code && n.number == number {
                if n.recursive {
                    return at;
                }
                recursive = true;
                break;
            }
            at = n.parent;
        }
        if self.nodes.len() >= MOST_NODES || self.get(parent).is_none() {
            return parent;
        }
        let id = self.nodes.len() as Id;
        let within = self.get(parent).is_some_and(|n| n.within);
        let mut node = Node { recursive, within, ..Node::new(parent, code, number) };
        describe(&mut node);
        let parent = &mut self.nodes[usize::from(parent)];
        node.sibling = std::mem::replace(&mut parent.child, id);
        self.nodes.push(node);
        id
    }

    /// A loop is entered, and its first iteration begins with it if it is `open`.
    pub fn entered(&mut self, id: Id, open: bool) {
        let now = self.steps;
        let Some(n) = self.get_mut(id) else { return };
        let since = now.wrapping_sub(n.entered);
        if n.instances == 0 || since >= STEPS_BETWEEN {
            n.seldom = n.seldom.saturating_add(1);
        } else if since > 0 {
            n.often = n.often.saturating_add(1);
        }
        if n.instances == 1 {
            n.first_steps = Some(n.steps);
        }
        n.entered = now;
        n.instances = n.instances.saturating_add(1);
        if n.instances.is_power_of_two() {
            n.rounds_before = [n.iterations(), n.rounds_before[0]];
        }
        n.open = n.open.saturating_add(u32::from(open));
    }

    /// An iteration begins.
    pub fn open(&mut self, id: Id) {
        if let Some(n) = self.get_mut(id) {
            n.open = n.open.saturating_add(1);
        }
    }

    /// An iteration is over.
    pub fn close(&mut self, id: Id, sign: Sign, depth: usize, around: &mut dyn super::EventContext) {
        let is_full = self.is_full();
        let Some(n) = self.nodes.get_mut(usize::from(id)) else { return };
        n.ends(sign, depth);
        if self.chosen && n.mark.signs != 0 {
            if n.mark.counts(sign) && self.ended.len() < MOST_AT_ONCE {
                self.ended.push((n.mark.level, n.mark.main));
            }
            return;
        }
        let may_join = if self.phased { !n.trains && !n.is_expression() } else { !n.within };
        if may_join && !is_full {
            self.log.push(End { node: id, sign, at: around.moment() });
        }
    }

    /// It is known that an iteration does not go on, but not when it ended.
    pub fn lose(&mut self, id: Id) {
        if let Some(n) = self.get_mut(id) {
            n.open = n.open.saturating_sub(1);
        }
    }

    /// Sums over each loop and those below it.
    pub fn totals(&self, of: impl Fn(&Node) -> u64) -> Vec<u64> {
        let mut totals: Vec<u64> = self.nodes.iter().map(of).collect();
        for (at, n) in self.nodes.iter().enumerate().rev() {
            if let Some(parent) = self.get(n.parent).map(|_| usize::from(n.parent)) {
                totals[parent] += totals[at];
            }
        }
        totals
    }
}
