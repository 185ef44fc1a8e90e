//! Locks across fork: the forking thread takes them all before, so that no other holds one while the process is copied;
//! the parent lets go of them, the child makes them anew.

use parking_lot::lock_api::RawMutex as _;
use parking_lot::{Mutex, MutexGuard, RawMutex};

/// Before fork: takes a lock for the time of it.
pub fn hold<T>(lock: &Mutex<T>) {
    MutexGuard::leak(lock.lock());
}

/// After fork, in the parent.
///
/// # Safety
/// This thread took the lock with [`hold`] and has no reference into it.
pub unsafe fn release<T>(lock: &Mutex<T>) {
    // SAFETY: the caller's promise: it is locked, by this thread.
    unsafe { lock.force_unlock() };
}

/// After fork, in the child: unlocked as new. Threads that waited for it do not exist here and must not be woken.
///
/// # Safety
/// The process has this one thread, and it has no reference into the lock.
pub unsafe fn renew<T>(lock: &Mutex<T>) {
    // SAFETY: the caller's promise; a raw mutex is one atomic byte, read by nobody else now.
    unsafe { std::ptr::from_ref(lock.raw()).cast_mut().write(RawMutex::INIT) };
}
