//! What happened in a run that goes by a name: marks and ranges of the program, collections that freed memory, caches that
//! were emptied. The latest few one by one, and how often each came.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::format::event::AnnotationKind;

/// Marks kept one by one.
pub const LATEST: usize = 1000;
/// Names that are counted. Where more come, those that came once make room.
const NAMES: usize = 1024;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotation {
    /// The step that it lies in, from 1.
    pub step: u32,
    /// Nanoseconds since the recording began. Of a collection the latest moment before it that is known.
    pub at_ns: u64,
    kind: u8,
    /// 0: it has none.
    pub label: u32,
}

impl Annotation {
    pub(super) fn new(step: u32, at_ns: u64, kind: AnnotationKind, label: u32) -> Annotation {
        Annotation { step, at_ns, kind: kind as u8, label }
    }

    pub fn kind(&self) -> AnnotationKind {
        AnnotationKind::from_code(self.kind).unwrap_or(AnnotationKind::User)
    }
}

/// All marks of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Marks {
    latest: VecDeque<Annotation>,
    counts: BTreeMap<(u8, u32), u32>,
    /// The step of the last collection: one that frees a thousand blocks is one, and so are two within a step.
    collected: u32,
}

impl Marks {
    pub fn push(&mut self, mark: Annotation) {
        if self.latest.len() >= LATEST {
            self.latest.pop_front();
        }
        self.latest.push_back(mark);
        if self.counts.len() >= NAMES {
            self.counts.retain(|_, count| *count > 1);
        }
        let known = self.counts.len() < NAMES || self.counts.contains_key(&(mark.kind, mark.label));
        if known {
            let count = self.counts.entry((mark.kind, mark.label)).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// The collector freed a block.
    #[cold]
    pub fn collected(&mut self, step: u32, at_ns: u64) {
        if self.collected != step {
            self.collected = step;
            self.push(Annotation::new(step, at_ns, AnnotationKind::Gc, 0));
        }
    }

    /// The step before `from` was not over: what came since lies in it.
    pub fn relabel(&mut self, from: u32, to: u32) {
        self.latest.iter_mut().rev().take_while(|m| m.step >= from).for_each(|m| m.step = to);
        if self.collected == from {
            self.collected = to;
        }
    }

    pub fn latest(&self) -> impl Iterator<Item = &Annotation> {
        self.latest.iter()
    }

    /// By kind and label.
    pub fn counts(&self) -> impl Iterator<Item = (AnnotationKind, u32, u32)> {
        let known = |(&(kind, label), &count): (&(u8, u32), &u32)| {
            Some((AnnotationKind::from_code(kind)?, label, count))
        };
        self.counts.iter().filter_map(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_and_the_frequent_are_counted() {
        let mut marks = Marks::default();
        for n in 1..=10_000 {
            marks.push(Annotation::new(n, 0, AnnotationKind::User, n + 10));
            marks.push(Annotation::new(n, 0, AnnotationKind::Range, 1));
        }
        assert_eq!((marks.latest().count(), marks.latest().last().map(|m| m.step)), (LATEST, Some(10_000)));
        assert!(marks.counts().count() <= NAMES);
        assert!(marks.counts().any(|c| c == (AnnotationKind::Range, 1, 10_000)));
    }

    #[test]
    fn a_collection_is_one_however_many_it_frees() {
        let mut marks = Marks::default();
        for step in [3, 3, 3, 5, 5] {
            marks.collected(step, 0);
        }
        assert_eq!(marks.latest().map(|m| m.step).collect::<Vec<_>>(), [3, 5]);
        // Step 4 was not over.
        marks.relabel(5, 4);
        marks.collected(4, 0);
        assert_eq!(marks.latest().map(|m| m.step).collect::<Vec<_>>(), [3, 4]);
    }
}
