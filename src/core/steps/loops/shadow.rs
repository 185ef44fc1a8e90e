//! One thread's Python stack as it was at its last event, and what the next one says about the loops in it.
//!
//! Two stacks are compared from the outermost frame in, up to the first difference there:
//!
//! ```text
//!  same frame, later instruction       it went on; loops are left and entered
//!  same frame, earlier, in a loop      an iteration ended: proof
//!  same frame, earlier, in no loop     another call that got the same memory  ┐ so the nearest frame outside that is in a
//!  same call, another function, or     another call of it                     ┘ loop made it again: an iteration ended
//!  the same one after it had ended
//! ```
//!
//! The walk out to that loop is a proof where the frames in between were entered from Python; where C lies in
//! between it is only a sign, since C may call back many times by itself (`map`, the autograd engine).
//! Generators come and go without being called anew, so they are kept when they stand still. Where none of that
//! is to be seen, the variables of the loops are looked at ([`items`]).

mod calls;
mod items;
mod waiting;

use super::code::{Code, Codes};
use super::extents::DEEPEST;
use super::tree::{Id, NONE, Sign, Tree};
use super::{EventContext, Seen};
use items::{Items, MayHave};

/// Frames compared, from the outermost in.
const MOST_LEVELS: usize = 256;
/// Generators that stand still.
const MOST_WAITING: usize = 256;
/// Coroutines without loops that were awaited.
const MOST_AWAITED: usize = 64;

/// The number of what is no loop of a code, but a call from which C calls again and again. Behind those of
/// all loops.
pub(super) const CALL: u8 = 254;
/// The number of what is no loop either, but a function that threads or tasks begin with, each time anew.
pub(super) const BEGINS: u8 = 253;

/// What stands for a code and the offset of such a call in a tree.
fn call_at(code: u32, offset: u32) -> u32 {
    (offset / 2) << 16 | code & 0xffff
}

/// The code and the offset that it stands for.
pub(super) fn called_at(call: u32) -> (u32, u32) {
    (call & 0xffff, (call >> 16) * 2)
}

/// What the detector is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    Allocation,
    Free,
    Copy,
    /// Work that takes no memory: a kernel that is launched, or the call of what allocates on other threads, which is
    /// counted by itself ([`super::Loops::elsewhere`]).
    Work,
}

/// What an event is, beside its frames.
#[derive(Clone, Copy, Debug)]
pub struct What {
    pub shown: Shown,
    /// A framework gives out blocks in this process. Where none does, what a library's constructors allocate are arrays.
    pub framework: bool,
    /// A count that changes whenever Python makes an object; one that stays is none.
    pub objects: u32,
    /// Python makes objects within one call of the program's that allocates several times, too: the count says little.
    pub restless: bool,
}

/// A loop that a frame is in.
#[derive(Clone, Copy, Debug, Default)]
struct Inside {
    number: u8,
    /// An iteration is under way; not while the first or next item is being fetched, nor of what threads or
    /// tasks begin with, which have the iterations in common.
    open: bool,
    node: Id,
    items: Items,
    /// When it was entered, or an iteration ended last.
    since: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Called {
    Nothing,
    Function,
    /// A function, by C.
    Through,
    /// A generator; where it was last, once it ran no more.
    Generator(Option<Seen>),
    /// A coroutine, before it stood still itself.
    Awaited,
}

#[derive(Debug)]
struct Level {
    seen: Seen,
    code: u32,
    /// Where its loops begin in the list, and those of the innermost generator that it is or runs in.
    first: usize,
    since_generator: usize,
    /// The innermost loop at or around it.
    node: Id,
    /// What ran below it since it stands at this instruction.
    called: Called,
    /// A model is being made in it.
    builds: bool,
    /// A task begins with it, as a coroutine.
    task: bool,
}

/// A generator that stands still.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    frame: usize,
    code: u32,
    offset: u32,
    insides: [Inside; DEEPEST],
    count: usize,
    /// The loop that goes over what it yields, and the frame that ran it.
    by: Id,
    caller: usize,
    /// What ran below it there.
    called: Called,
    used: u64,
}

/// Where an awaited coroutine without loops was at its last event.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    frame: usize,
    code: u32,
    offset: u32,
}

#[derive(Debug)]
pub(super) struct Shadow {
    pub thread: usize,
    /// It has ended: an event at its address is another thread's.
    pub is_over: bool,
    /// [`NONE`] before its first event: threads that begin alike have it in common.
    pub root: Id,
    /// When it was used last.
    pub used: u64,
    /// The sequence number of its last allocation or copy, while a loop was sought.
    pub last: u64,
    /// Those of the last event, however deep, outermost first.
    pub frames: Vec<Seen>,
    levels: Vec<Level>,
    insides: Vec<Inside>,
    waiting: Vec<Waiting>,
    awaited: Vec<Awaited>,
    clock: u64,
    /// When a frame of the program's was last seen elsewhere than at the event before.
    stands_since: u64,
    /// Count of the objects that Python made, at the last event.
    objects: u32,
    /// When work for the device was shown last, and what the variables of the innermost frames named then; 0: not known.
    named: (u64, u64),
    /// How many of the frames of the last event are those of `levels`, where it was passed over.
    agreed: Option<usize>,
    /// The depth of the frame that has the innermost loop, where the next event may be the last one over again.
    repeats: Option<usize>,
}

/// What stays the same while one event is compared.
pub(super) struct View<'a> {
    pub tree: &'a mut Tree,
    pub codes: &'a mut Codes,
    pub around: &'a mut dyn EventContext,
    /// Calls between Python frames cannot be told from those through C.
    pub blind: bool,
}

impl Shadow {
    pub fn new(thread: usize) -> Shadow {
        Shadow {
            thread,
            is_over: false,
            root: NONE,
            used: 0,
            last: 0,
            frames: Vec::new(),
            levels: Vec::with_capacity(MOST_LEVELS),
            insides: Vec::with_capacity(MOST_LEVELS),
            waiting: Vec::with_capacity(MOST_WAITING),
            awaited: Vec::with_capacity(MOST_AWAITED),
            clock: 0,
            stands_since: 0,
            objects: 0,
            named: (0, 0),
            agreed: None,
            repeats: None,
        }
    }

    /// Takes an event in: `frames` are outermost first, of which only the first `depth` are compared, and at
    /// least the first `same` are as they were.
    #[inline]
    pub fn event(&mut self, view: &mut View<'_>, all: &[Seen], same: usize, depth: usize, what: What) {
        let frames = &all[..all.len().min(depth).min(MOST_LEVELS)];
        self.clock += 1;
        self.repeats = None;
        let objects = std::mem::replace(&mut self.objects, what.objects);
        let same = self.agreed.take().map_or(same, |agreed| same.min(agreed));
        let freed = what.shown == Shown::Free;
        let both = frames.len().min(self.levels.len());
        let differs = (same.min(both)..both).find(|&at| self.levels[at].seen != frames[at]);
        let at = differs.unwrap_or(both);
        if freed && !view.blind && frames.get(at).is_some_and(|seen| self.is_destructor(at, seen)) {
            self.agreed = Some(at);
            return self.count(view, at - 1, what);
        }
        if let Some(seen) = frames.get(at) {
            self.note_change(view, at);
            let at = self.differs(view, at, seen);
            for seen in &frames[at..] {
                self.push(view, seen);
            }
        } else if self.levels.len() > at {
            self.note_change(view, at);
            self.pop(view, at);
            if !freed && let Some(kept) = self.returned(view, at) {
                for seen in &frames[kept..] {
                    self.push(view, seen);
                }
            }
        } else if !freed
            && frames.len() == all.len()
            && let Some(kept) = self.again(view, objects != what.objects, what)
        {
            for seen in &frames[kept..] {
                self.push(view, seen);
            }
            self.repeats = kept.checked_sub(1).filter(|&owner| self.is_settled(view, owner));
        }
        if what.shown == Shown::Work {
            self.named = (self.clock, self.names(view));
        }
        if let Some(innermost) = self.levels.len().checked_sub(1) {
            self.count(view, innermost, what);
        } else if let Some(node) = view.tree.get_mut(self.root) {
            node.count(what.shown, false);
        }
    }

    /// The frames from this depth on are others. What a library's functions call assigns to no name of the program's modules.
    #[inline(always)]
    fn note_change(&mut self, view: &View<'_>, at: usize) {
        let of = self.levels.get(at).or_else(|| self.levels.get(at.checked_sub(1)?));
        if !of.is_some_and(|level| view.codes.get(level.code).library) {
            self.stands_since = self.clock;
        }
    }

    /// Counts an event where the frame at this depth stands.
    fn count(&self, view: &mut View<'_>, at: usize, what: What) {
        let level = &self.levels[at];
        if let Some(node) = view.tree.get_mut(level.node) {
            node.count(what.shown, what.framework && level.builds);
        }
    }

    /// Whether the frame at depth `at`, which gives memory back, is one that C called from where another stood: a destructor
    /// or a callback that runs when objects go is no call that the program makes. An allocation in it would tell.
    fn is_destructor(&self, at: usize, seen: &Seen) -> bool {
        let is_known =
            self.levels.get(at).is_some_and(|l| l.seen.frame == seen.frame && l.seen.code == seen.code);
        at > 0 && seen.entry && !is_known
    }

    /// An optimizer steps in the loops that are under way: each is the node with steps from now on.
    pub fn steps_in_loops(&mut self, tree: &mut Tree) {
        let mut around = (self.root, self.root);
        for inside in &mut self.insides {
            let node = inside.node;
            inside.node = tree.steps_in(node, around, inside.open);
            around = (node, inside.node);
            if around.0 != around.1 {
                self.levels.iter_mut().filter(|l| l.node == around.0).for_each(|l| l.node = around.1);
            }
        }
    }

    /// The innermost loop at the last event.
    pub fn node(&self) -> Id {
        self.levels.last().map_or(self.root, |l| l.node)
    }

    /// The frame at depth `at` is not the one that was there. Returns from where on the stack is to be built
    /// anew.
    fn differs(&mut self, view: &mut View<'_>, at: usize, seen: &Seen) -> usize {
        let Some(level) = self.levels.get_mut(at) else {
            // Nothing was below: not even now and then?
            let code = view.codes.number(seen, view.around);
            let called = at.checked_sub(1).map_or(Called::Nothing, |above| self.levels[above].called);
            let waits = view.codes.get(code).generator && !self.is_awaited(view, at, code);
            if self.takes_next(view, at, seen, code) {
                return at;
            }
            return match called {
                Called::Function if !waits && !view.blind => self.made_again(view, at, seen, 0),
                Called::Through if !waits && !view.blind => self.made_again(view, at, seen, 1),
                _ => at,
            };
        };
        if level.seen.frame == seen.frame && level.seen.code == seen.code {
            let before = level.seen.offset;
            let code = level.code;
            level.seen.entry = seen.entry;
            self.pop(view, at + 1);
            self.levels[at].seen.offset = seen.offset;
            let own = self.levels[at].first;
            let extents = &view.codes.get(code).extents;
            let held = self.insides[own..].iter().rposition(|i| extents.holds(i.number, seen.offset));
            let held = held.map(|i| own + i);
            if seen.offset > before {
                match held {
                    Some(inside) => self.goes_on_in(view, at, inside),
                    None => {
                        if let Some(kept) = self.comes_as_far(view, at) {
                            return kept;
                        }
                    }
                }
                self.moved(view, at, seen.offset);
                return at + 1;
            }
            match held {
                Some(inside) => {
                    self.leave(view.tree, view.around, inside + 1);
                    match self.ends_by_variable(view, (0, inside), MayHave::Ended, at + 1) {
                        Some(kept) if kept <= at => return kept,
                        Some(_) => {}
                        None => self.iteration_ends(view, inside, code, seen.offset, Sign::Proof, at + 1),
                    }
                    self.note_expression(view, at, inside);
                    self.moved(view, at, seen.offset);
                    return at + 1;
                }
                // Another one, that got the same memory.
                None => {
                    let stood = view.codes.get(code).generator && !self.is_awaited(view, at, code);
                    self.pop(view, at);
                    if stood {
                        self.made_anew(view, at, true);
                        return at;
                    }
                    return self.made_again(view, at, seen, 0);
                }
            }
        }
        let (entry, was) = (level.seen.entry, level.code);
        let code = view.codes.number(seen, view.around);
        if !view.codes.get(was).generator && self.takes_next(view, at, seen, code) {
            return at;
        }
        let waits = (view.codes.get(was).generator || view.codes.get(code).generator)
            && !self.is_awaited(view, at, code);
        // A generator that begins where another of its code stands still in its loop was made since, in a loop around it.
        let in_loop = self.levels[at].first < self.insides_end(at);
        let known = || self.waiting.iter().any(|w| w.frame == seen.frame && w.code == code);
        let stood = || in_loop && view.codes.get(code).iterated && !known();
        let begins = code == was && stood();
        // What C called there and what the instruction itself called may be one call of it.
        let by_c = at > 0 && !view.blind && self.crosses(view, at - 1, entry, was) > 0;
        self.pop(view, at);
        if begins {
            self.made_anew(view, at, true);
        }
        if waits { at } else { self.made_again(view, at, seen, usize::from(by_c)) }
    }

    /// Whether a coroutine at depth `at` is awaited by the frame around it. That awaits one after the other, so another
    /// one there was called since, as a function is.
    fn is_awaited(&self, view: &View<'_>, at: usize, code: u32) -> bool {
        let by = || self.levels.get(at.wrapping_sub(1)).is_some_and(|l| view.codes.get(l.code).generator);
        view.codes.get(code).coroutine && by()
    }

    fn insides_end(&self, at: usize) -> usize {
        self.levels.get(at + 1).map_or(self.insides.len(), |l| l.first)
    }

    /// Ends an iteration of a loop, which is the innermost that is left.
    fn iteration_ends(
        &mut self,
        view: &mut View<'_>,
        inside: usize,
        code: u32,
        offset: u32,
        sign: Sign,
        depth: usize,
    ) {
        let Some(i) = self.insides.get_mut(inside) else { return };
        // Still fetching: no iteration yet that could be over.
        if !i.open && i.number != BEGINS {
            return;
        }
        let fetching = is_fetching(view.codes.get(code), i.number, offset);
        view.tree.close(i.node, sign, depth, view.around);
        i.since = self.clock;
        if fetching {
            view.tree.lose(i.node);
            i.open = false;
        } else if let Some(owner) = self.levels.iter().rfind(|l| l.first <= inside) {
            i.items.count(view.around, &owner.seen);
        }
    }

    /// The innermost frame is at another instruction now.
    #[inline(always)]
    fn moved(&mut self, view: &mut View<'_>, at: usize, offset: u32) {
        let level = &mut self.levels[at];
        level.seen.offset = offset;
        level.called = Called::Nothing;
        let (code, first) = (level.code, level.first);
        let facts = view.codes.get(code);
        let own = self.insides.get_mut(first..).unwrap_or_default();
        if facts.extents.all().is_empty() && own.is_empty() {
            return;
        }
        if own.last().map(|i| i.number) != facts.extents.innermost(offset) {
            return self.moved_out_or_in(view, at, offset);
        }
        let mut opened = false;
        for i in own.iter_mut().filter(|i| !i.open && !is_fetching(facts, i.number, offset)) {
            (i.open, opened) = (true, true);
            i.items.begin();
            view.tree.open(i.node);
        }
        let node = own.last().map(|i| i.node);
        let around = || at.checked_sub(1).map_or(self.root, |above| self.levels[above].node);
        self.levels[at].node = node.unwrap_or_else(around);
        if opened {
            self.note_items(view, at);
        }
        if node.is_some() {
            self.note_locals(view, at);
        }
    }

    /// … and that is in other loops of its code.
    #[inline(never)]
    fn moved_out_or_in(&mut self, view: &mut View<'_>, at: usize, offset: u32) {
        let around = at.checked_sub(1).map_or(self.root, |above| self.levels[above].node);
        let (code, first) = (self.levels[at].code, self.levels[at].first);
        let facts = view.codes.get(code);
        let chain = facts.extents.around(offset);
        let mut same = 0;
        while self.insides.get(first + same).map(|i| i.number) == chain.get().get(same).copied()
            && same < chain.get().len()
        {
            same += 1;
        }
        self.end_streams(view, self.levels[at].seen.frame, first + same);
        self.leave(view.tree, view.around, first + same);
        let facts = view.codes.get(code);
        for i in &mut self.insides[first..] {
            if !i.open && !is_fetching(facts, i.number, offset) {
                i.open = true;
                i.items.begin();
                view.tree.open(i.node);
            }
        }
        let mut node = self.insides.get(first..).and_then(|i| i.last()).map_or(around, |i| i.node);
        for &number in &chain.get()[same..] {
            let l = &facts.extents.all()[usize::from(number)];
            let across = self.insides.len() == first && self.library_above(&*view.codes, at);
            node = view.tree.enter(node, code, number, |n| {
                (n.library, n.comprehension, n.across) = (facts.library, l.comprehension, across);
                (n.iterated, n.framework) = (facts.iterated, facts.framework);
            });
            let open = !is_fetching(facts, number, offset);
            view.tree.entered(node, open);
            let items = Items::of(l, facts.variables);
            self.insides.push(Inside { number, open, node, items, since: self.clock });
        }
        self.levels[at].node = node;
        self.note_items(view, at);
    }

    /// Whether library code runs between the frame at this depth and the nearest loop around it. What a decorator has put
    /// around a function of the program's (`@torch.no_grad()`) is none.
    fn library_above(&self, codes: &Codes, at: usize) -> bool {
        let is_library = |above: usize| {
            let level = &self.levels[above];
            let code = codes.get(level.code);
            code.library && !(code.decorator && code.extents.spreads_at(level.seen.offset))
        };
        (0..at).rev().take_while(|&above| self.levels[above].first == self.insides_end(above)).any(is_library)
    }

    /// The loops from here on are left.
    #[inline(always)]
    fn leave(&mut self, tree: &mut Tree, around: &mut dyn EventContext, from: usize) {
        if self.insides.len() > from {
            self.leave_some(tree, around, from);
        }
    }

    #[inline(never)]
    fn leave_some(&mut self, tree: &mut Tree, around: &mut dyn EventContext, from: usize) {
        let depth = self.levels.len();
        while self.insides.len() > from {
            let Some(i) = self.insides.pop() else { return };
            // Those that threads and tasks begin with have one under way in common.
            let begun = || i.number == BEGINS && tree.get(i.node).is_some_and(|n| n.open > 0);
            if i.open || begun() {
                tree.lose(i.node);
                tree.close(i.node, Sign::Left, depth, around);
            }
        }
    }

    /// The frames from this depth on are gone.
    #[inline(always)]
    fn pop(&mut self, view: &mut View<'_>, to: usize) {
        if self.levels.len() > to {
            self.pop_some(view, to);
        }
    }

    #[inline(never)]
    fn pop_some(&mut self, view: &mut View<'_>, to: usize) {
        while self.levels.len() > to {
            let Some(level) = self.levels.pop() else { return };
            if view.codes.get(level.code).generator {
                self.stand_still(view, &level);
                if let Some(Called::Generator(last)) = self.levels.last_mut().map(|above| &mut above.called) {
                    *last = Some(level.seen);
                }
            }
            self.end_streams(view, level.seen.frame, level.first);
            self.leave(view.tree, view.around, level.first);
        }
    }

    fn push(&mut self, view: &mut View<'_>, seen: &Seen) {
        let code = view.codes.number(seen, view.around);
        let facts = view.codes.get(code);
        let above = self.levels.last().map(|l| view.codes.get(l.code));
        let task = facts.coroutine && above.is_some_and(|above| !above.generator) && seen.entry;
        if above.is_some_and(|above| above.bootstrap) && !facts.bootstrap {
            self.begins(view, code, false);
        } else if task && !self.goes_on(view, seen, code) {
            self.begins(view, code, true);
        }
        let facts = view.codes.get(code);
        let (generator, loops) = (facts.generator, !facts.extents.all().is_empty());
        // A library's constructor may call what the user wrote for something else: a server's handles the request.
        let builds = facts.builds || (facts.library && self.levels.last().is_some_and(|l| l.builds));
        let (mut around, at) = (self.root, self.levels.len());
        let crosses = at > 0 && self.crosses(view, at - 1, seen.entry, code) > 0;
        let awaited = generator && self.is_awaited(view, at, code);
        let awaits = awaited && self.awaits(view, at - 1, seen, code);
        let mut called = if awaits { Called::Awaited } else { Called::Nothing };
        let stands = generator && !awaited;
        let before = at.checked_sub(1).map(|above| self.levels[above].called);
        if stands
            && let Some(Called::Generator(Some(last))) = before
            && let Some(is_sure) = self.is_another(view, code, seen, &last)
        {
            self.made_anew(view, at, is_sure);
        }
        if let Some(above) = self.levels.last_mut() {
            around = above.node;
            above.called = match crosses {
                _ if stands => Called::Generator(None),
                true => Called::Through,
                false => Called::Function,
            };
        }
        let first = self.insides.len();
        let since_generator = match self.levels.last() {
            _ if generator => first,
            Some(above) => above.since_generator,
            None => 0,
        };
        self.levels.push(Level {
            seen: *seen,
            code,
            first,
            since_generator,
            node: around,
            called: Called::Nothing,
            builds,
            task,
        });
        if generator && let Some(waiting) = self.take_waiting(view, seen.frame, code, around) {
            let stands = self.go_on(view, at, &waiting);
            called = if stands { waiting.called } else { Called::Nothing };
        }
        if loops {
            self.moved(view, at, seen.offset);
        }
        self.levels[at].called = called;
    }

    /// Another thread begins in the place of one that has ended. What threads begin with ends where another one begins, so
    /// that is still under way.
    pub fn begins_anew(&mut self, view: &mut View<'_>) {
        self.insides.retain(|i| i.number != BEGINS);
        self.finish(view);
        self.awaited.clear();
        (self.root, self.is_over) = (NONE, false);
    }

    /// Nothing more comes from this thread: what is under way is over.
    pub fn finish(&mut self, view: &mut View<'_>) {
        for waiting in std::mem::take(&mut self.waiting) {
            self.insides.extend_from_slice(&waiting.insides[..waiting.count]);
        }
        self.leave(view.tree, view.around, 0);
        self.levels.clear();
        self.repeats = None;
    }
}

/// Before its body a `for` loop fetches the next item; whether there is one is not known yet.
fn is_fetching(code: &Code, number: u8, offset: u32) -> bool {
    code.extents.all().get(usize::from(number)).is_some_and(|l| (l.header..l.body).contains(&offset))
}
