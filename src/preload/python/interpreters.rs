//! More than one Python interpreter in the process. Up to CPython 3.11 a thread is known by its first interpreter's state
//! even while it runs code of another, so that what is allocated there shows at the line that called into it; from 3.12 on the
//! state is that of the interpreter that runs. Knows only how many there are.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::stacks::note;
use crate::unwind::modules::Scope;

type State = unsafe extern "C" fn() -> *const u8;

static NEWEST: AtomicUsize = AtomicUsize::new(0);
static MAIN: AtomicUsize = AtomicUsize::new(0);
static TOLD: AtomicBool = AtomicBool::new(false);

/// The first version that needs no word about it.
const FOLLOWED: u32 = 12;

pub(crate) fn arm(scope: Scope, minor: u32) {
    if minor >= FOLLOWED {
        return;
    }
    let symbols = (scope.symbol(c"PyInterpreterState_Head"), scope.symbol(c"PyInterpreterState_Main"));
    if let (Some(newest), Some(main)) = symbols {
        MAIN.store(main.addr(), Ordering::Relaxed);
        NEWEST.store(newest.addr(), Ordering::Release);
    }
}

/// On the first sight of a Python stack: what another interpreter allocates comes from a stack that was not there before.
pub(crate) fn look() {
    let newest = NEWEST.load(Ordering::Acquire);
    if newest == 0 || TOLD.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: functions of these names, which read one word each of the interpreter's own; the answers are compared only.
    let (newest, main) = unsafe {
        let function = |address| std::mem::transmute::<usize, State>(address);
        (function(newest)(), function(MAIN.load(Ordering::Relaxed))())
    };
    if !ptr::eq(newest, main) && !newest.is_null() && !TOLD.swap(true, Ordering::Relaxed) {
        note(
            "more than one Python interpreter: before CPython 3.12, Python stacks inside another than the first are not \
             taken, and what is allocated there is shown at the line that called into it",
        );
    }
}

/// In a forked child, whose recording does not say it yet.
pub(crate) fn after_fork_child() {
    TOLD.store(false, Ordering::Relaxed);
}
