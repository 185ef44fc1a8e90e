//! What each loop of the tree did, with those inside it, and which loops are nearest to one. It must not know which of them
//! are steps.

use super::super::shadow::CALL;
use super::super::tree::{Id, LEAST_OF_A_PHASE};
use super::{Chooser, EPOCH, TO_JUDGE, USES};

/// A loop of which less than this share of the events gives something back is building something, or leaks all.
const GIVEN_BACK: f64 = 0.125;
/// An expression with so many times fewer rounds than the loop around it is a part of that.
const FEWER: f64 = 2.0;
/// Least rounds of an expression inside one round of the loop around it, for it to be more than a part of that.
const LEAST_ROUNDS_OF_EXPRESSION: f64 = 4.0;

impl Chooser<'_> {
    /// Whether a loop frees a fair part of what it takes. One that only copies takes nothing.
    pub(super) fn gives_back(&self, id: Id) -> bool {
        let takes = self.total(id) - self.copies[usize::from(id)] as f64;
        self.frees[usize::from(id)] as f64 >= GIVEN_BACK * takes
    }

    /// Whether more than this share of what a loop does makes models.
    pub(super) fn builds(&self, id: Id, share: f64) -> bool {
        self.built[usize::from(id)] as f64 > share * self.total(id)
    }

    /// Whether a loop does something with each of many models that it makes: of one it makes the layers only.
    pub(super) fn uses_what_it_builds(&self, id: Id) -> bool {
        let others = self.total(id) - self.built[usize::from(id)] as f64;
        let iterations = self.iterations(id);
        iterations >= TO_JUDGE && others >= USES * iterations && self.gives_back(id)
    }

    pub(super) fn total(&self, id: Id) -> f64 {
        self.totals[usize::from(id)] as f64
    }

    /// What a loop allocated and copied.
    pub(super) fn births(&self, id: Id) -> f64 {
        self.total(id) - self.frees[usize::from(id)] as f64
    }

    pub(super) fn iterations(&self, id: Id) -> f64 {
        self.tree.get(id).map_or(0.0, |n| n.iterations() as f64)
    }

    /// By how much what a loop did is more than what was seen: that C calls again and again shows at the second call, each
    /// time.
    pub(super) fn unseen_first(&self, id: Id) -> f64 {
        let calls = self.tree.get(id).filter(|n| n.is_call && n.number == CALL);
        let (all, first) = calls.map_or((1.0, 0.0), |n| (n.iterations() as f64, f64::from(n.instances)));
        if first < all { all / (all - first) } else { 1.0 }
    }

    pub(super) fn per_iteration(&self, id: Id) -> f64 {
        self.total(id) / self.iterations(id).max(1.0)
    }

    pub(super) fn largest(&self, of: impl Iterator<Item = Id>) -> Option<Id> {
        of.max_by_key(|&id| (self.totals[usize::from(id)], std::cmp::Reverse(id)))
    }

    /// What a loop allocates and copies in a round.
    pub(super) fn births_each(&self, id: Id) -> f64 {
        self.births(id) / self.iterations(id).max(1.0)
    }

    /// The rounds of a loop each time that it is entered.
    pub(super) fn rounds_each_time(&self, id: Id) -> f64 {
        self.iterations(id) / self.tree.get(id).map_or(1.0, |n| f64::from(n.instances.max(1)))
    }

    /// The nearest loops below one, and whether library code lies between; for the user's, through the
    /// library's. What is nearest lies through the framework's, and through expressions that are a part of the
    /// loop around them, which has come round `around` times. What comes round oftener each time is none.
    pub(super) fn below(&self, id: Id, users: bool, across: bool, around: f64, out: &mut Vec<(Id, bool)>) {
        for child in self.tree.children(id) {
            let Some(n) = self.tree.get(child) else { continue };
            let across = across || n.across;
            // It goes over what the loop around it gathers, whose work this is.
            if around > 0.0 && n.lengthens() {
                continue;
            }
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
    pub(super) fn is_part(&self, id: Id, around: f64) -> bool {
        let rounds = self.iterations(id) / around.max(1.0);
        // Those of an epoch are many, and epochs are few.
        let few = rounds < EPOCH || FEWER * rounds <= around;
        let seldom = few && (rounds <= around || rounds < LEAST_ROUNDS_OF_EXPRESSION);
        match self.phases {
            // A generator that goes on by itself is an engine, and not what gives out the items of the loop around it.
            true => !self.tree.get(id).is_some_and(|n| n.is_generator()) || rounds < LEAST_OF_A_PHASE as f64,
            false => around > 0.0 && seldom,
        }
    }

    pub(super) fn nearest(&self, id: Id, users: bool) -> Vec<(Id, bool)> {
        let mut out = Vec::new();
        let around = if self.tree.get(id).is_some_and(|n| n.is_root) { 0.0 } else { self.iterations(id) };
        self.below(id, users, false, around, &mut out);
        out
    }
}
