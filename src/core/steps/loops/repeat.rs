//! The event that is the one before over again: the same frames stand at the same instructions, and all that has changed is
//! the item of their innermost loop. What it brings is known from the one before. Little code is run for it, since it is
//! most events of a program that calls one compiled function in its loop, and the program leaves none of ours in the
//! processor's caches between two of them.

use super::{EventContext, Loops, Seen};

impl Loops {
    /// Returns a number that the next event changes.
    #[inline(always)]
    pub fn number(&self) -> u64 {
        self.events
    }

    /// Takes in an allocation of `thread` if it is the thread's last event over again, which was the last of all. Returns the
    /// iteration that it ended, as [`Loops::ended`] does, if that is one of the chosen level. `None`: nothing was done, and it
    /// is to be shown by [`Loops::event`]. `look` returns Python's count of objects and what more can be asked, if these are
    /// the event's frames.
    #[inline(always)]
    pub fn repeat<E: EventContext>(
        &mut self,
        thread: usize,
        epoch: u64,
        look: impl FnOnce(&[Seen]) -> Option<(u32, E)>,
    ) -> Option<Option<(u8, bool)>> {
        let shadow = self.shadows.get(self.latest).filter(|s| s.thread == thread && s.repeats())?;
        let is_within = || self.tree.get(shadow.node()).is_some_and(|n| n.within);
        if !self.tree.chosen
            || self.tree.phased
            || self.codes.epoch() != epoch
            || self.events + 1 >= self.measured
            || (shadow.frames.len() > self.depth && is_within())
            || self.is_foreign(self.latest)
        {
            return None;
        }
        let (objects, mut around) = look(&shadow.frames)?;
        let ended = self.shadows[self.latest].repeat(&mut self.tree, objects, &mut around)?;
        self.events += 1;
        self.count(false);
        Some(ended)
    }
}
