//! The cycles of optimizers: which of their steps end a step of the program, and which belong to the one before. Each thread that
//! trains has cycles of its own. Pure.

use super::loops::Stepped;

/// Optimizer steps without the one that opened the cycle, after which another one opens it.
const WITHOUT_FIRST: u32 = 64;
/// Cycles after which it is known how many others follow the one that opens them …
const KNOWN_CYCLES: u32 = 8;
/// … and so many times as many and `BEYOND` are no part of its cycle: the program goes on with another
/// optimizer.
const MORE_THAN_EVER: u32 = 4;
/// More than the critic's usual steps for one of the generator's.
pub(super) const BEYOND: u32 = 12;
/// Threads that train and are told apart.
const MOST_THREADS: usize = 64;

/// What an optimizer step is to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It ends a step.
    Ends,
    /// It belongs to the cycle whose boundary was the last of all: it takes the place of that.
    Again,
    /// The same, but another thread ended a step since: that boundary cannot be moved.
    AgainBehindOthers,
}

/// The cycles of a thread.
#[derive(Debug)]
struct Cycle {
    thread: usize,
    /// Backward passes began on this thread.
    goes_backward: bool,
    stepped: bool,
    backward_since: bool,
    first: Option<usize>,
    without_first: u32,
    /// There are others.
    several: bool,
    /// How often the one that opens the cycle stepped, and the most steps of others in between.
    cycles: u32,
    most_between: u32,
}

impl Cycle {
    fn new(thread: usize) -> Cycle {
        Cycle {
            thread,
            goes_backward: false,
            stepped: false,
            backward_since: true,
            first: None,
            without_first: 0,
            several: false,
            cycles: 0,
            most_between: 0,
        }
    }

    fn begin(&mut self, first: Option<usize>) {
        *self = Cycle { first, cycles: 0, most_between: 0, without_first: 0, several: false, ..*self };
    }

    /// Takes in that an optimizer stepped. Returns whether it belongs to the step that the one before ended.
    fn optimizer(&mut self, id: Option<usize>, stepped: Stepped) -> bool {
        if stepped.new_phase && self.backward_since && id != self.first {
            self.begin(id);
        }
        // The first of all always ends a step: what came before it had no boundary to replace.
        let next_turn = stepped.next_turn && self.several;
        let again =
            self.stepped && (!self.backward_since || next_turn || (self.follows(id) && !stepped.new_round));
        self.stepped = true;
        self.backward_since = false;
        if let (None, Some(_)) = (self.first, id) {
            self.first = id;
        }
        again
    }

    /// Returns whether this is an optimizer other than the one that opened the cycle.
    fn follows(&mut self, id: Option<usize>) -> bool {
        if id.is_none() || self.first.is_none() || id == self.first {
            self.cycles = self.cycles.saturating_add(1);
            self.most_between = self.most_between.max(self.without_first);
            self.without_first = 0;
            return false;
        }
        self.without_first += 1;
        self.several = true;
        let known = self.cycles >= KNOWN_CYCLES;
        let usual = if known { MORE_THAN_EVER * self.most_between + BEYOND } else { WITHOUT_FIRST };
        if self.without_first > usual.min(WITHOUT_FIRST) {
            self.begin(id);
            return false;
        }
        true
    }
}

/// The cycles of all threads.
#[derive(Debug)]
pub(super) struct Cycles {
    threads: Vec<Cycle>,
    /// The thread on which a backward pass began last: an optimizer may step on another one, which has none.
    backward: usize,
    /// The thread whose optimizer stepped last.
    last: usize,
}

impl Cycles {
    pub const fn new() -> Cycles {
        Cycles { threads: Vec::new(), backward: 0, last: 0 }
    }

    /// Takes in that an optimizer stepped on a thread.
    pub fn optimizer(&mut self, thread: usize, id: Option<usize>, stepped: Stepped) -> Turn {
        let trains = |of: usize| self.threads.iter().any(|c| c.thread == of && c.goes_backward);
        let thread = if !trains(thread) && trains(self.backward) { self.backward } else { thread };
        let is_last = std::mem::replace(&mut self.last, thread) == thread;
        match (self.of(thread).optimizer(id, stepped), is_last) {
            (false, _) => Turn::Ends,
            (true, true) => Turn::Again,
            (true, false) => Turn::AgainBehindOthers,
        }
    }

    /// Returns whether optimizers step by turns, on one thread alone.
    pub fn takes_turns(&self) -> bool {
        matches!(&self.threads[..], [only] if only.several)
    }

    /// Takes in that a backward pass begins on a thread.
    pub fn backward(&mut self, thread: usize) {
        self.backward = thread;
        let cycle = self.of(thread);
        (cycle.goes_backward, cycle.backward_since) = (true, true);
    }

    /// Takes in that there is an optimizer no more.
    pub fn optimizer_gone(&mut self, id: usize) {
        self.threads.iter_mut().filter(|c| c.first == Some(id)).for_each(|c| c.begin(None));
    }

    /// Takes in that a thread has ended: the next one at its address is another.
    pub fn thread_ended(&mut self, thread: usize) {
        self.threads.retain(|c| c.thread != thread);
    }

    fn of(&mut self, thread: usize) -> &mut Cycle {
        let at = self.threads.iter().position(|c| c.thread == thread).unwrap_or_else(|| {
            if self.threads.len() >= MOST_THREADS {
                self.threads.remove(0);
            }
            self.threads.push(Cycle::new(thread));
            self.threads.len() - 1
        });
        &mut self.threads[at]
    }
}
