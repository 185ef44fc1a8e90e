//! Two loops beside each other: does one do the same work as the main one, or does it prepare, wind up or accompany it?

use super::super::shadow::BEGINS;
use super::super::tree::{End, Id, Node};
use super::{CALLBACK, Chooser, EPOCH, FEW, LEAST_SHARE, TO_JUDGE};

/// Least allocations in an iteration.
const LEAST_BIRTHS: f64 = 2.0;
/// Least work as a share of the main loop's, where that does little itself.
const SHARE_OF_LITTLE: f64 = 0.25;
/// Where the main loop came round this many times as often, one that began before it and had so few has prepared something.
const FAR_OFTENER: f64 = 10.0;
/// Where the main loop came round this many times as often, one before or after it of too few rounds to be judged is no phase.
const MANY_TIMES: f64 = 4.0;
/// What prepares as many things as there are rounds that go over them does at most this share of the work of these.
const LESS: f64 = 0.8;
/// What is entered no more than this many times as often as another loop comes round is entered once in each of its rounds.
const OFTENER: f64 = 1.25;
/// What allocates less than this share of what the main loop does in each round is no other phase of the same work.
const LIGHT: f64 = 0.5;
/// Least ends of two loops together that show whether they take turns, and the share of these that the other one's follow.
const LEAST_TURNS: usize = 16;
const TURNS: f64 = 0.9;
/// How often at least two tasks come round after each other, several times each: a queue between them has room for some.
const LEAST_HANDOVERS: usize = 8;
/// Blocks that stay of a round of what prepares something: of most rounds there is one.
const STAYS: f64 = 0.75;

impl Chooser<'_> {
    /// Whether a loop allocates as the main one does: what it keeps it does not free.
    pub(super) fn works_like(&self, id: Id, main: Id) -> bool {
        let main = self.births_each(main);
        self.births_each(id) >= LEAST_BIRTHS.min(SHARE_OF_LITTLE * main).max(LEAST_SHARE * main)
    }

    /// Whether a loop does far less in a round than the main one.
    pub(super) fn is_light(&self, id: Id, main: Id) -> bool {
        self.births_each(id) < LIGHT * self.births_each(main)
    }

    /// Whether a loop ran once before the main one, and something of each of its rounds stayed: it makes weights, or loads data.
    /// An evaluation leaves nothing, or as the training does. Its rounds are of less work, and there are fewer of them; or as many,
    /// one for each of those that go over what it has made; or only the main loop trains.
    pub(super) fn sets_up(&self, id: Id, main: Id) -> bool {
        let (rounds, of_main) = (self.iterations(id), self.iterations(main));
        let takes = self.births(id) - self.copies[usize::from(id)] as f64;
        let stays = takes - self.frees[usize::from(id)] as f64;
        let trains = |id: Id| self.backwards[usize::from(id)] > 0;
        let once = self.tree.get(id).is_some_and(|n| n.instances <= 1);
        // A comprehension makes a list of things, whatever it takes.
        let share = if self.is_single_expression(id) { 1.0 } else { LESS };
        let is_less = || self.births_each(id) <= share * self.births_each(main);
        // An expression that goes over what a loop has made sums it up.
        let sums_up = self.is_single_expression(main) && !self.is_single_expression(id);
        let prepares = || {
            (rounds < of_main && self.is_light(id, main))
                || ((rounds - of_main).abs() <= 1.0
                    && !sums_up
                    && is_less()
                    && self.thread_of(id) == self.thread_of(main))
                || trains(main)
        };
        let updates = self.updates[usize::from(id)] > 0;
        id < main && once && stays >= STAYS * rounds && !trains(id) && !updates && prepares()
    }

    /// Whether a loop came round far fewer times than the main one, all of them before it or after it: it warms up, tries sizes, or
    /// looks at what has come of it. What leaks in so few rounds cannot be told. One that came round oftener, as an encoder does
    /// that runs first, is a phase.
    pub(super) fn is_brief(&self, id: Id, main: Id) -> bool {
        let (rounds, of_main) = (self.iterations(id), self.iterations(main));
        let tries = || self.rounds_each_time(id) < TO_JUDGE && self.backwards[usize::from(id)] == 0;
        of_main >= TO_JUDGE
            && rounds * MANY_TIMES <= of_main
            && match self.is_before(id, main) {
                Some(before) => rounds < TO_JUDGE || (before && tries()),
                None => false,
            }
    }

    /// What the thread or the task begins with that a loop runs in; the thread's root, where that is not known.
    fn thread_of(&self, id: Id) -> Option<Id> {
        let begins = |n: &Node| n.is_root || (n.is_call && n.number == BEGINS);
        std::iter::successors(Some(id), |&at| self.tree.get(at).map(|n| n.parent))
            .find(|&at| self.tree.get(at).is_some_and(begins))
    }

    /// Whether a loop came round before another one did, and not after that had begun; `Some(false)`: the other way about.
    fn is_before(&self, id: Id, other: Id) -> Option<bool> {
        let span = |of: Id| {
            let mut ends = self.tree.log.iter().filter(|end| end.node == of).map(|end| end.at.seq);
            let first = ends.next()?;
            Some((first, ends.next_back().unwrap_or(first)))
        };
        let own = span(id)?;
        // Of the level that was chosen no ends are remembered.
        let Some(others) = span(other) else { return self.tree.chosen.then_some(false) };
        if own.1 <= others.0 { Some(true) } else { (own.0 >= others.1).then_some(false) }
    }

    /// Whether two loops come round as often, one after the other each time; or in turns, though each was entered only once: then
    /// they run in two tasks, one of which hands the other what it works on. Threads come round in turns as the system likes. Or
    /// one of them is what tasks are called for, and the other one awaits some of these in each round.
    pub(super) fn take_turns(&self, id: Id, main: Id) -> bool {
        let (own, of_main) = (self.iterations(id), self.iterations(main));
        let begun_as_task =
            |id: Id| self.thread_of(id).and_then(|at| self.tree.get(at)).is_some_and(|n| n.is_task);
        let is_call_of_tasks = |id: Id| self.thread_of(id) == Some(id) && begun_as_task(id);
        let is_one_of_calls = is_call_of_tasks(id) != is_call_of_tasks(main);
        let are_awaited = is_one_of_calls && begun_as_task(id) && begun_as_task(main);
        let are_as_many = own.min(of_main) >= TURNS * own.max(of_main) - 1.0;
        if !are_as_many && !are_awaited {
            return false;
        }
        let masks = [id, main].map(|id| (id, self.tree.get(id).map_or(0, Node::mask)));
        let counts =
            |end: &&End| masks.iter().any(|&(id, mask)| end.node == id && mask >> end.sign as u8 & 1 == 1);
        let ends: Vec<Id> = self.tree.log.iter().filter(counts).map(|end| end.node).collect();
        let turns = ends.windows(2).filter(|pair| pair[0] != pair[1]).count();
        if are_awaited {
            return turns >= LEAST_HANDOVERS;
        }
        let is_task = |id: Id| self.tree.get(id).is_some_and(|n| n.instances <= 1) && begun_as_task(id);
        let are_tasks = || is_task(id) && is_task(main);
        ends.len() >= LEAST_TURNS
            && (turns as f64 >= TURNS * (ends.len() - 1) as f64 || turns >= LEAST_HANDOVERS && are_tasks())
    }

    /// Whether a library's loop goes over a few things that it has beside its main loop, such as metrics.
    pub(super) fn is_routine_of_library(&self, id: Id, main: Id) -> bool {
        let library = |id: Id| self.tree.get(id).is_some_and(|n| n.library);
        let few = |id: Id| self.rounds_each_time(id) < FEW as f64;
        library(id) && library(main) && few(id) && !few(main) && self.is_light(id, main)
    }

    /// Whether a user's loop is what each round of a library's calls for: a server's request, which takes a few rounds of it.
    pub(super) fn is_part_of_round(&self, id: Id, library: Id) -> bool {
        let rounds = self.iterations(library);
        let entered = self.tree.get(id).map_or(0.0, |n| f64::from(n.instances));
        let few = || self.rounds_each_time(id) < EPOCH;
        rounds >= TO_JUDGE && entered >= CALLBACK * rounds && (few() || self.are_answers(library, id))
    }

    /// Whether a loop is what answers requests, each by as many rounds of the loop inside as there are tokens in it: that is
    /// entered once for each, comes round as often as it likes, and trains nothing.
    pub(super) fn are_answers(&self, outer: Id, inner: Id) -> bool {
        let Some(n) = self.tree.get(inner) else { return false };
        let rounds = self.iterations(outer);
        let entered = f64::from(n.instances);
        rounds >= TO_JUDGE
            && (CALLBACK * rounds..=OFTENER * rounds).contains(&entered)
            && n.is_uneven()
            && self.optimizers[usize::from(inner)] == 0
            && self.backwards[usize::from(inner)] == 0
    }

    /// Whether a loop comes round a few times only whenever it is entered, or is an expression that is entered once, and seldom
    /// beside the main one: it sets something up, or winds something up, as the sum of a list does.
    pub(super) fn is_short(&self, id: Id, main: Id) -> bool {
        let entered = self.tree.get(id).map_or(1.0, |n| f64::from(n.instances.max(1)));
        let (rounds, of_main) = (self.iterations(id), self.iterations(main));
        let winds_up = self.is_single_expression(id)
            && !self.is_single_expression(main)
            && id > main
            && of_main >= TO_JUDGE
            && rounds <= of_main;
        let is_few = rounds < FEW as f64 * entered || self.is_single_expression(id);
        winds_up || (is_few && rounds * FAR_OFTENER <= of_main)
    }

    pub(super) fn is_single_expression(&self, id: Id) -> bool {
        self.tree.get(id).is_some_and(|n| n.is_expression() && n.instances <= 1)
    }

    /// Whether a loop also runs within the rounds of the main one, as that over the layers of a model does which is called before
    /// the main loop, too: then it is finer.
    pub(super) fn runs_within(&self, id: Id, main: Id) -> bool {
        let Some(own) = self.tree.get(id) else { return false };
        let is_same = |n: &Node| n.code == own.code && n.number == own.number;
        let around = |at: Id| std::iter::successors(Some(at), |&at| self.tree.get(at).map(|n| n.parent));
        let mut same = self.tree.ids().filter(|&at| self.tree.get(at).is_some_and(is_same));
        same.any(|at| around(at).skip(1).any(|at| at == main))
    }
}
