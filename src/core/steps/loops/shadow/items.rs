//! Iterations that only the variables of loops show: nothing of the loop itself is seen but a call that makes every
//! event, and that stands at one instruction.

use super::super::extents::Loop;
use super::super::tree::{FEW_PROOFS, Sign, Tree};
use super::super::{COUNTED, EventContext, Seen};
use super::{BEGINS, Inside, Level, Shadow, Shown, View};

/// Other items that a loop of the program went over before it begins again with its first one: two that are made anew may
/// take turns in the same memory.
const OTHERS: u8 = 2;

/// Where a frame shows which item a loop of it is at.
#[derive(Clone, Copy, Debug)]
enum Place {
    Variable(u16),
    /// The iterator of the loop, on the stack from that slot on, behind those of so many loops around it.
    Iterator(u16, u16),
    /// The first so many local variables: a `while` has none of its own. Nothing but its iterations changes them where its
    /// frame stands at one instruction, as long as no loop of that frame is in it. 0: the names of a module.
    Locals(u16),
}

/// The items of a loop, as far as they were looked at; 0 is none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Items {
    place: Option<Place>,
    /// Where its iterator lies, as in [`Place::Iterator`], and how far that had come.
    iterator: Option<(u16, u16)>,
    came: u64,
    first: u64,
    last: u64,
    /// The instruction at which the frame stood then.
    offset: u32,
    /// Other ones since the first.
    others: u8,
    /// How far the iterator of a generator expression had come.
    index: u64,
    /// How far its iterator had come when an iteration began, or was looked for, where that is known.
    counted: u64,
    /// When its local variables were looked at last.
    looked: u64,
}

/// What the frames show of a loop's iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MayHave {
    /// It ended, or that of a loop around it did.
    Ended,
    /// It ended, or C called again by itself, or another thread made what was made.
    Recurred,
    /// It went on, or another one came as far.
    GoneOn,
}

/// What a look at a loop's variable shows.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    /// It names another item than at the last look.
    changed: bool,
    /// It names the first item, and how many others it named in between.
    first_after: Option<u8>,
}

impl Items {
    /// Those of a loop. `variables`: the slots of its frame before the stack.
    pub fn of(of: &Loop, variables: Option<u16>) -> Items {
        let stack = || variables.filter(|_| of.is_for)?.checked_add(of.below);
        let iterator = stack().map(|stack| (stack, of.depth));
        let counted = || iterator.map(|(stack, depth)| Place::Iterator(stack, depth));
        let locals = || variables.filter(|_| !of.is_for).map(Place::Locals);
        let place = of.variable.map(Place::Variable).or_else(counted).or_else(locals);
        Items { place, iterator, ..Items::default() }
    }

    /// Returns what tells the item that a frame is at from others, wherever in the loop it stands.
    #[inline(always)]
    fn now(&self, around: &mut (impl EventContext + ?Sized), seen: &Seen) -> u64 {
        match self.place {
            Some(Place::Variable(variable)) => around.variable(seen, variable),
            Some(Place::Iterator(stack, depth)) => around.iterator(seen, stack, depth),
            Some(Place::Locals(_)) | None => 0,
        }
    }

    /// Whether the item that it is at could be looked at, and says which iteration it is.
    pub fn are_known(&self) -> bool {
        self.last != 0 && (self.others > 0 || !self.may_stay())
    }

    /// Whether they may stay as they are from one iteration to the next: local variables do, and a generator's.
    fn may_stay(&self) -> bool {
        let is_generator = matches!(self.place, Some(Place::Iterator(..))) && self.last & COUNTED == 0;
        self.are_locals() || is_generator
    }

    /// Whether it goes over items, and it is known which one it is at.
    pub fn show(&self) -> bool {
        self.are_known() && !self.are_locals()
    }

    /// Whether they are the local variables of a loop that has no items.
    pub fn are_locals(&self) -> bool {
        matches!(self.place, Some(Place::Locals(_)))
    }

    /// An iteration begins of which it is known, and with it another item.
    pub fn begin(&mut self) {
        (self.last, self.came) = (0, 0);
    }

    /// Notes how far the iterator of a `for` loop of this frame has come.
    pub(super) fn count(&mut self, around: &mut dyn EventContext, seen: &Seen) {
        if let Some((stack, depth)) = self.iterator {
            self.counted = around.iterator(seen, stack, depth);
        }
    }

    fn look(&mut self, now: u64) -> Look {
        if now == 0 {
            return Look::default();
        }
        let changed = self.last != 0 && now != self.last;
        self.last = now;
        if self.first == 0 || now == self.first {
            let others = std::mem::take(&mut self.others);
            let known = std::mem::replace(&mut self.first, now) != 0;
            return Look { changed, first_after: known.then_some(others) };
        }
        self.others = self.others.saturating_add(u8::from(changed));
        Look { changed, ..Look::default() }
    }
}

/// Whether an iterator is another one than before: it has come less far, or as far.
fn begins_again(
    around: &mut dyn EventContext,
    (seen, stack, depth): (&Seen, u16, u16),
    before: u64,
    now: u64,
) -> bool {
    let is_known = now & before & COUNTED != 0;
    is_known && (now == before || (now < before) != around.goes_down(seen, stack, depth))
}

impl Inside {
    /// Whether the variable of a loop, whose frame this is, names another item than at the last look. Notes nothing.
    #[inline]
    fn has_changed(&self, around: &mut dyn EventContext, seen: &Seen) -> bool {
        let now = self.items.now(around, seen);
        self.open && now != 0 && self.items.last != 0 && now != self.items.last
    }
}

impl Shadow {
    /// Looks at the variables of the loops from number `from` to `inside`. Ends an iteration of the outermost one
    /// whose variable names another item by now; or, if `inside` began again with its first item, of the loop around
    /// it. Returns from where on the stack is to be built anew; `None` where nothing of that is so. `may_have` is what
    /// the frames show of `inside`, `depth` that of the frame at which it shows, from 1.
    #[inline(never)]
    pub(super) fn ends_by_variable(
        &mut self,
        view: &mut View<'_>,
        (from, inside): (usize, usize),
        may_have: MayHave,
        depth: usize,
    ) -> Option<usize> {
        let mut owner = self.levels.iter().rposition(|l| l.first <= inside)?;
        // A generator that goes on is not called anew by the loop around it.
        let from = from.max(self.levels[owner].since_generator);
        let look = self.look(view, owner, inside);
        let back = look.changed && inside > from && self.goes_back(view, owner, inside);
        let (mut seen, mut ended) = ((inside, look), None);
        if look.changed && may_have != MayHave::Ended {
            ended = Some((inside, Sign::Variable));
        }
        let innermost = owner;
        for around in (from..inside).rev() {
            while self.levels[owner].first > around {
                owner -= 1;
            }
            let look = self.look(view, owner, around);
            if look.changed {
                (seen, ended) = ((around, look), Some((around, Sign::Variable)));
            }
        }
        let (found, look) = seen;
        if back && found == inside {
            ended = Some((inside - 1, Sign::Within));
        } else if (look.changed || may_have != MayHave::GoneOn)
            && found > from
            && self.begins_again(view, found, look)
        {
            let sure = look.changed || may_have == MayHave::Ended;
            ended = Some((found - 1, if sure { Sign::Within } else { Sign::Again }));
        }
        let (inside, sign) = ended?;
        self.ends(view, inside, sign, innermost, depth)
    }

    /// Ends an iteration of a loop whose frame is at the depth `innermost`, or around that. Returns from where on the stack
    /// is to be built anew.
    pub(super) fn ends(
        &mut self,
        view: &mut View<'_>,
        inside: usize,
        sign: Sign,
        innermost: usize,
        depth: usize,
    ) -> Option<usize> {
        let owner = self.levels[..=innermost].iter().rposition(|l| l.first <= inside)?;
        self.pop(view, owner + 1);
        self.leave(view.tree, view.around, inside + 1);
        let (code, offset) = (self.levels[owner].code, self.levels[owner].seen.offset);
        self.iteration_ends(view, inside, code, offset, sign, depth);
        self.moved(view, owner, offset);
        Some(owner + 1)
    }

    /// Takes in what the variables of a frame's loops name whose iterations have just begun.
    pub(super) fn note_items(&mut self, view: &mut View<'_>, at: usize) {
        for inside in self.levels[at].first..self.insides.len() {
            if self.insides[inside].items.last == 0 {
                self.look(view, at, inside);
                self.goes_back(view, at, inside);
                self.insides[inside].items.count(view.around, &self.levels[at].seen);
            }
        }
    }

    /// Whether the iterator of a loop of the frame at depth `at` is where it was, though it has shown that it advances: C may have
    /// called again within the iteration, as `map` does.
    pub(super) fn stands_still(&mut self, view: &mut View<'_>, at: usize, inside: usize) -> bool {
        let seen = self.levels[at].seen;
        let Inside { node, ref mut items, .. } = self.insides[inside];
        let before = items.counted;
        items.count(view.around, &seen);
        let shown = [Sign::Proof, Sign::Variable];
        let has_advanced =
            || view.tree.get(node).is_some_and(|n| shown.iter().any(|&sign| n.ends[sign as usize] > 0));
        items.counted & COUNTED != 0 && items.counted == before && has_advanced()
    }

    /// Forgets what local variables named before the frames came to stand where they stand: a function that was called may
    /// have assigned to names of a module, and then went on.
    pub(super) fn forget_older_locals(&mut self) {
        let since = self.stands_since;
        let older = |items: &Items| items.are_locals() && items.looked < since;
        self.insides.iter_mut().filter(|i| older(&i.items)).for_each(|i| i.items.begin());
    }

    /// Takes in what the local variables of a frame name, which goes on in its innermost loop.
    #[inline]
    pub(super) fn note_locals(&mut self, view: &mut View<'_>, at: usize) {
        if let Some(inside) = self.insides.len().checked_sub(1)
            && self.insides[inside].items.are_locals()
        {
            self.look(view, at, inside);
        }
    }

    /// Looks at the variable of a loop of the frame at depth `at`. Returns whether it names another item by now.
    pub(super) fn names_another(&mut self, view: &mut View<'_>, at: usize, inside: usize) -> bool {
        self.look(view, at, inside).changed
    }

    #[inline]
    fn look(&mut self, view: &mut View<'_>, at: usize, inside: usize) -> Look {
        match (self.insides.get_mut(inside), self.levels.get(at)) {
            (Some(Inside { open: true, items, .. }), Some(level)) => match items.place {
                Some(Place::Locals(count)) => self.look_at_locals(view, at, inside, count),
                _ => items.look(items.now(view.around, &level.seen)),
            },
            _ => Look::default(),
        }
    }

    /// Whether the iterator of a loop of the frame at depth `at` has come less far than before, or as far, now that it is at
    /// another item: the loop was entered anew. Only where no item shows the iterations of the loop around it.
    fn goes_back(&mut self, view: &mut View<'_>, at: usize, inside: usize) -> bool {
        let Some([around, Inside { items, .. }]) = self.insides.get_mut(inside.wrapping_sub(1)..=inside)
        else {
            return false;
        };
        let Some((stack, depth)) = items.iterator.filter(|_| around.number < BEGINS && !around.items.show())
        else {
            return false;
        };
        let seen = &self.levels[at].seen;
        let now = view.around.iterator(seen, stack, depth);
        let before = std::mem::replace(&mut items.came, now);
        begins_again(view.around, (seen, stack, depth), before, now)
    }

    #[inline(never)]
    fn look_at_locals(&mut self, view: &mut View<'_>, at: usize, inside: usize, count: u16) -> Look {
        if !self.is_innermost(at, inside) {
            return Look::default();
        }
        let (seen, items) = (self.levels[at].seen, &mut self.insides[inside].items);
        items.looked = self.clock;
        let stood = std::mem::replace(&mut items.offset, seen.offset) == seen.offset;
        let now = view.around.locals(&seen, count);
        let last = std::mem::replace(&mut items.last, now);
        let changed = stood && now != 0 && last != 0 && now != last;
        items.others |= u8::from(changed);
        Look { changed, first_after: None }
    }

    /// A generator expression came round whose frame is at this depth. Where its iterator begins again, it is another one in the
    /// same memory, and its loop was entered anew.
    #[inline]
    pub(super) fn note_expression(&mut self, view: &mut View<'_>, at: usize, inside: usize) {
        let Level { seen, code, .. } = self.levels[at];
        let facts = view.codes.get(code);
        let Some(i) = self.insides.get_mut(inside).filter(|_| facts.iterated) else { return };
        let l = facts.extents.all().get(usize::from(i.number));
        let place = i.items.iterator.filter(|_| l.is_some_and(|l| l.comprehension));
        let Some((stack, depth)) = place else { return };
        let now = view.around.iterator(&seen, stack, depth);
        let before = std::mem::replace(&mut i.items.index, now);
        if begins_again(view.around, (&seen, stack, depth), before, now) {
            view.tree.entered(i.node, false);
        }
    }

    /// Whether no other loop of the frame at this depth is in one of it.
    fn is_innermost(&self, at: usize, inside: usize) -> bool {
        let inner = &self.insides[inside + 1..self.insides_end(at).max(inside + 1)];
        inner.iter().all(|i| i.number >= BEGINS)
    }

    /// The frame at depth `at` went on to a later instruction of its loops up to `inside`. Ends iterations as above.
    #[inline]
    pub(super) fn goes_on_in(&mut self, view: &mut View<'_>, at: usize, inside: usize) {
        let first = self.levels[at].first;
        let seen = &self.levels[at].seen;
        if self.insides[first..=inside].iter().any(|i| i.has_changed(view.around, seen)) {
            self.ends_by_variable(view, (first, inside), MayHave::GoneOn, at + 1);
        }
    }

    /// The frame at depth `at` is at a later instruction, in no loop of its own: it went on, or is that of another call that
    /// came further. Ends an iteration of the nearest loop around it in that case, and returns from where on the stack is to
    /// be built anew.
    #[inline]
    pub(super) fn comes_as_far(&mut self, view: &mut View<'_>, at: usize) -> Option<usize> {
        let inside = self.levels[at].first.checked_sub(1)?;
        let owner = self.levels[..at].iter().rposition(|l| l.first <= inside)?;
        if !self.insides[inside].has_changed(view.around, &self.levels[owner].seen) {
            return None;
        }
        self.ends_by_variable(view, (inside, inside), MayHave::GoneOn, at + 1)
    }

    /// What ran below the first `depth` frames has returned, and the innermost of these stands where it stood: it goes on, or is
    /// in another iteration, whose call runs no Python by now. Returns as above.
    pub(super) fn returned(&mut self, view: &mut View<'_>, depth: usize) -> Option<usize> {
        let at = depth.checked_sub(1)?;
        match self.insides.len().checked_sub(1).filter(|&inside| inside >= self.levels[at].first) {
            Some(inside) => self.goes_on_in(view, at, inside),
            None => return self.comes_as_far(view, at),
        }
        None
    }

    /// Whether a loop was entered anew, by a look when it came round, and nothing else shows the iterations of the loop
    /// around it. The framework's go over layers, each of which is another one.
    fn begins_again(&self, view: &View<'_>, inside: usize, look: Look) -> bool {
        let Some(others) = look.first_after else { return false };
        let node = |inside: usize| view.tree.get(self.insides[inside].node);
        let framework = node(inside).is_some_and(|n| n.framework);
        let shows_nothing = |around: usize| {
            let i = &self.insides[around];
            let proofs = node(around).map_or(0, |n| n.ends[Sign::Proof as usize]);
            i.number < BEGINS && !i.items.are_known() && proofs <= FEW_PROOFS
        };
        (framework || others >= OTHERS) && shows_nothing(inside - 1)
    }

    /// Whether an event that is the last one over again, but for the item of the innermost loop, leaves all as it is but the
    /// counts of that loop: the frame of depth `owner` has it, and nothing in the frames below that comes and goes.
    pub(super) fn is_settled(&self, view: &View<'_>, owner: usize) -> bool {
        let (Some(i), Some(level), Some(innermost)) =
            (self.insides.last(), self.levels.get(owner), self.levels.last())
        else {
            return false;
        };
        let count = self.insides.len();
        let stays = |l: &Level| l.first == count && !view.codes.get(l.code).generator && !l.task;
        level.first < count
            && i.number < BEGINS
            && i.open
            && matches!(i.items.place, Some(Place::Variable(_) | Place::Iterator(..)))
            && view.codes.get(level.code).extents.innermost(level.seen.offset) == Some(i.number)
            && self.levels[owner + 1..].iter().all(stays)
            && innermost.node == i.node
            && !innermost.builds
    }

    /// Whether the next event may be the last one over again.
    #[inline(always)]
    pub fn repeats(&self) -> bool {
        self.repeats.is_some()
    }

    /// Takes in an allocation that is the last one over again, if nothing changed but the item of the innermost loop, which
    /// is none that it began with. Returns what ended, if that is of the chosen level. `None`: it is something else, and
    /// nothing was done.
    #[inline(always)]
    pub fn repeat(
        &mut self,
        tree: &mut Tree,
        objects: u32,
        around: &mut impl EventContext,
    ) -> Option<Option<(u8, bool)>> {
        let mut owner = self.repeats?;
        let (i, outer) = self.insides.split_last_mut()?;
        let level = self.levels.get(owner)?;
        let now = i.items.now(around, &level.seen);
        let is_next = now != 0 && i.items.last != 0 && now != i.items.last;
        if !is_next || i.items.first == 0 || now == i.items.first {
            return None;
        }
        for at in (level.since_generator..outer.len()).rev() {
            while self.levels[owner].first > at {
                owner -= 1;
            }
            let Inside { open: true, items, .. } = &outer[at] else { continue };
            let now = items.now(around, &self.levels[owner].seen);
            if items.are_locals() || (now != 0 && now != items.last) {
                return None;
            }
        }
        let (node, depth) = (tree.get_mut(i.node)?, self.levels.len());
        let mark = node.mark;
        let ended = mark.counts(Sign::Variable).then_some((mark.level, mark.main));
        if ended.is_some() {
            node.count(Shown::Allocation, false);
            node.ends(Sign::Variable, depth);
        } else if tree.is_full() {
            return None;
        } else {
            tree.get_mut(i.node)?.count(Shown::Allocation, false);
            tree.close(i.node, Sign::Variable, depth, around);
        }
        (i.items.last, i.items.others) = (now, i.items.others.saturating_add(1));
        self.clock += 1;
        (i.since, self.objects) = (self.clock, objects);
        Some(ended)
    }
}
