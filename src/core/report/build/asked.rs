//! What a report can be asked for, and what to say where that is not there.

use std::fmt;

/// What a report is asked for beside the judgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// What was alive when this step ended.
    pub step: Option<u32>,
    /// What came since this one ended (0: since the beginning).
    pub since: Option<u32>,
    /// All that was alive, not only the largest.
    pub all: bool,
    /// And by the step it was born in.
    pub cohorts: bool,
}

/// The step asked for is not in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepUnknown {
    pub(super) step: u32,
    pub(super) count: u32,
    /// The nearest one after it that is still known by itself.
    pub(super) next: Option<u32>,
}

impl fmt::Display for StepUnknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (step, count) = (self.step, self.count);
        match self.next {
            _ if count == 0 => write!(f, "step {step} is not there: no step was seen in this run"),
            Some(next) if step > 0 => {
                write!(
                    f,
                    "step {step} was merged with its neighbours to bound the recording; the next kept is {next}"
                )
            }
            _ => write!(f, "step {step} is not there: the steps are 1 to {count}"),
        }
    }
}

impl std::error::Error for StepUnknown {}
