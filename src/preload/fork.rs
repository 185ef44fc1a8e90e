//! What becomes of this library across fork: the one list of its locks, and what a child forgets.
//!
//! The forking thread takes every lock before, in the order of their ranks, so that no other thread holds one
//! while the process is copied, and the child finds whole tables. The parent gives them back; the child makes
//! them anew, and leaves the recording, which is the parent's. What else it has of the parent's it forgets when
//! it records something itself: a fork may come from a signal handler, on top of anything, the C library's
//! allocator too, and most children run another program or nothing at all.
//!
//! It stands at the top, since it names everyone who has a lock.

use std::mem::forget;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use crate::allocator;
use crate::analysis::{analyzer, annotations, loop_steps, step_boundaries};
use crate::frameworks;
use crate::hooks::devices;
use crate::interpose::{got_patch, slots, symbol_lookup};
use crate::lifecycle;
use crate::loader::nesting::Nesting;
use crate::loader::{self, link_map};
use crate::lock::{Mutex, RawLock};
use crate::python::{self, codes};
use crate::stacks::{self, backward, native_samples, stack_interner};
use crate::state::{self, State};
use crate::thread_state;
use crate::unwind::modules;
use crate::writer::signals::Undisturbed;
use crate::writer::{file, recording, segment_pool};

/// Returns every lock of this library, in the order of taking.
fn locks() -> impl Iterator<Item = &'static RawLock> {
    [lifecycle::OPENING.raw(), slots::SLOTS.raw()]
        .into_iter()
        .chain(got_patch::PENDING.iter().map(Mutex::raw))
        .chain([
            analyzer::ANALYZER.raw(),
            step_boundaries::STEPS.raw(),
            annotations::LABELS.raw(),
            loop_steps::DETECTOR.raw(),
        ])
        .chain(frameworks::locks())
        .chain([state::PATH.raw()])
        .chain(stack_interner::BY_HASH.iter().map(Mutex::raw))
        .chain([
            codes::CODES.raw(),
            modules::MODULES.raw(),
            backward::CONTEXTS.raw(),
            native_samples::SAMPLES.raw(),
            stack_interner::INTERNED.raw(),
            thread_state::MAPPED.raw(),
            segment_pool::SEGMENTS.raw(),
            file::PATH.raw(),
            loader::WALK.raw(),
            allocator::HEAP.raw(),
        ])
}

/// The locks that the forking thread has taken, a bit each, in the order of [`locks`].
static HELD: AtomicU64 = AtomicU64::new(0);

/// Registers the handlers, once, when the library is loaded: a process and all its forked children inherit them.
/// The first look at the loader's list already holds a lock that no child may find taken.
pub fn register_handlers() {
    // SAFETY: handlers of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
}

/// A child has not forgotten yet what is its parent's.
static REMEMBERS: AtomicBool = AtomicBool::new(false);

extern "C" fn before() {
    // Until the end of the fork: a handler would find its own thread to have every lock.
    forget(Undisturbed::begin());
    let held = (0u32..).zip(locks()).filter(|(_, lock)| lock.hold()).fold(0, |all, (i, _)| all | 1 << i);
    HELD.store(held, Relaxed);
}

extern "C" fn after_in_parent() {
    let held = HELD.load(Relaxed);
    for (_, lock) in (0u32..).zip(locks()).filter(|(i, _)| held >> i & 1 == 1) {
        // SAFETY: `before` took it on this very thread.
        unsafe { lock.release() };
    }
    // SAFETY: begun in `before`.
    unsafe { Undisturbed::end() };
}

extern "C" fn after_in_child() {
    let held = HELD.load(Relaxed);
    // What was not taken is this thread's already, below the signal handler that forked, and it goes on there.
    for (_, lock) in (0u32..).zip(locks()).filter(|(i, _)| held >> i & 1 == 1) {
        // SAFETY: a child begins with one thread, which took the lock.
        unsafe { lock.renew() };
    }
    // Of threads that were inside there are none.
    [&symbol_lookup::DECIDING, &link_map::ENTERING].into_iter().for_each(Nesting::clear);
    if state::get() != State::Dormant {
        recording::after_fork_child(thread_state::current().is_appending());
        state::after_fork_child();
        thread_state::after_fork_child();
        REMEMBERS.store(true, Release);
    }
    // SAFETY: begun in `before`.
    unsafe { Undisturbed::end() };
}

/// Forgets what is the parent's, in a child that is about to open a recording.
pub fn forget_parent() {
    if REMEMBERS.swap(false, AcqRel) {
        forget_recording();
    }
}

/// Forgets what was written to another recording than the one that is about to be opened.
pub fn forget_recording() {
    stacks::after_fork_child();
    got_patch::after_fork_child();
    step_boundaries::after_fork_child();
    python::after_fork_child();
    devices::forget();
    frameworks::after_fork_child();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::mpsc::channel;

    /// Every source file of this crate.
    fn sources(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            if entry.is_dir() {
                sources(&entry, found);
            } else if entry.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&entry).unwrap();
                found.push(text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned());
            }
        }
    }

    #[test]
    fn no_lock_is_missing_from_the_list() {
        let mut texts = Vec::new();
        sources(Path::new(env!("CARGO_MANIFEST_DIR")), &mut texts);
        let made: usize = texts.iter().map(|text| text.matches("Mutex::new(").count()).sum();
        let ranks: Vec<_> = locks().map(RawLock::rank).collect();
        assert!(ranks.is_sorted(), "{ranks:?}");
        let mut kinds = ranks.clone();
        kinds.dedup();
        assert_eq!(kinds.len(), made, "locks with a rank in the list, and those that are made");
        assert!(ranks.len() <= 64, "one bit each");
    }

    #[test]
    fn a_child_finds_every_lock_free() {
        for lock in locks() {
            let (taken, is_taken) = channel();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    assert!(lock.hold());
                    taken.send(()).unwrap();
                    while !crate::lock::is_awaited_by_fork() {
                        std::thread::yield_now();
                    }
                    // SAFETY: taken above, by this thread.
                    unsafe { lock.release() };
                });
                is_taken.recv().unwrap();
                before();
                // SAFETY: the child looks at words and exits.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    after_in_child();
                    let free = locks().all(RawLock::is_free);
                    // SAFETY: ends the child at once.
                    unsafe { libc::_exit(i32::from(!free)) };
                }
                after_in_parent();
                let mut status = -1;
                // SAFETY: our own child.
                unsafe { libc::waitpid(child, &mut status, 0) };
                assert_eq!(status, 0, "{lock:?}");
            });
        }
        assert!(locks().all(RawLock::is_free));
    }
}
