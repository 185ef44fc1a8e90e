//! The sources of step boundaries, merged to one stream of steps. Pure: it knows neither Python nor PyTorch.
//!
//! A step ends at the last optimizer step before the next backward pass. Which one is the last is known only
//! later, so every optimizer step ends a step at once, and a further one *supersedes* that boundary:
//!
//! * no backward pass lay between the two (several optimizers for one loss, one call per parameter group), or
//! * it is not the optimizer that opened the cycle (GAN-like loops: the first optimizer object defines the
//!   iteration; in a short loop of its own, all its turns there), and the training loop has not come round since. Another
//!   cycle begins where that one is gone, or another training loop runs.

mod cycles;
pub mod loops;

use std::str::FromStr;
use std::time::Duration;

use crate::format::event::StepSource;
use crate::ledger::verdict::MIN_STEPS;
use cycles::{Cycles, Turn};
use loops::Stepped;

/// The setting of what ends a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepSetting {
    /// `leaktrace_step` once it was called, else optimizers, and between them the loops of phases that have
    /// none; for programs without any, their loop; where none is found, backward passes.
    Auto,
    Optimizer,
    Loop,
    Backward,
    /// A range of one name, which the settings have.
    Range,
    Api,
    Every(Duration),
}

impl StepSetting {
    /// What `LEAKTRACE_STEP` and `--step` take.
    pub const VALUES: &str = "auto, optimizer, loop, backward, range:NAME, api or every:SECONDS";
    /// Less is no interval: every event would end a step.
    const SHORTEST: Duration = Duration::from_millis(1);
}

impl FromStr for StepSetting {
    type Err = String;

    fn from_str(value: &str) -> Result<StepSetting, String> {
        let every = || {
            let interval = Duration::try_from_secs_f64(value.strip_prefix("every:")?.parse().ok()?).ok()?;
            (interval >= StepSetting::SHORTEST).then_some(StepSetting::Every(interval))
        };
        Ok(match value {
            "auto" => StepSetting::Auto,
            "optimizer" => StepSetting::Optimizer,
            "loop" => StepSetting::Loop,
            "backward" => StepSetting::Backward,
            "api" => StepSetting::Api,
            _ if value.strip_prefix("range:").is_some_and(|name| !name.is_empty()) => StepSetting::Range,
            _ => every().ok_or_else(|| format!("it takes {}", StepSetting::VALUES))?,
        })
    }
}

/// The end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    pub source: StepSource,
    /// It takes the place of the boundary before it.
    pub supersedes: bool,
    /// It ends a step; else it is recorded as what would, if its source were chosen.
    pub ends_step: bool,
    /// The depth of the loop, where a loop is the source.
    pub level: u8,
}

impl Boundary {
    /// Returns the end of an iteration of a loop at this depth.
    pub fn of_loop(level: u8, ends_step: bool) -> Boundary {
        Boundary { source: StepSource::Loop, supersedes: false, ends_step, level }
    }
}

/// Backward passes without any optimizer step after which a program is taken to have no optimizer. More than
/// usual gradient accumulation before the first optimizer step.
const WITHOUT_OPTIMIZER: u32 = 64;
/// Backward passes that suffice at the program's end: there will not be more.
const FEW_PASSES: u32 = 4;
/// From so many backward passes for each optimizer step on, gradients are accumulated: fewer may be losses of one batch.
const ACCUMULATED: u32 = 4;

/// The stream of steps of one process.
#[derive(Debug)]
pub struct Steps {
    setting: StepSetting,
    called: bool,
    optimizer_seen: bool,
    /// Optimizer steps, those that supersede another left out.
    optimizer_steps: u32,
    looped: bool,
    backwards: u32,
    cycles: Cycles,
    last_tick: Duration,
}

impl Steps {
    pub const fn new(setting: StepSetting) -> Steps {
        Steps {
            setting,
            called: false,
            optimizer_seen: false,
            optimizer_steps: 0,
            looped: false,
            backwards: 0,
            cycles: Cycles::new(),
            last_tick: Duration::ZERO,
        }
    }

    /// Takes in that an optimizer stepped on a thread; `id` tells it from others, where it is known. `stepped`: what the loops
    /// around it and the one before tell.
    pub fn optimizer(&mut self, thread: usize, id: Option<usize>, stepped: Stepped) -> Option<Boundary> {
        let ends_step = match self.setting {
            StepSetting::Auto => !self.called,
            StepSetting::Optimizer => true,
            _ => false,
        };
        self.optimizer_seen = true;
        let supersedes = match self.cycles.optimizer(thread, id, stepped) {
            Turn::Ends => false,
            Turn::Again => true,
            Turn::AgainBehindOthers => return None,
        };
        self.optimizer_steps = self.optimizer_steps.saturating_add(u32::from(!supersedes));
        Some(Boundary { source: StepSource::Optimizer, supersedes, ends_step, level: 0 })
    }

    /// Returns how many optimizer steps before this one, each of which has ended a step, were turns of one step: as it turns out
    /// when their loop is entered for the second time.
    pub fn joined_turns(&mut self, stepped: Stepped) -> Option<u32> {
        let turns = stepped.earlier_turns.filter(|&turns| turns > 1 && self.cycles.takes_turns())?;
        self.optimizer_steps = self.optimizer_steps.saturating_sub(turns - 1);
        Some(turns)
    }

    /// Takes in that there is an optimizer no more: what steps from now on follows another one.
    pub fn optimizer_gone(&mut self, id: usize) {
        self.cycles.optimizer_gone(id);
    }

    /// Takes in that a thread has ended.
    pub fn thread_ended(&mut self, thread: usize) {
        self.cycles.thread_ended(thread);
    }

    /// Takes in that a backward pass begins on a thread.
    pub fn backward(&mut self, thread: usize) -> Option<Boundary> {
        self.cycles.backward(thread);
        self.backwards = self.backwards.saturating_add(1);
        let ends_step = match self.setting {
            StepSetting::Backward => true,
            StepSetting::Auto => self.falls_back() && !self.looped,
            _ => false,
        };
        // Each ends what the one before began.
        (self.backwards > 1).then_some(Boundary {
            source: StepSource::Backward,
            supersedes: false,
            ends_step,
            level: 0,
        })
    }

    /// Returns whether `auto` has waited long enough for an optimizer.
    pub fn falls_back(&self) -> bool {
        self.setting == StepSetting::Auto
            && !self.called
            && !self.optimizer_seen
            && self.backwards > WITHOUT_OPTIMIZER
    }

    /// Returns whether one more backward pass and `auto` has waited long enough for an optimizer.
    pub fn falls_back_at_next_backward(&self) -> bool {
        self.setting == StepSetting::Auto
            && !self.called
            && !self.optimizer_seen
            && !self.looped
            && self.backwards == WITHOUT_OPTIMIZER
    }

    /// Returns whether, at the program's end, backward passes are the best steps that were seen: nothing else can have
    /// ended any, or gradients are accumulated over many of them.
    pub fn are_backward_passes_best(&self) -> bool {
        let is_only = !self.optimizer_seen && (FEW_PASSES..=WITHOUT_OPTIMIZER).contains(&self.backwards);
        let is_auto = self.setting == StepSetting::Auto && !self.called && !self.looped;
        is_auto && (is_only || (self.accumulates() && self.backwards > MIN_STEPS))
    }

    /// Returns whether an optimizer steps once for many backward passes, and has stepped too seldom for a verdict.
    pub fn accumulates(&self) -> bool {
        self.setting == StepSetting::Auto
            && (1..MIN_STEPS).contains(&self.optimizer_steps)
            && self.backwards >= ACCUMULATED.saturating_mul(self.optimizer_steps)
    }

    /// Returns whether the program's loop may be what ends its steps, or some of them.
    pub fn wants_loop(&self) -> bool {
        match self.setting {
            StepSetting::Loop => true,
            StepSetting::Auto => {
                !self.called && (self.optimizer_seen || self.looped || self.backwards <= WITHOUT_OPTIMIZER)
            }
            _ => false,
        }
    }

    /// Takes in that an iteration of the program's loop ended, or (`ends_step` is false) of one around it.
    pub fn looped(&mut self, level: u8, ends_step: bool) -> Option<Boundary> {
        if !self.wants_loop() {
            return None;
        }
        self.looped = true;
        Some(Boundary::of_loop(level, ends_step))
    }

    /// Returns whether the program's loop ends steps.
    pub fn is_looped(&self) -> bool {
        self.looped && self.wants_loop()
    }

    /// Takes in that a range of the name that was asked for ended.
    pub fn range(&mut self) -> Option<Boundary> {
        let ends_step = self.setting == StepSetting::Range;
        Some(Boundary { source: StepSource::Range, supersedes: false, ends_step, level: 0 })
    }

    /// Takes in that the program called `leaktrace_step`.
    pub fn call(&mut self) -> Option<Boundary> {
        self.called = true;
        let ends_step = matches!(self.setting, StepSetting::Auto | StepSetting::Api);
        Some(Boundary { source: StepSource::Api, supersedes: false, ends_step, level: 0 })
    }

    /// Takes in that a cell of a notebook ended: a step where nothing else ends any.
    pub fn cell(&mut self) -> Option<Boundary> {
        let nothing_else = !self.called && !self.optimizer_seen && !self.looped && self.backwards == 0;
        let ends_step = match self.setting {
            StepSetting::Auto => nothing_else,
            setting => setting == StepSetting::Api,
        };
        Some(Boundary { source: StepSource::Api, supersedes: false, ends_step, level: 0 })
    }

    /// Takes in the time since the recording began.
    pub fn tick(&mut self, now: Duration) -> Option<Boundary> {
        let StepSetting::Every(interval) = self.setting else { return None };
        if now.saturating_sub(self.last_tick) < interval {
            return None;
        }
        self.last_tick = now;
        Some(Boundary { source: StepSource::Time, supersedes: false, ends_step: true, level: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::cycles::BEYOND;
    use super::*;

    fn supersedes(steps: &mut Steps, id: usize) -> bool {
        steps.optimizer(1, Some(id), Stepped::default()).is_some_and(|b| b.supersedes)
    }

    #[test]
    fn optimizers_without_a_backward_between_are_one_step() {
        let mut steps = Steps::new(StepSetting::Auto);
        for _ in 0..3 {
            steps.backward(1);
            assert!(!supersedes(&mut steps, 1));
            assert!(supersedes(&mut steps, 2));
        }
    }

    #[test]
    fn the_first_optimizer_defines_the_iteration() {
        let mut steps = Steps::new(StepSetting::Auto);
        let mut boundaries = 0;
        for _ in 0..5 {
            for id in [7, 9] {
                steps.backward(1);
                boundaries += u32::from(!supersedes(&mut steps, id));
            }
        }
        assert_eq!(boundaries, 5);
    }

    #[test]
    fn a_lost_first_optimizer_is_replaced() {
        let mut steps = Steps::new(StepSetting::Auto);
        steps.backward(1);
        steps.optimizer(1, Some(1), Stepped::default());
        let kept = (0..200)
            .filter(|_| {
                steps.backward(1);
                !supersedes(&mut steps, 2)
            })
            .count();
        assert!(kept > 100, "{kept} boundaries of 200");
    }

    #[test]
    fn a_second_phase_with_its_own_optimizer_has_its_own_steps() {
        let mut steps = Steps::new(StepSetting::Auto);
        let mut boundaries = |id: usize, count: usize| {
            (0..count)
                .filter(|_| {
                    steps.backward(1);
                    !supersedes(&mut steps, id)
                })
                .count()
        };
        assert_eq!(boundaries(1, 40), 40);
        assert_eq!(boundaries(2, 80), 80 - BEYOND as usize);
        assert_eq!(boundaries(3, 5), 0, "it may be a critic's turn");
        assert_eq!(boundaries(2, 5), 5);
    }

    #[test]
    fn another_training_or_another_optimizer_in_place_of_one_that_is_gone_begins_another_cycle() {
        let mut steps = Steps::new(StepSetting::Auto);
        let mut boundary = |id: usize, new_phase: bool, gone: Option<usize>| {
            gone.into_iter().for_each(|id| steps.optimizer_gone(id));
            steps.backward(1);
            let stepped = Stepped { new_phase, ..Stepped::default() };
            steps.optimizer(1, Some(id), stepped).is_some_and(|b| !b.supersedes)
        };
        assert!(boundary(1, false, None) && !boundary(2, false, None));
        assert!(boundary(2, true, None) && boundary(2, false, None) && !boundary(1, false, None));
        assert!(boundary(3, false, Some(2)) && boundary(3, false, None));
    }

    #[test]
    fn each_thread_has_cycles_of_its_own() {
        let mut steps = Steps::new(StepSetting::Auto);
        let mut ends = 0;
        for _ in 0..40 {
            // Each with two optimizers for one loss, at the same time as the others.
            for thread in 1..4 {
                steps.backward(thread);
                ends += u32::from(
                    !steps.optimizer(thread, Some(thread * 10), Stepped::default()).unwrap().supersedes,
                );
            }
            for thread in 1..4 {
                let second = steps.optimizer(thread, Some(thread * 10 + 1), Stepped::default());
                assert!(second.is_none(), "another has ended a step since");
            }
        }
        assert_eq!(ends, 120);
        // Another thread with the same address.
        steps.thread_ended(2);
        steps.backward(2);
        assert!(steps.optimizer(2, Some(50), Stepped::default()).is_some_and(|b| !b.supersedes));
    }

    #[test]
    fn an_optimizer_may_step_on_a_thread_that_never_goes_backward() {
        let mut steps = Steps::new(StepSetting::Auto);
        for _ in 0..9 {
            steps.backward(1);
            assert!(steps.optimizer(2, Some(7), Stepped::default()).is_some_and(|b| !b.supersedes));
            assert!(steps.optimizer(2, Some(8), Stepped::default()).is_some_and(|b| b.supersedes));
        }
    }

    #[test]
    fn a_call_silences_the_optimizers() {
        let mut steps = Steps::new(StepSetting::Auto);
        assert!(steps.call().is_some());
        steps.backward(1);
        assert!(steps.optimizer(1, None, Stepped::default()).is_some_and(|b| !b.ends_step));
    }
}
