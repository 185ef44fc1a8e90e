//! Which loops of the tree are the steps of the program. The rules and their figures were found on programs
//! with a known truth; they see events and iterations only, no names.
//!
//! 1. Of the thread with most events, the outermost loops of the user's own code; if these see less than half
//!    of all events, the outermost loops of any, but for the framework's: those go over layers and parameters.
//!    A user's loop that a library's loop calls now and then is a callback's: the library's it is. Where that thread has
//!    loops of libraries only (a pool's threads take what there is to do), a user's loop of another thread that came round
//!    from the beginning to the end hands the work out: it is the steps.
//! 2. Down to the loop inside, where that does nearly all of the work and has far more iterations: an epoch is
//!    no step, its batches are; not where an optimizer steps or backward passes begin outside of it, which makes
//!    its rounds micro-batches, or layers. Loops beside it that do comparable work (an evaluation) are phases of the same level.
//!    Where the loop outside has too few iterations to be judged by, a few rounds inside are enough.
//! 3. Those that come round at least twice, do a noticeable amount of work each time compared with the main
//!    one (the printing of a table is no step), and give something back. What gives nothing back comes in where
//!    nothing else does, or after it: before, it prepares something, as does what comes round a few times only, or once
//!    before, with little work, something of which stays each time. Where
//!    models are made is no step, unless there are no others, and a fair part of what it does is something else.
//! 4. Of two that come round in turns, one after the other each time, only the main one: one task hands the other what it is
//!    asked for, and each request goes through both.
//!
//! An expression that goes over something (a comprehension, a generator, what C calls again and again) is a
//! part of the loop around it, unless it comes round so much oftener that the loop around it are epochs.

use super::shadow::CALL;
use super::tree::{End, Id, Node, STEPS_BETWEEN, Tree};
use crate::ledger::verdict::MIN_STEPS;

/// Least share of all events that the user's loops must see.
const USERS: f64 = 0.5;
/// A callback's loop covers less than this of the library's loop it is called from.
const CALLBACK: f64 = 0.8;
/// Least events of an iteration, least allocations among them, and either as a share of the main loop's.
const LEAST_EVENTS: f64 = 4.0;
const LEAST_BIRTHS: f64 = 2.0;
const LEAST_SHARE: f64 = 0.03;
/// A loop inside does this share of the events directly, and this together with what lies behind library
/// code.
const DIRECT: f64 = 0.5;
const COVERED: f64 = 0.9;
/// With so many rounds inside one outside, less will do.
const COVERED_OFTEN: f64 = 0.8;
const OFTEN: f64 = 32.0;
/// Rounds inside one outside, from which on the outer loop is taken for epochs whatever its own
/// count.
const EPOCH: f64 = 10.0;
const LEAST_ROUNDS: f64 = 1.5;

/// A loop of which less than this share of the events gives something back is building something, or leaks all.
const GIVEN_BACK: f64 = 0.125;
/// One of which more than this share of the events makes models is building something; where nothing else is a step, more
/// than the other.
const BUILT: f64 = 0.5;
const BUILT_ALONE: f64 = 0.75;
/// What gives back is the main loop if it does this share of the work of the one that does most.
const NOTICEABLE: f64 = 0.1;
/// Least work as a share of the main loop's, where that does little itself.
const SHARE_OF_LITTLE: f64 = 0.25;
/// Least rounds of an expression inside one round of the loop around it, for it to be more than a part of that.
const LEAST_ROUNDS_OF_EXPRESSION: f64 = 4.0;

/// Between optimizer steps: rounds of a loop, each time it is entered, that make it a phase. Of shorter ones
/// the optimizer's steps are enough.
pub(super) const LEAST_OF_A_PHASE: u64 = 8;
/// Least work of one inside the training, as a share of a batch's there: an evaluation does a fair part of
/// it, what is worked out for every parameter does not.
const LEAST_SHARE_INSIDE: f64 = 0.1;

/// Micro-batches do at least this share of the training's work.
const MICRO: f64 = 0.5;

/// Rounds that are too few for steps.
const FEW: u64 = 4;
/// Steps of which a run must have as many.
const TO_JUDGE: f64 = MIN_STEPS as f64;
/// Where the main loop came round this many times as often, one that began before it and had so few has prepared something.
const FAR_OFTENER: f64 = 10.0;
/// What allocates less than this share of what the main loop does in each round is no other phase of the same work.
const LIGHT: f64 = 0.5;
/// Least ends of two loops together that show whether they take turns, and the share of these that the other one's follow.
const LEAST_TURNS: usize = 16;
const TURNS: f64 = 0.9;
/// Blocks that stay of a round of what prepares something: of most rounds there is one.
const STAYS: f64 = 0.75;

/// Least rounds of a loop that hands the work out, and what it allocates in each; it began in the first and went on to the last
/// of so many parts of the run.
const LEAST_HANDED_OUT: f64 = 8.0;
const LEAST_BIRTHS_BESIDE: f64 = 1.0;
const PARTS: u64 = 4;

struct Chooser<'a> {
    tree: &'a Tree,
    /// Phases between optimizer steps are sought.
    phases: bool,
    /// A loop with too few iterations to be judged by is none, if the ones inside have enough.
    finer: bool,
    totals: Vec<u64>,
    frees: Vec<u64>,
    copies: Vec<u64>,
    built: Vec<u64>,
    optimizers: Vec<u64>,
    backwards: Vec<u64>,
}

/// The loops that are the level of steps; empty if there are none. `unasked`: nobody said that there are any,
/// so that a loop that only makes a model, layer by layer, is none.
pub(super) fn choose(tree: &Tree, unasked: bool) -> Vec<Id> {
    Chooser::new(tree).level(unasked)
}

/// The same, where the run is all that there is to judge by: if it has too few iterations of that level, those of the
/// loops inside.
pub(super) fn choose_so_far(tree: &Tree, unasked: bool) -> Vec<Id> {
    let chooser = Chooser::new(tree);
    let enough = |level: &[Id]| level.iter().map(|&id| chooser.iterations(id)).sum::<f64>() >= TO_JUDGE;
    let level = chooser.level(unasked);
    if level.is_empty() || enough(&level) {
        return level;
    }
    let finer = Chooser { finer: true, ..Chooser::new(tree) }.level(unasked);
    if enough(&finer) { finer } else { level }
}

/// Returns the loops that take turns with one of a level.
pub(super) fn taking_turns(tree: &Tree, level: &[Id]) -> Vec<Id> {
    let chooser = Chooser::new(tree);
    let others = tree.ids().filter(|id| !level.contains(id));
    others.filter(|&id| level.iter().any(|&main| chooser.take_turns(id, main))).collect()
}

/// Why a loop is no step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unused {
    /// It came round too few times.
    Few,
    /// It makes models.
    Builds,
    /// It is the framework's own: it goes over layers or parameters.
    Framework,
    /// Others did far more of the work.
    Idle,
}

impl Unused {
    pub const fn name(self) -> &'static str {
        match self {
            Unused::Few => "few",
            Unused::Builds => "builds",
            Unused::Framework => "framework",
            Unused::Idle => "idle",
        }
    }
}

/// Loops told of that are no steps.
const TOLD: usize = 5;

/// The loops that did most of the work, of the user's code first, and why each is no step.
pub(super) fn unused(tree: &Tree) -> Vec<(Id, Unused)> {
    let chooser = Chooser::new(tree);
    let get = |id: Id| tree.get(id);
    let mut all: Vec<Id> =
        tree.ids().filter(|&id| chooser.total(id) > 0.0 && get(id).is_some_and(|n| !n.is_root)).collect();
    let order =
        |&id: &Id| (get(id).is_some_and(|n| n.library), std::cmp::Reverse(chooser.totals[usize::from(id)]));
    all.sort_by_key(order);
    let why = |id: Id| match get(id) {
        Some(n) if n.framework => Unused::Framework,
        _ if chooser.builds(id, BUILT) => Unused::Builds,
        Some(n) if n.iterations() < FEW => Unused::Few,
        _ => Unused::Idle,
    };
    all.into_iter().take(TOLD).map(|id| (id, why(id))).collect()
}

/// The loops below `root` that are steps beside those of the optimizers: outermost ones in which none steps,
/// that work like a training step and do so now and then, as evaluations do. What recurs within every step or
/// two is a part of it. `batch`: the work of one, where not every event of the training was shown.
pub(super) fn phases(tree: &Tree, root: Id, batch: Option<f64>) -> Vec<Id> {
    let chooser = Chooser { phases: true, ..Chooser::new(tree) };
    let Some(main) = chooser.training() else { return Vec::new() };
    let users = tree.get(main).is_some_and(|n| !n.library);
    let batch = batch.unwrap_or_else(|| chooser.work_of_a_batch(main));
    let mut tops = Vec::new();
    chooser.without_optimizers(root, users, &mut tops);
    let mut level = Vec::new();
    for top in tops {
        let entered = tree.get(top).map_or(0, |n| u64::from(n.instances));
        let inside = chooser.steps_around(top);
        let routine = tree.get(top).is_some_and(|n| n.is_routine());
        if inside.is_some_and(|steps| routine || entered * u64::from(STEPS_BETWEEN) > steps) {
            continue;
        }
        let share = if inside.is_some() { LEAST_SHARE_INSIDE } else { LEAST_SHARE };
        let works = |id: Id| {
            let rounds = chooser.iterations(id);
            let entered = tree.get(id).map_or(1.0, |n| f64::from(n.instances.max(1)));
            rounds >= LEAST_OF_A_PHASE as f64 * entered
                && chooser.per_iteration(id) >= LEAST_EVENTS.max(share * batch)
                && chooser.gives_back(id)
        };
        level.extend(chooser.down_from(top).into_iter().filter(|&id| works(id)));
    }
    level
}

/// The work of a batch of the training, in events.
pub(super) fn work_of_a_batch(tree: &Tree) -> Option<f64> {
    let chooser = Chooser::new(tree);
    chooser.training().map(|main| chooser.work_of_a_batch(main))
}

/// The loop whose rounds are training steps.
pub(super) fn training(tree: &Tree) -> Option<Id> {
    Chooser::new(tree).training()
}

impl<'a> Chooser<'a> {
    fn new(tree: &'a Tree) -> Chooser<'a> {
        Chooser {
            tree,
            phases: false,
            finer: false,
            totals: tree.totals(|n| n.events),
            frees: tree.totals(|n| n.frees),
            copies: tree.totals(|n| n.copies),
            built: tree.totals(|n| n.built),
            optimizers: tree.totals(|n| n.optimizers),
            backwards: tree.totals(|n| n.backwards),
        }
    }

    /// The loops that are the level of steps.
    fn level(&self, unasked: bool) -> Vec<Id> {
        let roots = || self.tree.ids().filter(|&id| self.tree.get(id).is_some_and(|n| n.is_root));
        let Some(root) = roots().max_by_key(|&id| self.totals[usize::from(id)]) else { return Vec::new() };
        let loops = self.below_root(root);
        let mut level = self.working(&loops, BUILT);
        if level.is_empty() {
            level = self.working(&loops, if unasked { BUILT_ALONE } else { f64::INFINITY });
        }
        let is_library = |&id: &Id| self.tree.get(id).is_some_and(|n| n.library);
        if level.iter().all(is_library)
            && let Some(hands_out) = self.handing_out(roots().filter(|&other| other != root))
        {
            return vec![hands_out];
        }
        level
    }

    /// Whether a loop frees a fair part of what it takes. One that only copies takes nothing.
    fn gives_back(&self, id: Id) -> bool {
        let takes = self.total(id) - self.copies[usize::from(id)] as f64;
        self.frees[usize::from(id)] as f64 >= GIVEN_BACK * takes
    }

    /// Whether more than this share of what a loop does makes models.
    fn builds(&self, id: Id, share: f64) -> bool {
        self.built[usize::from(id)] as f64 > share * self.total(id)
    }

    /// Of the loops below these roots, the user's one that hands work out to other threads.
    fn handing_out(&self, roots: impl Iterator<Item = Id>) -> Option<Id> {
        let works = |&id: &Id| {
            self.iterations(id) >= LEAST_HANDED_OUT
                && self.births(id) >= LEAST_BIRTHS_BESIDE * self.iterations(id)
                && self.tree.get(id).is_some_and(|n| !n.library)
                && self.comes_round_throughout(id)
        };
        let tops = roots.flat_map(|root| self.nearest(root, true)).map(|(top, _)| top);
        self.largest(tops.flat_map(|top| self.down_from(top)).filter(works))
    }

    /// Whether iterations of a loop ended in the first and in the last part of the run.
    fn comes_round_throughout(&self, id: Id) -> bool {
        let log = &self.tree.log;
        let mut own = log.iter().filter(|end| end.node == id).map(|end| end.at.seq);
        let (Some(begin), Some(end)) = (log.first(), log.last()) else { return false };
        let part = end.at.seq.saturating_sub(begin.at.seq) / PARTS;
        let Some(first) = own.next() else { return false };
        first <= begin.at.seq + part && own.next_back().unwrap_or(first) >= end.at.seq.saturating_sub(part)
    }

    /// The outermost loops below one in which no optimizer steps.
    fn without_optimizers(&self, id: Id, users: bool, out: &mut Vec<Id>) {
        for (child, _) in self.nearest(id, users) {
            if self.optimizers[usize::from(child)] > 0 {
                self.without_optimizers(child, users, out);
            } else {
                out.push(child);
            }
        }
    }

    /// Of the loops around most optimizer steps the innermost that is not entered anew for each of them, as
    /// the optimizer's own are; after the first step, when that does not show yet, the user's.
    fn training(&self) -> Option<Id> {
        let steps = |id: Id| self.tree.get(id).map_or(0, |n| n.optimizers);
        let innermost = self.tree.ids().filter(|&id| steps(id) > 0).max_by_key(|&id| steps(id))?;
        let around: Vec<Id> =
            std::iter::successors(Some(innermost), |&id| self.tree.get(id).map(|n| n.parent))
                .take_while(|&id| self.tree.get(id).is_some_and(|n| !n.is_root))
                .collect();
        let entered_seldom = |&&id: &&Id| {
            self.tree.get(id).is_some_and(|n| u64::from(n.instances) < self.optimizers[usize::from(id)])
        };
        let users = |&&id: &&Id| self.tree.get(id).is_some_and(|n| !n.library);
        around.iter().find(entered_seldom).or(around.iter().find(users)).or(around.last()).copied()
    }

    /// Events of one round of the training, or of the loop over micro-batches that does most of the work in
    /// each.
    fn work_of_a_batch(&self, main: Id) -> f64 {
        let (all, rounds) = (self.total(main), self.iterations(main));
        let inner = self.nearest(main, false).into_iter().map(|(id, _)| id);
        let micro = self.largest(
            inner.filter(|&id| self.total(id) >= MICRO * all && self.iterations(id) >= 2.0 * rounds),
        );
        self.per_iteration(micro.unwrap_or(main))
    }

    /// The optimizer steps in the nearest loop around this one in which there are any.
    fn steps_around(&self, id: Id) -> Option<u64> {
        let around = std::iter::successors(Some(id), |&at| self.tree.get(at).map(|n| n.parent)).skip(1);
        let mut training = around
            .take_while(|&at| self.tree.get(at).is_some_and(|n| !n.is_root))
            .filter(|&at| self.tree.get(at).is_some_and(|n| n.trains));
        training.next().map(|at| self.optimizers[usize::from(at)])
    }

    fn total(&self, id: Id) -> f64 {
        self.totals[usize::from(id)] as f64
    }

    /// What a loop allocated and copied.
    fn births(&self, id: Id) -> f64 {
        self.total(id) - self.frees[usize::from(id)] as f64
    }

    fn iterations(&self, id: Id) -> f64 {
        self.tree.get(id).map_or(0.0, |n| n.iterations() as f64)
    }

    /// By how much what a loop did is more than what was seen: that C calls again and again shows at the second call, each
    /// time.
    fn unseen_first(&self, id: Id) -> f64 {
        let calls = self.tree.get(id).filter(|n| n.is_call && n.number == CALL);
        let (all, first) = calls.map_or((1.0, 0.0), |n| (n.iterations() as f64, f64::from(n.instances)));
        if first < all { all / (all - first) } else { 1.0 }
    }

    fn per_iteration(&self, id: Id) -> f64 {
        self.total(id) / self.iterations(id).max(1.0)
    }

    fn largest(&self, of: impl Iterator<Item = Id>) -> Option<Id> {
        of.max_by_key(|&id| (self.totals[usize::from(id)], std::cmp::Reverse(id)))
    }

    /// The nearest loops below one, and whether library code lies between; for the user's, through the
    /// library's. What is nearest lies through the framework's, and through expressions that are a part of the
    /// loop around them, which has come round `around` times.
    fn below(&self, id: Id, users: bool, across: bool, around: f64, out: &mut Vec<(Id, bool)>) {
        for child in self.tree.children(id) {
            let Some(n) = self.tree.get(child) else { continue };
            let across = across || n.across;
            if n.is_expression() && self.is_part(child, around) {
                self.below(child, users, across, around, out);
            } else if n.framework || (users && n.library) {
                self.below(child, users, true, around, out);
            } else {
                out.push((child, across));
            }
        }
    }

    /// Whether an expression is a part of the loop around it.
    fn is_part(&self, id: Id, around: f64) -> bool {
        let rounds = self.iterations(id) / around.max(1.0);
        let seldom = rounds < EPOCH && (rounds <= around || rounds < LEAST_ROUNDS_OF_EXPRESSION);
        self.phases || (around > 0.0 && seldom)
    }

    fn nearest(&self, id: Id, users: bool) -> Vec<(Id, bool)> {
        let mut out = Vec::new();
        let around = if self.tree.get(id).is_some_and(|n| n.is_root) { 0.0 } else { self.iterations(id) };
        self.below(id, users, false, around, &mut out);
        out
    }

    /// What a loop allocates and copies in a round.
    fn births_each(&self, id: Id) -> f64 {
        self.births(id) / self.iterations(id).max(1.0)
    }

    /// The rounds of a loop each time that it is entered.
    fn rounds_each_time(&self, id: Id) -> f64 {
        self.iterations(id) / self.tree.get(id).map_or(1.0, |n| f64::from(n.instances.max(1)))
    }

    /// Whether a loop allocates as the main one does: what it keeps it does not free.
    fn works_like(&self, id: Id, main: Id) -> bool {
        let main = self.births_each(main);
        self.births_each(id) >= LEAST_BIRTHS.min(SHARE_OF_LITTLE * main).max(LEAST_SHARE * main)
    }

    /// Whether a loop does far less in a round than the main one.
    fn is_light(&self, id: Id, main: Id) -> bool {
        self.births_each(id) < LIGHT * self.births_each(main)
    }

    /// Whether a loop ran once before the main one, for fewer rounds of less work, and something of each of them stayed:
    /// it makes weights, or loads data. An evaluation leaves nothing, or as the training does.
    fn sets_up(&self, id: Id, main: Id) -> bool {
        let rounds = self.iterations(id);
        let takes = self.births(id) - self.copies[usize::from(id)] as f64;
        let stays = takes - self.frees[usize::from(id)] as f64;
        id < main
            && self.tree.get(id).is_some_and(|n| n.instances <= 1)
            && rounds < self.iterations(main)
            && stays >= STAYS * rounds
            && self.is_light(id, main)
    }

    /// Whether two loops come round one after the other each time.
    fn take_turns(&self, id: Id, main: Id) -> bool {
        let (own, of_main) = (self.iterations(id), self.iterations(main));
        if own.min(of_main) < TURNS * own.max(of_main) - 1.0 {
            return false;
        }
        let masks = [id, main].map(|id| (id, self.tree.get(id).map_or(0, Node::mask)));
        let counts =
            |end: &&End| masks.iter().any(|&(id, mask)| end.node == id && mask >> end.sign as u8 & 1 == 1);
        let ends: Vec<Id> = self.tree.log.iter().filter(counts).map(|end| end.node).collect();
        let turns = ends.windows(2).filter(|pair| pair[0] != pair[1]).count();
        ends.len() >= LEAST_TURNS && turns as f64 >= TURNS * (ends.len() - 1) as f64
    }

    /// Whether a library's loop goes over a few things that it has beside its main loop, such as metrics.
    fn is_routine_of_library(&self, id: Id, main: Id) -> bool {
        let library = |id: Id| self.tree.get(id).is_some_and(|n| n.library);
        let few = |id: Id| self.rounds_each_time(id) < FEW as f64;
        library(id) && library(main) && few(id) && !few(main) && self.is_light(id, main)
    }

    /// Whether a user's loop is what each round of a library's calls for: a server's request, which takes a few rounds of it.
    fn is_part_of_round(&self, id: Id, library: Id) -> bool {
        let rounds = self.iterations(library);
        let entered = self.tree.get(id).map_or(0.0, |n| f64::from(n.instances));
        rounds >= TO_JUDGE && entered >= CALLBACK * rounds && self.rounds_each_time(id) < EPOCH
    }

    /// Whether a loop comes round a few times only whenever it is entered, or is an expression that is entered once, and seldom
    /// beside the main one: it sets something up, or winds something up, as the sum of a list does.
    fn is_short(&self, id: Id, main: Id) -> bool {
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

    fn is_single_expression(&self, id: Id) -> bool {
        self.tree.get(id).is_some_and(|n| n.is_expression() && n.instances <= 1)
    }

    /// Whether a loop also runs within the rounds of the main one, as that over the layers of a model does which is called before
    /// the main loop, too: then it is finer.
    fn runs_within(&self, id: Id, main: Id) -> bool {
        let Some(own) = self.tree.get(id) else { return false };
        let is_same = |n: &Node| n.code == own.code && n.number == own.number;
        let around = |at: Id| std::iter::successors(Some(at), |&at| self.tree.get(at).map(|n| n.parent));
        let mut same = self.tree.ids().filter(|&at| self.tree.get(at).is_some_and(is_same));
        same.any(|at| around(at).skip(1).any(|at| at == main))
    }

    /// Those of the loops that do the work. Loops of which more than the share `built` makes models are none.
    fn working(&self, loops: &[Id], built: f64) -> Vec<Id> {
        let comes_round = |id: &Id| self.iterations(*id) >= 2.0 && !self.builds(*id, built);
        let loops: Vec<Id> = loops.iter().copied().filter(comes_round).collect();
        let giving = || loops.iter().copied().filter(|&id| self.gives_back(id));
        let Some(largest) = self.largest(loops.iter().copied()) else { return Vec::new() };
        let noticeable = |id: &Id| self.total(*id) >= NOTICEABLE * self.total(largest);
        let mut main = self.largest(giving()).filter(noticeable).unwrap_or(largest);
        // What a program sums up at its end gives everything back, whatever the loop before has kept.
        let lasting = self.largest(giving().filter(|&id| id < main && !self.is_single_expression(id)));
        if self.is_single_expression(main)
            && let Some(lasting) = lasting
            && self.total(lasting) >= DIRECT * self.total(main)
        {
            main = lasting;
        }
        let prepares = |id: &Id| *id < main && !self.gives_back(*id);
        let aside = |id: &Id| {
            let is_small = self.is_short(*id, main) || self.is_routine_of_library(*id, main);
            // Last, since it goes through the log.
            let takes_turns =
                || self.tree.get(*id).is_some_and(|n| n.takes_turns) || self.take_turns(*id, main);
            prepares(id) || self.sets_up(*id, main) || is_small || takes_turns()
        };
        let belongs = |id: &Id| *id == main || (!aside(id) && self.works_like(*id, main));
        loops.iter().copied().filter(belongs).collect()
    }

    fn below_root(&self, root: Id) -> Vec<Id> {
        let sum = |ids: &[(Id, bool)]| ids.iter().map(|&(id, _)| self.total(id)).sum::<f64>();
        let mut tops = self.nearest(root, true);
        if sum(&tops) < USERS * self.total(root) {
            tops = self.nearest(root, false);
        }
        let mut level: Vec<Id> = Vec::new();
        for (top, _) in tops {
            let outermost = self.outermost_around(top);
            let callback = outermost.filter(|&outer| {
                // What goes when the library is done, or a generator is closed, is no work of its loop.
                let births = |ids: &[(Id, bool)]| ids.iter().map(|&(id, _)| self.births(id)).sum::<f64>();
                self.iterations(outer) >= 2.0
                    && (births(&self.nearest(outer, true)) < CALLBACK * self.births(outer)
                        || self.is_part_of_round(top, outer))
            });
            let id = callback.unwrap_or(top);
            if !level.contains(&id) {
                level.push(id);
            }
        }
        level.into_iter().flat_map(|top| self.down_from(top)).collect()
    }

    /// The outermost loop around one, expressions and the framework's aside.
    fn outermost_around(&self, id: Id) -> Option<Id> {
        let (mut at, mut found) = (self.tree.get(id)?.parent, None);
        while let Some(n) = self.tree.get(at).filter(|n| !n.is_root) {
            if !n.is_expression() && !n.framework {
                found = Some(at);
            }
            at = n.parent;
        }
        found
    }

    /// The nearest loops below one that come round: through those that were entered and left.
    fn coming_round(&self, id: Id, users: bool) -> Vec<(Id, bool)> {
        let below = self.nearest(id, users).into_iter();
        let coming_round = |(child, across): (Id, bool)| {
            if self.iterations(child) >= 2.0 {
                return vec![(child, across)];
            }
            let further = self.coming_round(child, users).into_iter();
            further.map(|(id, further)| (id, across || further)).collect()
        };
        below.flat_map(coming_round).collect()
    }

    fn down_from(&self, outer: Id) -> Vec<Id> {
        let users = self.tree.get(outer).is_some_and(|n| !n.library);
        let inner = self.coming_round(outer, users);
        let direct = || inner.iter().filter(|(_, across)| !across).map(|&(id, _)| id);
        let Some(main) = self.largest(direct()) else { return vec![outer] };
        // What lists free when their function returns is no work of the loop around.
        let births = |id: Id| self.births(id) * self.unseen_first(id);
        let all = births(outer).max(1.0);
        let covered = inner.iter().map(|&(id, _)| births(id)).sum::<f64>() / all;
        let directly = direct().map(births).sum::<f64>() / all;
        // Where most of what trains lies outside of the loops inside, these are parts of a step: micro-batches, layers.
        let trains_outside = |by: &[u64]| {
            inner.iter().map(|&(id, _)| by[usize::from(id)]).sum::<u64>() * 2 < by[usize::from(outer)]
        };
        if trains_outside(&self.optimizers) || trains_outside(&self.backwards) {
            return vec![outer];
        }
        let n = self.iterations(outer).max(1.0);
        let rounds = self.iterations(main) / n;
        // The round outside that is under way has not had all of its own yet: ten batches an epoch are ten all the time.
        let whole = self.iterations(main) / (n - 1.0).max(1.0);
        let too_few = self.finer && n < TO_JUDGE && rounds >= FEW as f64;
        let enough = match rounds >= OFTEN {
            // Else nothing at all is judged.
            _ if too_few => DIRECT,
            true => COVERED_OFTEN,
            false => COVERED,
        };
        let are_epochs = whole >= EPOCH || rounds > n || too_few;
        if directly < DIRECT || covered < enough || rounds < LEAST_ROUNDS || !are_epochs {
            return vec![outer];
        }
        let mut level = Vec::new();
        for &(id, across) in &inner {
            if id == main {
                level.extend(self.down_from(id));
            } else if self.works_like(id, main)
                && self.rounds_each_time(id) >= 2.0
                && !self.runs_within(id, main)
            {
                if across { level.push(id) } else { level.extend(self.down_from(id)) }
            }
        }
        level
    }
}
