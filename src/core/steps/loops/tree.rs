//! What the loops of a program did: a tree of loops, each under the one it ran in, and a log of where their
//! iterations ended. Bounded: beyond its capacity it takes nothing new in. Knows no frames.

mod node;
mod stepless;

pub(super) use node::{FEW_PROOFS, Mark, Node, Sign};

/// Loops that are distinguished, each in each context that it runs in.
const MOST_NODES: usize = 2048;
/// Ends of iterations that are remembered until a level is chosen.
const MOST_ENDS: usize = 1 << 18;

/// Ends of iterations that are remembered once a level was chosen, or optimizers end the steps: of loops that may join.
const MOST_LATE_ENDS: usize = 1 << 14;

/// What is entered more often than every so many optimizer steps is a part of the step.
pub const STEPS_BETWEEN: u32 = 4;
/// Between optimizer steps: rounds of a loop, each time it is entered, that make it a phase. Of shorter ones
/// the optimizer's steps are enough.
pub const LEAST_OF_A_PHASE: u64 = 8;

/// The number of a node; [`NONE`] is none.
pub(super) type Id = u16;
pub(super) const NONE: Id = Id::MAX;

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
    /// The loop that it had a turn in, and how often that was entered.
    turn_of_last: Option<(Id, u32)>,
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
    /// It is a further one of the few in a short loop, inside of one that has optimizer steps of its own: a critic's turns for
    /// one of the generator.
    pub next_turn: bool,
    /// It is the first one there when that loop is entered for the second time: so many were turns when it was entered first.
    pub earlier_turns: Option<u32>,
}

/// Optimizer steps, the first time that a loop is entered (later on not every event is shown), from which on it is the
/// training and no loop over optimizers or a critic's turns.
pub const OF_A_TRAINING: u32 = 8;
/// Rounds of a loop to one optimizer step in it, from which on there is one step in each: a loop with two (a GAN's) has half
/// as many, and some more where rounds are told from little.
const ONE_A_ROUND: f64 = 0.9;

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
        let turn = self.turn_of(id);
        stepped.earlier_turns = turn.filter(|&(_, entered)| entered == 2).and_then(|(at, _)| {
            let n = self.get(at)?;
            n.first_steps.filter(|&first| n.steps == first)
        });
        stepped.next_turn = turn.is_some() && turn == self.turn_of_last;
        self.turn_of_last = turn;
        let mut last = std::mem::take(&mut self.around_last);
        last.clear();
        let mut at = id;
        while let Some(n) = self.get(at) {
            if !n.trains {
                self.note_first_step(at);
            }
            let Some(n) = self.get_mut(at) else { break };
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

    /// Returns the short loop that an optimizer step is a turn in, and how often that was entered, if there are optimizer steps
    /// in the loop around it too.
    fn turn_of(&mut self, id: Id) -> Option<(Id, u32)> {
        let own = |tree: &Tree, id: Id| {
            let around = std::iter::successors(Some(id), |&at| tree.get(at).map(|n| n.parent));
            let mut own = around.filter(|&at| tree.get(at).is_some_and(|n| !n.framework && !n.is_root));
            own.next()
        };
        let here = own(self, id)?;
        let n = self.get_mut(here)?;
        n.optimizers_here = n.optimizers_here.saturating_add(1);
        let is_short = n.first_steps.unwrap_or(n.steps) < OF_A_TRAINING
            && n.steps < OF_A_TRAINING.saturating_mul(n.instances);
        let (entered, parent) = (n.instances, n.parent);
        let around = own(self, parent)?;
        (is_short && self.get(around)?.optimizers_here > 0).then_some((here, entered))
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

    /// The node that a loop below `parent` is entered as.
    pub fn enter(&mut self, parent: Id, code: u32, number: u8, describe: impl FnOnce(&mut Node)) -> Id {
        let id = self.node_below(parent, code, number, describe);
        if id == parent { id } else { self.entered_as(id) }
    }

    /// The node of a loop below `parent`. A loop that runs inside itself is one further node, however deep it
    /// goes. Where there is no room, the parent.
    fn node_below(&mut self, parent: Id, code: u32, number: u8, describe: impl FnOnce(&mut Node)) -> Id {
        if let Some(known) = self.children(parent).find(|&c| {
            let n = &self.nodes[usize::from(c)];
            n.code == code && n.number == number && n.steps_in == NONE
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
        let within = self.get(parent).is_some_and(|n| n.within);
        let mut node = Node { recursive, within, ..Node::new(parent, code, number) };
        describe(&mut node);
        self.add(node).unwrap_or(parent)
    }

    /// Adds a node below its parent, if there is room.
    fn add(&mut self, mut node: Node) -> Option<Id> {
        if self.nodes.len() >= MOST_NODES {
            return None;
        }
        let id = self.nodes.len() as Id;
        let parent = self.nodes.get_mut(usize::from(node.parent))?;
        node.sibling = std::mem::replace(&mut parent.child, id);
        self.nodes.push(node);
        Some(id)
    }

    /// A loop is entered, and its first iteration begins with it if it is `open`.
    pub fn entered(&mut self, id: Id, open: bool) {
        let (now, seeks) = (self.steps, !self.chosen && !self.phased);
        let Some(n) = self.get_mut(id) else { return };
        n.note_entry();
        if seeks && n.instances > 0 {
            n.note_rounds();
        }
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
        n.at_once = n.at_once.max(n.open);
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
        let n = &self.nodes[usize::from(id)];
        if self.may_step_yet(n) {
            return;
        }
        if self.chosen && n.mark.signs != 0 {
            if n.mark.counts(sign) && self.ended.len() < MOST_AT_ONCE {
                self.ended.push((n.mark.level, n.mark.main));
            }
            return;
        }
        let may_join = if self.phased { self.may_be_phase(n) } else { !n.within };
        if may_join && !is_full {
            self.log.push(End { node: id, sign, at: around.moment() });
        }
    }

    /// Whether a loop between optimizer steps may be a phase: it is no expression, nor a generator that goes on once for each round of
    /// the loop around it.
    fn may_be_phase(&self, n: &Node) -> bool {
        let around = || self.get(n.parent).filter(|n| !n.is_root).map_or(0, |n| n.iterations());
        let goes_on = || n.is_generator() && n.iterations() / LEAST_OF_A_PHASE + 1 >= around();
        !n.trains && (!n.is_expression() || goes_on())
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
