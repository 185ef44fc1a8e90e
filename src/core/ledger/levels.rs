//! What else could end steps: boundaries of other sources and of other levels of loops, recorded beside those that do. A
//! recording that still has all of its events can be read by any of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::format::event::{Event, Kind, Source};

/// Sources and levels that are counted.
const MOST: usize = 64;

/// A source of boundaries; of loops, the depth: 1 is the outermost, 0 whichever was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct By {
    source: u8,
    level: u8,
}

impl By {
    fn of(e: &Event) -> By {
        By { source: e.class, level: if e.class == Source::Loop as u8 { e.device } else { 0 } }
    }

    fn takes(self, e: &Event) -> bool {
        let chosen = self.level == 0 && e.class == Source::Loop as u8 && e.kind == Kind::StepEnd as u8;
        Source::from_code(e.class).is_some() && e.class == self.source && (chosen || self == By::of(e))
    }

    /// Whether that is (a part of) what this takes.
    pub fn includes(self, other: By) -> bool {
        self == other || (self.source == other.source && self.level == 0)
    }

    /// The event as it is where this ends the steps.
    pub fn read(self, e: Event) -> Event {
        match Kind::from_code(e.kind) {
            Some(Kind::StepEnd | Kind::AltBoundary) => {
                let kind = if self.takes(&e) { Kind::StepEnd } else { Kind::AltBoundary };
                Event { kind: kind as u8, ..e }
            }
            _ => e,
        }
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Source::from_code(self.source).map_or("unknown", Source::name);
        if self.level == 0 { write!(f, "{name}") } else { write!(f, "{name}:{}", self.level) }
    }
}

impl FromStr for By {
    type Err = String;

    fn from_str(text: &str) -> Result<By, String> {
        let level = |n: &str| n.parse().ok().filter(|n| (1..=127).contains(n));
        let sources = (0..=u8::MAX)
            .map_while(|code| if code == 0 { Some(None) } else { Source::from_code(code).map(Some) });
        let named = |name: &str| sources.flatten().find(|s| s.name() == name).map(|s| s as u8);
        let by = match text.split_once(':') {
            Some(("loop", depth)) => level(depth).map(|level| By { source: Source::Loop as u8, level }),
            Some(_) => None,
            None => named(text).map(|source| By { source, level: 0 }),
        };
        by.ok_or_else(|| {
            "it takes optimizer, loop, loop:DEPTH (1 is the outermost), backward, range, api or time".into()
        })
    }
}

/// How many of each there were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Levels(Vec<(By, u32)>);

impl Levels {
    pub fn count(&mut self, e: &Event) {
        // One that takes another's place is no further one.
        if e.context == 1 {
            return;
        }
        let by = By::of(e);
        match self.0.iter().position(|(known, _)| *known == by) {
            Some(at) => self.0[at].1 = self.0[at].1.saturating_add(1),
            None if self.0.len() < MOST => self.0.push((by, 1)),
            None => {}
        }
    }

    pub fn all(&self) -> impl Iterator<Item = (By, u32)> {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in ["optimizer", "loop", "loop:2", "range", "time"] {
            assert_eq!(name.parse::<By>().map(|by| by.to_string()), Ok(name.to_owned()));
        }
        for wrong in ["", "loop:", "loop:0", "loop:x", "loop:300", "optimizer:1", "steps"] {
            assert!(wrong.parse::<By>().is_err(), "{wrong}");
        }
    }
}
