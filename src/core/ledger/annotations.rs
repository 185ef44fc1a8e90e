//! Annotations: named moments of a run (the program's own marks and ranges, garbage collections that freed
//! memory, emptied caches). The latest are kept one by one, and all are counted by name.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::format::event::AnnotationKind;

/// Annotations kept one by one.
const MAX_LATEST: usize = 1000;
/// Names that are counted. Where more come, those that came once make room.
const MAX_NAMES: usize = 1024;

/// One annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotation {
    /// The step it lies in, from 1.
    pub step: u32,
    /// Nanoseconds since the recording began; of a garbage collection, the latest known time before it.
    pub at_ns: u64,
    kind: u8,
    /// Id of its label; 0: none.
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

/// All annotations of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Annotations {
    latest: VecDeque<Annotation>,
    counts: BTreeMap<(u8, u32), u32>,
    /// The step of the last garbage collection: however many blocks it frees, there is one per step.
    collected: u32,
}

impl Annotations {
    pub fn push(&mut self, annotation: Annotation) {
        if self.latest.len() >= MAX_LATEST {
            self.latest.pop_front();
        }
        self.latest.push_back(annotation);
        if self.counts.len() >= MAX_NAMES {
            self.counts.retain(|_, count| *count > 1);
        }
        let known =
            self.counts.len() < MAX_NAMES || self.counts.contains_key(&(annotation.kind, annotation.label));
        if known {
            let count = self.counts.entry((annotation.kind, annotation.label)).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Takes in that the garbage collector freed a block.
    #[cold]
    pub fn collected(&mut self, step: u32, at_ns: u64) {
        if self.collected != step {
            self.collected = step;
            self.push(Annotation::new(step, at_ns, AnnotationKind::Gc, 0));
        }
    }

    /// Moves to step `to` what came in step `from`.
    pub fn move_steps(&mut self, from: u32, to: u32) {
        self.latest.iter_mut().rev().take_while(|m| m.step >= from).for_each(|m| m.step = to);
        if self.collected == from {
            self.collected = to;
        }
    }

    pub fn latest(&self) -> impl Iterator<Item = &Annotation> {
        self.latest.iter()
    }

    /// Returns how often each came, by kind and label.
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
        let mut annotations = Annotations::default();
        for n in 1..=10_000 {
            annotations.push(Annotation::new(n, 0, AnnotationKind::User, n + 10));
            annotations.push(Annotation::new(n, 0, AnnotationKind::Range, 1));
        }
        assert_eq!(
            (annotations.latest().count(), annotations.latest().last().map(|m| m.step)),
            (MAX_LATEST, Some(10_000))
        );
        assert!(annotations.counts().count() <= MAX_NAMES);
        assert!(annotations.counts().any(|c| c == (AnnotationKind::Range, 1, 10_000)));
    }

    #[test]
    fn a_collection_is_one_however_many_it_frees() {
        let mut annotations = Annotations::default();
        for step in [3, 3, 3, 5, 5] {
            annotations.collected(step, 0);
        }
        assert_eq!(annotations.latest().map(|m| m.step).collect::<Vec<_>>(), [3, 5]);
        // Step 4 was not over.
        annotations.move_steps(5, 4);
        annotations.collected(4, 0);
        assert_eq!(annotations.latest().map(|m| m.step).collect::<Vec<_>>(), [3, 4]);
    }
}
