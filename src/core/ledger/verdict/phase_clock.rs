//! By which steps a site is judged. In a program whose loops have phases (training, evaluation), what grows
//! in one kind of them is neither over nor saturating because another kind has its turn.

use super::finding::CountedSteps;
use super::view::View;
use crate::ledger::phases::Phases;

/// The share of births in one kind of steps from which on only these steps count.
const SHARE: f64 = 0.9;
/// A kind of phase is over when none has come for this many times the steps from one to the next.
const OVER: f64 = 1.5;
/// What grows only in the phase under way may be freed at its end. It is judged if that phase is as long as all there was
/// before, and as in any other loop if it is so many times as long.
const MAIN: u32 = 2;

/// Whether a kind of phase came for the first time, and is not over: what it accumulates may yet be freed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum UnderWay {
    No,
    /// It is shorter than what was before it.
    Short,
    Long,
}

/// Counts the steps of one kind, or all of them.
#[derive(Clone, Copy)]
pub struct PhaseClock<'a> {
    phases: &'a Phases,
    /// The kind it counts: of loops, or others. `None`: all.
    looped: Option<bool>,
    pub under_way: UnderWay,
}

impl<'a> PhaseClock<'a> {
    /// Returns the clock of all steps.
    pub fn all(view: &View<'a>) -> PhaseClock<'a> {
        PhaseClock { phases: view.ledger.phases(), looped: None, under_way: UnderWay::No }
    }

    /// Returns the clock of the steps that loops do not end, if these are most of the steps.
    pub fn of_training(view: &View<'a>) -> PhaseClock<'a> {
        let phases = view.ledger.phases();
        let most = phases.count(false, view.steps) >= view.steps / 2;
        PhaseClock { looped: (phases.are_mixed() && most).then_some(false), ..PhaseClock::all(view) }
    }

    /// Returns the clock of what happened in these steps, in ascending order.
    pub fn of(view: &View<'a>, steps: &[u32]) -> PhaseClock<'a> {
        let all = PhaseClock::all(view);
        let phases = all.phases;
        if !phases.are_mixed() || steps.is_empty() {
            return all;
        }
        // What the last training step allocates behind its optimizer counts in the first step of the evaluation, where that
        // has several.
        let begins =
            |s: u32| !phases.is_looped(s.saturating_sub(1)) && phases.is_looped(s) && phases.is_looped(s + 1);
        let sure: Vec<u32> = steps.iter().copied().filter(|&s| !begins(s)).collect();
        let sure = if sure.len() * 2 > steps.len() { &sure } else { steps };
        let looped = sure.iter().filter(|&&s| phases.is_looped(s)).count() as f64 / sure.len() as f64;
        if looped <= 1.0 - SHARE {
            return PhaseClock { looped: Some(false), ..all };
        }
        if looped < SHARE {
            return all;
        }
        let now = view.steps;
        let begun: Vec<u32> = phases.all().iter().filter(|p| p.looped).map(|p| p.first).collect();
        let (Some(&first), Some(&last)) = (begun.first(), begun.last()) else { return all };
        if phases.is_looped(now) {
            if steps.iter().filter(|&&s| s < last).count() >= 2 {
                return PhaseClock { looped: Some(true), ..all };
            }
            let under_way = match now - last {
                length if length >= MAIN.saturating_mul(last) => UnderWay::No,
                length if length >= last => UnderWay::Long,
                _ => UnderWay::Short,
            };
            return PhaseClock { under_way, ..all };
        }
        let between = f64::from(last - first) / (begun.len().max(2) - 1) as f64;
        let goes_on = begun.len() > 1 && f64::from(now - last) <= OVER * between + 1.0;
        if goes_on { PhaseClock { looped: Some(true), ..all } } else { all }
    }

    /// Counts its steps up to and including this one.
    pub fn at(&self, step: u32) -> u32 {
        self.looped.map_or(step, |looped| self.phases.count(looped, step))
    }

    /// Returns which steps it counts.
    pub fn counted(&self) -> CountedSteps {
        match self.looped {
            None => CountedSteps::All,
            Some(false) => CountedSteps::Training,
            Some(true) => CountedSteps::Other,
        }
    }

    pub fn is_all(&self) -> bool {
        self.looped.is_none()
    }
}
