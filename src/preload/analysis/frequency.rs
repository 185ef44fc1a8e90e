//! How often each stack recurs among the optimizer steps. A stack that comes within every few of them, and no oftener in one than
//! it does as a rule, belongs to the training, and not to a phase between its steps.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use leaktrace_core::steps::loops::STEPS_BETWEEN;

/// How often each stack recurs, direct-mapped by its id.
#[unsafe(link_section = ".data.leaktrace")]
static FREQUENT: [Frequency; SLOTS] = [const { Frequency(AtomicU64::new(0)) }; SLOTS];
const SLOTS: usize = 2048;
/// The times in a row that a stack has to recur soon enough to be frequent.
const TIMES: u64 = 8;

/// Counts a stack that was seen, on the chosen thread alone. Returns whether it recurs within every few optimizer
/// steps.
#[inline(always)]
pub fn is_frequent(stack: u32, step: u32) -> bool {
    FREQUENT[stack as usize % SLOTS].count(stack, step)
}

/// Counts such a stack if it is frequent. Returns whether it is.
#[inline(always)]
pub fn count_if_frequent(stack: u32, step: u32) -> bool {
    FREQUENT[stack as usize % SLOTS].count_if_frequent(stack, step)
}

/// How often a stack recurs.
///
/// ```text
///  63     48 47     32 31     24 23           20 19                     0
/// │ most    │ count   │ stack   │ times in a row │ optimizer step        │
/// ```
///
/// The stack by 8 bits of its id, the times that it recurred soon enough, the optimizer step in which it was seen last, how often
/// it was seen in that one, and the most that it was seen in each of the first so many. Whatever is seen oftener recurs anew.
struct Frequency(AtomicU64);

impl Frequency {
    const STEPS: u64 = (1 << 20) - 1;
    const MOST_COUNTED: u64 = u16::MAX as u64;

    #[inline(always)]
    fn count(&self, stack: u32, step: u32) -> bool {
        let next = self.next(stack, step);
        self.0.store(next, Relaxed);
        Frequency::is_frequent(next)
    }

    #[inline(always)]
    fn count_if_frequent(&self, stack: u32, step: u32) -> bool {
        let next = self.next(stack, step);
        let is_frequent = Frequency::is_frequent(next);
        if is_frequent {
            self.0.store(next, Relaxed);
        }
        is_frequent
    }

    #[inline(always)]
    fn is_frequent(known: u64) -> bool {
        Frequency::times(known) >= TIMES && Frequency::counted(known) <= known >> 48
    }

    #[inline(always)]
    fn next(&self, stack: u32, step: u32) -> u64 {
        let (known, step) = (self.0.load(Relaxed), u64::from(step) & Frequency::STEPS);
        let tag = u64::from(stack) / SLOTS as u64 + 1;
        if known >> 24 & 255 == tag && known & Frequency::STEPS == step {
            let full = Frequency::counted(known) == Frequency::MOST_COUNTED;
            return if full { known } else { known + (1 << 32) };
        }
        Frequency::in_another_step(known, stack, tag, step)
    }

    #[inline(never)]
    #[unsafe(link_section = ".text.leaktrace")]
    fn in_another_step(known: u64, stack: u32, tag: u64, step: u64) -> u64 {
        // No stack; or one that the tag cannot tell from others.
        if stack == 0 || tag > 255 {
            return 0;
        }
        let is_known = known >> 24 & 255 == tag;
        let soon = is_known && step.wrapping_sub(known) & Frequency::STEPS < u64::from(STEPS_BETWEEN);
        let (times, count, most) = (Frequency::times(known), Frequency::counted(known), known >> 48);
        let (times, most) = match () {
            () if !soon => (0, 0),
            () if times < TIMES => (times + 1, most.max(count)),
            () if count > most => (0, 0),
            () => (times, most),
        };
        most << 48 | 1 << 32 | tag << 24 | times << 20 | step
    }

    fn times(known: u64) -> u64 {
        known >> 20 & 15
    }

    fn counted(known: u64) -> u64 {
        known >> 32 & Frequency::MOST_COUNTED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_oftener_in_one_step_than_in_others_is_not_frequent() {
        let of = Frequency(AtomicU64::new(0));
        let seen = |step: u32, times: usize| (0..times).map(|_| of.count(5, step)).collect::<Vec<_>>();
        for step in 1..=TIMES as u32 {
            assert_eq!(seen(step, 2), [false; 2], "{step}");
        }
        assert_eq!(seen(9, 2), [true; 2]);
        // An evaluation in the training's own lines, behind that step.
        assert_eq!(seen(9, 2), [false; 2]);
        // It recurs anew, and is compared with the steps that follow.
        assert!((10..=17).all(|step| seen(step, 2) == [false; 2]));
        assert_eq!(seen(18, 3), [true, true, false]);
    }

    #[test]
    fn what_is_not_frequent_is_counted_once() {
        let of = Frequency(AtomicU64::new(0));
        for step in 1..=8 {
            assert!(!of.count_if_frequent(5, step) && !of.count(5, step));
        }
        assert!(of.count_if_frequent(5, 9) && !of.count_if_frequent(5, 9));
        assert!(!of.count(5, 9));
    }
}
