//! What else could end steps: boundaries of other sources and of other levels of loops, recorded beside those that do. A
//! recording that still has all of its events can be read by any of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::format::event::{Event, EventKind, StepSource};

/// Sources and levels that are counted.
const MOST: usize = 64;

/// A source of boundaries; of loops, the depth: 1 is the outermost, 0 whichever was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundarySource {
    source: u8,
    level: u8,
}

impl BoundarySource {
    fn of(e: &Event) -> BoundarySource {
        BoundarySource {
            source: e.class,
            level: if e.class == StepSource::Loop as u8 { e.device } else { 0 },
        }
    }

    fn takes(self, e: &Event) -> bool {
        let chosen =
            self.level == 0 && e.class == StepSource::Loop as u8 && e.kind == EventKind::StepEnd as u8;
        StepSource::from_code(e.class).is_some()
            && e.class == self.source
            && (chosen || self == BoundarySource::of(e))
    }

    /// Whether that is (a part of) what this takes.
    pub fn includes(self, other: BoundarySource) -> bool {
        self == other || (self.source == other.source && self.level == 0)
    }

    /// The event as it is where this ends the steps.
    pub fn read(self, e: Event) -> Event {
        match EventKind::from_code(e.kind) {
            Some(EventKind::StepEnd | EventKind::AltBoundary) => {
                let kind = if self.takes(&e) { EventKind::StepEnd } else { EventKind::AltBoundary };
                Event { kind: kind as u8, ..e }
            }
            _ => e,
        }
    }
}

impl fmt::Display for BoundarySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = StepSource::from_code(self.source).map_or("unknown", StepSource::name);
        if self.level == 0 { write!(f, "{name}") } else { write!(f, "{name}:{}", self.level) }
    }
}

impl FromStr for BoundarySource {
    type Err = String;

    fn from_str(text: &str) -> Result<BoundarySource, String> {
        let level = |n: &str| n.parse().ok().filter(|n| (1..=127).contains(n));
        let sources = (0..=u8::MAX)
            .map_while(|code| if code == 0 { Some(None) } else { StepSource::from_code(code).map(Some) });
        let named = |name: &str| sources.flatten().find(|s| s.name() == name).map(|s| s as u8);
        let by = match text.split_once(':') {
            Some(("loop", depth)) => {
                level(depth).map(|level| BoundarySource { source: StepSource::Loop as u8, level })
            }
            Some(_) => None,
            None => named(text).map(|source| BoundarySource { source, level: 0 }),
        };
        by.ok_or_else(|| {
            "it takes optimizer, loop, loop:DEPTH (1 is the outermost), backward, range, api or time".into()
        })
    }
}

/// How many of each there were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Levels(Vec<(BoundarySource, u32)>);

impl Levels {
    pub fn count(&mut self, e: &Event) {
        // One that takes another's place is no further one.
        if e.context == 1 {
            return;
        }
        let by = BoundarySource::of(e);
        match self.0.iter().position(|(known, _)| *known == by) {
            Some(at) => self.0[at].1 = self.0[at].1.saturating_add(1),
            None if self.0.len() < MOST => self.0.push((by, 1)),
            None => {}
        }
    }

    pub fn all(&self) -> impl Iterator<Item = (BoundarySource, u32)> {
        self.0.iter().copied()
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
