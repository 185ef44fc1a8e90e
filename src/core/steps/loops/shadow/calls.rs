//! Iterations that are calls made again: by the program, by C, by threads and tasks that begin.

use super::super::Seen;
use super::super::tree::Sign;
use super::items::MayHave;
use super::{BEGINS, CALL, Inside, Level, Shadow, Shown, View, What, call_at};
use crate::steps::loops::tree::Id;

/// The innermost frames whose variables tell whether they are another call's.
const NAMED: usize = 8;

impl Shadow {
    /// Every frame stands where it stood. Where Python `went_on` in between, an iteration of the nearest loop ended in which
    /// nothing else is seen; else one may have ended by what the variables say. Where Python is restless, it may have gone on
    /// within the call, so that what else shows the loop's iterations counts. Returns from where on the stack is to be built
    /// anew, if at all.
    #[inline(never)]
    pub(super) fn again(&mut self, view: &mut View<'_>, went_on: bool, what: What) -> Option<usize> {
        let restless = what.restless;
        let found = (0..self.levels.len()).rev().find(|&at| self.levels[at].first < self.insides_end(at));
        if let Some(at) = found {
            let (inside, code) = (self.insides_end(at) - 1, self.levels[at].code);
            let (offset, depth) = (self.levels[at].seen.offset, self.levels.len());
            let may_have = if went_on { MayHave::Recurred } else { MayHave::GoneOn };
            self.forget_older_locals();
            let kept = self.ends_by_variable(view, (0, inside), may_have, depth);
            if kept.is_some() {
                return kept;
            }
            let sign = match self.names_others(view, what) {
                // At the same item: the loop was entered anew.
                true if self.insides[inside].items.show() => {
                    return self.entered_anew(view, inside, at, depth);
                }
                true => Sign::Variable,
                false if went_on && self.stands_still(view, at, inside) => return None,
                false if went_on && !(restless && self.shows_otherwise(view, inside)) => Sign::Again,
                false => return None,
            };
            let is_call = self.insides[inside].number == CALL;
            self.iteration_ends(view, inside, code, offset, if is_call { Sign::Again } else { sign }, depth);
        } else if (went_on && !restless) || self.names_others(view, what) {
            // Whatever it is, C calls it.
            let from_c = |at: &usize| self.levels[*at].seen.entry || view.blind;
            if let Some(at) = (1..self.levels.len()).rev().find(from_c) {
                self.called_again(view, at - 1, Sign::Again, at + 1);
            }
        }
        None
    }

    /// A loop of the frame at this depth was entered anew: an iteration of the loop around it ended, if nothing else shows it.
    fn entered_anew(&mut self, view: &mut View<'_>, inside: usize, at: usize, depth: usize) -> Option<usize> {
        let around = inside.checked_sub(1).filter(|&around| around >= self.levels[at].since_generator)?;
        let Inside { number, items, .. } = self.insides[around];
        (number < BEGINS && !items.show()).then(|| self.ends(view, around, Sign::Within, at, depth))?
    }

    /// Whether the variables of the innermost frames, which stand where they stood when the work before was shown, name others
    /// by now. But for the loop whose iterations are looked for none of these frames is in one: what names another object
    /// is another call's.
    fn names_others(&self, view: &mut View<'_>, what: What) -> bool {
        let (when, before) = self.named;
        what.shown == Shown::Work && when + 1 == self.clock && before != 0 && self.names(view) != before
    }

    /// Returns what tells the objects that the variables of the innermost frames name, from the nearest loop in, from those
    /// that they named before; 0 where it is not known, or other signs suffice. Not of frames that C has called Python from:
    /// one may be giving back what its variables name.
    pub(super) fn names(&self, view: &mut View<'_>) -> u64 {
        if self.insides.iter().rev().take(2).all(|i| i.items.show()) && !self.insides.is_empty() {
            return 0;
        }
        let nearest = self.levels.iter().rposition(|l| l.first < self.insides.len()).unwrap_or(0);
        let (mut sum, mut entered) = (0u64, false);
        for level in self.levels[nearest..].iter().rev().take(NAMED) {
            if std::mem::replace(&mut entered, level.seen.entry) {
                break;
            }
            let variables = view.codes.get(level.code).variables.unwrap_or(0);
            let named = if variables > 0 { view.around.locals_closely(&level.seen, variables) } else { 0 };
            sum = sum.rotate_left(5) ^ named;
        }
        sum
    }

    /// Whether the iterations of a loop are shown by its variable, or were proven.
    fn shows_otherwise(&self, view: &View<'_>, inside: usize) -> bool {
        let Inside { node, items, .. } = self.insides[inside];
        items.are_known() || view.tree.get(node).is_some_and(|n| n.ends[Sign::Proof as usize] > 0)
    }

    /// The frame at depth `at` is a new call, made where the frame around it already stood: an iteration of
    /// the nearest loop around it ended. Returns from where on the stack is to be built anew.
    pub(super) fn made_again(&mut self, view: &mut View<'_>, at: usize, seen: &Seen, before: usize) -> usize {
        // Nothing is around the outermost: what runs on a thread without Python of its own begins again.
        if at == 0 {
            return at;
        }
        let code = view.codes.number(seen, view.around);
        let mut crossings = before.max(self.crosses(view, at - 1, seen.entry, code));
        // The innermost frame from which C called it.
        let mut by_c = (crossings > 0).then_some(at - 1);
        let mut found = None;
        for above in (0..at).rev() {
            let (first, end) = (self.levels[above].first, self.insides_end(above));
            found = (first..end).rev().find(|&i| self.insides[i].number != CALL).map(|i| (above, i));
            if found.is_some() {
                break;
            }
            if above > 0 {
                let (entry, code) = (self.levels[above].seen.entry, self.levels[above].code);
                let crossed = self.crosses(view, above - 1, entry, code);
                crossings += crossed;
                by_c = by_c.or((crossed > 0).then_some(above - 1));
            }
        }
        if let Some((above, inside)) = found.filter(|&(_, i)| self.insides[i].number == BEGINS) {
            // It began anew, unless something in it calls again.
            if by_c.is_none_or(|by_c| by_c == above) {
                self.pop(view, above + 1);
                self.iteration_ends(view, inside, code, 0, Sign::Proof, at + 1);
                return above + 1;
            }
            found = None;
        }
        if let Some((_, inside)) = found {
            let may_have = if by_c.is_some() { MayHave::Recurred } else { MayHave::Ended };
            if let Some(kept) = self.ends_by_variable(view, (0, inside), may_have, at + 1) {
                return kept;
            }
        }
        // Where every call looks like one through C, the first of them is believed.
        let crossings = crossings - usize::from(view.blind && crossings > 0 && found.is_some());
        let by_c = by_c.filter(|_| crossings > 0);
        let mut kept = at;
        if let Some(above) = by_c {
            kept = above + 1;
            self.called_again(view, above, Sign::Through1, at + 1);
        }
        if let Some((above, inside)) = found {
            let (code, offset) = (self.levels[above].code, self.levels[above].seen.offset);
            if by_c.is_none() {
                kept = above + 1;
                self.pop(view, kept);
            }
            self.iteration_ends(view, inside, code, offset, Sign::through(crossings), at + 1);
            if by_c.is_none() {
                self.note_expression(view, above, inside);
            }
        }
        kept
    }

    /// C calls again from where the frame at this depth stands: an iteration of the loop that this is, as
    /// long as it stands there.
    #[cold]
    #[inline(never)]
    pub(super) fn called_again(&mut self, view: &mut View<'_>, above: usize, sign: Sign, depth: usize) {
        self.pop(view, above + 1);
        let level = &self.levels[above];
        let (code, offset, first, around) = (level.code, level.seen.offset, level.first, level.node);
        let known = self.insides[first..].last().is_some_and(|i| i.number == CALL);
        if !known {
            let facts = view.codes.get(code);
            let (library, framework) = (facts.library, facts.framework);
            let across = self.insides.len() == first && self.library_above(&*view.codes, above);
            let node = view.tree.enter(around, call_at(code, offset), CALL, |n| {
                (n.library, n.framework, n.is_call, n.across) = (library, framework, true, across);
            });
            if node == around {
                return;
            }
            view.tree.entered(node, true);
            self.insides.push(Inside { number: CALL, open: true, node, ..Inside::default() });
            self.levels[above].node = node;
        }
        let inside = self.insides.len() - 1;
        self.iteration_ends(view, inside, code, offset, sign, depth);
    }

    /// 1 if the call from the frame at depth `above` may be one of many that C made. Not where the function
    /// is one that C calls once or that is awaited, or the caller hands arguments on to it: a decorator's wrapper, an
    /// executor's worker. From 3.12 on C is in between there only if what is called is no function, before 3.12 always.
    pub(super) fn crosses(&self, view: &View<'_>, above: usize, entry: bool, code: u32) -> usize {
        if !entry || view.codes.get(code).once {
            return 0;
        }
        let hands_on = |l: &Level| view.codes.get(l.code).extents.spreads_at(l.seen.offset);
        let is_handed_on = self.levels.get(above).is_some_and(hands_on);
        usize::from(!is_handed_on && !self.is_awaited(view, above + 1, code))
    }

    /// A thread or a task begins with this function, called by the innermost frame: one more iteration of all
    /// that begin with it. `task`: also if the one before began in the same place.
    #[cold]
    #[inline(never)]
    pub(super) fn begins(&mut self, view: &mut View<'_>, code: u32, task: bool) {
        let Some(at) = self.levels.len().checked_sub(1) else { return };
        let (first, around) = (self.levels[at].first, self.levels[at].node);
        let (call, depth) = (call_at(code, 0), at + 2);
        let own = self.insides[first..].iter().position(|i| i.number == BEGINS).map(|i| first + i);
        if let Some(inside) = own {
            let node = self.insides[inside].node;
            if view.tree.get(node).is_some_and(|n| n.code == call) {
                if task {
                    self.iteration_ends(view, inside, code, 0, Sign::Proof, depth);
                }
                return;
            }
            self.leave(view.tree, view.around, inside);
        }
        let around = if own.is_some() { self.node_around(at) } else { around };
        let library = view.codes.get(code).library;
        let node = view
            .tree
            .enter(around, call, BEGINS, |n| (n.library, n.is_call, n.is_task) = (library, true, task));
        if node == around {
            return;
        }
        // Another thread's may be under way: it ends where this one begins.
        if view.tree.get(node).is_some_and(|n| n.open > 0) {
            view.tree.close(node, Sign::Proof, depth, view.around);
        } else {
            view.tree.entered(node, true);
        }
        self.insides.push(Inside { number: BEGINS, node, ..Inside::default() });
        self.levels[at].node = node;
    }

    /// The innermost loop around the frame at this depth, or in it.
    pub(super) fn node_around(&self, at: usize) -> Id {
        let own = self.insides[self.levels[at].first..self.insides_end(at)].last().map(|i| i.node);
        own.unwrap_or_else(|| at.checked_sub(1).map_or(self.root, |above| self.levels[above].node))
    }
}
