//! A moment in which nothing of the program's reaches the calling thread: its signals wait, it cannot be cancelled, and
//! what our own writing would raise (SIGPIPE, SIGXFSZ) is taken back.

use std::ffi::c_int;
use std::mem::MaybeUninit;

unsafe extern "C" {
    /// Not in the `libc` crate; POSIX.
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`
const NO_CANCEL: c_int = 1;

/// What a write may raise in the thread that writes.
const RAISED: [c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// Faults are not held back: what causes one in such a moment must end as it would anywhere.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT];

struct Calm {
    signals: libc::sigset_t,
    pending: [bool; RAISED.len()],
    cancel: c_int,
}

/// Runs `ours` in such a moment. A thread that is started in it keeps its signals blocked.
pub fn calmly<R>(ours: impl FnOnce() -> R) -> R {
    let _calm = Calm::begin();
    ours()
}

impl Calm {
    fn begin() -> Calm {
        let mut old = MaybeUninit::uninit();
        let mut cancel = 0;
        // SAFETY: sets of our own, filled before they are read; the calling thread's own mask and cancel state.
        unsafe {
            pthread_setcancelstate(NO_CANCEL, &mut cancel);
            let mut all = MaybeUninit::uninit();
            libc::sigfillset(all.as_mut_ptr());
            let mut all = all.assume_init();
            for fault in FAULTS {
                libc::sigdelset(&mut all, fault);
            }
            libc::sigemptyset(old.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, old.as_mut_ptr());
            Calm { signals: old.assume_init(), pending: pending(), cancel }
        }
    }
}

impl Drop for Calm {
    fn drop(&mut self) {
        const AT_ONCE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: sets of our own; the mask and the cancel state are those that `begin` found.
        unsafe {
            let now = pending();
            for (i, signal) in RAISED.into_iter().enumerate() {
                if now[i] && !self.pending[i] {
                    let mut one = MaybeUninit::uninit();
                    libc::sigemptyset(one.as_mut_ptr());
                    let mut one = one.assume_init();
                    libc::sigaddset(&mut one, signal);
                    libc::sigtimedwait(&one, std::ptr::null_mut(), &AT_ONCE);
                }
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.signals, std::ptr::null_mut());
            pthread_setcancelstate(self.cancel, std::ptr::null_mut());
        }
    }
}

fn pending() -> [bool; RAISED.len()] {
    let mut set = MaybeUninit::uninit();
    // SAFETY: a set of our own, written before it is read.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigpending(set.as_mut_ptr());
        let set = set.assume_init();
        RAISED.map(|signal| libc::sigismember(&set, signal) == 1)
    }
}
