//! The states of this library inside a process, and the ways between them.
//!
//! ```text
//!  Dormant ──first look-up of a CUDA symbol──▶ Armed ──first memory event──▶ Live
//!     ▲                                          │                            │
//!     └────────────── fork, in the child ────────┴────────────────────────────┤
//!                                                     anything of ours fails  ▼
//!                                                                            Off
//! ```
//!
//! Dormant: one pointer was stored, and whether there is a stderr, nothing else; `sh`, `git` and the like never leave it. Armed: everything that needs
//! the loader was looked up, so that no hook has to. Live: there is a recording. Off: for good.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use once_cell::race::OnceBox;

use crate::analysis::analyzer;
use crate::analysis::step_boundaries;
use crate::coverage_gaps;
use crate::frameworks::torch;
use crate::hooks::{devices, entry_points, events};
use crate::loader::link_map;
use crate::python;
use crate::recording_path;
use crate::settings;
use crate::settings::Settings;
use crate::shield;
use crate::shield::say;
use crate::stacks;
use crate::writer::lock;
use crate::writer::lock::Mutex;
use crate::writer::recording;
use crate::writer::signals::calmly;
use leaktrace_core::format::entry::TableEntry;

const DORMANT: u8 = 0;
const ARMING: u8 = 1;
const ARMED: u8 = 2;
const LIVE: u8 = 3;
const OFF: u8 = 4;

static STATE: AtomicU8 = AtomicU8::new(DORMANT);
/// What hooks look at: whether the recording is this process's to write. It lies in a page that the kernel gives to a child
/// zeroed, however that was made: `_Fork` and a bare `clone` run no handlers of ours, and the file is mapped there too.
#[unsafe(link_section = ".data.leaktrace")]
static MINE: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const NOT_YET).cast_mut());
static NOT_YET: AtomicU8 = AtomicU8::new(NOT_MINE);
const NOT_MINE: u8 = 0;
const TO_WRITE: u8 = 1;
/// Switched off.
const DONE: u8 = 2;

/// Read once per process image: a forked child has the same environment until it changes it, and then it is told so
/// too late anyway.
static SETTINGS: OnceBox<Settings> = OnceBox::new();
/// Monotonic nanoseconds when the recording began.
static BEGAN: AtomicU64 = AtomicU64::new(0);
/// The process in which a thread is arming.
static ARMING_PID: AtomicU32 = AtomicU32::new(0);
/// Held while a recording is being opened.
static OPENING: Mutex<()> = Mutex::new(());
/// The recording's path; empty without one.
static PATH: Mutex<Option<PathBuf>> = Mutex::new(None);
/// Events that could not wait until all was armed.
static MISSED: AtomicU64 = AtomicU64::new(0);

/// The settings of this process.
pub fn settings() -> &'static Settings {
    SETTINGS.get_or_init(|| Box::new(Settings::read()))
}

/// Dormant → Armed: looks up what hooks will need. Called where the loader may be asked. Another thread may be at it: this
/// does not wait, for the caller may hold the loader's lock.
pub fn arm() {
    if STATE.load(Acquire) != DORMANT {
        return;
    }
    ARMING_PID.store(std::process::id(), Release);
    if STATE.compare_exchange(DORMANT, ARMING, AcqRel, Acquire).is_err() {
        return;
    }
    // A panic of ours is caught; it must not write on the program's stderr either.
    std::panic::set_hook(Box::new(|_| {}));
    // What arming itself calls is no event.
    events::reentrant(|| {
        shield::fenced(|| {
            register_handlers();
            link_map::init();
            if !settings().on {
                STATE.store(OFF, Release);
                return;
            }
            step_boundaries::arm(settings().step);
            recording::help(&recording::Help { relieve: analyzer::make_room, full });
            events::set_callbacks(events::Callbacks {
                segment_filled: analyzer::relieve,
                allocated: || {
                    torch::watch_steps();
                    python::poke();
                },
            });
            stacks::arm(settings().stacks);
            python::arm(&python::Callbacks {
                optimizer_stepped: |optimizer| {
                    torch::leave_ranges();
                    step_boundaries::optimizer(optimizer);
                },
                may_search: step_boundaries::holders,
                exiting: || shield::fenced(step_boundaries::exit),
            });
            STATE.store(ARMED, Release);
        });
    });
}

/// Waits until the thread that is arming is done; once for a second at most, for it may be waiting for us. A forked child may have been copied in the middle
/// of it, without the thread that was at it: then it begins anew.
pub fn wait_until_armed() {
    const PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
    static GAVE_UP: AtomicBool = AtomicBool::new(false);
    for _ in 0..20_000 {
        if STATE.load(Acquire) != ARMING || GAVE_UP.load(Relaxed) {
            return;
        }
        if ARMING_PID.load(Acquire) != std::process::id() {
            let _ = STATE.compare_exchange(ARMING, DORMANT, AcqRel, Acquire);
            return arm();
        }
        // SAFETY: a constant duration.
        unsafe { libc::nanosleep(&PAUSE, std::ptr::null_mut()) };
    }
    GAVE_UP.store(true, Relaxed);
}

/// The handlers are inherited, so a process and all its forked children register them once.
fn register_handlers() {
    static ONCE: AtomicU8 = AtomicU8::new(0);
    if ONCE.load(Acquire) == 0 {
        // SAFETY: handlers of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork_parent), Some(after_fork_child)) };
        ONCE.store(1, Release);
    }
}

/// True while there is a recording.
#[inline(always)]
pub fn is_live() -> bool {
    mine().load(Relaxed) == TO_WRITE
}

#[inline(always)]
fn mine() -> &'static AtomicU8 {
    // SAFETY: a static, or the page that is never unmapped.
    unsafe { &*MINE.load(Relaxed) }
}

/// The word is set to "to write", in such a page if there can be one.
fn take_over() {
    const PAGE: usize = 4096;
    if std::ptr::eq(mine(), &NOT_YET) {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh page of our own; a kernel that cannot wipe it says so, and then it is a page like any other.
        unsafe {
            let page = libc::mmap(std::ptr::null_mut(), PAGE, access, kind, -1, 0);
            if page != libc::MAP_FAILED {
                libc::madvise(page, PAGE, libc::MADV_WIPEONFORK);
                MINE.store(page.cast(), Release);
            }
        }
    }
    mine().store(TO_WRITE, Release);
}

/// Armed → Live on the first event. `false`: nothing is to be noted.
#[inline(always)]
pub fn enter() -> bool {
    is_live() || open()
}

#[cold]
#[inline(never)]
fn open() -> bool {
    if STATE.load(Acquire) == OFF {
        return false;
    }
    // A block may be the first thing ever seen (the allocator was reached without the driver's doors).
    arm();
    wait_until_armed();
    if STATE.load(Acquire) == ARMING {
        MISSED.fetch_add(1, Relaxed);
    }
    if STATE.load(Acquire) != ARMED {
        return is_live();
    }
    let _opening = OPENING.lock();
    if STATE.load(Acquire) != ARMED {
        return is_live();
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let opened = calmly(|| recording_path::create(settings().path(), now.as_nanos() as u64));
    match opened {
        Ok(path) => {
            BEGAN.store(monotonic(), Release);
            *PATH.lock() = Some(path);
            introduce(now);
            step_boundaries::begin();
            recording::lost(MISSED.swap(0, Relaxed));
            // In this order: who sees that it is no longer armed looks at the other word.
            take_over();
            STATE.store(LIVE, Release);
            coverage_gaps::tell();
            true
        }
        Err(why) => {
            say(&format!("{why}; nothing is recorded"));
            STATE.store(OFF, Release);
            false
        }
    }
}

/// The file cannot grow, and no old events could make room.
fn full(errno: i32) {
    let why = std::io::Error::from_raw_os_error(errno);
    let line = format!("the recording cannot grow: {why}; events are lost");
    say(&line);
    recording::append_entry(&TableEntry::Note { text: &line });
}

/// What the reader has to know about this process.
fn introduce(began: Duration) {
    let meta = |key: &str, value: &str| {
        recording::append_entry(&TableEntry::Meta { key, value });
    };
    let argv = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    meta("argv", String::from_utf8_lossy(&argv).trim_end_matches('\0'));
    for (key, path) in [("exe", std::env::current_exe()), ("cwd", std::env::current_dir())] {
        if let Ok(path) = path {
            meta(key, &path.to_string_lossy());
        }
    }
    meta("pid", &std::process::id().to_string());
    meta("host", &settings::host());
    if let Some(rank) = settings::rank() {
        meta("rank", &rank);
    }
    meta("began", &began.as_secs().to_string());
    meta("leaktrace", env!("CARGO_PKG_VERSION"));
    meta("python", stacks::python());
    for (i, entry) in entry_points::ENTRY_POINTS.iter().enumerate() {
        recording::append_entry(&TableEntry::Symbol { id: i as u16 + 1, name: entry.name });
    }
}

/// Nanoseconds since the recording began.
pub fn elapsed() -> u64 {
    monotonic().saturating_sub(BEGAN.load(Relaxed))
}

/// The same, some milliseconds behind and cheaper.
pub fn elapsed_coarse() -> u64 {
    clock(libc::CLOCK_MONOTONIC_COARSE).saturating_sub(BEGAN.load(Relaxed))
}

fn monotonic() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

fn clock(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for one timespec.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The recording's path.
pub fn path() -> Option<PathBuf> {
    PATH.lock().clone()
}

/// Ends the tracing for good, saying why where the reader will see it.
pub fn off(why: &str) {
    if STATE.swap(OFF, AcqRel) == LIVE && mine().swap(DONE, AcqRel) == TO_WRITE {
        say(why);
        recording::append_entry(&TableEntry::Note { text: why });
    }
}

/// A library may have been unloaded.
pub fn unloaded() {
    if matches!(STATE.load(Acquire), ARMED | LIVE) {
        stacks::modules_changed();
    }
}

extern "C" fn before_fork() {
    lock::hold(&OPENING);
    step_boundaries::before_fork();
    lock::hold(&PATH);
    stacks::before_fork();
    recording::before_fork();
}

extern "C" fn after_fork_parent() {
    recording::after_fork_parent();
    stacks::after_fork_parent();
    // SAFETY: `before_fork` took both on this very thread.
    unsafe { lock::release(&PATH) };
    step_boundaries::after_fork_parent();
    // SAFETY: as above.
    unsafe { lock::release(&OPENING) };
}

extern "C" fn after_fork_child() {
    recording::after_fork_child();
    stacks::after_fork_child();
    step_boundaries::after_fork_child();
    python::after_fork_child();
    // SAFETY: a child begins with one thread, and this function holds no reference into the locks.
    unsafe {
        lock::renew(&PATH);
        lock::renew(&OPENING);
    }
    // What was looked up holds in the child too; only the recording was the parent's.
    devices::forget();
    mine().store(NOT_MINE, Release);
    match STATE.load(Acquire) {
        LIVE => STATE.store(ARMED, Release),
        // Another thread was at it; here there is none.
        ARMING => STATE.store(DORMANT, Release),
        _ => {}
    }
}

/// The end of the process, as far as it comes here: `exit` and a return from `main` do, signals and `_exit` do not.
#[used]
#[cfg_attr(not(test), unsafe(link_section = ".fini_array"))]
static DESTRUCTOR: extern "C" fn() = {
    extern "C" fn destructor() {
        // Also of a recording that was switched off on the way.
        if mine().load(Acquire) != NOT_MINE {
            shield::fenced(|| {
                // From a handler nothing can be done that the interrupted code may be in the middle of. All it noted stands.
                if !shield::in_signal_handler() {
                    step_boundaries::exit();
                }
                recording::mark_clean(elapsed());
            });
        }
    }
    destructor
};
