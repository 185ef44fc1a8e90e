//! How the process exits: `exit` and a return from `main` tell us their status by `on_exit`; the functions that end it at
//! once are interposed, and jump. The status goes to the recording, which outlives the process.

use std::ffi::{CStr, c_int, c_void};

use crate::loader::functions::LoaderFunction;
use crate::machine;
use crate::state;
use crate::writer::recording;

/// Defines one interposer for each function, which takes the status.
macro_rules! interpose {
    ($($name:ident = $number:literal;)+) => {
        const NAMES: &[&CStr] = &[$(match CStr::from_bytes_with_nul(
            concat!(stringify!($name), "\0").as_bytes()) { Ok(name) => name, Err(_) => c"" }),+];
        static REAL: [LoaderFunction; NAMES.len()] = [const { LoaderFunction::new() }; NAMES.len()];
        $(
            /// # Safety
            /// That of the C library's function.
            #[unsafe(naked)]
            #[allow(non_snake_case, reason = "the C library's name")]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[cfg_attr(test, unsafe(export_name = concat!("unhooked_", stringify!($name))))]
            unsafe extern "C" fn $name() {
                machine::tail_jump!(before, (first, $number))
            }
        )+
    };
}

interpose! {
    _exit = 0;
    _Exit = 1;
    quick_exit = 2;
}

unsafe extern "C" {
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Looks the functions up: the child of a fork may not ask the loader, which another thread may have locked.
pub fn look_up() {
    for (name, real) in NAMES.iter().zip(&REAL) {
        real.next(name);
    }
}

/// Registers for the end by `exit`. Once, when the library is loaded.
pub fn watch() {
    // SAFETY: a function of this library, which is never unloaded.
    unsafe { on_exit(exited, std::ptr::null_mut()) };
}

extern "C" fn exited(status: c_int, _: *mut c_void) {
    note(status);
}

/// Notes the status; returns where the call goes on.
extern "C" fn before(status: c_int, number: u32) -> *const c_void {
    note(status);
    let number = number as usize;
    NAMES.get(number).zip(REAL.get(number)).map_or(std::ptr::null(), |(name, real)| real.next(name))
}

/// Nothing in it allocates or takes a lock: this may be the child of a `vfork`, or a signal handler.
fn note(status: c_int) {
    if state::is_recording() {
        recording::mark_exit(status, state::elapsed());
    }
}
