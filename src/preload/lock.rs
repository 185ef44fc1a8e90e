//! The one kind of lock in this library, and the order in which its locks are taken.
//!
//! A lock is one word that holds its owner, waited for by futex: no allocation, and no state beside the word.
//! `parking_lot` parks waiting threads in one table for the whole process, which it allocates, and whose own
//! locks another thread may hold at the moment of a fork: the child would wait for it forever. `std`'s mutex
//! does not know its owner.
//!
//! Hooks run wherever the program does, so also in a signal handler that interrupted a hook of the same thread,
//! and the handler may fork, jump or end the thread. While a lock is held no handler runs, and nothing cancels
//! the thread: two system calls, which only what is rare pays for. The exception is the locks that events take
//! by the million ([`Rank::is_frequent`]): a handler on top of a holder goes without them, and a jump out of
//! there tears what they guard.
//!
//! It knows nothing of what a lock guards. What is held across fork, and what becomes of it there, is in
//! `fork`.

use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use crate::machine::{own_id, system_call};
use crate::writer::signals::{Undisturbed, undisturbed};

#[cfg(debug_assertions)]
use crate::writer::signals::in_signal_handler;

/// Every lock, in the order of taking: whoever holds one waits for later ones only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rank {
    /// No lock: see [`Section`].
    Section,
    Opening,
    ImportTables,
    PendingOpenings,
    Analyzer,
    Steps,
    Labels,
    LoopDetector,
    Buffers,
    RecordingPath,
    StackShards,
    Codes,
    Modules,
    BackwardContexts,
    NativeSamples,
    Stacks,
    ThreadPages,
    Segments,
    File,
    /// See `loader::walk`.
    LoaderWalk,
    /// Whoever holds any other may allocate.
    Heap,
}

const FREE: u64 = 0;
/// Beside the owner: somebody may be waiting. Thread pointers are aligned, so the bit is free.
const WAITED_FOR: u64 = 1;

/// The lock without its value.
#[derive(Debug)]
pub struct RawLock {
    /// The thread pointer of the owner and [`WAITED_FOR`], or [`FREE`].
    word: AtomicU64,
    rank: Rank,
    /// A jump has left its holder in the middle of what it guards.
    torn: AtomicBool,
}

/// Mutual exclusion.
#[derive(Debug)]
pub struct Mutex<T> {
    raw: RawLock,
    value: UnsafeCell<T>,
}

/// A frequent lock is held while this lives.
#[derive(Debug)]
pub struct FrequentGuard<'a, T>(&'a Mutex<T>);

// SAFETY: the value is reached by the holder of the lock only.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// The lock is held while this lives.
#[derive(Debug)]
pub struct MutexGuard<'a, T>(
    &'a Mutex<T>,
    #[expect(dead_code, reason = "ends with the guard")] Option<Undisturbed>,
);

impl<T> Mutex<T> {
    pub const fn new(rank: Rank, value: T) -> Mutex<T> {
        Mutex {
            raw: RawLock { word: AtomicU64::new(FREE), rank, torn: AtomicBool::new(false) },
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the lock. `None`: this is a signal handler on top of a critical section, and must not.
    #[inline]
    pub fn lock(&self) -> Option<MutexGuard<'_, T>> {
        let undisturbed = self.raw.rank.undisturbed();
        (self.raw.rank.is_next() && (self.raw.try_take() || self.raw.wait(None)))
            .then(|| self.guard(undisturbed))
    }

    /// Leaves the lock to one who is about to fork: those who only try come back at once, and would be first
    /// every time.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        if FORKING.load(Relaxed) != 0 {
            return None;
        }
        let undisturbed = self.raw.rank.undisturbed();
        self.raw.try_take().then(|| self.guard(undisturbed))
    }

    /// Waits so long at most; not at all for a lock that this thread has.
    pub fn try_lock_for(&self, patience: Duration) -> Option<MutexGuard<'_, T>> {
        let undisturbed = self.raw.rank.undisturbed();
        (self.raw.try_take() || self.raw.wait(Some(patience))).then(|| self.guard(undisturbed))
    }

    /// The same for a frequent lock, where every instruction counts. What a jump has torn is given to `forget` first:
    /// nobody knows what holds together in it, so it may not even be dropped.
    #[inline(always)]
    pub fn try_lock_frequent(&self, patience: Duration, forget: fn(&mut T)) -> Option<FrequentGuard<'_, T>> {
        debug_assert!(self.raw.rank.is_frequent());
        if !(self.raw.try_take() || self.raw.wait(Some(patience))) {
            return None;
        }
        // Nothing but the check of the order asks which of these are held.
        if cfg!(debug_assertions) {
            self.raw.rank.mark_held();
        }
        let mut guard = FrequentGuard(self);
        if self.raw.torn.load(Relaxed) {
            self.raw.torn.store(false, Relaxed);
            forget(&mut guard);
        }
        Some(guard)
    }

    #[inline(always)]
    fn guard(&self, undisturbed: Option<Undisturbed>) -> MutexGuard<'_, T> {
        self.raw.rank.mark_held();
        MutexGuard(self, undisturbed)
    }

    /// The lock as one of many.
    pub const fn raw(&self) -> &RawLock {
        &self.raw
    }
}

impl RawLock {
    #[inline(always)]
    fn try_take(&self) -> bool {
        self.word.compare_exchange(FREE, own_id(), Acquire, Relaxed).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, patience: Option<Duration>) -> bool {
        let until = patience.map(|p| Instant::now() + p);
        loop {
            let now = self.word.load(Relaxed);
            if now == FREE {
                // Others may be waiting too: whoever waited leaves the bit set.
                if self.word.compare_exchange(FREE, own_id() | WAITED_FOR, Acquire, Relaxed).is_ok() {
                    return true;
                }
                continue;
            }
            if now & !WAITED_FOR == own_id() {
                return false;
            }
            let waited_for = now | WAITED_FOR;
            if self.word.compare_exchange(now, waited_for, Relaxed, Relaxed).is_err() {
                continue;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return false;
            }
            let left = left.map(|left| libc::timespec {
                tv_sec: left.as_secs() as libc::time_t,
                tv_nsec: left.subsec_nanos().into(),
            });
            let timeout = left.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            self.futex(libc::FUTEX_WAIT, waited_for as u32, timeout);
        }
    }

    #[inline(always)]
    fn unlock(&self) {
        if self.word.swap(FREE, Release) & WAITED_FOR != 0 {
            self.wake();
        }
    }

    #[cold]
    #[inline(never)]
    fn wake(&self) {
        self.futex(libc::FUTEX_WAKE, 1, std::ptr::null());
    }

    fn futex(&self, operation: libc::c_int, value: u32, timeout: *const libc::timespec) {
        // The kernel compares 32 bits: the lower half, which has the bit.
        const LOWER: usize = if cfg!(target_endian = "little") { 0 } else { 1 };
        // SAFETY: a word that lives as long as this lock; whatever the answer, the word is read again.
        unsafe {
            let word = self.word.as_ptr().cast::<u32>().add(LOWER);
            let operation = (operation | libc::FUTEX_PRIVATE_FLAG) as usize;
            system_call(libc::SYS_futex, [word as usize, operation, value as usize, timeout as usize]);
        }
    }

    /// Runs `body` with the lock held; a thread that holds it already just runs it. The order of taking is not
    /// checked: that takes a thread-local variable, and a sanitizer's `__tls_get_addr` may not be ready when the
    /// first look-up of a process comes here.
    pub fn bracket<R>(&self, body: impl FnOnce() -> R) -> R {
        undisturbed(|| {
            let taken = self.try_take() || self.wait(None);
            let result = body();
            if taken {
                self.unlock();
            }
            result
        })
    }

    /// Takes the lock for the time of a fork. `false`: this very thread has it, in what the signal handler that
    /// forks has interrupted.
    pub fn hold(&self) -> bool {
        FORKING.fetch_add(1, Relaxed);
        let held = self.try_take() || self.wait(None);
        FORKING.fetch_sub(1, Relaxed);
        held
    }

    /// Returns the lock's place in the order of taking.
    #[cfg(test)]
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Returns whether nobody holds the lock.
    #[cfg(test)]
    pub fn is_free(&self) -> bool {
        self.word.load(Relaxed) == FREE
    }

    /// Gives the lock back after the fork, in the parent.
    ///
    /// # Safety
    /// This thread took the lock with [`Self::hold`] and has no reference into it.
    pub unsafe fn release(&self) {
        self.unlock();
    }

    /// Returns whether the calling thread has the lock.
    pub fn is_own(&self) -> bool {
        self.word.load(Relaxed) & !WAITED_FOR == own_id()
    }

    /// Gives a frequent lock back, if the calling thread has it, since a jump has left the frames that took it.
    ///
    /// # Safety
    /// Nobody there goes on with what it guards.
    pub unsafe fn leave(&self) {
        if self.is_own() {
            self.torn.store(true, Relaxed);
            self.unlock();
            self.rank.mark_released();
        }
    }

    /// Makes the lock anew after the fork, in the child. Threads that waited for it do not exist there and
    /// must not be woken.
    ///
    /// # Safety
    /// The process has this one thread, which took the lock with [`Self::hold`] and has no reference into it.
    pub unsafe fn renew(&self) {
        self.word.store(FREE, Relaxed);
        FORKING.store(0, Relaxed);
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
        // In this order: a jump in between leaves the lock to be found, not a mark without a lock.
        self.0.raw.rank.mark_released();
        self.0.raw.unlock();
    }
}

impl<T> Deref for FrequentGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for FrequentGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and the guard is borrowed alone.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for FrequentGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // In this order, as above.
        if cfg!(debug_assertions) {
            self.0.raw.rank.mark_released();
        }
        self.0.raw.unlock();
    }
}

/// The mark of code of ours that takes many locks, or does many things of which none may be left half done:
/// signals are blocked once for all of it.
pub struct Section(Undisturbed);

impl Section {
    /// Begins such code. `None`: this is a signal handler on top of it, or of a critical section.
    pub fn enter() -> Option<Section> {
        let undisturbed = Undisturbed::begin();
        let is_first = !is_interrupted();
        if is_first {
            Rank::Section.mark_held();
        }
        is_first.then_some(Section(undisturbed))
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        Rank::Section.mark_released();
    }
}

/// Returns whether the calling thread is in the middle of code that holds a lock, a frequent one aside. To a
/// hook, which holds none when it is entered, it means that it runs in the handler of a fault.
pub fn is_interrupted() -> bool {
    HELD.get() & !FREQUENT != 0
}

thread_local! {
    /// The ranks that the calling thread holds, a bit each.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// The ranks of [`Rank::is_frequent`].
const FREQUENT: u32 = 1 << Rank::LoopDetector as u32 | 1 << Rank::Buffers as u32;

impl Rank {
    /// Whether every event may take it: signals are not blocked for it, and nobody waits long for it.
    #[inline]
    const fn is_frequent(self) -> bool {
        FREQUENT >> self as u32 & 1 == 1
    }

    #[inline]
    fn undisturbed(self) -> Option<Undisturbed> {
        if self.is_frequent() { None } else { Some(Undisturbed::begin()) }
    }

    /// Whether the calling thread may wait for it: it holds neither this rank nor a later one. It is so outside
    /// of the handlers of faults. A frequent one hinders nobody: whoever has an earlier lock waits for it a
    /// moment only.
    #[inline]
    fn is_next(self) -> bool {
        #[cfg(debug_assertions)]
        if HELD.get() >> self as u32 != 0 && !in_signal_handler() {
            self.abort_out_of_order();
        }
        (HELD.get() & !FREQUENT) >> self as u32 == 0
    }

    #[inline]
    fn mark_held(self) {
        HELD.set(HELD.get() | 1 << self as u32);
    }

    #[inline]
    fn mark_released(self) {
        HELD.set(HELD.get() & !(1 << self as u32));
    }

    /// Ends the process of a test that takes locks out of order. A panic would be caught by the hook's
    /// shield.
    #[cfg(debug_assertions)]
    #[cold]
    fn abort_out_of_order(self) {
        let line = format!("leaktrace: the lock {self:?} is taken while {:#x} are held\n", HELD.get());
        // SAFETY: the bytes of `line`.
        unsafe {
            libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
            libc::abort();
        }
    }
}

/// Threads that wait for a lock in order to fork.
static FORKING: AtomicU32 = AtomicU32::new(0);

/// Returns whether a thread waits for a lock in order to fork.
#[cfg(test)]
pub fn is_awaited_by_fork() -> bool {
    FORKING.load(Relaxed) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_not_made_to_wait_for_itself() {
        static LOCK: Mutex<u32> = Mutex::new(Rank::File, 1);
        let held = LOCK.lock();
        assert!(held.is_some() && !LOCK.raw.wait(None));
        drop(held);
        assert!(LOCK.lock().is_some());
    }

    #[test]
    fn waiting_threads_get_their_turn() {
        static SUM: Mutex<u64> = Mutex::new(Rank::File, 0);
        let add = || (0..10_000).for_each(|_| *SUM.lock().expect("not held by this thread") += 1);
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(add))));
        assert_eq!(SUM.lock().map(|sum| *sum), Some(40_000));
    }
}
