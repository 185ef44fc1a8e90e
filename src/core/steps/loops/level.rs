//! The level of loops that was chosen: which loops can be of it, what each loop is to it, and where they are.

use super::code::Code;
use super::tree::{Id, Mark, Node};
use super::{DEEPER, LoopLocation, Loops, MEASURED, MOST_LEVELS, choice, shadow};

impl Loops {
    pub(super) fn thread_of(&self, id: Id) -> (usize, Id) {
        let mut at = id;
        while let Some(n) = self.tree.get(at).filter(|n| !n.is_root) {
            at = n.parent;
        }
        (self.shadows.iter().find(|s| s.root == at).map_or(0, |s| s.thread), at)
    }

    /// Adds to `level` what neither lies inside nor around a loop that is of it.
    pub(super) fn widen(&self, level: &mut Vec<Id>, by: &[Id]) {
        for &id in by {
            let related = |a: Id, b: Id| self.is_inside(a, b) || self.is_inside(b, a);
            if !level.iter().any(|&known| related(known, id)) {
                level.push(id);
            }
        }
    }

    /// Adds loops to the level, where they can be of it. Returns whether any was not before.
    pub(super) fn join(&mut self, level: &[Id]) -> bool {
        let mut all = std::mem::take(&mut self.level);
        let before = all.len();
        self.widen(&mut all, level);
        // Loops come behind those around them.
        for (id, mark) in self.tree.ids().zip(self.marks(&all)) {
            let around = self.tree.get(id).and_then(|n| self.tree.get(n.parent)).is_some_and(|n| n.within);
            if let Some(n) = self.tree.get_mut(id) {
                (n.mark, n.within) = (mark, around || mark.main);
            }
        }
        self.level = all;
        self.limit_depth();
        self.level.len() > before
    }

    /// Has no more frames compared than those in which the level's iterations show.
    pub(super) fn limit_depth(&mut self) {
        self.measured = u64::MAX;
        let nodes = || self.level.iter().filter_map(|&id| self.tree.get(id));
        // In a recursion the same loop comes at every depth, also at those to come.
        let recursive = nodes().any(|n| usize::from(n.depth) > usize::from(n.highest) + DEEPER);
        let deepest = nodes().map(|n| n.depth).max().filter(|_| !recursive);
        if !self.tree.phased {
            self.depth = deepest.map_or(usize::MAX, |depth| usize::from(depth) + DEEPER);
        }
    }

    /// Has all frames compared for some events: no frees are shown any more, and by these the level's iterations may have shown
    /// further out than by allocations.
    pub(super) fn measure_depth(&mut self) {
        if self.depth == usize::MAX {
            return;
        }
        for &id in &self.level {
            self.tree.get_mut(id).into_iter().for_each(|n| n.highest = u16::MAX);
        }
        self.depth = usize::MAX;
        self.measured = self.events + MEASURED;
    }

    /// Returns what each loop is to the level. Around a loop of the user's own code those of libraries are
    /// not counted.
    pub(super) fn marks(&self, level: &[Id]) -> Vec<Mark> {
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

    pub(super) fn is_inside(&self, id: Id, outer: Id) -> bool {
        let mut at = id;
        while let Some(n) = self.tree.get(at) {
            if at == outer {
                return true;
            }
            at = n.parent;
        }
        false
    }

    pub(super) fn locations_by(&self, marks: &[Mark]) -> Vec<(u8, bool, LoopLocation)> {
        let place = |(id, mark): (Id, &Mark)| {
            let n = self.tree.get(id).filter(|_| mark.signs != 0)?;
            Some((mark.level, mark.main, self.location(n)?))
        };
        self.tree.ids().zip(marks).filter_map(place).collect()
    }

    /// Returns the code that a loop lies in.
    pub(super) fn code_of(&self, n: &Node) -> &Code {
        self.codes.get(if n.is_call { shadow::called_at(n.code).0 } else { n.code })
    }

    pub(super) fn location(&self, n: &Node) -> Option<LoopLocation> {
        let code = self.code_of(n);
        if n.is_call {
            let (_, offset) = shadow::called_at(n.code);
            return Some(LoopLocation { code: code.id, header: offset, last: offset });
        }
        let l = code.extents.all().get(usize::from(n.number))?;
        Some(LoopLocation { code: code.id, header: l.header, last: l.last })
    }
}
