//! The interposers of the calls by which a program shuts itself into a sandbox: `prctl` and `syscall`, as far as they
//! install a seccomp filter. A filter allows what the program needs, and may kill it for anything else: so the
//! recording is brought to its end before, and nothing of ours asks the kernel for anything afterwards. They jump, so
//! that every argument stays where it is; a call that is about something else costs one test.

use std::ffi::{CStr, c_void};

use crate::lifecycle;
use crate::loader::functions::LoaderFunction;

static PRCTL: LoaderFunction = LoaderFunction::new();
static SYSCALL: LoaderFunction = LoaderFunction::new();
const PRCTL_NAME: &CStr = c"prctl";
const SYSCALL_NAME: &CStr = c"syscall";

/// Looks the functions up: a signal handler may not ask the loader.
pub fn look_up() {
    PRCTL.next(PRCTL_NAME);
    SYSCALL.next(SYSCALL_NAME);
}

/// Defines an interposer: `$test` jumps to `2f` for a call that may install a filter.
macro_rules! interpose {
    ($name:ident, $real:ident, $before:ident, $number:literal, $value:expr) => {
        /// # Safety
        /// That of the C library's function.
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[cfg_attr(test, unsafe(export_name = concat!("unhooked_", stringify!($name))))]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                concat!("cmp edi, {", $number, "}"),
                "je 2f",
                "mov r11, qword ptr [rip + {real}@GOTPCREL]",
                "mov r11, qword ptr [r11]",
                "test r11, r11",
                "je 2f",
                "jmp r11",
                "2: push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "push rax",
                "call {before}",
                "mov r11, rax",
                "pop rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp r11",
                number = const $value,
                real = sym $real,
                before = sym $before,
            )
        }
    };
}

interpose!(prctl, PRCTL, before_prctl, "number", libc::PR_SET_SECCOMP);
interpose!(syscall, SYSCALL, before_syscall, "number", libc::SYS_seccomp);

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
