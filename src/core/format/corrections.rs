//! What turned out later of boundaries that were recorded long before: the reader takes it into account as it reads the events.
//! It must not know how that was found out.

use std::ops::Range;

use super::event::{Event, EventKind, StepSource};

/// The keys of these in a recording: `FIRST END`, by the numbers of events.
pub const BACKWARD_STEPS: &str = "backward_steps";
pub const TURNS: &str = "turns";

/// The events that count otherwise than they were recorded.
#[derive(Clone, Debug, Default)]
pub struct Corrections {
    /// Backward passes end steps here, and no optimizer.
    pub backward_steps: Range<u64>,
    /// Each optimizer step here belongs to the step that the one before ended.
    pub turns: Range<u64>,
}

impl Corrections {
    /// Returns the corrections that a recording has under these keys.
    pub fn of<'v>(get: impl Fn(&str) -> Option<&'v str>) -> Corrections {
        let range = |key| {
            let (first, end) = get(key).and_then(|v| v.split_once(' ')).unwrap_or_default();
            first.parse().unwrap_or(0)..end.parse().unwrap_or(0)
        };
        Corrections { backward_steps: range(BACKWARD_STEPS), turns: range(TURNS) }
    }

    /// Returns an event as it counts.
    #[inline(always)]
    pub fn apply(&self, event: Event) -> Event {
        const BOUNDARIES: [u8; 2] = [EventKind::StepEnd as u8, EventKind::AltBoundary as u8];
        if BOUNDARIES.contains(&event.kind) { self.apply_to_boundary(event) } else { event }
    }

    fn apply_to_boundary(&self, event: Event) -> Event {
        let is =
            |kind: EventKind, source: StepSource| event.kind == kind as u8 && event.class == source as u8;
        let is_optimizer_step = is(EventKind::StepEnd, StepSource::Optimizer);
        if self.backward_steps.contains(&event.seq) {
            let kind = match () {
                () if is(EventKind::AltBoundary, StepSource::Backward) => EventKind::StepEnd,
                () if is_optimizer_step => EventKind::AltBoundary,
                () => return event,
            };
            return Event { kind: kind as u8, ..event };
        }
        match is_optimizer_step && self.turns.contains(&event.seq) {
            true => Event { context: 1, ..event },
            false => event,
        }
    }
}
