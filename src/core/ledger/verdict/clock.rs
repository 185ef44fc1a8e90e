//! By which steps a site is judged. In a program whose loops have phases, what only grows in one kind of them is neither over nor
//! slowing because another kind has its turn.

use super::View;
use crate::ledger::Phases;

/// The share of births in one kind of steps that makes it their clock.
const SHARE: f64 = 0.9;
/// A phase has not come for more than this many times the steps from one to the next: there will be none.
const OVER: f64 = 1.5;
/// What grows in the phase under way alone may be something it gathers, unless that phase is so many times all there was before.
const MAIN: u32 = 2;

/// Counts steps.
#[derive(Clone, Copy)]
pub(super) struct Clock<'a> {
    phases: &'a Phases,
    of: Option<bool>,
    /// There was one such phase, and it is not over: what it gathers may yet be let go.
    pub under_way: bool,
}

impl<'a> Clock<'a> {
    /// The clock of all steps.
    pub fn all(view: &View<'a>) -> Clock<'a> {
        Clock { phases: view.ledger.phases(), of: None, under_way: false }
    }

    /// The clock of what optimizers end, if these are most of the steps.
    pub fn trained(view: &View<'a>) -> Clock<'a> {
        let phases = view.ledger.phases();
        let most = phases.count(false, view.steps) >= view.steps / 2;
        Clock { of: (phases.are_mixed() && most).then_some(false), ..Clock::all(view) }
    }

    /// The clock of what happened in these steps, in ascending order; `None` if they all lie in a phase that came for the
    /// first time and is not over.
    pub fn of(view: &View<'a>, steps: &[u32]) -> Option<Clock<'a>> {
        let all = Clock::all(view);
        let phases = all.phases;
        if !phases.are_mixed() || steps.is_empty() {
            return Some(all);
        }
        let looped = steps.iter().filter(|&&s| phases.is_looped(s)).count() as f64 / steps.len() as f64;
        if looped <= 1.0 - SHARE {
            return Some(Clock { of: Some(false), ..all });
        }
        if looped < SHARE {
            return Some(all);
        }
        let now = view.steps;
        let begun: Vec<u32> = phases.all().iter().filter(|p| p.looped).map(|p| p.first).collect();
        let (first, last) = (*begun.first()?, *begun.last()?);
        if phases.is_looped(now) {
            if steps.iter().filter(|&&s| s < last).count() >= 2 {
                return Some(Clock { of: Some(true), ..all });
            }
            return (now - last >= MAIN.saturating_mul(last)).then_some(Clock { under_way: true, ..all });
        }
        let between = f64::from(last - first) / (begun.len().max(2) - 1) as f64;
        let goes_on = begun.len() > 1 && f64::from(now - last) <= OVER * between + 1.0;
        Some(if goes_on { Clock { of: Some(true), ..all } } else { all })
    }

    /// Its steps up to and including this one.
    pub fn at(&self, step: u32) -> u32 {
        self.of.map_or(step, |looped| self.phases.count(looped, step))
    }

    pub fn is_all(&self) -> bool {
        self.of.is_none()
    }
}
