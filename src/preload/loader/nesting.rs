//! Whether a thread is inside of something already. Without thread-local storage: it is asked where a sanitizer, which has a
//! function of its own in place of the C library's for that, is not set up yet.

use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::machine;

/// The threads that are inside; 0 is none.
pub struct Nesting([AtomicU64; 32]);

impl Nesting {
    pub const fn new() -> Nesting {
        Nesting([const { AtomicU64::new(0) }; 32])
    }

    /// Enters for as long as what is returned lives; `None` if this thread is inside already. Of more threads than there are
    /// places for it is not noted.
    pub fn enter(&self) -> Option<Inside<'_>> {
        let thread = machine::own_id();
        if self.0.iter().any(|place| place.load(Relaxed) == thread) {
            return None;
        }
        let take = |place: &&AtomicU64| place.compare_exchange(0, thread, Relaxed, Relaxed).is_ok();
        Some(Inside(self.0.iter().find(take)))
    }

    /// Forgets all threads, in a forked child that has none of them.
    pub fn clear(&self) {
        self.0.iter().for_each(|place| place.store(0, Relaxed));
    }
}

/// A thread's being inside.
pub struct Inside<'n>(Option<&'n AtomicU64>);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(0, Relaxed);
        }
    }
}
