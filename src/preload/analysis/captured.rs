//! Training that is captured in a CUDA graph: Python runs it once, while a stream is captured, and each launch of the
//! graph repeats it without Python. What ended steps during the capture ends them again at each launch.
//!
//! It must not know what a stream or a graph is: `hooks::graph` says when a capture begins and ends, and which launch
//! repeats it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

/// What a capture saw of the training, in one word: the number of its first optimizer above these bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Captured(usize);

const BACKWARD: usize = 1;
const OPTIMIZER: usize = 2;
const NUMBERED: usize = 4;
/// Left to whoever keeps the word.
pub const FREE_BIT: usize = 8;
const NUMBER: u32 = 4;

static UNDER_WAY: AtomicBool = AtomicBool::new(false);
static SEEN: AtomicUsize = AtomicUsize::new(0);

/// A capture begins.
pub fn begin() {
    SEEN.store(0, Release);
    UNDER_WAY.store(true, Release);
}

/// A capture ends; returns what it saw.
pub fn end() -> Captured {
    UNDER_WAY.store(false, Release);
    Captured(SEEN.swap(0, AcqRel))
}

/// Takes in that a backward pass begins.
pub fn backward() {
    if UNDER_WAY.load(Acquire) {
        SEEN.fetch_or(BACKWARD, AcqRel);
    }
}

/// Takes in that an optimizer stepped. Of several the first counts: it opens the cycle of a step.
pub fn optimizer(id: Option<usize>) {
    if UNDER_WAY.load(Acquire) && SEEN.load(Acquire) & OPTIMIZER == 0 {
        SEEN.fetch_or(OPTIMIZER | id.map_or(0, |id| NUMBERED | id << NUMBER), AcqRel);
    }
}

impl Captured {
    pub fn is_nothing(self) -> bool {
        self == Captured::default()
    }

    pub fn to_bits(self) -> usize {
        self.0
    }

    pub fn from_bits(bits: usize) -> Captured {
        Captured(bits & !FREE_BIT)
    }

    pub fn went_backward(self) -> bool {
        self.0 & BACKWARD != 0
    }

    /// Returns the optimizer that stepped, by its number if it was known.
    pub fn optimizer(self) -> Option<Option<usize>> {
        (self.0 & OPTIMIZER != 0).then_some((self.0 & NUMBERED != 0).then_some(self.0 >> NUMBER))
    }
}
