//! The range of events that a recording still holds, each with its step and its time, from a known state of
//! the ledger on. An event has no clock of its own: its time is interpolated by its number between moments
//! that have one (boundaries, marks, exit).

use leaktrace_core::format::event::{Event, EventKind};
use leaktrace_core::format::reader::{Ended, Recording};
use leaktrace_core::ledger::Ledger;

use super::Input;

/// The events after a state of the ledger.
pub struct EventRange<'a> {
    recording: &'a Recording,
    /// The ledger before the first of the events.
    pub base: Ledger,
    /// The last event number that `base` covers.
    from: u64,
    pub count: u64,
    /// Event numbers and times that are known, both rising.
    moments: Vec<(u64, u64)>,
    /// The event numbers at which steps ended, and the steps.
    ends: Vec<(u64, u32)>,
    /// The number of the event that the run is judged at; `None`: before all of them.
    pub judged: Option<u64>,
}

/// An event with its time and step.
#[derive(Clone, Copy, Debug)]
pub struct TimedEvent {
    pub event: Event,
    /// Nanoseconds since the recording began.
    pub at_ns: u64,
    /// The step that it happened in, from 1.
    pub step: u32,
}

impl<'a> EventRange<'a> {
    pub fn new(input: &'a Input) -> EventRange<'a> {
        let recording = &input.recording;
        let base = base(recording);
        let from = base.next_seq() - 1;
        let mut range = EventRange {
            recording,
            from,
            count: 0,
            moments: vec![(from, base.last_ns())],
            ends: Vec::new(),
            judged: Some(u64::MAX),
            base,
        };
        let (mut step, mut exit) = (range.base.step_count(), None);
        for e in range.recording.events() {
            // A boundary that was found out about later has no number: it lies before the event of the number it bears.
            let (seq, is_covered) = match e.seq {
                0 => (e.size.saturating_sub(1), e.size <= from),
                seq => (seq, seq <= from),
            };
            if is_covered {
                continue;
            }
            range.count += u64::from(e.seq != 0);
            let kind = EventKind::from_code(e.kind);
            if matches!(kind, Some(EventKind::StepEnd | EventKind::Exit | EventKind::Annotation)) {
                range.moment(seq, e.address);
            }
            match kind {
                Some(EventKind::Exit) if exit.is_none() => exit = Some(seq),
                Some(EventKind::StepEnd) if exit.is_none() && !range.base.exited() => {
                    let replaces = e.context == 1 && step > 0;
                    if replaces {
                        range.ends.pop_if(|(_, last)| *last == step);
                    } else {
                        step = step.saturating_add(1);
                    }
                    range.ends.push((seq, step));
                }
                _ => {}
            }
        }
        if let Ended::Clean(after) = recording.ended {
            range.moment(input.ledger.next_seq() - 1, after);
        }
        range.judged = match (range.ends.last(), exit) {
            (Some(&(seq, _)), _) => Some(seq),
            (None, _) if range.base.step_count() > 0 || range.base.exited() => None,
            (None, exit) => Some(exit.unwrap_or(u64::MAX)),
        };
        range
    }

    /// Adds a moment whose time is known.
    fn moment(&mut self, seq: u64, ns: u64) {
        if let Some(&(last, at)) = self.moments.last()
            && seq > last
        {
            self.moments.push((seq, ns.max(at)));
        }
    }

    /// Returns every event in order.
    pub fn events(&self) -> impl Iterator<Item = TimedEvent> {
        let (mut moment, mut end) = (0, 0);
        self.recording.events().filter(|e| e.seq > self.from).map(move |event| {
            let seq = event.seq;
            while self.moments.get(moment + 1).is_some_and(|&(known, _)| known <= seq) {
                moment += 1;
            }
            while self.ends.get(end).is_some_and(|&(last, _)| last < seq) {
                end += 1;
            }
            let step =
                self.ends.get(end).map_or_else(|| self.last_step().saturating_add(1), |&(_, step)| step);
            TimedEvent { event, at_ns: self.time(moment, seq), step }
        })
    }

    /// Returns the last step that ended.
    fn last_step(&self) -> u32 {
        self.ends.last().map_or_else(|| self.base.step_count(), |&(_, step)| step)
    }

    /// Interpolates the time of an event between two moments.
    fn time(&self, moment: usize, seq: u64) -> u64 {
        let (first, at) = self.moments[moment];
        let Some(&(last, until)) = self.moments.get(moment + 1) else {
            // No later moment is known: at least the order is kept.
            return at.saturating_add(seq - first);
        };
        let share = u128::from(seq - first) * u128::from(until - at) / u128::from((last - first).max(1));
        at.saturating_add(share as u64)
    }
}

/// Returns an empty ledger if the recording still holds every event, else that of its checkpoint.
fn base(recording: &Recording) -> Ledger {
    let state = recording.checkpoint.as_deref();
    let Some(ledger) = state.and_then(|s| Ledger::replay(Some(s), [])) else { return Ledger::default() };
    let covered = ledger.next_seq() - 1;
    let held = recording.events().take_while(|e| e.seq <= covered).count() as u64;
    if held.saturating_add(ledger.lost_events()) >= covered { Ledger::default() } else { ledger }
}
