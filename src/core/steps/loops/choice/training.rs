//! Where optimizers end the steps: which loop is the training, and which loops between their steps are phases of their own.

use super::super::tree::{Id, LEAST_OF_A_PHASE, STEPS_BETWEEN, Tree};
use super::{Chooser, LEAST_SHARE};

/// Least events of an iteration.
const LEAST_EVENTS: f64 = 4.0;
/// Least work of one inside the training, as a share of a batch's there: an evaluation does a fair part of
/// it, what is worked out for every parameter does not.
const LEAST_SHARE_INSIDE: f64 = 0.1;
/// Micro-batches do at least this share of the training's work.
const MICRO: f64 = 0.5;

/// The loops below `root` that are steps beside those of the optimizers: outermost ones in which none steps,
/// that work like a training step and do so now and then, as evaluations do. What recurs within every step or
/// two is a part of it. `batch`: the work of one, where not every event of the training was shown.
pub fn phases(tree: &Tree, root: Id, batch: Option<f64>) -> Vec<Id> {
    let chooser = Chooser { phases: true, ..Chooser::new(tree) };
    let Some(main) = chooser.training() else { return Vec::new() };
    let users = tree.get(main).is_some_and(|n| !n.library);
    let batch = batch.unwrap_or_else(|| chooser.work_of_a_batch(main));
    let mut tops = Vec::new();
    chooser.without_optimizers(root, users, &mut tops);
    let mut level = Vec::new();
    for top in tops {
        // The steps that follow the latest one may be yet to come.
        let before = tree.get(top).map_or(0, |n| u64::from(n.instances).saturating_sub(1));
        let inside = chooser.steps_around(top);
        let routine = tree.get(top).is_some_and(|n| n.is_routine());
        if inside.is_some_and(|steps| routine || before * u64::from(STEPS_BETWEEN) > steps) {
            continue;
        }
        let share = if inside.is_some() { LEAST_SHARE_INSIDE } else { LEAST_SHARE };
        let works = |id: Id| {
            let rounds = chooser.iterations(id);
            let entered = tree.get(id).map_or(1.0, |n| f64::from(n.instances.max(1)));
            rounds >= LEAST_OF_A_PHASE as f64 * entered
                && chooser.per_iteration(id) >= LEAST_EVENTS.max(share * batch)
                && chooser.gives_back(id)
        };
        chooser.working_below(top, &works, &mut level);
    }
    level
}

/// The work of a batch of the training, in events.
pub fn work_of_a_batch(tree: &Tree) -> Option<f64> {
    let chooser = Chooser::new(tree);
    chooser.training().map(|main| chooser.work_of_a_batch(main))
}

/// The loop whose rounds are training steps.
pub fn training(tree: &Tree) -> Option<Id> {
    Chooser::new(tree).training()
}

impl Chooser<'_> {
    /// The outermost loops below one in which no optimizer steps.
    fn without_optimizers(&self, id: Id, users: bool, out: &mut Vec<Id>) {
        for (child, _) in self.nearest(id, users) {
            if self.optimizers[usize::from(child)] > 0 {
                self.without_optimizers(child, users, out);
            } else {
                out.push(child);
            }
        }
    }

    /// The loops that work, from an outermost one on: through a library's that do not, such as one over what it calls.
    fn working_below(&self, top: Id, works: &impl Fn(Id) -> bool, out: &mut Vec<Id>) {
        for id in self.down_from(top) {
            if works(id) {
                out.push(id);
            } else if self.tree.get(id).is_some_and(|n| n.library) {
                self.nearest(id, false)
                    .into_iter()
                    .for_each(|(below, _)| self.working_below(below, works, out));
            }
        }
    }

    /// Of the loops around most optimizer steps the innermost that is not entered anew for each of them, as
    /// the optimizer's own are; after the first step, when that does not show yet, the user's.
    fn training(&self) -> Option<Id> {
        let steps = |id: Id| self.tree.get(id).map_or(0, |n| n.optimizers);
        let innermost = self.tree.ids().filter(|&id| steps(id) > 0).max_by_key(|&id| steps(id))?;
        let around: Vec<Id> =
            std::iter::successors(Some(innermost), |&id| self.tree.get(id).map(|n| n.parent))
                .take_while(|&id| self.tree.get(id).is_some_and(|n| !n.is_root))
                .collect();
        let entered_seldom = |&&id: &&Id| {
            self.tree.get(id).is_some_and(|n| u64::from(n.instances) < self.optimizers[usize::from(id)])
        };
        let users = |&&id: &&Id| self.tree.get(id).is_some_and(|n| !n.library);
        around.iter().find(entered_seldom).or(around.iter().find(users)).or(around.last()).copied()
    }

    /// Events of one round of the training, or of the loop over micro-batches that does most of the work in
    /// each.
    fn work_of_a_batch(&self, main: Id) -> f64 {
        let (all, rounds) = (self.total(main), self.iterations(main));
        let inner = self.nearest(main, false).into_iter().map(|(id, _)| id);
        let micro = self.largest(
            inner.filter(|&id| self.total(id) >= MICRO * all && self.iterations(id) >= 2.0 * rounds),
        );
        self.per_iteration(micro.unwrap_or(main))
    }

    /// The optimizer steps in the nearest loop around this one in which there are any.
    fn steps_around(&self, id: Id) -> Option<u64> {
        let around = std::iter::successors(Some(id), |&at| self.tree.get(at).map(|n| n.parent)).skip(1);
        let mut training = around
            .take_while(|&at| self.tree.get(at).is_some_and(|n| !n.is_root))
            .filter(|&at| self.tree.get(at).is_some_and(|n| n.trains));
        training.next().map(|at| self.optimizers[usize::from(at)])
    }
}
