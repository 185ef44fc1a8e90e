//! The interposers of the calls by which a program shuts itself into a sandbox: `prctl` and `syscall`, as far as they
//! install a seccomp filter. A filter allows what the program needs, and may kill it for anything else: so the
//! recording is brought to its end before, and nothing of ours asks the kernel for anything afterwards. They jump, so
//! that every argument stays where it is; a call that is about something else costs one test.

use std::ffi::{CStr, c_void};

use crate::lifecycle;
use crate::loader::functions::LoaderFunction;
use crate::machine;

static PRCTL: LoaderFunction = LoaderFunction::new();
static SYSCALL: LoaderFunction = LoaderFunction::new();
const PRCTL_NAME: &CStr = c"prctl";
const SYSCALL_NAME: &CStr = c"syscall";

/// Looks the functions up: a signal handler may not ask the loader.
pub fn look_up() {
    PRCTL.next(PRCTL_NAME);
    SYSCALL.next(SYSCALL_NAME);
}

/// # Safety
/// That of the C library's function.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_prctl"))]
unsafe extern "C" fn prctl() {
    machine::tail_jump_if!(before_prctl, libc::PR_SET_SECCOMP, PRCTL)
}

/// # Safety
/// That of the C library's function.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, unsafe(export_name = "unhooked_syscall"))]
unsafe extern "C" fn syscall() {
    machine::tail_jump_if!(before_syscall, libc::SYS_seccomp, SYSCALL)
}

/// Takes in what the program asks of `prctl(option, mode, filter)`; returns where it goes on.
unsafe extern "C" fn before_prctl(option: i32, mode: u64, filter: *const c_void) -> *const c_void {
    if option == libc::PR_SET_SECCOMP {
        entering(mode == u64::from(libc::SECCOMP_MODE_STRICT), filter);
    }
    PRCTL.next(PRCTL_NAME)
}

/// The same for `syscall(SYS_seccomp, operation, flags, filter)`.
unsafe extern "C" fn before_syscall(
    number: i64,
    operation: u32,
    _flags: u32,
    filter: *const c_void,
) -> *const c_void {
    let strict = operation == libc::SECCOMP_SET_MODE_STRICT;
    if number == libc::SYS_seccomp && (strict || operation == libc::SECCOMP_SET_MODE_FILTER) {
        entering(strict, filter);
    }
    SYSCALL.next(SYSCALL_NAME)
}

/// Without a filter it is a question, whether the kernel knows of any.
fn entering(is_strict: bool, filter: *const c_void) {
    if is_strict || !filter.is_null() {
        lifecycle::shut_in();
    }
}
