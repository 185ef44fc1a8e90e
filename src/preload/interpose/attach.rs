//! Attaching to a process that was not started with this library, and detaching from it again: two functions that whoever
//! opens the library in it calls. What the process loaded before is bound past us, so its slots are pointed to our
//! exports, and back; what it looked up before stays out of sight.
//!
//! Once opened, the library stays: threads may be inside of a hook. Detached, nothing leads to it.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Duration;

use crate::coverage_gaps;
use crate::frameworks;
use crate::hooks::driver_queries;
use crate::interpose::slots::{self, SLOTS};
use crate::interpose::trampolines;
use crate::lifecycle;
use crate::loader::functions::{DLOPEN, Dlopen};
use crate::loader::{link_map, scope};
use crate::python;
use crate::settings;
use crate::shield::shield;
use crate::state;
use crate::thread_state;
use crate::writer::signals::{Undisturbed, is_shut_in};

/// What came of it; the program `leaktrace` knows the same numbers.
#[derive(Clone, Copy)]
#[repr(i32)]
enum Outcome {
    Done = 0,
    /// The process was started with this library.
    Preloaded = 1,
    /// It is attached to already.
    Attached = 2,
    NotAttached = 3,
    Failed = 4,
}

type Answer = (Outcome, String);

const GAP: &str = "attached to the running program: allocations by addresses of CUDA functions that it looked up before \
                   (the runtime's own, runtimes that are linked statically) are not seen, nor what was allocated before";
const LOADED_SINCE: &str =
    "libraries that the program loaded after leaktrace was attached: their own calls of CUDA";

/// Held while one is attached or detached.
static UNDER_WAY: AtomicBool = AtomicBool::new(false);
/// How many objects the loader had loaded when the slots were pointed to us.
static LOADED: AtomicU64 = AtomicU64::new(0);

/// Begins a recording in this process, by settings in lines of `NAME=value`. The answer is written to `reply`: the path of
/// the recording, or why there is none.
///
/// # Safety
/// `settings` is null or a C string, `reply` null or room for `size` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_leaktrace_attach"))]
pub unsafe extern "C" fn leaktrace_attach(settings: *const c_char, reply: *mut c_char, size: usize) -> i32 {
    // SAFETY: the caller's promise.
    let lines = if settings.is_null() { c"" } else { unsafe { CStr::from_ptr(settings) } };
    // SAFETY: the caller's promise.
    unsafe { answer(reply, size, || attach(lines.to_bytes())) }
}

/// Ends the recording that was begun by attaching, and leaves the process as it was. The answer is written to `reply`.
///
/// # Safety
/// `reply` is null or room for `size` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_leaktrace_detach"))]
pub unsafe extern "C" fn leaktrace_detach(reply: *mut c_char, size: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { answer(reply, size, detach) }
}

/// # Safety
/// `reply` is null or room for `size` bytes.
unsafe fn answer(reply: *mut c_char, size: usize, work: impl FnOnce() -> Answer) -> i32 {
    let mut answer = (Outcome::Failed, "it failed".to_owned());
    if UNDER_WAY.swap(true, Acquire) {
        answer.1 = "another attach or detach is under way".to_owned();
    } else {
        shield(|| answer = thread_state::without_events(work));
        UNDER_WAY.store(false, Release);
    }
    let text = answer.1.as_bytes();
    let length = text.len().min(size.saturating_sub(1));
    if !reply.is_null() && size > 0 {
        // SAFETY: the caller's promise; the text is cut to the room.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), reply.cast(), length);
            *reply.add(length) = 0;
        }
    }
    answer.0 as i32
}

fn path() -> String {
    state::path().map_or_else(String::new, |path| path.display().to_string())
}

fn attach(lines: &[u8]) -> Answer {
    link_map::init();
    scope::look_whether_late();
    if !link_map::is_late() {
        return (Outcome::Preloaded, if state::is_recording() { path() } else { String::new() });
    }
    if state::is_recording() {
        return (Outcome::Attached, path());
    }
    if is_shut_in() {
        return (Outcome::Failed, "the program has shut itself into a sandbox (seccomp)".to_owned());
    }
    let _undisturbed = Undisturbed::begin();
    trampolines::look_up();
    stay();
    settings::hand_over(lines);
    coverage_gaps::report(GAP);
    if let Err(why) = lifecycle::attach() {
        return (Outcome::Failed, why);
    }
    if let Some(driver) = link_map::find_in_any(c"cuMemAlloc_v2") {
        driver_queries::learn(driver);
    }
    // Steps first: the first block would have to ask for the interpreter.
    python::install_now();
    frameworks::come_late();
    LOADED.store(link_map::loads(), Release);
    match take_over() {
        Ok(()) => (Outcome::Done, path()),
        Err(why) => {
            lifecycle::detach();
            (Outcome::Failed, why)
        }
    }
}

/// Points the program's slots to us.
fn take_over() -> Result<(), String> {
    let mut changed =
        SLOTS.try_lock_for(Duration::from_secs(1)).ok_or("another thread is at the import tables")?;
    let mut room = 1024;
    loop {
        // Nothing may be allocated while the objects are borrowed.
        changed.reserve(room);
        let all = link_map::with_objects(|objects| slots::take_over(objects, &mut changed));
        match all.ok_or("the loader lists no objects")? {
            (0, 0) => return Ok(()),
            (0, unwritten) => {
                coverage_gaps::report(&format!("{unwritten} imports of the program could not be led here"));
                return Ok(());
            }
            (without_room, _) => room = without_room,
        }
    }
}

fn detach() -> Answer {
    if !link_map::is_late() {
        return match state::is_recording() {
            true => (Outcome::Preloaded, path()),
            false => (Outcome::NotAttached, String::new()),
        };
    }
    if !state::is_recording() {
        return (Outcome::NotAttached, String::new());
    }
    let _undisturbed = Undisturbed::begin();
    let Some(mut changed) = SLOTS.try_lock_for(Duration::from_secs(1)) else {
        return (Outcome::Failed, "another thread is at the import tables".to_owned());
    };
    let kept = link_map::with_objects(|objects| slots::give_back(objects, &mut changed));
    drop(changed);
    if link_map::loads() != LOADED.load(Acquire) {
        coverage_gaps::report(LOADED_SINCE);
    }
    let path = path();
    lifecycle::detach();
    match kept {
        Some(0) => (Outcome::Done, path),
        _ => (Outcome::Failed, format!("some imports still lead here, and do nothing; recorded: {path}")),
    }
}

/// Keeps this library loaded, whoever closes it.
fn stay() {
    let own = link_map::with_objects(|objects| objects.own().map(|own| own.path().as_ptr())).flatten();
    let open = DLOPEN.next(c"dlopen");
    if let Some(own) = own.filter(|_| !open.is_null()) {
        // SAFETY: the loader's `dlopen` with the path of a loaded object, which is this one: nothing is loaded.
        unsafe {
            let open = std::mem::transmute::<*mut c_void, Dlopen>(open);
            open(own, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
        }
    }
}
