//! The way through the states of `state`: what is done when the library is armed, when the recording opens,
//! and when the process ends. Only `interpose` and `frameworks` depend on it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::analysis::analyzer;
use crate::analysis::step_boundaries::{self, Services};
use crate::coverage_gaps;
use crate::fork;
use crate::frameworks;
use crate::hooks::{devices, entry_points, events};
use crate::loader::{address, link_map};
use crate::lock::{Mutex, Rank};
use crate::python;
use crate::recording_path;
use crate::settings;
use crate::shield::shield;
use crate::stacks;
use crate::state::{self, State};
use crate::stderr;
use crate::thread_state;
use crate::writer::entries::shortened;
use crate::writer::recording;
use crate::writer::signals::{self, Undisturbed, in_signal_handler, with_signals_blocked};
use leaktrace_core::format::entry::TableEntry;
use leaktrace_core::format::event::{Event, EventKind};
use leaktrace_core::format::tables::{ATTACHED, DETACHED};
use leaktrace_core::frameworks::ALL as FRAMEWORKS;

/// What analysis has the driver and Python do.
static SERVICES: Services = Services {
    sample_driver: devices::sample,
    may_search: python::search::may_run,
    ask_for_search: python::search::ask,
    search_obstacle: python::search::obstacle,
    search: python::search::run,
};

/// What Python has steps and frameworks do.
static CALLBACKS: python::Callbacks = python::Callbacks {
    optimizer_stepped: |optimizer| {
        frameworks::stop_watching_steps();
        step_boundaries::optimizer(optimizer);
    },
    optimizer_gone: step_boundaries::optimizer_gone,
    may_search: step_boundaries::search_when_asked,
    exiting: |exception| {
        shield(|| {
            if let Some(value) = exception.filter(|_| state::is_recording()) {
                recording::append_entry(&TableEntry::Meta { key: "exception", value });
            }
            step_boundaries::exit();
        });
    },
};

/// The process in which a thread is arming.
static ARMING_PID: AtomicU32 = AtomicU32::new(0);
/// Held while a recording is being opened.
pub static OPENING: Mutex<()> = Mutex::new(Rank::Opening, ());
/// Events that could not wait until all was armed.
static MISSED: AtomicU64 = AtomicU64::new(0);

/// The library is loaded.
pub fn loaded() {
    fork::register_handlers();
}

/// Dormant → Armed: looks up what hooks will need. Called where the loader may be asked. Another thread may
/// be at it: this does not wait, for the caller may hold the loader's lock.
#[inline]
pub fn arm() {
    if state::get() == State::Dormant {
        arm_now();
    }
}

#[cold]
#[inline(never)]
fn arm_now() {
    // A handler on top of it would wait for it, and it comes by many a point where a thread is cancelled.
    let _undisturbed = Undisturbed::begin();
    ARMING_PID.store(std::process::id(), Release);
    if !state::advance(State::Dormant, State::Arming) {
        return;
    }
    state::set_start(&(start as fn() -> bool));
    // A panic of ours is caught; it must not write on the program's stderr either.
    std::panic::set_hook(Box::new(|_| {}));
    // What arming itself calls is no event.
    thread_state::without_events(|| {
        shield(|| {
            link_map::init();
            let settings = settings::get();
            if !settings.on {
                return state::set(State::Off);
            }
            step_boundaries::arm(settings.step, &SERVICES);
            recording::set_callbacks(&recording::Callbacks {
                segment_filled,
                make_room: analyzer::reclaim_segments,
                full,
                lost,
            });
            events::set_callbacks(events::Callbacks {
                allocated: || {
                    frameworks::watch_steps();
                    python::poke();
                },
            });
            thread_state::set_end_callback(|address| shield(|| step_boundaries::thread_ended(address)));
            stacks::arm(settings.stacks);
            python::arm(&CALLBACKS);
            state::set(State::Armed);
        });
    });
}

/// Waits until the thread that is arming is done; once for a second at most, for it may be waiting for us. A
/// forked child may have been copied in the middle of it, without the thread that was at it: then it begins
/// anew.
#[inline]
pub fn wait_until_armed() {
    if state::get() == State::Arming {
        wait_while_arming();
    }
}

#[cold]
#[inline(never)]
fn wait_while_arming() {
    const PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
    static GAVE_UP: AtomicBool = AtomicBool::new(false);
    let _undisturbed = Undisturbed::begin();
    for _ in 0..20_000 {
        if state::get() != State::Arming || GAVE_UP.load(Relaxed) {
            return;
        }
        if ARMING_PID.load(Acquire) != std::process::id() {
            state::advance(State::Arming, State::Dormant);
            return arm();
        }
        // SAFETY: a constant duration.
        unsafe { libc::nanosleep(&PAUSE, std::ptr::null_mut()) };
    }
    GAVE_UP.store(true, Relaxed);
}

/// Armed → Recording, on the first event, which may come without any look-up before it: the allocator of a
/// framework was reached past all that we interpose. `false`: nothing is to be recorded.
#[cold]
pub fn start() -> bool {
    if state::get() == State::Off {
        return false;
    }
    arm();
    wait_until_armed();
    if state::get() == State::Arming {
        MISSED.fetch_add(1, Relaxed);
    }
    if state::get() != State::Armed {
        return state::is_recording();
    }
    // A signal handler on top of the thread that opens it cannot wait.
    let Some(_opening) = OPENING.lock() else {
        MISSED.fetch_add(1, Relaxed);
        return false;
    };
    if state::get() != State::Armed {
        return state::is_recording();
    }
    open().inspect_err(|why| stderr::say(&format!("{why}; nothing is recorded"))).is_ok()
}

/// Opens a recording in a process that was running, by the settings that were handed over. There may have been one
/// before, which has ended.
pub fn attach() -> Result<(), String> {
    let ended = state::get() == State::Off;
    if ended {
        fork::forget_recording();
        coverage_gaps::begin_anew();
        let settings = settings::get();
        step_boundaries::arm(settings.step, &SERVICES);
        stacks::arm(settings.stacks);
        state::set(State::Armed);
    }
    arm();
    wait_until_armed();
    {
        let _opening = OPENING.lock().ok_or("a signal handler is in the way")?;
        if state::get() != State::Armed {
            return Err("another thread is at it".into());
        }
        open()?;
    }
    recording::append_entry(&TableEntry::Meta { key: ATTACHED, value: "yes" });
    // Nothing of the program's leads here yet: this is the first event, and an event takes no lock's holder.
    thread_state::append(&Event::new(EventKind::Attached));
    Ok(())
}

/// Ends the recording while the process goes on, which may be attached to again. With the GIL held, if there is one.
pub fn detach() {
    let undisturbed = Undisturbed::begin();
    thread_state::without_events(|| {
        recording::append_entry(&TableEntry::Meta { key: DETACHED, value: "yes" });
        step_boundaries::leave();
        recording::mark_clean(state::elapsed());
        frameworks::leave();
        python::remove();
        state::give_up();
        recording::abandon();
        step_boundaries::forget_ledger();
    });
    drop(undisturbed);
}

/// Armed → Recording. With [`OPENING`] held.
fn open() -> Result<(), String> {
    fork::forget_parent();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let path = settings::get().path();
    match with_signals_blocked(|| recording_path::create(path, now.as_nanos() as u64)) {
        Ok(path) => {
            state::set_lost_line(&format!(
                "{} was cut off by somebody else, or its disk failed; tracing is switched off, the program goes on",
                stderr::quoted(&path)
            ));
            state::begin(path);
            write_metadata(now);
            step_boundaries::begin();
            recording::count_dropped(MISSED.swap(0, Relaxed));
            // In this order: who sees that it is no longer armed looks at the other word.
            state::take_ownership();
            state::set(State::Recording);
            coverage_gaps::flush();
            Ok(())
        }
        Err(why) => {
            state::set(State::Off);
            Err(why)
        }
    }
}

/// A thread has filled a segment.
fn segment_filled() {
    // Its next segment has to be released when the thread ends.
    thread_state::watch();
    analyzer::apply_backpressure();
}

/// The file cannot grow, and no old events could make room.
fn full(errno: i32) {
    // Where it was cut off, that was said.
    if !state::is_recording() {
        return;
    }
    let why = std::io::Error::from_raw_os_error(errno);
    let line = format!("the recording cannot grow: {why}; events are lost");
    stderr::say(&line);
    recording::append_entry(&TableEntry::Note { text: &line });
}

/// The recording is gone from under us.
fn lost() {
    state::lost();
}

/// Ends the tracing for good and in good order, since the program is about to forbid itself most system calls.
pub fn shut_in() {
    const WHY: &str =
        "the program shuts itself into a sandbox (seccomp): tracing ends here, the program goes on";
    const NOTHING: &str =
        "the program shuts itself into a sandbox (seccomp) before its first CUDA call: nothing is recorded";
    let undisturbed = Undisturbed::begin();
    thread_state::without_events(|| {
        shield(|| {
            if state::is_recording() && !in_signal_handler() {
                coverage_gaps::report("everything after the program shut itself into a sandbox (seccomp)");
                stderr::say(WHY);
                step_boundaries::exit();
                recording::mark_clean(state::elapsed());
            } else if !in_signal_handler() && may_call_cuda() {
                stderr::say(NOTHING);
            }
            // Neither is one begun in there.
            state::give_up();
            recording::close();
        });
    });
    drop(undisturbed);
    signals::shut_in();
}

/// Whether the program has something that calls CUDA, and is to be traced. In a sandbox nothing can be said any more.
fn may_call_cuda() -> bool {
    let is_one = |path: &str| path.contains("/libcuda.so") || path.contains("/libcudart.so");
    let is_here = || matches!(state::get(), State::Armed) || address::path_of(is_one).is_some();
    state::get() != State::Off && settings::get().on && is_here()
}

/// Writes what the reader has to know about this process.
fn write_metadata(began: Duration) {
    let meta = |key: &str, value: &str| {
        recording::append_entry(&TableEntry::Meta { key, value: shortened(value) });
    };
    let argv = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    meta("argv", String::from_utf8_lossy(&argv).trim_end_matches('\0'));
    for (key, path) in [("exe", std::env::current_exe()), ("cwd", std::env::current_dir())] {
        if let Ok(path) = path {
            meta(key, &path.to_string_lossy());
        }
    }
    meta("pid", &std::process::id().to_string());
    // By this the reader knows whether that process is still alive, also from outside of its container.
    meta("started", started().as_deref().unwrap_or_default());
    meta("host", &settings::host());
    if let Some(rank) = settings::rank() {
        meta("rank", &rank);
    }
    if let Some(run) = settings::run() {
        meta("run", &run);
    }
    meta("began", &began.as_secs().to_string());
    meta("leaktrace", env!("CARGO_PKG_VERSION"));
    meta("python", stacks::python());
    if !stacks::python().is_empty() {
        meta("python_packages", python::packages::list());
    }
    if !settings::get().holders {
        meta("holders", "off");
    }
    for (id, entry) in (1u16..).zip(entry_points::ENTRY_POINTS) {
        recording::append_entry(&TableEntry::Symbol { id, name: entry.name });
    }
    for (id, name) in FRAMEWORKS.iter().filter_map(|framework| framework.allocator) {
        recording::append_entry(&TableEntry::Symbol { id, name });
    }
}

/// Returns when this process started, in the kernel's ticks since the machine did.
fn started() -> Option<String> {
    let status = std::fs::read("/proc/self/stat").ok()?;
    // The name in parentheses may hold anything; the 22nd field is the 20th behind it.
    let behind = &status[status.iter().rposition(|b| *b == b')')? + 1..];
    std::str::from_utf8(behind).ok()?.split_whitespace().nth(19).map(str::to_owned)
}

/// Forgets what lay in a library that may have been unloaded.
pub fn unloaded() {
    if matches!(state::get(), State::Armed | State::Recording) {
        stacks::modules_changed();
    }
}

/// The end of the process, as far as it comes here: `exit` and a return from `main` do, signals and `_exit`
/// do not.
#[used]
#[cfg_attr(not(test), unsafe(link_section = ".fini_array"))]
static DESTRUCTOR: extern "C" fn() = {
    extern "C" fn destructor() {
        if state::owns_recording() {
            shield(|| {
                // From a handler nothing can be done that the interrupted code may be in the middle of. All
                // it recorded stands.
                if !in_signal_handler() {
                    step_boundaries::exit();
                }
                recording::mark_clean(state::elapsed());
            });
        }
    }
    destructor
};
