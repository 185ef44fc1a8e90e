//! The events that a recording still holds, from where its books are known: each with its step and its time. An event
//! has no clock of its own; between two moments that are known (boundaries, marks, exit) its time is told by its number.

use leaktrace_core::format::event::{Event, EventKind};
use leaktrace_core::format::reader::{Ended, Recording};
use leaktrace_core::ledger::Ledger;

use super::Input;

/// The events after a state of the books.
pub struct Window<'a> {
    recording: &'a Recording,
    /// The books before the first of the events.
    pub base: Ledger,
    /// The last number that `base` covers.
    from: u64,
    pub count: u64,
    /// Numbers and times, both rising.
    moments: Vec<(u64, u64)>,
    /// The number with which a step ended, and the step.
    ends: Vec<(u64, u32)>,
    /// The number of the event at which the run is judged; `None`: before all of them.
    pub judged: Option<u64>,
}

/// An event in its place.
#[derive(Clone, Copy, Debug)]
pub struct BackfilledBoundary {
    pub event: Event,
    /// Nanoseconds since the recording began.
    pub at_ns: u64,
    /// The step that it lies in, from 1.
    pub step: u32,
}

impl<'a> Window<'a> {
    pub fn new(input: &'a Input) -> Window<'a> {
        let recording = &input.recording;
        let base = base(recording);
        let from = base.next_seq() - 1;
        let mut window = Window {
            recording,
            from,
            count: 0,
            moments: vec![(from, base.last_ns())],
            ends: Vec::new(),
            judged: Some(u64::MAX),
            base,
        };
        let (mut step, mut exit) = (window.base.step_count(), None);
        for e in window.recording.events().filter(|e| e.seq > from) {
            window.count += 1;
            let kind = EventKind::from_code(e.kind);
            if matches!(kind, Some(EventKind::StepEnd | EventKind::Exit | EventKind::Annotation)) {
                window.moment(e.seq, e.address);
            }
            match kind {
                Some(EventKind::Exit) if exit.is_none() => exit = Some(e.seq),
                Some(EventKind::StepEnd) if exit.is_none() && !window.base.exited() => {
                    let replaces = e.context == 1 && step > 0;
                    if replaces {
                        window.ends.pop_if(|(_, last)| *last == step);
                    } else {
                        step = step.saturating_add(1);
                    }
                    window.ends.push((e.seq, step));
                }
                _ => {}
            }
        }
        if let Ended::Clean(after) = recording.ended {
            window.moment(input.ledger.next_seq() - 1, after);
        }
        window.judged = match (window.ends.last(), exit) {
            (Some(&(seq, _)), _) => Some(seq),
            (None, _) if window.base.step_count() > 0 || window.base.exited() => None,
            (None, exit) => Some(exit.unwrap_or(u64::MAX)),
        };
        window
    }

    fn moment(&mut self, seq: u64, ns: u64) {
        if let Some(&(last, at)) = self.moments.last()
            && seq > last
        {
            self.moments.push((seq, ns.max(at)));
        }
    }

    /// Every event in order.
    pub fn events(&self) -> impl Iterator<Item = BackfilledBoundary> {
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
            BackfilledBoundary { event, at_ns: self.time(moment, seq), step }
        })
    }

    /// The last step that ended.
    fn last_step(&self) -> u32 {
        self.ends.last().map_or_else(|| self.base.step_count(), |&(_, step)| step)
    }

    fn time(&self, moment: usize, seq: u64) -> u64 {
        let (first, at) = self.moments[moment];
        let Some(&(last, until)) = self.moments.get(moment + 1) else {
            // Nothing later is known: the order at least is.
            return at.saturating_add(seq - first);
        };
        let share = u128::from(seq - first) * u128::from(until - at) / u128::from((last - first).max(1));
        at.saturating_add(share as u64)
    }
}

/// An empty ledger if every event is still there, else the checkpoint's.
fn base(recording: &Recording) -> Ledger {
    let state = recording.checkpoint.as_deref();
    let Some(ledger) = state.and_then(|s| Ledger::replay(Some(s), [])) else { return Ledger::default() };
    let covered = ledger.next_seq() - 1;
    let there = recording.events().take_while(|e| e.seq <= covered).count() as u64;
    if there.saturating_add(ledger.lost_events()) >= covered { Ledger::default() } else { ledger }
}
