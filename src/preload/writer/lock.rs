//! The locks of the recording and of those who write it, and what becomes of them across fork: the forking thread takes
//! them all before, so that no other holds one while the process is copied; the parent lets go of them, the child makes
//! them anew.
//!
//! A lock is one futex word and nothing else. `parking_lot` parks waiting threads in one table for the whole process, which
//! it allocates, and whose own locks another thread may hold at the moment of a fork: the child would wait for it forever.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may be waiting.
const WAITED_FOR: u32 = 2;

/// Mutual exclusion.
#[derive(Debug)]
pub struct Mutex<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the holder of the lock only.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// The lock is held while this lives.
#[derive(Debug)]
pub struct MutexGuard<'a, T>(&'a Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            self.wait(None);
        }
        MutexGuard(self)
    }

    /// Leaves the lock to one who is about to fork: those who only try come back at once, and would be first every time.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        if FORKING.load(Relaxed) != 0 {
            return None;
        }
        self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok().then(|| MutexGuard(self))
    }

    /// Waits so long at most.
    pub fn try_lock_for(&self, patience: Duration) -> Option<MutexGuard<'_, T>> {
        (self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok() || self.wait(Some(patience)))
            .then(|| MutexGuard(self))
    }

    #[cold]
    fn wait(&self, patience: Option<Duration>) -> bool {
        let until = patience.map(|p| Instant::now() + p);
        while self.word.swap(WAITED_FOR, Acquire) != FREE {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return false;
            }
            let left = left.map(|left| libc::timespec {
                tv_sec: left.as_secs() as libc::time_t,
                tv_nsec: left.subsec_nanos().into(),
            });
            let timeout = left.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            // SAFETY: a word that lives as long as this lock; whatever the answer, the word is looked at again.
            unsafe {
                let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
                libc::syscall(libc::SYS_futex, self.word.as_ptr(), wait, WAITED_FOR, timeout)
            };
        }
        true
    }

    #[inline]
    fn unlock(&self) {
        if self.word.swap(FREE, Release) == WAITED_FOR {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // SAFETY: as above.
        unsafe {
            libc::syscall(libc::SYS_futex, self.word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1)
        };
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and the guard is borrowed alone.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// Threads that wait for a lock in order to fork.
static FORKING: AtomicU32 = AtomicU32::new(0);

/// Before fork: takes a lock for the time of it.
pub fn hold<T>(lock: &Mutex<T>) {
    FORKING.fetch_add(1, Relaxed);
    std::mem::forget(lock.lock());
    FORKING.fetch_sub(1, Relaxed);
}

/// After fork, in the parent.
///
/// # Safety
/// This thread took the lock with [`hold`] and has no reference into it.
pub unsafe fn release<T>(lock: &Mutex<T>) {
    lock.unlock();
}

/// After fork, in the child: unlocked as new. Threads that waited for it do not exist here and must not be woken.
///
/// # Safety
/// The process has this one thread, and it has no reference into the lock.
pub unsafe fn renew<T>(lock: &Mutex<T>) {
    lock.word.store(FREE, Relaxed);
    FORKING.store(0, Relaxed);
}
