//! What becomes of a store into the recording when the file is cut off under it (`: >leaktrace.1.ltrace`), or
//! its disk fails: the kernel raises SIGBUS, which would end the program.
//!
//! An event has to survive SIGKILL the moment after, so it must reach the page cache at once: by a system call
//! (some 500 ns an event, six times what all of the tracing costs), or by a store into a shared mapping of the
//! file. A sealed memory file cannot be cut off, and dies with the process; private memory that is written
//! behind loses what was not written yet; a private mapping loses its pages to a cut as well; a lease holds up
//! whoever reads the recording, and runs out. What is left is a store that may fault, and a fault that is
//! survived: the handler puts anonymous memory in the place of the chunk that is gone, and the store is
//! repeated there. It costs the usual path nothing.
//!
//! The handler is ours for such faults alone. It is put in when a recording begins, over whatever the program
//! sets later too (looked at when a thread takes a segment, and at each drain), and never over a SIGBUS that the
//! program ignores. Any other SIGBUS is the program's: what the program had is put back, for good, and gets the
//! same signal: by the same instruction once more, or sent again with the same facts. So a handler of the
//! program's is never called by us and never runs on top of ours. One that hands on to the one before it may
//! come to ours again, which then puts back what was there before that: it always ends at what the program
//! began with.
//!
//! Not covered: between the moment in which the program sets a handler and the next look, that handler takes a
//! fault of ours for one of its own; a signal handler that blocks SIGBUS and allocates in the moment of the cut.
//! A thread that blocks SIGBUS is covered: it comes to `recording` for each event, which lets the signal in
//! meanwhile (`signals`). The program can see the handler, if it asks what it has for SIGBUS.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};

use crate::writer::file;

/// How often the program may replace our handler by another and ours is put over that one.
const MAX_REPLACED: usize = 8;

/// What the program had for SIGBUS each time that ours was put in.
struct Before(UnsafeCell<[MaybeUninit<libc::sigaction>; MAX_REPLACED]>);

// SAFETY: an element is written before the handler can read it, by the one thread that took its number.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new([const { MaybeUninit::uninit() }; MAX_REPLACED]));
/// The elements that the handler has still to put back.
static DEPTH: AtomicUsize = AtomicUsize::new(0);
/// Held while a handler is put in.
static BUSY: AtomicBool = AtomicBool::new(false);
/// A SIGBUS was the program's: from then on it is left alone.
static GIVEN_BACK: AtomicBool = AtomicBool::new(false);
/// Told that the file is gone; null before there is anything to tell.
static TOLD: AtomicPtr<fn()> = AtomicPtr::new(std::ptr::null_mut());

/// Puts in the handler, which forked children inherit. `told` is called when the file is gone, also from the
/// handler: it may do nothing but store words and write.
pub fn survive(told: &'static fn()) {
    TOLD.store(std::ptr::from_ref(told).cast_mut(), Release);
    survive_still();
}

/// Puts in the handler again where the program has set one since. Called now and then, never for an event.
pub fn survive_still() {
    if GIVEN_BACK.load(Acquire) || DEPTH.load(Relaxed) >= MAX_REPLACED || BUSY.swap(true, Acquire) {
        return;
    }
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_fault;
    let depth = DEPTH.load(Acquire);
    // SAFETY: element `depth` is written here alone, and before the handler may read it; a structure of zeros is
    // a valid one, with no flags and an empty mask.
    unsafe {
        let before = (&raw mut (*BEFORE.0.get())[depth]).cast::<libc::sigaction>();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), before) == 0
            && (*before).sa_sigaction != libc::SIG_IGN
            && (*before).sa_sigaction != handler as usize
        {
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = handler as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            DEPTH.store(depth + 1, Release);
            libc::sigaction(libc::SIGBUS, &ours, std::ptr::null_mut());
        }
    }
    BUSY.store(false, Release);
}

/// Takes the handler out again, since the recording has ended and its chunks are no file's any more. Where the program
/// has set another over it, that one stays, and may hand on to ours.
pub fn give_up() {
    if GIVEN_BACK.load(Acquire) || BUSY.swap(true, Acquire) {
        return;
    }
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_fault;
    // SAFETY: a structure of our own; element `depth - 1` was written before the handler was put in.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        let depth = DEPTH.load(Acquire);
        if depth > 0
            && libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut now) == 0
            && now.sa_sigaction == handler as usize
        {
            let before = (&raw const (*BEFORE.0.get())[depth - 1]).cast::<libc::sigaction>();
            libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut());
            DEPTH.store(depth - 1, Release);
        }
    }
    BUSY.store(false, Release);
}

/// Notes that the file is gone.
pub fn lost() {
    // SAFETY: null, or what `survive` was given, which lives for ever.
    if let Some(told) = unsafe { TOLD.load(Acquire).as_ref() } {
        told();
    }
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the calling thread's errno, the kernel's facts about the signal.
    unsafe {
        let errno = libc::__errno_location();
        let kept = *errno;
        // A positive code is the kernel's own: a fault, not a signal that was sent.
        let is_fault = (*info).si_code > 0;
        if is_fault && file::replace_chunk((*info).si_addr() as usize) {
            lost();
        } else {
            give_back(signal, info, is_fault);
        }
        *errno = kept;
    }
}

/// Puts back what the program had, and has this signal come again.
///
/// # Safety
/// `info` is what the kernel gave a handler.
unsafe fn give_back(signal: c_int, info: *mut libc::siginfo_t, is_fault: bool) {
    GIVEN_BACK.store(true, Release);
    let depth = DEPTH.fetch_update(AcqRel, Acquire, |depth| depth.checked_sub(1)).unwrap_or(1) - 1;
    // SAFETY: element `depth` was written before the handler was put in; the calls take numbers and the
    // caller's facts.
    unsafe {
        let before = (&raw const (*BEFORE.0.get())[depth]).cast::<libc::sigaction>();
        libc::sigaction(signal, before, std::ptr::null_mut());
        // A fault comes again by itself.
        if !is_fault {
            let (process, thread) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info);
        }
    }
}
