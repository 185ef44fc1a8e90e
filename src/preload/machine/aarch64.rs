//! aarch64, by AAPCS64. Every function that a jump by register may lead to begins with `hint #34` (`bti c`), and
//! every such jump goes by x16, as branch target identification wants it.

use std::ffi::CStr;

pub use object::elf::{
    R_AARCH64_ABS64 as ABSOLUTE, R_AARCH64_GLOB_DAT as GLOBAL_DATA, R_AARCH64_JUMP_SLOT as JUMP_SLOT,
};

/// The version of the first glibc.
pub const FIRST_GLIBC: &CStr = c"GLIBC_2.17";
/// The end of the addresses of user space; the kernel gives higher ones only where they are asked for.
pub const ADDRESS_END: u64 = 1 << 48;
/// The largest page that a kernel may have.
pub const LARGEST_PAGE: usize = 65536;

/// Puts every register of arguments on the stack, x8 (where an object is returned) among them.
macro_rules! save {
    () => {
        "stp x29, x30, [sp, #-224]!; mov x29, sp; \
         stp x0, x1, [sp, #16]; stp x2, x3, [sp, #32]; stp x4, x5, [sp, #48]; stp x6, x7, [sp, #64]; \
         str x8, [sp, #80]; \
         stp q0, q1, [sp, #96]; stp q2, q3, [sp, #128]; stp q4, q5, [sp, #160]; stp q6, q7, [sp, #192]"
    };
}

/// Takes them back.
macro_rules! restore {
    () => {
        "ldp q6, q7, [sp, #192]; ldp q4, q5, [sp, #160]; ldp q2, q3, [sp, #128]; ldp q0, q1, [sp, #96]; \
         ldr x8, [sp, #80]; \
         ldp x6, x7, [sp, #64]; ldp x4, x5, [sp, #48]; ldp x2, x3, [sp, #32]; ldp x0, x1, [sp, #16]; \
         ldp x29, x30, [sp], #224"
    };
}

/// The body of a naked function that asks `$target` where to go and goes there, with every argument as it
/// came: no frame of ours stays on the stack. `$target` is called with the arguments of the call; or with the
/// first of them and a number; or with the return address and a number.
macro_rules! tail_jump {
    ($target:path) => {
        $crate::machine::tail_jump!(@ $target;)
    };
    ($target:path, (first, $number:expr)) => {
        $crate::machine::tail_jump!(@ $target; "mov w1, {number}"; $number)
    };
    ($target:path, (caller, $number:expr)) => {
        $crate::machine::tail_jump!(@ $target; "mov x0, x30", "mov w1, {number}"; $number)
    };
    (@ $target:path; $($setup:literal),* $(; $number:expr)?) => {
        std::arch::naked_asm!(
            "hint #34",
            $crate::machine::save!(),
            $($setup,)*
            "bl {target}",
            "mov x16, x0",
            $crate::machine::restore!(),
            "br x16",
            target = sym $target,
            $(number = const $number,)?
        )
    };
}

/// The same where the first argument is `$value`; any other call goes on to the function that `$real` has, if it has
/// one.
macro_rules! tail_jump_if {
    ($target:path, $value:expr, $real:path) => {
        std::arch::naked_asm!(
            "hint #34",
            "cmp w0, {value}",
            "b.eq 2f",
            "adrp x16, {real}",
            "ldr x16, [x16, :lo12:{real}]",
            "cbz x16, 2f",
            "br x16",
            "2:",
            $crate::machine::save!(),
            "bl {target}",
            "mov x16, x0",
            $crate::machine::restore!(),
            "br x16",
            value = const $value,
            real = sym $real,
            target = sym $target,
        )
    };
}

/// Calls `$target` with the first argument and a number, and jumps where it says. With the rules of unwinding: the
/// frames outside of this one are looked at. For functions of two arguments.
macro_rules! tail_jump_unwound {
    ($target:path, $number:expr) => {
        std::arch::naked_asm!(
            ".cfi_startproc",
            "hint #34",
            "stp x29, x30, [sp, #-32]!",
            ".cfi_def_cfa_offset 32",
            ".cfi_offset x29, -32",
            ".cfi_offset x30, -24",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "mov w1, {number}",
            "bl {target}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #32",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "br x16",
            ".cfi_endproc",
            number = const $number,
            target = sym $target,
        )
    };
}

/// `dlsym`: `$resolve` is called with both arguments and the return address, and gives a `TailCall`. Where it
/// jumps, `$third` is the third argument.
macro_rules! dlsym {
    ($resolve:path, $third:path) => {
        std::arch::naked_asm!(
            "hint #34",
            "stp x29, x30, [sp, #-32]!",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "mov x2, x30",
            "bl {resolve}",
            "mov x16, x1",
            "cbz x16, 2f",
            "ldp x0, x1, [sp, #16]",
            "adrp x2, {third}",
            "add x2, x2, :lo12:{third}",
            "ldp x29, x30, [sp], #32",
            "br x16",
            "2: ldp x29, x30, [sp], #32",
            "ret",
            resolve = sym $resolve,
            third = sym $third,
        )
    };
}

/// `dlvsym`: `$resolve` is called with the three arguments and the return address, and gives a `TailCall`.
macro_rules! dlvsym {
    ($resolve:path) => {
        std::arch::naked_asm!(
            "hint #34",
            "stp x29, x30, [sp, #-48]!",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "mov x3, x30",
            "bl {resolve}",
            "mov x16, x1",
            "cbz x16, 2f",
            "ldp x0, x1, [sp, #16]",
            "ldr x2, [sp, #32]",
            "ldp x29, x30, [sp], #48",
            "br x16",
            "2: ldp x29, x30, [sp], #48",
            "ret",
            resolve = sym $resolve,
        )
    };
}

/// `dlopen`: goes on to the function that `$real` has; where that is not known, or the second argument has the bit
/// `$flag`, `$open` is called with both arguments, and gives a `TailCall`.
macro_rules! dlopen {
    ($open:path, $flag:expr, $real:path) => {
        std::arch::naked_asm!(
            "hint #34",
            "tst w1, {flag}",
            "b.ne 2f",
            "adrp x16, {real}",
            "ldr x16, [x16, :lo12:{real}]",
            "cbz x16, 2f",
            "br x16",
            "2: stp x29, x30, [sp, #-32]!",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "bl {open}",
            "mov x16, x1",
            "cbz x16, 3f",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #32",
            "br x16",
            "3: ldp x29, x30, [sp], #32",
            "ret",
            flag = const $flag,
            real = sym $real,
            open = sym $open,
        )
    };
}

/// The body of a naked function that returns a C++ object in memory and takes one argument: calls `$body` with the
/// place of the object and that argument.
macro_rules! returns_object {
    ($body:path) => {
        std::arch::naked_asm!("hint #34", "mov x1, x0", "mov x0, x8", "b {body}", body = sym $body)
    };
}

pub(crate) use {
    dlopen, dlsym, dlvsym, restore, returns_object, save, tail_jump, tail_jump_if, tail_jump_unwound,
};

/// Returns the address of the calling thread's `leaktrace_thread_block`, which is in the static block.
#[inline(always)]
pub fn thread_block() -> *const u8 {
    let block;
    // SAFETY: the psABI's initial-exec sequence: the GOT holds the block's offset from the thread pointer. Both
    // are the same for as long as the thread lives.
    unsafe {
        std::arch::asm!(
            "mrs {0}, tpidr_el0",
            "adrp {1}, :gottprel:leaktrace_thread_block",
            "ldr {1}, [{1}, :gottprel_lo12:leaktrace_thread_block]",
            "add {0}, {0}, {1}",
            out(reg) block,
            out(reg) _,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    block
}

/// Returns `pthread_self()`, which lies before the thread pointer, as far as glibc's own block is large.
#[inline(always)]
pub fn own_id() -> u64 {
    // SAFETY: asks for the calling thread's id.
    unsafe { libc::pthread_self() as u64 }
}

/// Makes a system call without the C library; errno is left as it is.
///
/// # Safety
/// That of the system call.
pub unsafe fn system_call(number: libc::c_long, arguments: [usize; 4]) {
    let [a, b, c, d] = arguments;
    // SAFETY: the caller's word; the kernel's convention.
    unsafe {
        std::arch::asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") a => _,
            in("x1") b,
            in("x2") c,
            in("x3") d,
            options(nostack),
        );
    }
}

/// Returns the stack pointer that `longjmp` restores, by the layout of glibc's `jmp_buf`: the fourteenth word,
/// masked.
///
/// # Safety
/// `buffer` was filled by `setjmp`.
pub unsafe fn jump_target(buffer: *const u64) -> u64 {
    const SP: usize = 13;
    // SAFETY: a buffer of 22 words and more.
    unsafe { *buffer.add(SP) ^ jump_mask() }
}

/// Returns the mask of the pointers in a `jmp_buf`. The loader keeps it to itself; what `setjmp` stores of a stack
/// pointer that is known has it too. Nothing ever jumps back here. A signal handler may call it.
#[unsafe(naked)]
unsafe extern "C" fn jump_mask() -> u64 {
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "mov x29, sp",
        // A `jmp_buf` has 312 bytes.
        "sub sp, sp, #320",
        "mov x0, sp",
        "bl _setjmp",
        "ldr x0, [sp, #104]",
        "mov x1, sp",
        "eor x0, x0, x1",
        "add sp, sp, #320",
        "ldp x29, x30, [sp], #16",
        "ret",
    )
}

/// The way back from a signal handler, by the instructions that unwinders know it by where no table describes it.
/// They look at what lies before it too, which is why something does.
#[unsafe(naked)]
unsafe extern "C" fn way_back() {
    std::arch::naked_asm!("nop", "mov x8, #139", "svc #0")
}

/// Returns the address of the way back from a signal handler.
pub fn way_back_address() -> usize {
    way_back as *const () as usize + 4
}
