//! What a report can be asked for, and the error where the recording does not have it.

use std::fmt;

/// What a report shows beside its findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// What was live when this step ended.
    pub step: Option<u32>,
    /// What was allocated after this step ended and is still live (0: since the beginning).
    pub since: Option<u32>,
    /// With `since`: how much more each site has live than at that step instead, so that what is only replaced is left out.
    pub net: bool,
    /// All sites, not only the largest.
    pub all: bool,
    /// What is live, also by the step it was allocated in.
    pub cohorts: bool,
}

/// The step asked for is not in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepUnknown {
    pub(super) step: u32,
    pub(super) count: u32,
    /// The nearest later step that was kept by itself.
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
