//! Generators and coroutines that stand still, and go on.

use super::super::Seen;
use super::super::extents::DEEPEST;
use super::super::tree::{Id, NONE, Sign};
use super::{
    Awaited, BEGINS, Called, Inside, Level, MOST_AWAITED, MOST_WAITING, Shadow, View, Waiting, is_fetching,
};

impl Shadow {
    pub(super) fn stand_still(&mut self, view: &mut View<'_>, level: &Level) {
        let insides = &self.insides[level.first..];
        if insides.is_empty() && !level.task {
            if view.codes.get(level.code).coroutine {
                self.note_awaited(&level.seen, level.code);
            }
            return;
        }
        if insides.len() > DEEPEST {
            return;
        }
        let mut waiting = Waiting {
            frame: level.seen.frame,
            code: level.code,
            offset: level.seen.offset,
            insides: [Inside::default(); DEEPEST],
            count: insides.len(),
            by: NONE,
            caller: self.levels.last().map_or(0, |above| above.seen.frame),
            called: match level.called {
                Called::Function if view.codes.get(level.code).coroutine => Called::Awaited,
                Called::Generator(last) => Called::Generator(last),
                _ => Called::Nothing,
            },
            used: self.clock,
        };
        waiting.insides[..insides.len()].copy_from_slice(insides);
        self.insides.truncate(level.first);
        if let Some(above) = self.levels.last()
            && let Some(i) = self.insides[above.first..].last()
            && is_fetching(view.codes.get(above.code), i.number, above.seen.offset)
        {
            waiting.by = i.node;
        }
        if self.waiting.len() < MOST_WAITING {
            self.waiting.push(waiting);
        } else if let Some(oldest) = self.waiting.iter_mut().min_by_key(|w| w.used) {
            let gone = std::mem::replace(oldest, waiting);
            gone.insides[..gone.count].iter().filter(|i| i.open).for_each(|i| view.tree.lose(i.node));
        }
    }

    /// Keeps where a coroutine without loops is, in place of what had its memory before, or of any other.
    fn note_awaited(&mut self, seen: &Seen, code: u32) {
        let awaited = Awaited { frame: seen.frame, code, offset: seen.offset };
        if let Some(known) = self.awaited.iter_mut().find(|a| a.frame == seen.frame) {
            *known = awaited;
        } else if self.awaited.len() < MOST_AWAITED {
            self.awaited.push(awaited);
        } else {
            self.awaited[self.clock as usize % MOST_AWAITED] = awaited;
        }
    }

    /// The frame at this depth awaits a coroutine, at the instruction where it did so when it stood still. If it is another
    /// one, an iteration of the nearest loop around ended. Returns whether it is the same and stands where it stood.
    pub(super) fn awaits(&mut self, view: &mut View<'_>, above: usize, seen: &Seen, code: u32) -> bool {
        if self.levels[above].called != Called::Awaited {
            return false;
        }
        let known = self.awaited.iter().find(|a| a.frame == seen.frame && a.code == code);
        if let Some(offset) = known.map(|a| a.offset)
            && (seen.offset > offset
                || (seen.offset == offset && view.codes.get(code).extents.waits_at(offset)))
        {
            return seen.offset == offset;
        }
        // What another one awaited, in the same memory, is over: nobody else goes on with it.
        let caller = self.levels[above].seen.frame;
        let is_its_own = |w: &Waiting| (w.frame, w.code, w.caller) == (seen.frame, code, caller);
        if self.goes_on(view, seen, code) && self.waiting.iter().any(is_its_own) {
            return false;
        }
        // Those in between were awaited, too.
        let around = (0..=above).rev().take_while(|&at| view.codes.get(self.levels[at].code).generator);
        let found =
            around.map(|at| (at, self.insides_end(at))).find(|&(at, end)| self.levels[at].first < end);
        if let Some((at, end)) = found {
            let (by, offset) = (self.levels[at].code, self.levels[at].seen.offset);
            // What its variables name belongs to the iteration that begins.
            (self.levels[at].first..end).for_each(|inside| {
                self.names_another(view, at, inside);
            });
            // They may have shown it already.
            if self.insides[self.levels[at].first..end].iter().all(|i| i.since < self.clock) {
                self.iteration_ends(view, end - 1, by, offset, Sign::Proof, above + 2);
            }
        } else {
            self.made_anew(view, above + 1, true);
        }
        false
    }

    /// Whether a coroutine that stood still goes on, and none begins in its memory.
    pub(super) fn goes_on(&self, view: &View<'_>, seen: &Seen, code: u32) -> bool {
        let extents = &view.codes.get(code).extents;
        let known = self.waiting.iter().find(|w| w.frame == seen.frame && w.code == code);
        known.is_some_and(|w| {
            let own = &w.insides[..w.count];
            seen.offset > w.offset
                || (seen.offset == w.offset && extents.waits_at(seen.offset))
                || own.iter().any(|i| extents.holds(i.number, seen.offset))
        })
    }

    /// Whether a generator that runs where one was `last` is another one of its code, and did not stand still before, as far as is
    /// known. It is for sure, and not one that was made along with that, if that one had come to its first loop, or further in the
    /// same memory, and this one has not.
    pub(super) fn is_another(&self, view: &View<'_>, code: u32, seen: &Seen, last: &Seen) -> Option<bool> {
        let facts = view.codes.get(code);
        let header = facts.extents.first_header();
        let has_looped = || header.is_some_and(|header| seen.offset < header && header <= last.offset);
        let is_in_loop = || facts.extents.innermost(seen.offset).is_some();
        let goes_back = || last.frame == seen.frame && seen.offset < last.offset;
        let same = |w: &Waiting| (w.frame, w.code) == (seen.frame, code) && w.offset <= seen.offset;
        let known = || self.waiting.iter().any(same);
        let may_be = facts.iterated && last.code == seen.code && !is_in_loop() && !known();
        may_be.then(|| has_looped() || goes_back())
    }

    /// Whether C, which has called a function from where the frame around depth `at` stands, takes the next item from a
    /// generator there: it calls that function for each (`map`), so an iteration ended with the item before.
    pub(super) fn takes_next(&mut self, view: &mut View<'_>, at: usize, seen: &Seen, code: u32) -> bool {
        let calls = at > 0 && self.levels[at - 1].called == Called::Through && !view.blind;
        let facts = view.codes.get(code);
        if !calls || !facts.generator || facts.coroutine {
            return false;
        }
        if !self.waiting.iter().any(|w| (w.frame, w.code) == (seen.frame, code)) {
            return false;
        }
        self.called_again(view, at - 1, Sign::Through1, at + 1);
        // The generator's own loops are within that one, which was not known before.
        let around = self.levels[at - 1].node;
        let is_apart = |w: &Waiting| {
            let outermost = w.insides[..w.count].first().and_then(|i| view.tree.get(i.node));
            w.frame == seen.frame && outermost.is_some_and(|n| n.parent != around)
        };
        if let Some(number) = self.waiting.iter().position(is_apart) {
            self.end(view, number);
        }
        true
    }

    /// A generator at depth `at` is another one than before: an iteration of the nearest loop around it ended that had one
    /// under way, if nothing shows better when; or the task, if there is no such loop in it. Neither ends twice at one event.
    /// Where it is not `sure`, the loop's variable must show it.
    pub(super) fn made_anew(&mut self, view: &mut View<'_>, at: usize, sure: bool) {
        for above in (0..at).rev() {
            let (first, end) = (self.levels[above].first, self.insides_end(above));
            let under_way = |&i: &usize| self.insides[i].number < BEGINS && self.insides[i].open;
            let begins = || {
                let caller = self.levels[above.checked_sub(1)?].first..first;
                caller.rev().find(|&i| self.insides[i].number == BEGINS)
            };
            let task = self.levels[above].task;
            let (inside, sign) = match (first..end).rev().find(under_way) {
                Some(inside) => (inside, Sign::Anew),
                None if task => match begins().filter(|_| sure) {
                    Some(inside) => (inside, Sign::Proof),
                    None => return,
                },
                None => continue,
            };
            if self.insides[inside].since < self.clock {
                let shows = sign == Sign::Anew && self.names_another(view, above, inside);
                let sign = if shows { Sign::Variable } else { sign };
                let (code, offset) = (self.levels[above].code, self.levels[above].seen.offset);
                if sure || shows {
                    self.iteration_ends(view, inside, code, offset, sign, at + 1);
                }
            }
            return;
        }
    }

    /// The loops of a frame from here on are about to be left: the generators that they go over have ended, or are given up.
    pub(super) fn end_streams(&mut self, view: &mut View<'_>, frame: usize, from: usize) {
        if self.insides.len() == from {
            return;
        }
        let is_left = |w: &Waiting, insides: &[Inside]| {
            w.caller == frame && insides[from..].iter().any(|i| i.node == w.by)
        };
        while let Some(at) = self.waiting.iter().position(|w| is_left(w, &self.insides)) {
            self.end(view, at);
        }
    }

    /// One that stands still, by its number in the list, is over.
    fn end(&mut self, view: &mut View<'_>, number: usize) {
        let ended = self.waiting.swap_remove(number);
        let insides = self.insides.len();
        self.insides.extend_from_slice(&ended.insides[..ended.count]);
        self.leave(view.tree, view.around, insides);
    }

    /// Takes the one out of the list that stood still in this frame. One of another code that was there before is over, and so
    /// is one that ran in another loop than `around`: a loop's generator, in the memory of one that another loop went over.
    pub(super) fn take_waiting(
        &mut self,
        view: &mut View<'_>,
        frame: usize,
        code: u32,
        around: Id,
    ) -> Option<Waiting> {
        let is_task = view.codes.get(code).coroutine;
        let is_apart = |view: &View<'_>, w: &Waiting| {
            let outermost = w.insides[..w.count].first().and_then(|i| view.tree.get(i.node));
            !is_task && outermost.is_some_and(|n| n.parent != around)
        };
        let is_over =
            |view: &View<'_>, w: &Waiting| w.frame == frame && (w.code != code || is_apart(view, w));
        while let Some(over) = self.waiting.iter().position(|w| is_over(view, w)) {
            self.end(view, over);
        }
        let known = self.waiting.iter().position(|w| w.frame == frame)?;
        Some(self.waiting.swap_remove(known))
    }

    /// A generator that stood still runs again. Standing at the very instruction where it was, it either never left it, or
    /// came back to it. Returns whether it waits there.
    pub(super) fn go_on(&mut self, view: &mut View<'_>, at: usize, waiting: &Waiting) -> bool {
        self.insides.extend_from_slice(&waiting.insides[..waiting.count]);
        let (first, offset) = (self.levels[at].first, self.levels[at].seen.offset);
        let extents = &view.codes.get(waiting.code).extents;
        let stands = offset == waiting.offset && extents.waits_at(offset);
        if stands || offset > waiting.offset {
            if view.codes.get(waiting.code).coroutine {
                self.came_round(view, at);
            }
            return stands;
        }
        match self.insides[first..].iter().rposition(|i| extents.holds(i.number, offset)) {
            Some(inside) => {
                self.leave(view.tree, view.around, first + inside + 1);
                self.iteration_ends(view, first + inside, waiting.code, offset, Sign::Proof, at + 1);
                self.note_expression(view, at, first + inside);
                self.insides[first..].iter_mut().for_each(|i| i.items.begin());
                self.note_items(view, at);
            }
            None => self.leave(view.tree, view.around, first),
        }
        false
    }

    /// A coroutine at depth `at` goes on. Ends an iteration of the outermost of its loops whose variable names another item by now:
    /// it came round without an event.
    fn came_round(&mut self, view: &mut View<'_>, at: usize) {
        let (first, code, offset) =
            (self.levels[at].first, self.levels[at].code, self.levels[at].seen.offset);
        let mut ended = None;
        for inside in (first..self.insides.len()).rev() {
            let shows = self.insides[inside].items.show();
            if self.names_another(view, at, inside) && shows {
                ended = Some(inside);
            }
        }
        if let Some(inside) = ended {
            self.iteration_ends(view, inside, code, offset, Sign::Variable, at + 1);
        }
    }
}
