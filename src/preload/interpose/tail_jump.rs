//! The jump that interposers of calls end with: no frame of ours stays on the stack, and no argument moves.

/// The body of a naked function that asks `$target` where to go and goes there, with every argument as it
/// came. `$setup` loads the arguments of `$target`; the return address stands at `rsp + 56`.
macro_rules! tail_jump {
    ($target:path $(, $setup:literal)* $(; $name:ident = const $value:expr)?) => {
        std::arch::naked_asm!(
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "push rax",
            $($setup,)*
            "call {target}",
            "mov r11, rax",
            "pop rax",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "jmp r11",
            target = sym $target,
            $($name = const $value,)?
        )
    };
}
pub(crate) use tail_jump;
