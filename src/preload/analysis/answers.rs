//! What earlier searches have answered for a site, and whether a new answer is worth recording.

use std::collections::{HashMap, HashSet};

use leaktrace_core::format::entry::Retention;
use leaktrace_core::holders::{Node, Owner, are_alike};

/// The searches for a site whose holder was not found, however long they take.
const MAX_TRIES: u32 = 5;

/// What was recorded of one site.
#[derive(Default)]
pub struct Recorded {
    pub tries: u32,
    /// The step of the last search.
    pub step: u32,
    pub paths: Vec<String>,
    pub blocks: u64,
    /// Whether one of the holders is known to keep what it has, and did not just have it during the search.
    pub lasting: bool,
    /// Whether most blocks had an owner that was alive.
    pub owned: bool,
    /// The paths that the latest search has found, whether or not they were recorded.
    latest: Vec<String>,
    /// Whether these were not recorded, since nothing that is known was among them.
    doubted: bool,
    /// The collections that owners had their blocks in, and what these began with, by path; and the paths at which another one
    /// was met later: they are made anew again and again.
    collections: HashMap<String, (Node, Node)>,
    remade: HashSet<String>,
    /// Whether a bounded owner has most.
    pub bounded: bool,
    /// The places of owners, by what would have to drop the blocks, and where there were more of them later.
    places: HashMap<String, u64>,
    grown: HashSet<String>,
    pub why_not: &'static str,
}

impl Recorded {
    /// Whether an answer is worth writing: it is, if it names anything that was not known. A search that fell
    /// into the middle of a step may have met blocks on their way through C++ code; such an answer does not
    /// replace a lasting one. Nor does one from the program's end, when functions have returned, replace that
    /// of the owner who was alive before, or name a way to a frame that was running before: a traceback that
    /// keeps the frame of `main()` has its locals then.
    ///
    /// `asked`: it is what somebody will read, so its figures are those of this moment.
    pub fn is_improved_by(&self, holders: &[Share<'_>], at_end: bool, asked: bool) -> bool {
        let lasting = holders.iter().any(Share::is_lasting);
        let blocks = holders.iter().map(|h| h.blocks).max().unwrap_or(0);
        let same = holders.iter().all(|h| self.paths.contains(&h.owner.path));
        // The recording must not grow with every search.
        let more = if asked { blocks > self.blocks } else { blocks >= self.blocks * 5 / 4 };
        let grows = self.bounded && holders.first().is_some_and(|h| h.hold.is_unbounded());
        let known = same && holders.len() == self.paths.len() && !more && !grows;
        let outlived = holders.first().is_some_and(|h| self.paths.iter().any(|p| leads_to(&h.owner.path, p)));
        let too_late = at_end && self.owned && (!is_owned(holders) || blocks < self.blocks / 2 || outlived);
        let is_gone = self.is_gone(holders);
        !holders.is_empty() && (lasting || !self.lasting) && !known && !too_late && !is_gone
    }

    /// Whether an answer has none of what two searches have found: an object is being taken apart. What the search before
    /// has found too is where the blocks lie by now.
    fn is_gone(&self, holders: &[Share<'_>]) -> bool {
        let is_in = |paths: &[String], path: &str| paths.iter().any(|known| are_alike(known, path));
        let any_of = |paths: &[String]| holders.iter().any(|h| is_in(paths, &h.owner.path));
        self.tries > 2 && self.owned && !any_of(&self.paths) && !any_of(&self.latest)
    }

    /// Remembers what a search has found.
    pub fn remember(&mut self, holders: &[Share<'_>]) {
        self.doubted = !holders.is_empty() && self.is_gone(holders);
        self.latest = holders.iter().map(|h| h.owner.path.clone()).collect();
    }

    /// Says of owners that have more places than before that these do not bound them.
    pub fn unbind_growing(&mut self, holders: &mut [Share<'_>]) {
        let name = |owner: &Owner| owner.path.get(..owner.name).unwrap_or(&owner.path).to_owned();
        let mut now: HashMap<String, u64> = HashMap::new();
        for owner in holders.iter().map(|h| h.owner).filter(|owner| owner.places > 0) {
            let places = now.entry(name(owner)).or_default();
            *places = (*places).max(owner.places);
        }
        for (name, places) in now {
            let before = self.places.insert(name.clone(), places);
            if before.is_some_and(|before| before < places) {
                self.grown.insert(name);
            }
        }
        // Of what is limited in no other collection, the limit itself has moved.
        let is_bounded =
            |h: &Share<'_>| matches!(h.hold, Retention::Bounded { .. } | Retention::Limited { .. });
        for share in holders.iter_mut().filter(|h| is_bounded(h) && self.grown.contains(&name(h.owner))) {
            share.hold = Retention::Unbounded;
        }
    }

    /// Leaves out what is made anew again and again, of a bounded owner's blocks: a batch, drawn from a replay
    /// buffer, that has all of them as long as they are few.
    pub fn leave_out_samples(&mut self, holders: &mut Vec<Share<'_>>) {
        for owner in holders.iter().map(|h| h.owner).filter(|owner| owner.node != 0) {
            // What is made anew may get the memory of the one before, but hardly begins with the same entry.
            let which = (owner.node, owner.first);
            let before = self.collections.insert(owner.path.clone(), which);
            if before.is_some_and(|before| before != which) {
                self.remade.insert(owner.path.clone());
            }
        }
        let bounded = holders.iter().filter(|h| h.has_room()).map(|h| h.blocks).max().unwrap_or(0);
        holders.retain(|h| {
            let remade = h.hold.is_unbounded() && self.remade.contains(&h.owner.path);
            !(remade && h.blocks <= bounded)
        });
    }

    /// Returns whether a search may show more than what is known. What has the blocks now may hand them on, and the
    /// first answer is of the first few: where there `is_time` it is searched for again whenever half as many steps more have
    /// ended.
    pub fn is_open(&self, step: u32, is_time: bool) -> bool {
        let part = if self.doubted { 4 } else { 2 };
        let next = self.step.saturating_add(self.step / part);
        (is_time || (!self.lasting && self.tries < MAX_TRIES)) && step >= next
    }
}

/// The part of one site's blocks that an owner has.
pub struct Share<'a> {
    pub owner: &'a Owner,
    pub hold: Retention,
    pub blocks: u64,
    pub bytes: u64,
    /// The step that its oldest block was allocated in.
    pub oldest: u32,
}

/// Does not say of owners how they keep their blocks if these are new ones only and another one has older ones: a list
/// for the rounds under way has the newest for a while, whoever keeps them. `births`: of all blocks, in order. `old`: the
/// latest birth of one that is older than those of its site that are freed.
pub fn tell_from_passing(holders: &mut [Share<'_>], births: &[u32], old: u32) {
    let older_half = births.get(births.len() / 2).map_or(0, |&middle| middle.min(old));
    let keeps = |h: &Share<'_>| h.is_bounded() || h.hold.is_unbounded();
    if holders.iter().any(|h| keeps(h) && h.oldest <= older_half) {
        for passing in holders.iter_mut().filter(|h| keeps(h) && h.oldest > older_half) {
            passing.hold = Retention::Unknown;
        }
    }
}

/// Says of variables that several calls of a function have, which run at the same time, that they keep what they have: each new
/// call has one more.
pub fn keep_in_calls(holders: &mut [Share<'_>]) {
    for share in holders.iter_mut().filter(|h| h.hold.is_replaced() && h.blocks > 1) {
        share.hold = Retention::Unbounded;
    }
}

impl Share<'_> {
    pub fn is_lasting(&self) -> bool {
        self.hold != Retention::Unknown
    }

    fn has_room(&self) -> bool {
        match self.hold {
            Retention::Bounded { entries, max_entries: most }
            | Retention::Limited { entries, limit: most } => entries < most,
            _ => false,
        }
    }

    pub fn is_bounded(&self) -> bool {
        matches!(self.hold, Retention::Bounded { .. } | Retention::Limited { .. })
    }
}

/// Returns whether a path ends with what was a whole path before.
fn leads_to(path: &str, known: &str) -> bool {
    path.strip_suffix(known).is_some_and(|way| way.ends_with(" → "))
}

/// Returns whether the first of these holders, which has most, is alive and keeps what it has.
pub fn is_owned(holders: &[Share<'_>]) -> bool {
    holders.first().is_some_and(|h| h.hold.is_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(path: &str, hold: Retention) -> Owner {
        Owner {
            path: path.into(),
            name: path.len(),
            hold,
            node: 0,
            first: 0,
            places: 0,
            cause: 0,
            blocks: Vec::new(),
        }
    }

    fn share(owner: &Owner, blocks: u64) -> Share<'_> {
        Share { owner, hold: owner.hold, blocks, bytes: blocks << 20, oldest: 1 }
    }

    #[test]
    fn who_has_the_newest_only_is_not_who_keeps_them() {
        let (list, rows) = (owner("kept[*]", Retention::Unbounded), owner("rows[*]", Retention::Unbounded));
        let births: Vec<u32> = (1..=30).collect();
        for (since, keeps) in [(1, true), (10, true), (20, false)] {
            let mut holders = [Share { oldest: since, ..share(&rows, 31) }, share(&list, 30)];
            tell_from_passing(&mut holders, &births, 27);
            assert_eq!(holders.map(|h| h.is_lasting()), [keeps, true], "since {since}");
        }
        // Where nobody has older ones, it is all that is known.
        let mut holders = [Share { oldest: 20, ..share(&rows, 11) }];
        tell_from_passing(&mut holders, &births, 27);
        assert!(holders[0].is_lasting());
    }

    #[test]
    fn what_takes_an_object_apart_is_no_owner() {
        let (flying, pending) =
            (owner("flying[*]", Retention::Unbounded), owner("pending[*]", Retention::Unbounded));
        let paths = vec!["flying[*]".into()];
        let known = |tries| Recorded {
            tries,
            paths: paths.clone(),
            blocks: 60,
            lasting: true,
            owned: true,
            ..Recorded::default()
        };
        assert!(known(2).is_improved_by(&[share(&pending, 140)], false, false));
        assert!(!known(3).is_improved_by(&[share(&pending, 140)], false, false));
        assert!(known(3).is_improved_by(&[share(&pending, 140), share(&flying, 139)], false, false));
    }

    #[test]
    fn what_two_searches_have_found_is_where_the_blocks_lie_by_now() {
        let results = owner("results[0][*]", Retention::Unbounded);
        let moved = owner("results[*][*]", Retention::Unbounded);
        let mut recorded = Recorded {
            tries: 3,
            step: 40,
            paths: vec!["curve[*]".into()],
            blocks: 30,
            lasting: true,
            owned: true,
            ..Recorded::default()
        };
        assert!(!recorded.is_improved_by(&[share(&results, 40)], false, false));
        // It is asked again soon.
        recorded.remember(&[share(&results, 40)]);
        assert!(recorded.is_open(50, true) && !recorded.is_open(49, true));
        assert!(recorded.is_improved_by(&[share(&moved, 60)], false, false));
        // One entry more is no other holder.
        recorded.paths = vec!["results[0][*]".into()];
        recorded.remember(&[]);
        assert!(recorded.is_improved_by(&[share(&moved, 60)], false, false));
    }

    #[test]
    fn a_holder_is_searched_for_again_as_long_as_the_run_goes_on() {
        for tries in [1, 2, 20] {
            let recorded = Recorded { tries, step: 40, lasting: true, ..Recorded::default() };
            assert!(recorded.is_open(60, true) && !recorded.is_open(59, true), "{tries}");
            assert!(!recorded.is_open(60, false), "{tries}");
        }
    }

    #[test]
    fn places_that_become_more_bound_nothing() {
        let full = Retention::Bounded { entries: 40, max_entries: 40 };
        let mut recorded = Recorded::default();
        for (places, bounds) in [(2, true), (2, true), (3, false), (3, false)] {
            let row = Owner { name: 4, places, ..owner("rows[0][*]", full) };
            let mut holders = [share(&row, 40)];
            recorded.unbind_growing(&mut holders);
            assert_eq!(holders[0].is_bounded(), bounds, "{places}");
        }
    }

    #[test]
    fn an_answer_from_the_middle_of_a_step_does_not_replace_a_lasting_one() {
        let (list, code) = (owner("kept[*]", Retention::Unbounded), owner("C++", Retention::Unknown));
        let fresh = Recorded::default();
        assert!(fresh.is_improved_by(&[share(&code, 2)], false, false));
        let paths = vec!["kept[*]".into()];
        let lasting = Recorded { tries: 1, paths, blocks: 49, lasting: true, ..Recorded::default() };
        assert!(!lasting.is_improved_by(&[share(&code, 2)], false, false));
        assert!(!lasting.is_improved_by(&[share(&list, 50)], false, false));
        assert!(lasting.is_improved_by(&[share(&list, 98)], false, false));
        assert!(lasting.is_improved_by(&[share(&list, 50)], false, true));
        let transient = Recorded { tries: 1, paths: vec!["C++".into()], blocks: 2, ..Recorded::default() };
        assert!(transient.is_improved_by(&[share(&list, 1), share(&code, 2)], false, false));
    }

    #[test]
    fn what_is_garbage_at_the_end_does_not_replace_an_owner_that_was_alive() {
        let (list, cycle) = (owner("kept[*]", Retention::Unbounded), owner("A", Retention::Unreachable));
        let paths = vec!["main() local `kept`[*]".into()];
        let owned =
            Recorded { tries: 1, paths, blocks: 40, lasting: true, owned: true, ..Recorded::default() };
        assert!(!owned.is_improved_by(&[share(&cycle, 90)], true, false));
        assert!(owned.is_improved_by(&[share(&cycle, 90)], false, false));
        assert!(owned.is_improved_by(&[share(&list, 90)], true, false));
        assert!(!owned.is_improved_by(&[share(&list, 3)], true, false));
    }

    #[test]
    fn a_frame_that_outlives_its_function_does_not_replace_the_function() {
        let (name, hold) = ("main() local `kept`[*]", Retention::Unbounded);
        let (late, other) = (format!("errors[*].__traceback__ → {name}"), owner("others[*]", hold));
        let (late, paths) = (owner(&late, hold), vec![name.to_owned()]);
        let owned =
            Recorded { tries: 1, paths, blocks: 40, lasting: true, owned: true, ..Recorded::default() };
        assert!(!owned.is_improved_by(&[share(&late, 90)], true, false));
        assert!(owned.is_improved_by(&[share(&late, 90)], false, false));
        assert!(owned.is_improved_by(&[share(&other, 90), share(&late, 40)], true, false));
    }

    #[test]
    fn a_batch_that_is_drawn_anew_is_no_owner_beside_the_buffer_it_was_drawn_from() {
        let names_in = |recorded: &mut Recorded, (list, first): (Node, Node), bounded: u64| {
            let list = Owner { node: list, first, ..owner("batch[*]", Retention::Unbounded) };
            let buffer = Retention::Bounded { entries: bounded, max_entries: 100 };
            let buffer = Owner { node: 7, ..owner("memory[*]", buffer) };
            let mut holders = vec![share(&list, 20), share(&buffer, 20)];
            recorded.leave_out_samples(&mut holders);
            holders.len()
        };
        let mut recorded = Recorded::default();
        let mut names = |list, bounded| names_in(&mut recorded, list, bounded);
        assert_eq!(names((1, 3), 20), 2);
        assert_eq!(names((2, 3), 20), 1);
        assert_eq!(names((2, 3), 40), 1);
        // What is full bounds nothing more.
        assert_eq!(names((2, 3), 100), 2);
        // In the memory of the one before.
        let mut recorded = Recorded::default();
        assert_eq!(names_in(&mut recorded, (1, 3), 20), 2);
        assert_eq!(names_in(&mut recorded, (1, 3), 20), 2);
        assert_eq!(names_in(&mut recorded, (1, 4), 20), 1);
    }
}
