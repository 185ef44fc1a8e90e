//! The state of this library inside a process: every hook reads it, and here alone it is changed.
//!
//! ```text
//!  Dormant ──first look-up of a CUDA symbol──▶ Armed ──first memory event──▶ Recording
//!     ▲                                          │                            │
//!     └────────────── fork, in the child ────────┴────────────────────────────┤
//!                                                     anything of ours fails  ▼
//!                                                                            Off
//! ```
//!
//! Dormant: one pointer was stored, and whether there is a stderr, nothing else; `sh`, `git` and the like
//! never leave it. Armed: everything that needs the loader was looked up, so that no hook has to. Recording:
//! there is a recording, and it is this process's to write. Off: for good, unless somebody attaches (again).
//!
//! What is done on the way from one state to the next is for `lifecycle` to know, which starts and ends the
//! recording.

use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering::*};

use crate::lock::{Mutex, Rank};
use crate::stderr;
use crate::writer::recording;
use leaktrace_core::format::entry::TableEntry;

/// The way to a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    Dormant,
    Arming,
    Armed,
    Recording,
    Off,
}

static STATE: AtomicU8 = AtomicU8::new(State::Dormant as u8);

/// The ownership of the recording, which is what hooks read. It lies in a page that the kernel gives to a
/// child zeroed, however that was made: `_Fork` and a bare `clone` run no handlers of ours, and the file is
/// mapped there too.
#[unsafe(link_section = ".data.leaktrace")]
static OWNERSHIP: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const NOT_YET).cast_mut());
static NOT_YET: AtomicU8 = AtomicU8::new(NOT_OURS);
const NOT_OURS: u8 = 0;
const OURS: u8 = 1;
/// Ours, and switched off.
const FINISHED: u8 = 2;
/// There was one, which is not ours any more; no handler of ours was passed over.
const NO_MORE: u8 = 3;

/// Opens the recording on the first event; null before there is anything to open it with.
static START: AtomicPtr<fn() -> bool> = AtomicPtr::new(std::ptr::null_mut());
/// Monotonic nanoseconds when the recording began.
#[unsafe(link_section = ".data.leaktrace")]
static BEGAN: AtomicU64 = AtomicU64::new(0);
/// The recording's path; empty without one.
pub static PATH: Mutex<Option<PathBuf>> = Mutex::new(Rank::RecordingPath, None);

/// Returns the state at this moment.
pub fn get() -> State {
    match STATE.load(Acquire) {
        0 => State::Dormant,
        1 => State::Arming,
        2 => State::Armed,
        3 => State::Recording,
        _ => State::Off,
    }
}

/// Enters a state.
pub fn set(state: State) {
    STATE.store(state as u8, Release);
}

/// Enters `next` if the state is `now`; `false` if it is another.
pub fn advance(now: State, next: State) -> bool {
    STATE.compare_exchange(now as u8, next as u8, AcqRel, Acquire).is_ok()
}

/// Returns whether there is a recording, and it is this process's to write.
#[inline(always)]
pub fn is_recording() -> bool {
    ownership().load(Relaxed) == OURS
}

/// Returns whether this is a child that was made without handlers of ours: who held a lock in the parent need not exist here.
pub fn is_foreign_child() -> bool {
    !std::ptr::eq(ownership(), &NOT_YET) && ownership().load(Acquire) == NOT_OURS
}

/// Returns whether the recording is this process's, be it switched off by now.
pub fn owns_recording() -> bool {
    matches!(ownership().load(Acquire), OURS | FINISHED)
}

#[inline(always)]
fn ownership() -> &'static AtomicU8 {
    // SAFETY: a static, or the page that is never unmapped.
    unsafe { &*OWNERSHIP.load(Relaxed) }
}

/// Takes the recording for this process's, in a page that children find wiped if there can be one.
pub fn take_ownership() {
    const PAGE: usize = 4096;
    if std::ptr::eq(ownership(), &NOT_YET) {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh page of our own; a kernel that cannot wipe it says so, and then it is a page like
        // any other.
        unsafe {
            let page = libc::mmap(std::ptr::null_mut(), PAGE, access, kind, -1, 0);
            if page != libc::MAP_FAILED {
                libc::madvise(page, PAGE, libc::MADV_WIPEONFORK);
                OWNERSHIP.store(page.cast(), Release);
            }
        }
    }
    ownership().store(OURS, Release);
}

/// Registers what opens the recording.
pub fn set_start(start: &'static fn() -> bool) {
    START.store(std::ptr::from_ref(start).cast_mut(), Release);
}

/// Opens the recording if this is the first event. `false`: nothing is to be recorded.
#[inline(always)]
pub fn ensure_recording() -> bool {
    is_recording() || start()
}

#[cold]
#[inline(never)]
fn start() -> bool {
    let start = START.load(Acquire);
    // SAFETY: null or what `set_start` was given, which lives for ever.
    !start.is_null() && unsafe { (*start)() }
}

/// Ends the tracing for good, saying why where the reader will see it.
pub fn disable(why: &str) {
    let before = STATE.swap(State::Off as u8, AcqRel);
    if before == State::Recording as u8 && ownership().swap(FINISHED, AcqRel) == OURS {
        stderr::say(why);
        recording::append_entry(&TableEntry::Note { text: why });
    }
}

/// Ends the tracing for good: the recording, if there is one, is nobody's to write any more.
pub fn give_up() {
    set(State::Off);
    ownership().store(NO_MORE, Release);
}

/// What is said when the recording is lost: made before, since a signal handler says it. Null: nothing.
static LOST_LINE: AtomicPtr<String> = AtomicPtr::new(std::ptr::null_mut());

/// Sets what is said when the recording is lost.
pub fn set_lost_line(line: &str) {
    // Never freed: a handler may be reading it. There is one for each recording of this process.
    LOST_LINE.store(Box::into_raw(Box::new(stderr::line(line))), Release);
}

/// Ends the tracing for good, since the recording is gone. A signal handler may call it.
pub fn lost() {
    let before = STATE.swap(State::Off as u8, AcqRel);
    if before == State::Recording as u8 && ownership().swap(FINISHED, AcqRel) == OURS {
        // SAFETY: null, or a line that lives for ever.
        if let Some(line) = unsafe { LOST_LINE.load(Acquire).as_ref() } {
            stderr::write(line);
        }
    }
}

/// Notes that the recording begins now, at this path.
pub fn begin(path: PathBuf) {
    BEGAN.store(now(), Release);
    if let Some(mut slot) = PATH.lock() {
        *slot = Some(path);
    }
}

/// Returns the recording's path.
pub fn path() -> Option<PathBuf> {
    PATH.lock()?.clone()
}

fn now() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` has room for one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the nanoseconds since the recording began.
pub fn elapsed() -> u64 {
    now().saturating_sub(BEGAN.load(Relaxed))
}

/// Leaves the parent's recording to the parent, in a forked child. What was looked up holds in the child too.
pub fn after_fork_child() {
    ownership().store(NO_MORE, Release);
    match get() {
        State::Recording => set(State::Armed),
        // Another thread was at it; here there is none.
        State::Arming => set(State::Dormant),
        _ => {}
    }
}
