//! What fork needs of this room and the tables below it: every lock is taken before, so that the child finds
//! whole tables. The recording's own locks come after these, since entries are written under these.

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering;

use crate::python::codes;
use crate::stacks::{ARMING, autograd, native_samples, stack_interner};
use crate::unwind::{self, modules};
use crate::{numbering, thread_state};

/// The locks, in the order in which they are taken.
struct Held {
    shards: stack_interner::ShardGuards,
    codes: codes::Guard,
    modules: modules::Guard,
    autograd: autograd::Guard,
    // With this one held, a hook asks whether there is room for more stacks.
    samples: native_samples::Guard,
    stacks: stack_interner::Guard,
    threads: thread_state::Guard,
}

struct Across(UnsafeCell<Option<Held>>);

// SAFETY: read and written only by the thread that forks, while it holds every lock in it.
unsafe impl Sync for Across {}

static ACROSS: Across = Across(UnsafeCell::new(None));

/// Before fork: takes every lock.
pub fn before_fork() {
    let held = Held {
        shards: stack_interner::lock_shards(),
        codes: codes::lock_all(),
        modules: modules::lock_all(),
        autograd: autograd::lock_all(),
        samples: native_samples::lock_all(),
        stacks: stack_interner::lock_all(),
        threads: thread_state::lock_all(),
    };
    // SAFETY: with every lock held, this thread is the only one here; a second fork waits for the first shard
    // above.
    unsafe { *ACROSS.0.get() = Some(held) };
}

/// After fork, in the parent.
pub fn after_fork_parent() {
    drop(take());
}

/// After fork, in the child: its recording is a new one, so nothing is interned there yet.
pub fn after_fork_child() {
    thread_state::forget_stacks();
    ARMING.store(false, Ordering::Release);
    unwind::after_fork_child();
    let Some(mut held) = take() else { return };
    stack_interner::forget(&mut held.shards, &mut held.stacks);
    codes::forget(&mut held.codes);
    modules::forget(&mut held.modules);
    autograd::forget(&mut held.autograd);
    native_samples::forget(&mut held.samples);
    thread_state::forget(&mut held.threads);
    numbering::after_fork_child();
}

fn take() -> Option<Held> {
    // SAFETY: the thread that forked, or its image in the child, still holds the locks.
    unsafe { (*ACROSS.0.get()).take() }
}
