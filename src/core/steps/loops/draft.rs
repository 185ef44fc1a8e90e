//! What would be chosen while nothing is: drafts of the level, written down for the reader of a program that is
//! killed. A draft is made anew when the level changes; in between, the iterations that ended are added to it.

use super::tree::{End, Mark, Tree};
use super::{Choice, Loops, choice};
use crate::format::backfilled::BackfilledBoundary;

/// The nanoseconds for which ends are gathered, so that many short iterations are added at once …
const GATHER_NS: u64 = 500_000;
/// … once there were so many steps that half a millisecond's worth of them makes no difference.
const FEW_STEPS: u32 = 512;
/// The ends of loops between an optimizer's steps for which a draft is of use before these are known to be steps.
const LEAST_BETWEEN: usize = 16;

/// The draft that was returned last.
#[derive(Debug)]
pub(super) struct Draft {
    /// What each loop was to its level; empty: there is no draft.
    marks: Vec<Mark>,
    /// The ends in the log that are in it, or are not of its level.
    seen: usize,
    /// When it was added to last, in nanoseconds since the beginning.
    ns: u64,
    /// The steps it has.
    steps: u32,
}

impl Default for Draft {
    fn default() -> Draft {
        Draft { marks: Vec::new(), seen: usize::MAX, ns: 0, steps: 0 }
    }
}

impl Draft {
    /// Returns the draft where optimizers end the steps: none, until other loops come round between these.
    pub fn between_steps() -> Draft {
        Draft { seen: LEAST_BETWEEN, ..Draft::default() }
    }

    /// Returns whether the log has ends that are to be added.
    #[inline(always)]
    pub fn is_behind(&self, tree: &Tree) -> bool {
        tree.log.len() > self.seen && (self.steps < FEW_STEPS || self.is_late(tree))
    }

    fn is_late(&self, tree: &Tree) -> bool {
        tree.log.last().is_some_and(|end| end.at.ns.saturating_sub(self.ns) >= GATHER_NS)
    }

    fn take_in(&mut self, ends: &[BackfilledBoundary], tree: &Tree) {
        self.seen = tree.log.len();
        self.ns = tree.log.last().map_or(0, |end| end.at.ns);
        self.steps = self.steps.saturating_add(ends.iter().filter(|end| end.ends_step).count() as u32);
    }
}

fn place(marks: &[Mark], end: &End) -> Option<BackfilledBoundary> {
    marks.get(usize::from(end.node))?.place(end)
}

impl Loops {
    /// Returns what would be chosen now, or would join an optimizer's steps, if it has had at least `least` iterations.
    pub fn draft(&self, least: u64) -> Option<Choice> {
        Some(self.choice_by(&self.marks_now(least)?))
    }

    /// Returns what would be chosen now, as [`Loops::draft`] does, if that is another level than was returned last.
    /// The iterations that follow are asked for by [`Progress::Lengthened`](super::Progress).
    pub fn redraft(&mut self, least: u64) -> Option<Choice> {
        let marks = self.marks_now(least)?;
        let known = &self.draft.marks;
        let is_same = |(at, mark): (usize, &Mark)| *mark == known.get(at).copied().unwrap_or_default();
        if !known.is_empty() && marks.iter().enumerate().all(is_same) {
            return None;
        }
        let choice = self.choice_by(&marks);
        self.draft = Draft { marks, ..Draft::default() };
        self.draft.take_in(&choice.past, &self.tree);
        self.number_level(&choice);
        Some(choice)
    }

    /// Returns a number that another level has got if it is not the drafted one with loops added: what was said of its
    /// steps is void.
    pub fn level_number(&self) -> u32 {
        self.level_number
    }

    /// Takes in where the loops of a level are that was drafted or chosen.
    pub(super) fn number_level(&mut self, choice: &Choice) {
        let main =
            choice.locations.iter().filter(|(_, main, _)| *main).map(|&(_, _, at)| at).collect::<Vec<_>>();
        if self.level_at.iter().any(|at| !main.contains(at)) {
            self.level_number += 1;
        }
        self.level_at = main;
    }

    /// Returns the ends of the level that was drafted last which came since.
    pub fn since_draft(&mut self) -> Vec<BackfilledBoundary> {
        let fresh = self.tree.log.get(self.draft.seen..).unwrap_or(&[]);
        let ends: Vec<_> = fresh.iter().filter_map(|end| place(&self.draft.marks, end)).collect();
        self.draft.take_in(&ends, &self.tree);
        ends
    }

    /// Returns how many ends of loops there were between an optimizer's steps. It is asked for again when there are twice as many.
    pub fn ends_between_steps(&mut self) -> u32 {
        let ends = self.tree.log.len();
        self.draft.seen = 2 * ends;
        ends as u32
    }

    /// Counts the steps of the draft.
    pub fn drafted_steps(&self) -> u32 {
        self.draft.steps
    }

    fn marks_now(&self, least: u64) -> Option<Vec<Mark>> {
        let (level, mut so_far) = match self.tree.phased {
            true => (self.level_to_join(), self.level.clone()),
            false if self.tree.chosen => return None,
            false => (choice::choose_so_far(&self.tree, self.unasked), Vec::new()),
        };
        if level.is_empty() || self.iterations(&level) < least {
            return None;
        }
        self.widen(&mut so_far, &level);
        Some(self.marks(&so_far))
    }

    fn choice_by(&self, marks: &[Mark]) -> Choice {
        let past = self.tree.log.iter().filter_map(|end| place(marks, end)).collect();
        Choice { past, locations: self.locations_by(marks) }
    }
}
