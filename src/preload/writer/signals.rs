//! Signals, as they reach the calling thread: blocked around system calls of ours, and whether a handler is
//! running. It knows nothing of what is done meanwhile.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::machine::system_call;

unsafe extern "C" {
    /// Not in the `libc` crate; POSIX.
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn _Unwind_Backtrace(
        step: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIPInfo(context: *mut c_void, before: *mut c_int) -> usize;
}

/// `PTHREAD_CANCEL_DISABLE`
const NO_CANCEL: c_int = 1;

/// What a write may raise in the thread that writes.
const RAISED: [c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// Faults are not held back: what causes one in such a moment must end as it would anywhere.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT];

/// While it lives, no signal handler runs on this thread and it is not cancelled: held wherever a lock of ours is,
/// or what a handler, or a jump or an unwinding out of one, must not leave half done. One inside another
/// costs nothing. Not for what every event does: two system calls.
#[must_use]
#[derive(Debug)]
pub struct Undisturbed(PhantomData<*mut ()>);

thread_local! {
    /// How many live on this thread, and what the outermost restores: the signal mask and the cancel state.
    static UNDISTURBED: Cell<(u32, Kept)> = const { Cell::new((0, None)) };
}

/// A signal mask and a cancel state.
type Kept = Option<(u64, c_int)>;

/// The program forbids itself most system calls.
static IS_SHUT_IN: AtomicBool = AtomicBool::new(false);

/// Has nothing here ask the kernel for anything from now on.
pub fn shut_in() {
    IS_SHUT_IN.store(true, Relaxed);
}

/// Returns whether the program has done so.
pub fn is_shut_in() -> bool {
    IS_SHUT_IN.load(Relaxed)
}

/// What the kernel calls a signal mask: a bit each, signal 1 first.
const MASK_BYTES: usize = 8;

/// Every signal but faults and the two that the C library keeps to itself.
static ALL: u64 = {
    let (mut all, mut i) = (!(1 << 31 | 1 << 32), 0);
    while i < FAULTS.len() {
        all &= !(1 << (FAULTS[i] - 1));
        i += 1;
    }
    all
};

impl Undisturbed {
    pub fn begin() -> Undisturbed {
        let (depth, kept) = UNDISTURBED.get();
        UNDISTURBED.set((depth + 1, if depth == 0 { begin_undisturbed() } else { kept }));
        Undisturbed(PhantomData)
    }
}

impl Undisturbed {
    /// Ends one that was forgotten.
    ///
    /// # Safety
    /// There is one on this thread.
    pub unsafe fn end() {
        drop(Undisturbed(PhantomData));
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        let (depth, kept) = UNDISTURBED.get();
        UNDISTURBED.set((depth - 1, kept));
        if depth == 1 {
            end_undisturbed(kept);
        }
    }
}

/// Keeps signals away without a thread-local variable and without the C library, for what may run before there are
/// any: a sanitizer that is loaded first answers for the library's functions, and not yet. Nothing in it can be cancelled.
pub fn undisturbed<R>(ours: impl FnOnce() -> R) -> R {
    let mask = block_signals();
    let result = ours();
    restore_signals(mask);
    result
}

/// Returns the signal mask and the cancel state that [`end_undisturbed`] restores.
fn begin_undisturbed() -> Kept {
    if IS_SHUT_IN.load(Relaxed) {
        return None;
    }
    let mut cancel = 0;
    // SAFETY: the calling thread's own cancel state.
    unsafe { pthread_setcancelstate(NO_CANCEL, &mut cancel) };
    Some((block_signals()?, cancel))
}

fn end_undisturbed(kept: Kept) {
    let Some((mask, cancel)) = kept else { return };
    restore_signals(Some(mask));
    // SAFETY: what `begin_undisturbed` found, on the same thread.
    unsafe { pthread_setcancelstate(cancel, std::ptr::null_mut()) };
}

/// Returns the signal mask of before; `None`: the kernel may not be asked.
fn block_signals() -> Option<u64> {
    if IS_SHUT_IN.load(Relaxed) {
        return None;
    }
    let mut mask = 0u64;
    let (all, old) = (&raw const ALL, &raw mut mask);
    // SAFETY: the calling thread's own mask, words of ours.
    unsafe {
        system_call(
            libc::SYS_rt_sigprocmask,
            [libc::SIG_BLOCK as usize, all as usize, old as usize, MASK_BYTES],
        );
    }
    Some(mask)
}

fn restore_signals(mask: Option<u64>) {
    let Some(mask) = mask else { return };
    let mask = &raw const mask as usize;
    // SAFETY: what `block_signals` found, on the same thread.
    unsafe { system_call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, mask, 0, MASK_BYTES]) };
}

/// What of the thread is restored: its signal mask, its pending signals, its cancel state.
struct Blocked {
    signals: libc::sigset_t,
    pending: [bool; RAISED.len()],
    cancel: c_int,
}

/// Runs `ours` while nothing of the program's reaches the calling thread: its signals wait, it cannot be
/// cancelled, and what our own writing would raise (SIGPIPE, SIGXFSZ) is taken back. A thread that is started
/// in it keeps its signals blocked.
pub fn with_signals_blocked<R>(ours: impl FnOnce() -> R) -> R {
    let _blocked = Blocked::begin();
    ours()
}

/// While it lives, a fault reaches `fault` also on a thread that has SIGBUS blocked, which it would kill: held
/// around what reads and writes the recording.
#[must_use]
pub struct FaultsLetIn(Option<libc::sigset_t>);

impl FaultsLetIn {
    pub fn begin() -> FaultsLetIn {
        let mut set = MaybeUninit::uninit();
        // SAFETY: a set of our own, filled before it is read; the calling thread's own mask and what waits for
        // it. A SIGBUS that waits is the program's, and goes on waiting.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), set.as_mut_ptr());
            let mut set = set.assume_init();
            if libc::sigismember(&set, libc::SIGBUS) != 1 {
                return FaultsLetIn(None);
            }
            libc::sigpending(&mut set);
            if libc::sigismember(&set, libc::SIGBUS) == 1 {
                return FaultsLetIn(None);
            }
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGBUS);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
            FaultsLetIn(Some(set))
        }
    }

    /// Returns whether the thread has SIGBUS blocked.
    pub fn were_blocked(&self) -> bool {
        self.0.is_some()
    }
}

impl Drop for FaultsLetIn {
    fn drop(&mut self) {
        if let Some(set) = &self.0 {
            // SAFETY: the set that `begin` let in, on the same thread.
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set, std::ptr::null_mut()) };
        }
    }
}

impl Blocked {
    fn begin() -> Blocked {
        let mut old = MaybeUninit::uninit();
        let mut cancel = 0;
        // SAFETY: sets of our own, filled before they are read; the calling thread's own mask and cancel
        // state.
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
            Blocked { signals: old.assume_init(), pending: pending(), cancel }
        }
    }
}

impl Drop for Blocked {
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

/// Returns whether a signal handler is running on this thread. What it interrupted may be any code, with any
/// lock held: a hook on this thread, the allocator, the driver.
pub fn in_signal_handler() -> bool {
    extern "C" fn step(context: *mut c_void, found: *mut c_void) -> c_int {
        let mut interrupted = 0;
        // SAFETY: the unwinder's context, and a place for one number. An address that is not one behind a
        // call is one that a signal came to.
        unsafe {
            _Unwind_GetIPInfo(context, &mut interrupted);
            if interrupted != 0 {
                *found.cast::<bool>() = true;
            }
        }
        // 4: any code but "go on" ends the walk.
        if interrupted != 0 { 4 } else { 0 }
    }
    let mut found = false;
    // SAFETY: the step function has the documented signature; `found` outlives the walk.
    unsafe { _Unwind_Backtrace(step, (&raw mut found).cast()) };
    found
}
