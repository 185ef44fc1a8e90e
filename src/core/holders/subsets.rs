//! Owners that have the same blocks: a replay buffer, and the minibatch that was drawn from it. Whoever has only a part of
//! what the other has, and nothing else, is a sample of it, if the other has a bound, or has far more and the sample is a
//! variable of a function that runs.
//!
//! So is a variable that has one block of it: the newest, as a rule.
//!
//! A search names each block's nearest owner only. So where both kinds of owner were found, the blocks of
//! each are searched for again without it.

use super::group::{self, Group, Owning};
use super::search::Search;
use super::{GcRoot, HeapGraph, Nodes, OWN_RANKS, Retention, Wanted};

/// The share of its blocks that a sample has in common with the owner that it was drawn from …
const SAMPLED: f64 = 0.9;
/// … and of that owner's blocks, what it has at most: one that has all may as well be where they are kept.
const PART: f64 = 0.9;
/// Where neither has a bound, the one that was drawn from has so many times the blocks.
const FAR_MORE: usize = 4;
/// The groups of blocks that are searched for again.
const MAX_AGAIN: usize = 6;

/// Whether a cause has a bounded owner that is not full, and an unbounded one.
fn is_contested(holds: &[(u32, Retention)], cause: u32) -> bool {
    let of = |wanted: &dyn Fn(Retention) -> bool| holds.iter().any(|&(c, hold)| c == cause && wanted(hold));
    of(&has_room) && of(&Retention::is_unbounded)
}

fn has_room(hold: Retention) -> bool {
    match hold {
        Retention::Bounded { entries, max_entries: most } | Retention::Limited { entries, limit: most } => {
            entries < most
        }
        _ => false,
    }
}

/// Whether a group may be a sample of another, of which nothing has a bound.
fn may_be_drawn_from(group: &Group, other: &Group) -> bool {
    let origin = group.paths.first().map(|path| &path.root.origin);
    group.cause == other.cause
        && matches!(origin, Some(GcRoot::Local { .. }))
        && other.paths.len() >= FAR_MORE.saturating_mul(group.paths.len())
}

/// Whether a group is a variable with one tensor: that takes in no more, and shows nothing of what grows.
fn is_one_tensor(group: &Group) -> bool {
    matches!((&group.owner, &group.paths[..]), (Owning::Name(_), [path]) if path.nodes.len() <= 2)
}

fn holds(graph: &mut impl HeapGraph, groups: &[Group]) -> Vec<(u32, Retention)> {
    groups.iter().map(|g| (g.cause, group::hold(graph, g))).collect()
}

/// Adds to contested owners the blocks that they have too, though another is nearer.
pub(super) fn complete(graph: &mut impl HeapGraph, wanted: &[Wanted], groups: &mut [Group]) {
    let holds = holds(graph, groups);
    let unbounded = |i: usize| holds[i].1.is_unbounded();
    let is_few = |i: usize| {
        let is_larger = |other: usize| unbounded(other) && may_be_drawn_from(&groups[i], &groups[other]);
        unbounded(i) && (0..groups.len()).any(is_larger)
    };
    let contested = (0..groups.len()).filter(|&i| is_contested(&holds, groups[i].cause) || is_few(i));
    for i in contested.take(MAX_AGAIN).collect::<Vec<_>>() {
        let (mut blocked, mut without) = (Nodes::default(), Vec::new());
        match groups[i].owner {
            Owning::Node(node) => drop(blocked.insert(node, ())),
            Owning::Name(ref root) => without.push(root.clone()),
        }
        let again: Vec<usize> = groups[i].paths.iter().map(|p| p.wanted).collect();
        let mut search = Search::new(again.iter().map(|&w| wanted[w].block), blocked, without);
        if graph.is_late() || !search.run(graph, OWN_RANKS) {
            return;
        }
        for path in again.iter().filter_map(|&w| search.path(w, &wanted[w])) {
            let has = |g: &&mut Group| match &g.owner {
                Owning::Node(node) => path.nodes.contains(node),
                Owning::Name(root) => path.root == *root,
            };
            let other = groups.iter_mut().filter(|g| g.cause == path.cause).find(has);
            if let Some(other) = other.filter(|g| g.paths.iter().all(|p| p.wanted != path.wanted)) {
                other.add(path);
            }
        }
    }
}

/// Leaves out the owners that have a sample of what a bounded one has.
pub(super) fn leave_out(graph: &mut impl HeapGraph, groups: &mut Vec<Group>) {
    let holds = holds(graph, groups);
    let is_sample = |i: usize| {
        let group = &groups[i];
        let count = group.paths.len() as f64;
        holds[i].1.is_unbounded()
            && groups.iter().zip(&holds).any(|(other, &(cause, hold))| {
                let is_part = || count < PART * other.paths.len() as f64 || is_one_tensor(group);
                let of_bounded = cause == group.cause && has_room(hold) && is_part();
                let of_larger = hold.is_unbounded() && may_be_drawn_from(group, other);
                (of_bounded || of_larger) && group.shared(other) as f64 >= SAMPLED * count
            })
    };
    let samples: Vec<bool> = (0..groups.len()).map(is_sample).collect();
    let mut samples = samples.into_iter();
    groups.retain(|_| samples.next() != Some(true));
}
