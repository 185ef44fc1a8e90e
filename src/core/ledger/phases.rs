//! Which steps trained, and which only a loop ended (an evaluation, an encoder that runs first). What grows in one
//! kind of step stands still in the other, so each kind is counted by itself.

use serde::{Deserialize, Serialize};

/// Phases kept; beyond that the oldest are merged.
const MAX_PHASES: usize = 4096;

/// A run of steps of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Its first step.
    pub first: u32,
    /// True for iterations of a loop without a backward pass, or anything else that trains; else they trained: an
    /// optimizer, or another step source, ended them, or there were backward passes.
    pub looped: bool,
    /// Steps of either kind before it: of others, of loops.
    before: [u32; 2],
}

/// All phases, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    all: Vec<Phase>,
    /// Whether there was a backward pass, or anything else that trains, since the last step's end.
    trained: bool,
    /// Whether there ever was one.
    trains: bool,
    /// Whether anything but loops ended steps.
    other_sources: bool,
}

impl Phases {
    /// Takes in that a backward pass began, or anything else that trains.
    pub fn trained(&mut self) {
        (self.trained, self.trains) = (true, true);
    }

    /// Returns whether any step from one to another may have trained: whoever tells by the program's own calls where steps end
    /// does not tell which.
    pub fn train_between(&self, first: u32, last: u32) -> bool {
        self.trains && self.count(false, last) > self.count(false, first.saturating_sub(1))
    }

    /// Takes in that a step ended, by a loop or otherwise.
    pub fn end_step(&mut self, step: u32, by_loop: bool) {
        let trained = std::mem::take(&mut self.trained);
        let looped = by_loop && !trained;
        self.other_sources |= !by_loop;
        if self.all.last().is_some_and(|p| p.looped == looped) {
            return;
        }
        let before = [false, true].map(|of| self.count(of, step.saturating_sub(1)));
        if self.all.len() >= MAX_PHASES {
            self.all.drain(1..MAX_PHASES / 2);
        }
        self.all.push(Phase { first: step, looped, before });
    }

    /// Returns whether there are steps of both kinds.
    pub fn are_mixed(&self) -> bool {
        self.all.len() > 1
    }

    /// Returns whether loops ended steps between those of others.
    pub fn have_sources(&self) -> bool {
        self.are_mixed() && self.other_sources
    }

    pub fn all(&self) -> &[Phase] {
        &self.all
    }

    fn at(&self, step: u32) -> Option<&Phase> {
        self.all.get(self.all.partition_point(|p| p.first <= step).checked_sub(1)?)
    }

    pub fn is_looped(&self, step: u32) -> bool {
        self.at(step).is_some_and(|p| p.looped)
    }

    /// Counts the steps of a kind up to and including this one.
    pub fn count(&self, looped: bool, step: u32) -> u32 {
        self.at(step).map_or(0, |p| {
            let more = if p.looped == looped { step.saturating_sub(p.first).saturating_add(1) } else { 0 };
            p.before[usize::from(looped)].saturating_add(more)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_counted_by_itself() {
        let mut phases = Phases::default();
        // Ten optimizer steps and five iterations of an evaluation, over and over.
        (1..=60).for_each(|step| phases.end_step(step, (step - 1) % 15 >= 10));
        assert!(phases.are_mixed() && phases.all().len() == 8);
        assert_eq!([10, 12, 15, 16, 60].map(|s| phases.count(false, s)), [10, 10, 10, 11, 40]);
        assert_eq!([10, 12, 15, 16, 60].map(|s| phases.count(true, s)), [0, 2, 5, 5, 20]);
        assert!(phases.is_looped(11) && !phases.is_looped(16));
    }

    #[test]
    fn many_are_bounded_and_the_counts_stay() {
        let mut phases = Phases::default();
        (1..=100_000).for_each(|step| phases.end_step(step, step % 2 == 0));
        assert!(phases.all().len() <= MAX_PHASES);
        assert_eq!((phases.count(false, 99_999), phases.count(true, 100_000)), (50_000, 50_000));
    }
}
