//! How often each stack recurs among the optimizer steps. A stack that comes within every few of them belongs to
//! the training, and not to a phase between its steps.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use leaktrace_core::steps::loops::STEPS_BETWEEN;

/// How often each stack recurs, direct-mapped by its id.
#[unsafe(link_section = ".data.leaktrace")]
static FREQUENT: [Frequency; SLOTS] = [const { Frequency(AtomicU32::new(0)) }; SLOTS];
const SLOTS: usize = 2048;
/// The times in a row that a stack has to recur soon enough to be frequent.
const TIMES: u32 = 8;
/// Counts a stack that was seen, on the chosen thread alone. Returns whether it recurs within every few optimizer
/// steps.
#[inline(always)]
pub fn is_frequent(stack: u32, step: u32) -> bool {
    FREQUENT[stack as usize % SLOTS].count(stack, step)
}

/// How often a stack recurs.
///
/// ```text
///  31     24 23           20 19                     0
/// │ stack   │ times in a row │ optimizer step        │
/// ```
///
/// The stack by 8 bits of its id, the times that it recurred soon enough, the optimizer step in which it was
/// seen last.
struct Frequency(AtomicU32);

impl Frequency {
    const STEPS: u32 = (1 << 20) - 1;

    /// Counts a stack that was seen, on the chosen thread alone. Returns whether it recurs within every few
    /// optimizer steps.
    #[inline(always)]
    fn count(&self, stack: u32, step: u32) -> bool {
        let (known, step) = (self.0.load(Relaxed), step & Frequency::STEPS);
        let tag = stack / SLOTS as u32 + 1;
        let is_known = known >> 24 == tag && known & Frequency::STEPS == step;
        if is_known { Frequency::times(known) >= TIMES } else { self.again(known, stack, tag, step) }
    }

    #[inline(never)]
    #[unsafe(link_section = ".text.leaktrace")]
    fn again(&self, known: u32, stack: u32, tag: u32, step: u32) -> bool {
        // No stack; or one that the tag cannot tell from others.
        if stack == 0 || tag > 255 {
            return false;
        }
        let soon = known >> 24 == tag && step.wrapping_sub(known) & Frequency::STEPS < STEPS_BETWEEN;
        let times = if soon { Frequency::times(known).min(14) + 1 } else { 0 };
        self.0.store(tag << 24 | times << 20 | step, Relaxed);
        times >= TIMES
    }

    fn times(known: u32) -> u32 {
        known >> 20 & 15
    }
}
