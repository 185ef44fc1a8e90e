//! The interposers of `exec` and its kin: the recording says that another program took this one's place. They
//! jump, so that every argument stays where it is; should the call fail, later events tell.

use std::ffi::{CStr, c_void};

use crate::loader::functions::LoaderFunction;
use crate::machine;
use crate::state;
use crate::writer::recording;

/// Defines one interposer for each function.
macro_rules! interpose {
    ($($name:ident = $number:literal;)+) => {
        const NAMES: &[&CStr] = &[$(match CStr::from_bytes_with_nul(
            concat!(stringify!($name), "\0").as_bytes()) { Ok(name) => name, Err(_) => c"" }),+];
        static REAL: [LoaderFunction; NAMES.len()] = [const { LoaderFunction::new() }; NAMES.len()];
        $(
            /// # Safety
            /// That of the C library's function.
            #[unsafe(naked)]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[cfg_attr(test, unsafe(export_name = concat!("unhooked_", stringify!($name))))]
            unsafe extern "C" fn $name() {
                machine::tail_jump!(before, (first, $number))
            }
        )+
    };
}

interpose! {
    execve = 0;
    execv = 1;
    execvp = 2;
    execvpe = 3;
    execl = 4;
    execlp = 5;
    execle = 6;
    fexecve = 7;
}

/// Looks the functions up: the child of a fork may not ask the loader, which another thread may have locked.
pub fn look_up() {
    for (name, real) in NAMES.iter().zip(&REAL) {
        real.next(name);
    }
}

/// Notes the call; returns where it goes on.
extern "C" fn before(_path: *const c_void, number: u32) -> *const c_void {
    if state::is_recording() {
        // Nothing in it allocates or takes a lock: this may be the child of a `vfork`, or a signal handler.
        recording::mark_replaced();
    }
    let number = number as usize;
    NAMES.get(number).zip(REAL.get(number)).map_or(std::ptr::null(), |(name, real)| real.next(name))
}
