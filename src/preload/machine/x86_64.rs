//! x86-64, by its psABI.

use std::ffi::CStr;

pub use object::elf::{
    R_X86_64_64 as ABSOLUTE, R_X86_64_GLOB_DAT as GLOBAL_DATA, R_X86_64_JUMP_SLOT as JUMP_SLOT,
};

/// The version of the first glibc.
pub const FIRST_GLIBC: &CStr = c"GLIBC_2.2.5";
/// The end of the addresses of user space.
pub const ADDRESS_END: u64 = 1 << 47;
/// The largest page that a kernel may have.
pub const LARGEST_PAGE: usize = 4096;

/// Puts every register of arguments on the stack, which is aligned then.
macro_rules! save {
    () => {
        "push rdi; push rsi; push rdx; push rcx; push r8; push r9; push rax"
    };
}

/// Takes them back.
macro_rules! restore {
    () => {
        "pop rax; pop r9; pop r8; pop rcx; pop rdx; pop rsi; pop rdi"
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
        $crate::machine::tail_jump!(@ $target; "mov esi, {number}"; $number)
    };
    ($target:path, (caller, $number:expr)) => {
        $crate::machine::tail_jump!(@ $target; "mov rdi, qword ptr [rsp + 56]", "mov esi, {number}"; $number)
    };
    (@ $target:path; $($setup:literal),* $(; $number:expr)?) => {
        std::arch::naked_asm!(
            $crate::machine::save!(),
            $($setup,)*
            "call {target}",
            "mov r11, rax",
            $crate::machine::restore!(),
            "jmp r11",
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
            "cmp edi, {value}",
            "je 2f",
            "mov r11, qword ptr [rip + {real}@GOTPCREL]",
            "mov r11, qword ptr [r11]",
            "test r11, r11",
            "je 2f",
            "jmp r11",
            "2:",
            $crate::machine::save!(),
            "call {target}",
            "mov r11, rax",
            $crate::machine::restore!(),
            "jmp r11",
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
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 8",
            "mov esi, {number}",
            "call {target}",
            "add rsp, 8",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "jmp rax",
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
            "push rdi",
            "push rsi",
            "sub rsp, 8",
            "mov rdx, qword ptr [rsp + 24]",
            "call {resolve}",
            "add rsp, 8",
            "pop rsi",
            "pop rdi",
            "test rdx, rdx",
            "jne 2f",
            "ret",
            "2: mov r11, rdx",
            "lea rdx, [rip + {third}]",
            "jmp r11",
            resolve = sym $resolve,
            third = sym $third,
        )
    };
}

/// `dlvsym`: `$resolve` is called with the three arguments and the return address, and gives a `TailCall`.
macro_rules! dlvsym {
    ($resolve:path) => {
        std::arch::naked_asm!(
            "push rdi",
            "push rsi",
            "push rdx",
            "mov rcx, qword ptr [rsp + 24]",
            "call {resolve}",
            "mov r11, rdx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "test r11, r11",
            "jne 2f",
            "ret",
            "2: jmp r11",
            resolve = sym $resolve,
        )
    };
}

/// `dlopen`: goes on to the function that `$real` has; where that is not known, or the second argument has the bit
/// `$flag`, `$open` is called with both arguments, and gives a `TailCall`.
macro_rules! dlopen {
    ($open:path, $flag:expr, $real:path) => {
        std::arch::naked_asm!(
            "test esi, {flag}",
            "jne 2f",
            "mov rax, qword ptr [rip + {real}@GOTPCREL]",
            "mov rax, qword ptr [rax]",
            "test rax, rax",
            "je 2f",
            "jmp rax",
            "2: push rdi",
            "push rsi",
            "sub rsp, 8",
            "call {open}",
            "add rsp, 8",
            "pop rsi",
            "pop rdi",
            "test rdx, rdx",
            "jne 3f",
            "ret",
            "3: jmp rdx",
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
        // The place comes as the first argument, and is returned.
        std::arch::naked_asm!("jmp {body}", body = sym $body)
    };
}

pub(crate) use {
    dlopen, dlsym, dlvsym, restore, returns_object, save, tail_jump, tail_jump_if, tail_jump_unwound,
};

/// Returns the address of the calling thread's `leaktrace_thread_block`, which is in the static block.
#[inline(always)]
pub fn thread_block() -> *const u8 {
    let block;
    // SAFETY: the psABI's initial-exec sequence: the GOT holds the block's offset from the thread pointer at
    // fs:0. Both are the same for as long as the thread lives.
    unsafe {
        std::arch::asm!(
            "mov {0}, qword ptr [rip + leaktrace_thread_block@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) block,
            options(pure, nomem, nostack),
        );
    }
    block
}

/// Returns `pthread_self()`. glibc's is the thread pointer itself.
#[inline(always)]
pub fn own_id() -> u64 {
    let pointer: u64;
    // SAFETY: the psABI: the thread pointer stands at fs:0.
    unsafe { std::arch::asm!("mov {0}, qword ptr fs:[0]", out(reg) pointer, options(pure, nomem, nostack)) };
    pointer
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
            "syscall",
            inlateout("rax") number => _,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
}

/// Returns the stack pointer that `longjmp` restores, by the layout of glibc's `jmp_buf`: the seventh word, rotated
/// and masked.
///
/// # Safety
/// `buffer` was filled by `setjmp`.
pub unsafe fn jump_target(buffer: *const u64) -> u64 {
    const RSP: usize = 6;
    // SAFETY: a buffer of eight words and more; the psABI's thread block has the mask of pointers at fs:0x30.
    unsafe {
        let guard: u64;
        std::arch::asm!("mov {}, qword ptr fs:[0x30]", out(reg) guard, options(pure, readonly, nostack));
        (*buffer.add(RSP)).rotate_right(17) ^ guard
    }
}

/// The way back from a signal handler, by the bytes that unwinders know it by where no table describes it. They
/// look at what lies before it too, which is why something does.
#[unsafe(naked)]
unsafe extern "C" fn way_back() {
    std::arch::naked_asm!("nop", ".byte 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0", "syscall")
}

/// Returns the address of the way back from a signal handler.
pub fn way_back_address() -> usize {
    way_back as *const () as usize + 1
}
