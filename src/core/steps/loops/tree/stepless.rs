//! A loop in which an optimizer steps at some times that it is entered and not at others: epochs of training and of evaluation may
//! run through the same code. It is two nodes. Each time it is entered as the one without steps, which hands over to the other
//! what it counted since, as soon as an optimizer steps there.

use super::{Id, NONE, Node, Tree};

/// What a node has counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub ends: [u32; 9],
    events: [u64; 4],
    instances: u32,
    often: u32,
    seldom: u32,
}

impl Node {
    fn counts(&self) -> Counts {
        Counts {
            ends: self.ends,
            events: [self.events, self.frees, self.copies, self.built],
            instances: self.instances,
            often: self.often,
            seldom: self.seldom,
        }
    }

    /// Takes back what was counted since the node was entered, and returns it.
    fn take_back(&mut self) -> Counts {
        let (before, all) = (self.at_entry, self.counts());
        (self.ends, self.instances) = (before.ends, before.instances);
        [self.events, self.frees, self.copies, self.built] = before.events;
        (self.often, self.seldom) = (before.often, before.seldom);
        let since = |n: usize| all.events[n] - before.events[n].min(all.events[n]);
        Counts {
            ends: std::array::from_fn(|sign| all.ends[sign].saturating_sub(before.ends[sign])),
            events: std::array::from_fn(since),
            ..Counts::default()
        }
    }

    fn add(&mut self, counts: &Counts) {
        for (own, more) in self.ends.iter_mut().zip(counts.ends) {
            *own = own.saturating_add(more);
        }
        let own = [&mut self.events, &mut self.frees, &mut self.copies, &mut self.built];
        own.into_iter().zip(counts.events).for_each(|(own, more)| *own += more);
    }

    /// Notes what was counted before it is entered.
    pub(super) fn note_entry(&mut self) {
        if self.steps_in != NONE {
            self.at_entry = self.counts();
        }
    }

    /// The rounds since it was entered.
    fn rounds_since_entry(&self) -> u32 {
        let ended = self.ends.iter().zip(self.at_entry.ends).map(|(all, before)| all.saturating_sub(before));
        ended.fold(0, u32::saturating_add)
    }
}

impl Tree {
    /// Returns the node that a loop is entered as: where optimizers end the steps and it has had any, the one without.
    pub(super) fn entered_as(&mut self, id: Id) -> Id {
        let Some(n) = self.get(id).filter(|n| self.phased && n.trains && !n.is_expression() && !n.recursive)
        else {
            return id;
        };
        if n.stepless != NONE {
            return n.stepless;
        }
        let parent = n.parent;
        let (library, framework, across, within) = (n.library, n.framework, n.across, n.within);
        let mut stepless =
            Node { library, framework, across, steps_in: id, ..Node::new(parent, n.code, n.number) };
        stepless.within = within && self.get(parent).is_some_and(|n| n.within);
        let Some(new) = self.add(stepless) else { return id };
        self.nodes[usize::from(id)].stepless = new;
        new
    }

    /// Takes in that an optimizer steps in a loop that is under way, and whose first iteration has begun if it is `open`. `around`:
    /// the node of the loop around it, and what that is from now on. Returns what the loop is from now on.
    pub fn steps_in(&mut self, id: Id, around: (Id, Id), open: bool) -> Id {
        let Some(n) = self.get_mut(id) else { return id };
        let moves = around.0 != around.1 && n.parent == around.0;
        if n.steps_in == NONE && !moves {
            return id;
        }
        n.open = n.open.saturating_sub(u32::from(open));
        let (rounds, training) = (n.rounds_since_entry(), n.steps_in);
        let counts = if training == NONE { Counts::default() } else { n.take_back() };
        let id = match training {
            NONE => {
                let n = n.clone();
                self.node_below(around.1, n.code, n.number, |new| {
                    (new.library, new.comprehension, new.across) = (n.library, n.comprehension, n.across);
                    (new.iterated, new.framework) = (n.iterated, n.framework);
                    (new.is_call, new.is_task) = (n.is_call, n.is_task);
                })
            }
            training => training,
        };
        self.entered(id, open);
        if let Some(n) = self.get_mut(id).filter(|_| training != NONE) {
            n.add(&counts);
            n.rounds_before_step = n.rounds_before_step.max(rounds);
        }
        id
    }

    /// Returns whether an end of an iteration may be one of a training's before its first optimizer step, which has as many at
    /// other times.
    pub(super) fn may_step_yet(&self, n: &Node) -> bool {
        self.get(n.steps_in).is_some_and(|training| n.rounds_since_entry() <= training.rounds_before_step)
    }

    /// Notes how many rounds a loop had before an optimizer stepped in it for the first time.
    pub(super) fn note_first_step(&mut self, id: Id) {
        if let Some(n) = self.get_mut(id) {
            let rounds = n.iterations().saturating_sub(n.rounds_at_entry).saturating_sub(1);
            n.rounds_before_step = u32::try_from(rounds).unwrap_or(u32::MAX);
        }
    }
}
