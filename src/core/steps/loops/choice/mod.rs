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
//!    Loops of another thread that come round before or after all of these are weighed with them.
//! 4. Of two that come round in turns, one after the other each time, only the main one: one task hands the other what it is
//!    asked for, and each request goes through both.
//!
//! An expression that goes over something (a comprehension, a generator, what C calls again and again) is a
//! part of the loop around it, unless it comes round so much oftener that the loop around it are epochs.

mod figures;
mod sibling_loops;
mod training;

use super::shadow::BEGINS;
use super::tree::{Id, Tree};
use crate::ledger::verdict::MIN_STEPS;
pub(super) use training::{phases, training, work_of_a_batch};

/// Least share of all events that the user's loops must see.
const USERS: f64 = 0.5;
/// A callback's loop covers less than this of the library's loop it is called from.
const CALLBACK: f64 = 0.8;
/// Least work of an iteration, as a share of the main loop's.
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

/// One of which more than this share of the events makes models is building something; where nothing else is a step, more
/// than the other.
const BUILT: f64 = 0.5;
const BUILT_ALONE: f64 = 0.75;
/// Where there is no other either, least events of a round that make no model, for what is made to be used there.
const USES: f64 = 2.0;
/// What gives back is the main loop if it does this share of the work of the one that does most.
const NOTICEABLE: f64 = 0.1;

/// Rounds that are too few for steps.
const FEW: u64 = 4;
/// Steps of which a run must have as many.
pub(super) const TO_JUDGE: f64 = MIN_STEPS as f64;

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
    /// Calls of compiled functions that train.
    updates: Vec<u64>,
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
            updates: tree.totals(|n| n.updates),
        }
    }

    /// The loops that are the level of steps.
    fn level(&self, unasked: bool) -> Vec<Id> {
        let roots = || self.tree.ids().filter(|&id| self.tree.get(id).is_some_and(|n| n.is_root));
        let Some(root) = roots().max_by_key(|&id| self.totals[usize::from(id)]) else { return Vec::new() };
        let mut loops = self.below_root(root);
        let others = roots().filter(|&other| other != root && self.totals[usize::from(other)] > 0);
        loops.extend(others.flat_map(|other| self.apart(other, &loops)).collect::<Vec<_>>());
        let mut level = self.working(&loops, BUILT);
        if level.is_empty() {
            level = self.working(&loops, if unasked { BUILT_ALONE } else { f64::INFINITY });
        }
        if level.is_empty() {
            loops.retain(|&id| self.uses_what_it_builds(id));
            level = self.working(&loops, f64::INFINITY);
        }
        let is_library = |&id: &Id| self.tree.get(id).is_some_and(|n| n.library);
        if level.iter().all(is_library)
            && let Some(hands_out) = self.handing_out(roots().filter(|&other| other != root))
        {
            return vec![hands_out];
        }
        level
    }

    /// The user's loops of another thread that came round before all of these did, or after them: the program went on there.
    fn apart(&self, root: Id, loops: &[Id]) -> Vec<Id> {
        let span = |loops: &[Id]| {
            let mut ends = self.tree.log.iter().filter(|end| loops.contains(&end.node)).map(|end| end.at.seq);
            let first = ends.next()?;
            Some((first, ends.next_back().unwrap_or(first)))
        };
        let mut theirs = self.below_root(root);
        theirs.retain(|&id| self.iterations(id) >= TO_JUDGE && self.tree.get(id).is_some_and(|n| !n.library));
        let is_apart = span(&theirs).zip(span(loops)).is_some_and(|(own, of)| own.1 < of.0 || own.0 > of.1);
        if is_apart { theirs } else { Vec::new() }
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

    /// Those of the loops that do the work. Loops of which more than the share `built` makes models are none.
    fn working(&self, loops: &[Id], built: f64) -> Vec<Id> {
        let comes_round = |id: &Id| self.iterations(*id) >= 2.0 && !self.builds(*id, built);
        let loops: Vec<Id> = loops.iter().copied().filter(comes_round).collect();
        let giving = || loops.iter().copied().filter(|&id| self.gives_back(id));
        let Some(largest) = self.largest(loops.iter().copied()) else { return Vec::new() };
        let noticeable = |id: &Id| self.total(*id) >= NOTICEABLE * self.total(largest);
        let mut main = self.largest(giving()).filter(noticeable).unwrap_or(largest);
        // What a program sums up at its end gives everything back, whatever the loop before has kept. It may take more work for
        // each thing that was kept than the loop did.
        let lasting = self.largest(giving().filter(|&id| id < main && !self.is_single_expression(id)));
        let share = |lasting: Id| match self.iterations(lasting) >= self.iterations(main) {
            true => NOTICEABLE,
            false => DIRECT,
        };
        if self.is_single_expression(main)
            && let Some(lasting) = lasting
            && self.total(lasting) >= share(lasting) * self.total(main)
        {
            main = lasting;
        }
        // What it is prepared for may do less.
        let prepared = |id: &Id| noticeable(id) && self.sets_up(main, *id);
        main = self.largest(loops.iter().copied().filter(prepared)).unwrap_or(main);
        let prepares = |id: &Id| *id < main && !self.gives_back(*id);
        let aside = |id: &Id| {
            let is_small = self.is_short(*id, main) || self.is_routine_of_library(*id, main);
            // Last, since they go through the log.
            let takes_turns =
                || self.tree.get(*id).is_some_and(|n| n.takes_turns) || self.take_turns(*id, main);
            prepares(id) || self.sets_up(*id, main) || is_small || self.is_brief(*id, main) || takes_turns()
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
            let begun = || self.begun_around(top).filter(|&begun| self.is_part_of_round(top, begun));
            let id = callback.or_else(begun).unwrap_or(top);
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

    /// What a thread began with that a loop runs in, if no loop is around it: a library's, which calls for it.
    fn begun_around(&self, id: Id) -> Option<Id> {
        let around = std::iter::successors(self.tree.get(id), |n| self.tree.get(n.parent));
        let parents = around.take_while(|n| !n.is_root).map(|n| n.parent);
        let begins = |&at: &Id| self.tree.get(at).is_some_and(|n| n.is_call && n.number == BEGINS);
        parents.into_iter().find(begins)
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
        let is_expression = |id: Id| self.tree.get(id).is_some_and(|n| n.is_expression());
        let Some(largest) = self.largest(direct()) else { return vec![outer] };
        // An expression beside a loop sums up what that has done.
        let comparable = |id: &Id| !is_expression(*id) && self.total(*id) >= DIRECT * self.total(largest);
        let main = self.largest(direct().filter(comparable)).unwrap_or(largest);
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
        // Each backward pass is one of a batch, and no step where a few are gathered; but where there are so few steps …
        let least = if self.backwards[usize::from(main)] > 0 { LEAST_ROUNDS } else { FEW as f64 };
        let leads_to_many = || {
            let inside = self.coming_round(main, users);
            let most = self.largest(inside.into_iter().map(|(id, _)| id));
            most.is_some_and(|id| self.iterations(id) >= FEW as f64 * self.iterations(main))
        };
        let too_few = self.finer && n < TO_JUDGE && (rounds >= least || leads_to_many());
        let enough = match rounds >= OFTEN {
            // Else nothing at all is judged.
            _ if too_few => DIRECT,
            true => COVERED_OFTEN,
            false => COVERED,
        };
        let are_epochs = (whole >= EPOCH || rounds > n || too_few) && !self.are_answers(outer, main);
        if directly < DIRECT || covered < enough || rounds < LEAST_ROUNDS || !are_epochs {
            return vec![outer];
        }
        let mut level = Vec::new();
        for &(id, across) in &inner {
            if is_expression(id) && !is_expression(main) {
                continue;
            }
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
