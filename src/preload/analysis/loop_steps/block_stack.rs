//! The stack of a block that is about to be recorded, and its event for the detector. Where the event is the one before over
//! again, both take a small and straight piece of code: in a program that calls one compiled function in its loop that is
//! most blocks, and the program leaves none of ours in the processor's caches between two of them.

use std::sync::atomic::{AtomicU64, Ordering::*};

use super::{
    ENABLED, Here, LAST, LAST_WAS_FREQUENT, PHASED, SAMPLING, STEP, THREAD, detector, event, show_again,
};
use crate::analysis::frequency::{count_if_frequent, is_frequent};
use crate::analysis::step_boundaries;
use crate::python::frames;
use crate::stacks;
use crate::thread_state::{self, ThreadState};
use crate::writer::recording;
use leaktrace_core::steps::loops::ANY_THREAD;

/// The stack of the last event that the detector was shown, if that is the stack of every event in its epoch that has the
/// same Python frames, else [`NOT_KNOWN`]; above it the lower half of the event's number. 0: there was none.
#[unsafe(link_section = ".data.leaktrace")]
static REPEATED: AtomicU64 = AtomicU64::new(0);
const NOT_KNOWN: u32 = u32::MAX;

/// Stores the stack of the event of this number, and whether every event over again has it.
#[inline(always)]
fn remember(number: u64, (stack, repeats): (u32, bool)) {
    REPEATED.store(number << 32 | u64::from(if repeats { stack } else { NOT_KNOWN }), Relaxed);
}

/// Forgets that stack: another detector counts its events anew, and another recording its stacks.
pub fn forget() {
    REPEATED.store(0, Release);
}

/// Returns the stack of a block that is about to be recorded, and shows it to the detector unless it is left
/// out of the sample.
#[inline(always)]
pub fn block_stack() -> u32 {
    let thread = thread_state::current();
    match repeated(thread) {
        Some((number, NOT_KNOWN)) => stack_of_repeated(thread, number),
        Some((_, stack)) => stack,
        None => other_stack(thread),
    }
}

/// Shows the detector a block whose event is the one before over again. Returns its number, and its stack, which is the one's
/// before, or [`NOT_KNOWN`]. `None`: it is another event, and nothing was done.
#[inline(never)]
#[unsafe(link_section = ".text.leaktrace")]
fn repeated(thread: &ThreadState) -> Option<(u64, u32)> {
    let (chosen, known) = (THREAD.load(Relaxed), REPEATED.load(Relaxed));
    if known == 0
        || (chosen != thread.address() && chosen != ANY_THREAD)
        || PHASED.load(Relaxed)
        || !ENABLED.load(Relaxed)
        || stacks::takes_backward(thread)
    {
        return None;
    }
    let mut detector = detector()?;
    let loops = detector.as_deref_mut()?;
    if loops.number() as u32 != (known >> 32) as u32 {
        return None;
    }
    let ended = thread.read_section(|| {
        loops.repeat(thread.address(), thread_state::epoch(), |frames| {
            frames::if_same(frames).map(|(objects, code)| (objects, Here(Some(code))))
        })
    })??;
    LAST.store(recording::sequence(), Relaxed);
    let known = known.wrapping_add(1 << 32);
    REPEATED.store(known, Relaxed);
    drop(detector);
    if let Some((level, ends_step)) = ended {
        step_boundaries::looped(level, ends_step);
    }
    Some((known >> 32, known as u32))
}

#[inline(never)]
fn stack_of_repeated(thread: &ThreadState, number: u64) -> u32 {
    let stack = stacks::stack_for_repeats(thread, None);
    remember(number, stack);
    stack.0
}

#[inline(never)]
fn other_stack(thread: &ThreadState) -> u32 {
    if !SAMPLING.load(Relaxed) || THREAD.load(Relaxed) != thread.address() {
        let shown = event(false);
        let stack = stacks::stack_for_repeats(thread, shown.map(|(walk, _)| walk));
        if let Some((_, number)) = shown {
            remember(number, stack);
        }
        return stack.0;
    }
    let stack = stacks::stack(thread);
    let frequent = is_frequent(stack, STEP.load(Relaxed));
    // The first one behind a phase shows that it is over, the first one behind an optimizer step what follows it.
    if !(frequent && LAST_WAS_FREQUENT.load(Relaxed)) {
        show_again(thread.address(), frequent);
    }
    stack
}

/// Returns the stack of such a block where this thread has it cached and the detector need not be shown it.
/// `None`: what [`block_stack`] does is needed.
#[inline(always)]
pub fn known_stack(thread: &ThreadState) -> Option<u32> {
    if ENABLED.load(Relaxed) {
        let chosen = THREAD.load(Relaxed);
        if chosen == 0 {
            return None;
        }
        if chosen == thread.address() || chosen == ANY_THREAD {
            if !SAMPLING.load(Relaxed) {
                return None;
            }
            let stack = stacks::cached_stack(thread)?;
            let left_out = LAST_WAS_FREQUENT.load(Relaxed) && count_if_frequent(stack, STEP.load(Relaxed));
            return left_out.then_some(stack);
        }
    }
    stacks::cached_stack(thread)
}
