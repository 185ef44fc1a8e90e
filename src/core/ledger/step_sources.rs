//! Step sources: how many boundaries came from each, also from those that did not end steps. A recording that
//! still has all of its events can be read again with the steps of any of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::format::event::{Event, EventKind, StepSource};

/// Sources that are counted.
const MAX_SOURCES: usize = 64;

/// A source of boundaries: a [`StepSource`], and of loops the depth (1 is the outermost, 0 whichever was
/// chosen).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundarySource {
    source: u8,
    depth: u8,
}

impl BoundarySource {
    fn of(e: &Event) -> BoundarySource {
        BoundarySource {
            source: e.class,
            depth: if e.class == StepSource::Loop as u8 { e.device } else { 0 },
        }
    }

    fn ends_steps_at(self, e: &Event) -> bool {
        let chosen =
            self.depth == 0 && e.class == StepSource::Loop as u8 && e.kind == EventKind::StepEnd as u8;
        StepSource::from_code(e.class).is_some()
            && e.class == self.source
            && (chosen || self == BoundarySource::of(e))
    }

    /// Returns whether `other` is this source, or one depth of it.
    pub fn includes(self, other: BoundarySource) -> bool {
        self == other || (self.source == other.source && self.depth == 0)
    }

    /// Returns the event as it would be if this source ended the steps.
    pub fn reinterpret(self, e: Event) -> Event {
        match EventKind::from_code(e.kind) {
            Some(EventKind::StepEnd | EventKind::AltBoundary) => {
                let kind = if self.ends_steps_at(&e) { EventKind::StepEnd } else { EventKind::AltBoundary };
                Event { kind: kind as u8, ..e }
            }
            _ => e,
        }
    }
}

impl fmt::Display for BoundarySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = StepSource::from_code(self.source).map_or("unknown", StepSource::name);
        if self.depth == 0 { write!(f, "{name}") } else { write!(f, "{name}:{}", self.depth) }
    }
}

impl FromStr for BoundarySource {
    type Err = String;

    fn from_str(text: &str) -> Result<BoundarySource, String> {
        let depth = |n: &str| n.parse().ok().filter(|n| (1..=127).contains(n));
        let sources = (0..=u8::MAX)
            .map_while(|code| if code == 0 { Some(None) } else { StepSource::from_code(code).map(Some) });
        let named = |name: &str| sources.flatten().find(|s| s.name() == name).map(|s| s as u8);
        let by = match text.split_once(':') {
            Some(("loop", n)) => {
                depth(n).map(|depth| BoundarySource { source: StepSource::Loop as u8, depth })
            }
            Some(_) => None,
            None => named(text).map(|source| BoundarySource { source, depth: 0 }),
        };
        by.ok_or_else(|| {
            "it takes optimizer, loop, loop:DEPTH (1 is the outermost), backward, range, api or time".into()
        })
    }
}

/// How many boundaries came from each source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepSources {
    all: Vec<(BoundarySource, u32)>,
    /// Boundaries that ended a step, or made one go on, by the code of their source.
    step_ends: [u32; 8],
}

impl StepSources {
    /// Counts a boundary, whether it ends a step or not.
    pub fn count(&mut self, e: &Event) {
        // One that supersedes another adds none.
        if e.context == 1 {
            return;
        }
        let source = BoundarySource::of(e);
        match self.all.iter().position(|(known, _)| *known == source) {
            Some(at) => self.all[at].1 = self.all[at].1.saturating_add(1),
            None if self.all.len() < MAX_SOURCES => self.all.push((source, 1)),
            None => {}
        }
    }

    /// Counts a boundary that ends a step.
    pub fn count_step_end(&mut self, e: &Event) {
        let count = &mut self.step_ends[usize::from(e.class & 7)];
        *count = count.saturating_add(1);
        self.count(e);
    }

    pub fn all(&self) -> impl Iterator<Item = (BoundarySource, u32)> {
        self.all.iter().copied()
    }

    /// Returns how many boundaries came from a source.
    pub fn of(&self, source: StepSource) -> u32 {
        let wanted = BoundarySource { source: source as u8, depth: 0 };
        self.all.iter().find(|(known, _)| *known == wanted).map_or(0, |&(_, count)| count)
    }

    /// Returns the source that ended most steps, those of `except` left out.
    pub fn most_frequent(&self, except: Option<StepSource>) -> Option<StepSource> {
        let counts = |&i: &usize| except.is_none_or(|e| i != e as usize);
        let most = (0..self.step_ends.len()).rev().filter(counts).max_by_key(|&i| self.step_ends[i])?;
        StepSource::from_code(most as u8).filter(|_| self.step_ends[most] > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in ["optimizer", "loop", "loop:2", "range", "time"] {
            assert_eq!(name.parse::<BoundarySource>().map(|by| by.to_string()), Ok(name.to_owned()));
        }
        for wrong in ["", "loop:", "loop:0", "loop:x", "loop:300", "optimizer:1", "steps"] {
            assert!(wrong.parse::<BoundarySource>().is_err(), "{wrong}");
        }
    }
}
