//! The threads that the loop detector distinguishes, and whose events are the chosen loop's.

use super::shadow::{Shadow, View};
use super::{ANY_THREAD, EventContext, Loops, MOST_THREADS, Seen, tree};

impl Loops {
    /// Returns the thread whose loop was chosen; [`ANY_THREAD`] if threads have it in common.
    pub fn thread(&self) -> Option<usize> {
        let common = || !self.tree.phased && self.shadows.iter().filter(|s| s.root == self.root).count() > 1;
        (self.tree.chosen || self.tree.phased).then(|| if common() { ANY_THREAD } else { self.thread })
    }

    /// Returns whether events of the thread in this slot are none of the chosen loop's.
    #[inline(always)]
    pub(super) fn is_foreign(&self, slot: usize) -> bool {
        let shadow = &self.shadows[slot];
        (self.tree.chosen || self.tree.phased)
            && shadow.thread != self.thread
            && (self.tree.phased || shadow.root != self.root)
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
    pub(super) fn find_slot(&mut self, thread: usize, around: &mut dyn EventContext) -> usize {
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

    /// Takes in that a thread has ended: the next one at its address is another.
    #[cold]
    pub fn thread_ended(&mut self, thread: usize) {
        let shadow = self.shadows.iter_mut().find(|s| s.thread == thread);
        shadow.into_iter().for_each(|s| s.is_over = true);
    }

    /// Ends what the thread before at this address had under way, and gives this one its root: that of those that begin
    /// with the same code.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_thread(&mut self, slot: usize, frames: &[Seen], around: &mut dyn EventContext) {
        let Loops { tree, shadows, codes, blind, .. } = self;
        if shadows[slot].is_over {
            shadows[slot].begins_anew(&mut View { tree, codes, around, blind: *blind });
        }
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
}
