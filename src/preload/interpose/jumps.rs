//! The interposers of `longjmp` and its kin: a jump, out of a signal handler as a rule, may leave a hook that
//! the handler interrupted, or the real function below a hook. What the frames that are gone would have put
//! back is put back here; then the jump goes on, with every argument as it came.

use std::ffi::{CStr, c_int, c_void};

use crate::analysis::loop_steps;
use crate::coverage_gaps;
use crate::frameworks;
use crate::loader::functions::LoaderFunction;
use crate::loader::link_map;
use crate::lock::RawLock;
use crate::machine;
use crate::thread_state;

unsafe extern "C" {
    fn _Unwind_Backtrace(step: extern "C" fn(*mut c_void, *mut c_void) -> c_int, to: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
    fn _Unwind_GetCFA(context: *mut c_void) -> usize;
}

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
                machine::tail_jump_unwound!(before, $number)
            }
        )+
    };
}

interpose! {
    longjmp = 0;
    _longjmp = 1;
    siglongjmp = 2;
    __longjmp_chk = 3;
}

/// Looks the functions up: a signal handler may not ask the loader.
pub fn look_up() {
    for (name, real) in NAMES.iter().zip(&REAL) {
        real.next(name);
    }
}

/// Takes the jump in; returns where it goes on.
unsafe extern "C" fn before(buffer: *const u64, number: u32) -> *const c_void {
    let thread = thread_state::current();
    if thread.is_inside() || !thread.backward.get().is_null() || frequent_locks().any(RawLock::is_own) {
        // SAFETY: what the program hands to `longjmp`.
        leave(unsafe { machine::jump_target(buffer) });
    }
    let number = number as usize;
    NAMES.get(number).zip(REAL.get(number)).map_or(std::ptr::null(), |(name, real)| real.next(name))
}

/// Returns the locks that a signal handler may interrupt the holder of.
fn frequent_locks() -> impl Iterator<Item = &'static RawLock> {
    [loop_steps::DETECTOR.raw()].into_iter().chain(frameworks::locks())
}

/// What a look along the stack finds.
struct Look {
    target: u64,
    /// The frames of this very call, and what lies between them and the frame that is jumped to, were passed.
    outside: bool,
    beyond: bool,
    /// A frame of ours is left; one beyond the target stays.
    leaves: bool,
    stays: bool,
}

extern "C" fn look(context: *mut c_void, found: *mut c_void) -> c_int {
    /// Frames are smaller, and other stacks lie further off.
    const NEAR: u64 = 1 << 20;
    // SAFETY: the unwinder's context; `found` is the look under way, which nobody else refers to.
    let (pc, sp, found) =
        unsafe { (_Unwind_GetIP(context), _Unwind_GetCFA(context) as u64, &mut *found.cast::<Look>()) };
    let is_own = link_map::is_own_address(std::ptr::without_provenance(pc));
    found.outside |= !is_own;
    found.beyond |= sp.wrapping_sub(found.target) < NEAR;
    match found.beyond {
        true => found.stays |= is_own,
        false => found.leaves |= is_own && found.outside,
    }
    0
}

/// Puts back what frames of ours are in the middle of, as far as they are left. Nothing here may wait or
/// allocate: what a handler has interrupted may be anything.
#[cold]
fn leave(target: u64) {
    let mut found = Look { target, outside: false, beyond: false, leaves: false, stays: false };
    // SAFETY: the step function has the documented signature; `found` outlives the walk.
    unsafe { _Unwind_Backtrace(look, (&raw mut found).cast()) };
    // Where the way to the target cannot be followed, what is jumped out of is the rule.
    if !found.leaves && found.beyond {
        return;
    }
    thread_state::current().leave_frames(found.stays);
    // SAFETY: this thread will not come back to where it took them.
    frequent_locks().for_each(|lock| unsafe { lock.leave() });
    coverage_gaps::call_was_left();
}
